"""Check that a GPU of this machine can be used, make its runtime, and return its free memory."""

from __future__ import annotations

import importlib.util

from ...errors import DataError
from .runtime import Runtime, free_bytes

INSTALL = 'pip install "xmlsgd[cuda12]" or "xmlsgd[cuda13]", by the CUDA version that nvidia-smi names'


def check_gpu(index: int) -> None:
    """Raise `DataError` if GPU `index` cannot be used; the message names what is missing."""
    if importlib.util.find_spec("cupy") is None:
        raise _unusable(index, "CuPy is not installed")
    try:
        import cupy

        get_count = cupy.cuda.runtime.getDeviceCount
    except Exception as error:
        raise _unusable(index, f"CuPy does not start ({_first_line(error)})") from error
    count, reason = 0, ""
    try:
        count = get_count()
    except Exception as error:  # noqa: BLE001  of any kind: the driver's, or of a library that it lacks
        reason = f" ({_first_line(error)})"
    if count == 0:
        raise _unusable(index, f"CuPy finds no GPU{reason}", "install NVIDIA's driver")
    if index >= count:
        known = f"'cuda:0' to 'cuda:{count - 1}'"
        raise DataError(f"device 'cuda:{index}': there are {count} GPUs, counted from 0; use {known}")


def _unusable(index: int, reason: str, remedy: str = INSTALL) -> DataError:
    return DataError(f"device 'cuda:{index}': {reason}; use 'cpu', or {remedy}")


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def runtime_of(index: int, precision: str) -> Runtime:
    """Return the runtime of a GPU; raise `DataError` if there is no GPU, or no cuBLAS, which CuPy loads last."""
    check_gpu(index)
    import cupy

    try:
        from cupy_backends.cuda.libs import cublas
    except ImportError as error:
        raise _unusable(index, f"CuPy finds no cuBLAS ({_first_line(error)})") from error
    return Runtime(cupy, cublas, index, precision)


def free_bytes_of(index: int) -> int:
    """Return the free memory of GPU `index`; raise `DataError` if there is no such GPU."""
    check_gpu(index)
    import cupy

    with cupy.cuda.Device(index):
        return free_bytes(cupy)
