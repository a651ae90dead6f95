"""All kernels of the CPU, and their files in Numba's cache, from which stale ones are removed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from pathlib import Path
from typing import Any

from . import kernels as kernel_modules
from .compiling import STAMP, Kernel
from .kernels.loss_and_update import PARTS_STAMP

MODULES = sorted(found.name for found in pkgutil.iter_modules(kernel_modules.__path__))


def kernels() -> list[Kernel]:
    """Return all kernels of the CPU; imports their modules."""
    modules = [importlib.import_module(f"{kernel_modules.__name__}.{name}") for name in MODULES]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Kernel)]


def all_forms() -> list[Any]:
    """Return the compiled forms of all kernels (`Kernel.forms`)."""
    return [form for kernel in kernels() for form in kernel.forms]


def cache_folders() -> set[Path]:
    """Return the folders where Numba keeps these kernels."""
    paths = [form.stats.cache_path for form in all_forms()]
    return {Path(path) for path in paths if path}


@functools.cache
def remove_stale() -> None:
    """Remove kernels that were compiled from other sources. Files that cannot be removed stay, but are never used.

    Only the first call in a process does that, as looking at all files takes milliseconds.
    """
    for folder in cache_folders():
        with contextlib.suppress(OSError):
            for file in folder.glob("*.nb[ic]"):
                ours = file.name.partition(".")[0] in MODULES
                if ours and not (STAMP in file.name or PARTS_STAMP in file.name):
                    file.unlink(missing_ok=True)
