"""The memory of a GPU that is not there: arrays between guards, which do not mix with those of the process."""

from __future__ import annotations

import ctypes
import threading
import weakref
from types import SimpleNamespace

import numpy as np

from ..needs import SANITIZED
from .streams import ENTERED

POISON = 0xFF  # of every byte of new memory: NaN as float32, -1 as an integer
GUARD, GUARD_BYTES = 0xA5, 4096

TAKEN = (np.einsum, np.zeros_like)  # functions that CuPy answers for its arrays, as far as they are needed


class Memory:
    """The memory of a "GPU": arrays between guards; `live`, `peak` and `capacity` are bytes."""

    def __init__(self, streams, capacity=1 << 40):
        self.allocated, self.capacity, self.peak, self.streams = 0, capacity, 0, streams
        self._blocks, self._lock = weakref.WeakValueDictionary(), threading.RLock()  # devices of several threads

    def _all(self):
        with self._lock:
            return list(self._blocks.values())

    @property
    def live(self):
        return sum(block.n_bytes for block in self._all())

    def empty(self, shape, dtype):
        """Return a new array."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.live + size > self.capacity:
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (allocated so far: {self.live:,} bytes).")
        block = _Block(size)
        with self._lock:
            self.allocated += 1
            self.peak = max(self.peak, self.live + size)
            self._blocks[self.allocated] = block
        self.streams.here()  # CuPy takes memory in the order of a stream
        host = np.frombuffer(block.raw, dtype, int(np.prod(shape)), block.first).reshape(shape)
        return DeviceArray(host, block, self.streams)

    def holds(self, address, size):
        """Return whether these bytes lie in one array."""
        return size == 0 or self.device_of(address, size) is not None

    def device_of(self, address, size=1):
        """Return the GPU of an array that holds these bytes, None where there is none."""
        return getattr(self.block_of(address, size), "device", None)

    def block_of(self, address, size=1):
        """Return the memory of an array that holds these bytes, None where there is none."""
        for block in self._all():
            first = block.raw.ctypes.data + block.first
            if first <= address and address + size <= first + block.n_bytes:
                return block
        return None

    def check(self, who):
        """Raise `RuntimeError` where `who` has written beside an array."""
        for block in self._all():
            if not block.intact():
                raise RuntimeError(f"{who} writes outside an array of {block.n_bytes} bytes")


class OutOfMemoryError(MemoryError):
    """What CuPy raises."""


def _forbid(address, size):
    """Let the address sanitizer report who reads or writes these bytes; NumPy may."""
    ctypes.CDLL(None).__asan_poison_memory_region(ctypes.c_void_p(address), ctypes.c_size_t(size))


class _Block:
    """The bytes of an array, from `first` on, with a guard on each side; lives as long as a view of them."""

    def __init__(self, n_bytes):
        self.device = ENTERED.devices[-1]
        self.raw = np.full(n_bytes + 2 * GUARD_BYTES + 64, GUARD, np.uint8)
        address, self.n_bytes = self.raw.ctypes.data, n_bytes
        self.first = GUARD_BYTES + -(address + GUARD_BYTES) % 64
        end = self.first + n_bytes
        self.raw[self.first : end] = POISON
        if SANITIZED:
            _forbid(address, self.first)
            _forbid(address + end, len(self.raw) - end)

    def intact(self):
        return (self.raw[: self.first] == GUARD).all() and (self.raw[self.first + self.n_bytes :] == GUARD).all()


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array in "GPU" memory: what CuPy's arrays have, as far as it is used; whatever else is asked for is missing.

    `host` is what lies there, for tests. Nothing turns it into an array of the process unasked, no such array takes
    part in its arithmetic, one element is still an array, and all work is on a stream that somebody has entered: on
    CuPy's own it would not wait for those of the devices.
    """

    def __init__(self, host, block, streams):
        self.host, self.block, self.streams = host, block, streams
        self.dtype, self.shape, self.size, self.ndim = host.dtype, host.shape, host.size, host.ndim
        self.strides, self.nbytes, self.flags = host.strides, host.nbytes, host.flags
        self.data = SimpleNamespace(ptr=host.ctypes.data)  # the address as CuPy gives it

    def _like(self, host):
        return DeviceArray(host, self.block, self.streams)

    def _place(self, host):
        made = self.streams.memory.empty(host.shape, host.dtype)
        made.host[...] = host
        return made

    def reshape(self, *shape):
        """Return a view of another shape."""
        reshaped = self.host.reshape(*shape)
        assert np.shares_memory(reshaped, self.host) or not self.size, "this would be a copy"
        return self._like(reshaped)

    def view(self, dtype):
        """Return the same bytes as another dtype."""
        return self._like(self.host.view(dtype))

    def copy(self):
        """Return a copy."""
        return self._work(self.host.copy)

    def sort(self, axis=-1):
        """Sort in place, on the current stream."""
        assert self.flags.c_contiguous, "CuPy sorts a copy of what is not contiguous"
        self.streams.here().do(lambda: self.host.sort(axis))

    def _work(self, compute):
        """Return what is computed at once, after all that the current stream has been given."""
        self.streams.here().synchronize()
        return self._place(np.asarray(compute()))

    def __len__(self):
        return len(self.host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        _check_key(key)
        found = self.host[key]
        return self._like(found if isinstance(found, np.ndarray) else self.host[(*_tuple(key), ...)])

    def __setitem__(self, key, value):
        _check_key(key)
        assert getattr(value, "block", self.block).device == self.block.device, "memory of another GPU"
        value = _operand(value, "assignment")
        self.streams.here().synchronize()
        self.host[key] = value

    def __float__(self):
        self.streams.here().synchronize()
        return float(self.host)

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, function, method, *inputs, out=None, **options):
        assert method == "__call__", f"{function.__name__}.{method} is not known to work in CuPy"
        assert not options, f"{function.__name__}: {options} are not known to work in CuPy"
        here = {array.block.device for array in (*inputs, *(out or ())) if isinstance(array, DeviceArray)}
        assert here == {self.streams.here().device}, "memory of another GPU"
        plain = [_operand(array, function.__name__) for array in inputs]
        if out is None:
            return self._work(lambda: function(*plain))
        (target,) = out
        self.streams.here().synchronize()
        function(*plain, out=target.host)
        return target

    def __array_function__(self, function, types, args, kwargs):
        if function not in TAKEN:
            raise TypeError(f"{function.__name__} is not known to work in CuPy")
        plain = [_operand(array, function.__name__) for array in args]
        return self._work(lambda: function(*plain, **kwargs))


def _tuple(key):
    return key if isinstance(key, tuple) else (key,)


def _check_key(key):
    """Raise `TypeError` for all indices but numbers, slices and new axes, which make views."""
    if not all(one is None or one is ... or isinstance(one, (slice, int, np.integer)) for one in _tuple(key)):
        raise TypeError(f"an array of the GPU is indexed by numbers and slices, got {key!r}")


def _operand(value, who):
    """Return what NumPy may compute with: an array of the "GPU", a number or a text; others do not mix with it."""
    if isinstance(value, DeviceArray):
        return value.host
    if isinstance(value, np.ndarray) or not isinstance(value, (bool, int, float, str, np.generic)):
        raise TypeError(f"{who}: an array of the process meets one of the GPU")
    return value
