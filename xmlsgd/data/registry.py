"""Parts and formats by name: the loss `"bce"` is `LOSS` of module `losses.bce`; the folder is the registry.

A module of any folder on the package's `__path__` counts, so that users may add folders of theirs. `base` is no part.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any

from ..errors import DataError


def part_names(package: str) -> list[str]:
    """Return the names of the modules of a package, sorted; none is imported."""
    return sorted({module.name for module in pkgutil.iter_modules(sys.modules[package].__path__)} - {"base"})


def find_part(package: str, kind: str, name: Any, constant: str, or_else: str = "") -> Any:
    """Return what the module `name` of a package calls `constant`.

    Raises `DataError` for an unknown name, with the names that there are, and for a module that lacks the constant.
    """
    module = sys.modules.get(f"{package}.{name}") if isinstance(name, str) and name != "base" else None
    if module is None or not hasattr(module, constant):  # another thread may be importing it: wait for that
        from .validation import check_choice  # here: the help of the command line needs no NumPy

        check_choice(kind, name, part_names(package), or_else)
        module = importlib.import_module(f"{package}.{name}")
    if not hasattr(module, constant):
        raise DataError(f"{kind} {name!r}: {module.__file__} does not define {constant}; see CONTRIBUTING.md")
    return getattr(module, constant)
