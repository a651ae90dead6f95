"""Sparse neural networks for extreme multi-label classification, trained by stochastic gradient descent.

Public names are imported from their modules when first used, so that `import xmlsgd` neither loads Numba nor
compiles a kernel (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .csr import CSR as CSR
    from .csr import Dataset as Dataset
    from .errors import DataError as DataError
    from .errors import DivergenceError as DivergenceError
    from .errors import MemoryEstimateError as MemoryEstimateError
    from .errors import ModelFileError as ModelFileError
    from .errors import WorkerDied as WorkerDied

__version__ = "0.1.0"

_NAMES_OF_MODULE = {
    "csr": ("CSR", "Dataset"),
    "errors": ("DataError", "DivergenceError", "MemoryEstimateError", "ModelFileError", "WorkerDied"),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}

__all__ = ["__version__", *_MODULE_OF_NAME]


def __getattr__(name: str) -> Any:
    """Import a public name from its module; later accesses do not come here."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF_NAME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not, beside what the module holds."""
    return sorted({*globals(), *__all__})
