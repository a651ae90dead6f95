"""The CPU: Numba kernels over all threads, bfloat16 products where the processor has them.

`device`, and `search`, which it calls, say which kernels run on which buffers; `kernels/` are loops over arrays that
Numba compiles, those of samplers and candidates too; `intrinsics/` emits LLVM instructions.
"""

from __future__ import annotations

from .device import CPU, cpu_of

__all__ = ["CPU", "DEVICE", "cpu_of"]

DEVICE = CPU
