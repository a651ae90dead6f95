"""Devices by name: `"cpu"` is the device of `xmlsgd.devices.cpu`; the folder is the registry.

A module or folder that is a device names its class as `DEVICE`; the others are what devices share. A class of which a
machine may have several devices, or none, has a method `at` that returns the maker of one by its index: `"cuda:1"`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from ..errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Device


def device_names() -> list[str]:
    """Return the names of the devices found in this folder; imports its modules."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if _device_class(module.name))


def get_device(name: str) -> Callable[..., Device]:
    """Return what makes the device of a name: a class, or one at an index; `DataError` where there is none."""
    kind, colon, index = str(name).partition(":")
    known = {module.name for module in pkgutil.iter_modules(__path__)}
    found = _device_class(kind) if kind in known else None
    at = getattr(found, "at", None)
    if found is not None and at is None and not colon:
        return found
    if at is not None and ((index.isascii() and index.isdigit()) or not colon):
        return at(int(index or 0))
    raise DataError(f"device must be one of {', '.join(device_names())}, got {name!r}")


def _device_class(module: str) -> Callable[..., Device] | None:
    return getattr(importlib.import_module(f"{__name__}.{module}"), "DEVICE", None)
