"""What goes to a GPU every step: through pinned memory, on a stream of its own, while kernels do the step before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .runtime import Runtime

SLOTS = 4  # one is written while kernels read another; `hyper` goes several times a step
GROWTH = 1.25  # of a buffer that is somewhat too small, so that batches of growing size do not allocate each time
HOST_TO_DEVICE = 1  # cudaMemcpyKind


class Sender:
    """Slots, pinned ones and their copies on the GPU, through which arrays go in turn, on a stream of their own.

    A pinned slot is written again when its last copy has been made, a copy when the kernels that read it are done; they
    have all been launched by the next call. The runtime, which has the senders, is an argument: a cycle would leave it,
    and what it holds of the GPU, to the garbage collector.
    """

    def __init__(self, cupy: Any) -> None:
        self._turn, self._slots = 0, [_Slot(cupy) for _ in range(SLOTS)]

    def send(self, runtime: Runtime, arrays: tuple[np.ndarray, ...]) -> Any:
        """Return the arrays, of one dtype, one after another on the GPU."""
        dtype, size = arrays[0].dtype, sum(array.size for array in arrays)
        self._slots[self._turn].read.record(runtime.stream)
        self._turn = (self._turn + 1) % SLOTS
        slot = self._slots[self._turn]
        slot.copied.synchronize()
        slot.fit(runtime, size * dtype.itemsize)
        at = 0
        for array in arrays:
            slot.pinned[at : at + array.nbytes].view(dtype)[:] = array.reshape(-1)
            at += array.nbytes
        runtime.copies.wait_event(slot.read)
        runtime.copy(slot.placed.data.ptr, slot.pinned.ctypes.data, at, HOST_TO_DEVICE, runtime.copies)
        slot.copied.record(runtime.copies)
        runtime.stream.wait_event(slot.copied)
        return slot.placed[:at].view(dtype)


class _Slot:
    """Pinned memory and as much on the GPU, with events: when the copy was made, and when it had been read."""

    def __init__(self, cupy: Any) -> None:
        self.copied, self.read = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
        self.pinned = np.empty(0, np.uint8)
        self.placed: Any = None

    def fit(self, runtime: Runtime, n_bytes: int) -> None:
        """Make room for `n_bytes`."""
        if self.placed is None or self.pinned.nbytes < n_bytes:
            room = max(int(GROWTH * n_bytes), 1)
            self.pinned = np.frombuffer(runtime.cupy.cuda.alloc_pinned_memory(room), np.uint8, room)
            self.placed = runtime.empty((len(self.pinned),), np.uint8)
            self.read.record(runtime.stream)  # what it was before may still be read
