"""The CPU: Numba kernels on all threads, with bfloat16 products if the processor has them.

`device`, and `search`, which it calls, run kernels on buffers; `kernels/` are loops over arrays that Numba compiles,
also those of candidates; `intrinsics/` emits LLVM instructions.
"""

from __future__ import annotations

from .device import CPU, cpu_of

__all__ = ["CPU", "DEVICE", "cpu_of"]

DEVICE = CPU
