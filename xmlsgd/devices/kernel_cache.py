"""Numba's cache of compiled kernels, thrown away when any source that went into them has changed.

Numba compares a cached kernel with the file that defines it, not with the files whose functions and constants it
compiled in (numba issue 6845 is of this kind), nor with what the processor was found to do.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from . import avx512, bf16, cpu_input, cpu_output, cpu_rows, cpu_topk

PACKAGE = Path(__file__).parents[1]
SOURCES = (
    *(
        PACKAGE / "devices" / f"{name}.py"
        for name in ("avx512", "bf16", "cpu_input", "cpu_output", "cpu_rows", "cpu_topk")
    ),
    PACKAGE / "losses.py",
    PACKAGE / "optimizers.py",
)
MODULES = (cpu_input, cpu_output, cpu_rows, cpu_topk)


def cache_folders() -> set[Path]:
    """Return the folders where Numba keeps these kernels."""
    kernels = [value for module in MODULES for value in vars(module).values() if hasattr(value, "stats")]
    return {Path(kernel.stats.cache_path) for kernel in kernels if kernel.stats.cache_path}


def cached_kernels(folder: Path) -> list[Path]:
    """Return the cache files of these kernels in a folder."""
    return [file for module in MODULES for file in folder.glob(f"{module.__name__.rpartition('.')[2]}.*.nb[ic]")]


def refresh() -> None:
    """Remove kernels that were compiled from other sources; before the first call of any. A read-only cache stays."""
    digest = hashlib.sha256(repr((bf16.HAS_AMX, bf16.HAS_AVX512_BF16, avx512.HAS_AVX512)).encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    stamp = digest.hexdigest()
    for folder in cache_folders():
        noted = folder / "xmlsgd-kernels.txt"
        with contextlib.suppress(OSError):
            if noted.is_file() and noted.read_text() == stamp:
                continue
            for file in cached_kernels(folder):
                file.unlink(missing_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            noted.write_text(stamp)
