"""CUDA that is not there refuses what the real one refuses, under the real CuPy: `python tests/real_cupy.py`."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from shared.needs import FAKE_CUDA
from xmlsgd.devices.cuda import CUDA
from xmlsgd.devices.cuda.runtime import CUDA_R_16BF, CUDA_R_32F, DEVICE_TO_HOST, SHARED_LIMIT
from xmlsgd.devices.cuda.staging import HOST_TO_DEVICE
from xmlsgd.devices.cuda.tensor_map import encoded

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not FAKE_CUDA, reason="CUDA is the real one, or none: python tests/real_cupy.py"),
]


@pytest.fixture
def runtime():
    with (runtime := CUDA().runtime).start():
        yield runtime


def refusal(call, *arguments):
    """Return the name of the error of a call, None where there is none."""
    try:
        call(*arguments)
    except RuntimeError as error:
        return re.match(r"\w*", str(error)).group()
    return None


def copied(runtime, to, source, n_bytes, kind, stream=None):
    number = runtime.stream.ptr if stream is None else stream
    runtime.cupy.cuda.runtime.memcpyAsync(to, source, n_bytes, kind, number)


def multiplied(runtime, lda=8, types=(CUDA_R_32F, CUDA_R_32F), handle=None):
    A, factors, blas = runtime.empty((8, 8)), np.ones(2, np.float32), runtime.cublas
    at = A.data.ptr
    blas.gemmEx(
        runtime.new_handle() if handle is None else handle, 0, 0, 8, 8, 8, factors.ctypes.data, at, types[0], lda,
        at, types[1], 8, factors.ctypes.data + 4, at, CUDA_R_32F, 8, blas.CUBLAS_COMPUTE_32F, blas.CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip


def gathered(runtime, source, threads=256, shared=0):
    rows, out = runtime.empty((4,), np.int32), runtime.empty((4, 8))
    kernel = runtime._kernels["gather_rows"]
    kernel((1,), (threads,), (source, rows, np.int32(4), np.int32(8), out), shared_mem=shared)


HOST = np.zeros(64, np.float32)
INVALID_VALUE, INVALID_HANDLE, OUT_OF_RESOURCES = "cudaError1", "cudaError400", "cudaError701"
REFUSED = {
    "a copy from an address of the host as one of the GPU": (
        INVALID_VALUE,
        lambda runtime: copied(runtime, HOST.ctypes.data, HOST.ctypes.data, 8, DEVICE_TO_HOST),
    ),
    "a copy beyond the end of the memory": (
        INVALID_VALUE,
        lambda runtime: copied(runtime, runtime.cupy.cuda.runtime.malloc(512), HOST.ctypes.data, 520, HOST_TO_DEVICE),
    ),
    "a copy on a stream that nobody has made": (
        INVALID_HANDLE,
        lambda runtime: copied(runtime, runtime.empty((8,)).data.ptr, HOST.ctypes.data, 8, HOST_TO_DEVICE, 4096),
    ),
    "work on the default stream": (
        INVALID_HANDLE,
        lambda runtime: copied(runtime, runtime.empty((8,)).data.ptr, HOST.ctypes.data, 8, HOST_TO_DEVICE, 0),
    ),
    "memory that was never given": (INVALID_VALUE, lambda runtime: runtime.cupy.cuda.runtime.free(HOST.ctypes.data)),
    "more shared memory than a block has": (
        INVALID_VALUE,
        lambda runtime: gathered(runtime, runtime.empty((4, 8)), shared=50_000),
    ),
    "more shared memory than a block may ask for": (
        INVALID_VALUE,
        lambda runtime: runtime.allow_shared("gather_rows", 228 << 10),
    ),
    "more threads than a block has": (
        INVALID_VALUE,
        lambda runtime: gathered(runtime, runtime.empty((4, 8)), threads=1056),
    ),
    "more threads than there are registers for": (
        OUT_OF_RESOURCES,
        lambda runtime: runtime._kernels["product_weights"]((1,), (1024,), (runtime.empty((8,)),) * 20),
    ),
    "a leading dimension less than a column": (
        "CUBLAS_STATUS_INVALID_VALUE",
        lambda runtime: multiplied(runtime, lda=7),
    ),
    "a product of different types": (
        "CUBLAS_STATUS_NOT_SUPPORTED",
        lambda runtime: multiplied(runtime, types=(CUDA_R_32F, CUDA_R_16BF)),
    ),
    "a handle of cuBLAS that nobody has made": (
        "CUBLAS_STATUS_NOT_INITIALIZED",
        lambda runtime: multiplied(runtime, handle=4096),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cuda_refuses_is_its_error(runtime, what):
    error, call = REFUSED[what]
    assert refusal(call, runtime) == error


def test_shared_memory_that_a_kernel_declares_counts(runtime):
    code = """extern "C" __global__ void first(float *out) {
        __shared__ float all[8192];
        all[threadIdx.x] = out[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = all[0];
    }"""
    kernel, out = runtime.cupy.RawModule(code=code).get_function("first"), runtime.empty((32,))
    room = SHARED_LIMIT - 4 * 8192
    for shared, error in ((room, None), (room + 4, INVALID_VALUE)):
        assert refusal(lambda shared=shared: kernel((1,), (32,), (out,), shared_mem=shared)) == error


def test_a_copy_comes_at_once_or_as_late_as_waiting_allows(runtime):
    """By FAKE_LATE=1 it reads what the array holds when somebody waits; the real CUDA may do either."""
    pinned = np.frombuffer(runtime.cupy.cuda.alloc_pinned_memory(32), np.float32, 8)
    placed = runtime.empty((8,))
    pinned[:] = 1
    copied(runtime, placed.data.ptr, pinned.ctypes.data, 32, HOST_TO_DEVICE)
    pinned[:] = 2
    np.testing.assert_array_equal(runtime.to_host(placed), 2 if os.environ.get("FAKE_LATE") == "1" else 1)


def test_new_memory_is_not_a_number(runtime):
    assert np.isnan(runtime.to_host(runtime.empty((100,)))).all()


def test_the_stream_of_another_gpu_is_refused_by_an_event(runtime):
    assert refusal(runtime.cupy.cuda.Event().record, CUDA(index=1).runtime.stream) == INVALID_HANDLE


def test_a_map_of_more_than_an_array_is_refused(runtime):
    address = runtime.empty((64, 64), np.uint16).data.ptr
    encoded(None, address, (64, 8, 8), (128, 1024), (64, 2, 16))
    with pytest.raises(RuntimeError, match="cuTensorMapEncodeTiled: error 1 "):
        encoded(None, address, (64, 8, 999), (128, 1024), (64, 2, 16))
