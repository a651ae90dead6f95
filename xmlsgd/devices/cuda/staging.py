"""Staging buffers: pinned memory through which arrays are copied to a GPU, while kernels run the step before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .runtime import Runtime

SLOTS = 4  # one is written while kernels read another; `hyper` goes several times a step
GROWTH = 1.25  # of a buffer that is somewhat too small, so that batches of growing size do not allocate each time
HOST_TO_DEVICE = 1  # cudaMemcpyKind


class StagingRing:
    """A ring of staging buffers, pinned ones and their copies on the GPU, with a stream for the copies.

    A pinned buffer is reused when its last copy is complete, a copy on the GPU when the kernels that read it are done.
    The next call records this event on the main stream: by then all these kernels are launched there, or kernels there
    wait for them. The runtime is an argument, not an attribute: the runtime has the rings, and a cycle would leave its
    GPU memory to the garbage collector.
    """

    def __init__(self, cupy: Any) -> None:
        self._turn, self._slots = 0, [_StagingBuffer(cupy) for _ in range(SLOTS)]

    def upload(self, runtime: Runtime, arrays: tuple[np.ndarray, ...]) -> Any:
        """Return the arrays, of one dtype, one after another on the GPU."""
        dtype, size = arrays[0].dtype, sum(array.size for array in arrays)
        self._slots[self._turn].read.record(runtime.stream)
        self._turn = (self._turn + 1) % SLOTS
        slot = self._slots[self._turn]
        slot.copied.synchronize()
        slot.reserve(runtime, size * dtype.itemsize)
        at = 0
        for array in arrays:
            slot.pinned[at : at + array.nbytes].view(dtype)[:] = array.reshape(-1)
            at += array.nbytes
        runtime.copies.wait_event(slot.read)
        runtime.copy(slot.on_gpu.data.ptr, slot.pinned.ctypes.data, at, HOST_TO_DEVICE, runtime.copies)
        slot.copied.record(runtime.copies)
        runtime.stream.wait_event(slot.copied)
        return slot.on_gpu[:at].view(dtype)


class _StagingBuffer:
    """Pinned memory and as much on the GPU, with events: the copy is complete, and kernels have read it."""

    def __init__(self, cupy: Any) -> None:
        self.copied, self.read = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
        self.pinned = np.empty(0, np.uint8)
        self.on_gpu: Any = None

    def reserve(self, runtime: Runtime, n_bytes: int) -> None:
        """Grow both to at least `n_bytes`."""
        if self.on_gpu is None or self.pinned.nbytes < n_bytes:
            room = max(int(GROWTH * n_bytes), 1)
            # Both or neither: without memory for the second, the first must not say that there is room.
            self.pinned, self.on_gpu = runtime.pinned(room, np.uint8), runtime.empty((room,), np.uint8)
            self.read.record(runtime.stream)  # kernels may still read the memory that it had before
