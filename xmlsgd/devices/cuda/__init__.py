"""NVIDIA GPUs through CuPy, which is imported when a device is made."""

from __future__ import annotations

from .device import CUDA

__all__ = ["CUDA", "DEVICE"]

DEVICE = CUDA
