"""How much memory a run will take, before it takes any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import MemoryEstimateError
from ..network import state_layout

if TYPE_CHECKING:
    from ..csr import CSR, Dataset
    from ..network import Network
    from ..optimizers import Optimizer

SHARE = 0.8  # of the limit that an estimate may take: the rest is for the interpreter, the kernels, other programs
CHUNK = 256  # labels a thread works on at a time


def estimate(
    dataset: Dataset, network: Network, optimizer: Optimizer, batch: int, n_threads: int, averaged: bool
) -> dict[str, int]:
    """Return the bytes of a training run by part, and their sum as "total".

    Data in memory maps count as zero: the system takes their pages back when it needs them. `average` is the second
    copy of the parameters that averaging keeps.
    """
    width, B = max(network.hidden), batch
    parts = {
        "parameters": 4 * network.layout.size,
        "optimizer_state": 4 * state_layout(network.layout, optimizer).size,
        "average": 4 * network.layout.size if averaged else 0,
        "data": sum(_resident(part) for part in (dataset.X, dataset.Y)),
        "buffers": n_threads * 4 * (2 * B * width + CHUNK * (B + 2 * width) + 8 * B)
        + 4 * network.n_features
        + 8 * dataset.n_rows
        + 24 * _largest_batch(dataset.X, B)
        + 4 * B * width * (2 + len(network.hidden)),
    }
    return {**parts, "total": sum(parts.values())}


def check(estimated: dict[str, int], network: Network) -> None:
    """Raise `MemoryEstimateError` with the parts, and what would fit, where they exceed 80 % of the limit."""
    limit = memory_limit()
    allowed = int(SHARE * limit)
    if estimated["total"] <= allowed:
        return
    model = estimated["parameters"] + estimated["optimizer_state"] + estimated["average"]
    width = int(max(network.hidden) * (allowed - estimated["total"] + model) / model)
    remedy = f"hidden_layer_sizes=({width},)" if width >= 1 else "a machine with more memory"
    parts = ", ".join(f"{name} {_readable(size)}" for name, size in estimated.items() if name != "total")
    raise MemoryEstimateError(
        f"training needs about {_readable(estimated['total'])} ({parts}), more than 80 % of {_readable(limit)}; about "
        f"{remedy} would fit, and optimizer='row_adagrad' or 'sgd' keep less state"
    )


def memory_limit() -> int:
    """Return the bytes that this process may use: the physical memory, or the limit of its control group."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []
    for file in _limit_files():
        text = _text_of(file).strip()
        if text.isdigit():
            limits.append(int(text))
    return min(limits, default=1 << 62)


def _limit_files() -> list[Path]:
    """Return the files that may hold a limit of our control group (version 2: and of those around it; version 1)."""
    root = Path("/sys/fs/cgroup")
    files = [root / "memory.max", root / "memory" / "memory.limit_in_bytes"]
    for line in _text_of(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::/"):
            own = root / line[4:]
            files += [folder / "memory.max" for folder in (own, *own.parents) if root in folder.parents]
    return files


def _text_of(file: Path) -> str:
    """Return the text of a file, nothing where it cannot be read."""
    try:
        return file.read_text()
    except OSError:
        return ""


def _resident(matrix: CSR) -> int:
    """Return the bytes of a CSR's arrays that are not memory maps."""
    return sum(array.nbytes for array in (matrix.indptr, matrix.indices, matrix.data) if not _is_mapped(array))


def _is_mapped(array: np.ndarray) -> bool:
    """Return whether an array, or the one it is a view of, is a memory map."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def _largest_batch(X: CSR, batch: int) -> int:
    """Return about how many entries a batch has: the mean, and half as much again."""
    return int(1.5 * batch * X.nnz / max(X.n_rows, 1))


def _readable(size: int) -> str:
    """Return bytes as text, "1.5 GB"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
