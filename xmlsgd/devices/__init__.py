"""Find devices by name: the folder is the registry. The device "cpu" is the one of `xmlsgd.devices.cpu`.

A module or package that defines a device has its class as `DEVICE`; other modules are shared by devices. If a machine
may have several devices of a class, or none, the class has a method `at`, which takes the index of "cuda:1".
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from ..errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Device


def device_names() -> list[str]:
    """Return the names of the devices in this folder; imports its modules."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if device_class(module.name))


def get_device(name: str) -> Callable[..., Device]:
    """Return a function that makes the device of a name, such as "cpu" or "cuda:1"; `DataError` for an unknown name."""
    kind, colon, index = str(name).partition(":")
    known = {module.name for module in pkgutil.iter_modules(__path__)}
    found = device_class(kind) if kind in known else None
    at = getattr(found, "at", None)
    if found is not None and at is None and not colon:
        return found
    if at is not None and ((index.isascii() and index.isdigit()) or not colon):
        return at(int(index or 0))
    raise DataError(f"device must be one of {', '.join(device_names())}, got {name!r}")


def device_class(module: str) -> Any:
    """Return the class of the device that a module of this folder defines, None if it defines none."""
    return getattr(importlib.import_module(f"{__name__}.{module}"), "DEVICE", None)
