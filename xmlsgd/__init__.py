"""Extreme multi-label classification by nearest neighbors, linear classifiers and sparse neural networks.

Public names are those of the stub `__init__.pyi`. They are imported from their modules when first used, so that
`import xmlsgd` neither loads Numba nor compiles a kernel (PEP 562).
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_MODULE_OF_NAME = {
    each.name: f".{node.module}" for node in _STUB.body if isinstance(node, ast.ImportFrom) for each in node.names
}

__all__ = [*_MODULE_OF_NAME, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module; later accesses do not come here."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF_NAME[name], __name__), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not, beside what the package holds."""
    return sorted({*globals(), *_MODULE_OF_NAME})
