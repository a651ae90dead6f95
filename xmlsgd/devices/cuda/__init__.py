"""A GPU: kernels of `kernels.cu` and `products.cu`, matrix products by cuBLAS. CuPy is imported late."""

from __future__ import annotations

from .device import CUDA, SOFTMAX_FORMS

__all__ = ["CUDA", "DEVICE", "SOFTMAX_FORMS"]

DEVICE = CUDA
