"""Devices by name: `"cpu"` is the device of `xmlsgd.devices.cpu`; the folder is the registry.

A module that is a device names its class as `DEVICE`; the others hold kernels.
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
    """Return the class of the device of a name."""
    known = {module.name for module in pkgutil.iter_modules(__path__)}
    found = _device_class(name) if name in known else None
    if found is not None:
        return found
    there_are = ", ".join(device_names())
    if isinstance(name, str) and name.partition(":")[0] == "cuda":
        raise DataError(f"device {name!r}: training on GPUs is not there yet; use one of {there_are}")
    raise DataError(f"device must be one of {there_are}, got {name!r}")


def _device_class(module: str) -> Callable[..., Device] | None:
    return getattr(importlib.import_module(f"{__name__}.{module}"), "DEVICE", None)
