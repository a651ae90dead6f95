"""Find parts and formats by name: the folder is the registry. The loss "bce" is `LOSS` of the module `losses.bce`.

All folders on the `__path__` of a package are searched, so that users may add folders of their own. `base` is no part.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any

from ..errors import DataError


def part_names(package: str) -> list[str]:
    """Return the names of the modules of a package, sorted, without importing them."""
    return sorted({module.name for module in pkgutil.iter_modules(sys.modules[package].__path__)} - {"base"})


def find_part(package: str, kind: str, name: Any, constant: str, or_else: str = "") -> Any:
    """Return the value of `constant` in the module `name` of a package.

    Raises `DataError` for an unknown name, with the known ones, and for a module without the constant. kind, or_else :
    texts for this error.
    """
    module = sys.modules.get(f"{package}.{name}") if isinstance(name, str) and name != "base" else None
    if module is None or not hasattr(module, constant):  # or another thread is importing it: `import_module` waits
        from .validation import check_choice  # here: the help of the command line needs no NumPy

        check_choice(kind, name, part_names(package), or_else)
        module = importlib.import_module(f"{package}.{name}")
    if not hasattr(module, constant):
        raise DataError(f"{kind} {name!r}: {module.__file__} does not define {constant}; see CONTRIBUTING.md")
    return getattr(module, constant)
