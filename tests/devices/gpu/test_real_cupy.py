"""CUDA that is not there refuses what the real one refuses, under the real CuPy: `python tests/real_cupy.py`."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from shared.needs import FAKE_CUDA
from xmlsgd.devices.cuda import CUDA
from xmlsgd.devices.cuda.nccl import Links
from xmlsgd.devices.cuda.runtime import CUDA_R_32F, DEVICE_TO_HOST
from xmlsgd.devices.cuda.sender import HOST_TO_DEVICE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not FAKE_CUDA, reason="CUDA is the real one, or none: python tests/real_cupy.py"),
]


@pytest.fixture
def run():
    runtime = CUDA().runtime
    with runtime.start():
        yield runtime


def copied(run, to, source, n_bytes, kind, stream=None):
    run.cupy.cuda.runtime.memcpyAsync(to, source, n_bytes, kind, run.stream.ptr if stream is None else stream)


def multiplied(run, lda=8, kind=CUDA_R_32F, handle=None):
    A, factors = run.empty((8, 8)), np.ones(2, np.float32)
    at = A.data.ptr
    run.cublas.gemmEx(
        run.new_handle() if handle is None else handle, 0, 0, 8, 8, 8, factors.ctypes.data, at, kind, lda, at, kind, 8,
        factors.ctypes.data + 4, at, CUDA_R_32F, 8, 68, -1,
    )  # fmt: skip


def gathered(run, source, threads=256, shared=0):
    rows, out = run.empty((4,), np.int32), run.empty((4, 8))
    kernel = run._kernels["gather_rows"]
    kernel((1,), (threads,), (source, rows, np.int32(4), np.int32(8), out), shared_mem=shared)


HOST = np.zeros(64, np.float32)
REFUSED = {
    "a copy from an address of the host as one of the GPU": lambda run: copied(
        run, HOST.ctypes.data, HOST.ctypes.data, 8, DEVICE_TO_HOST
    ),
    "a copy beyond the end of the memory": lambda run: copied(
        run, run.cupy.cuda.runtime.malloc(512), HOST.ctypes.data, 520, HOST_TO_DEVICE
    ),
    "a copy on a stream that nobody has made": lambda run: copied(
        run, run.empty((8,)).data.ptr, HOST.ctypes.data, 8, HOST_TO_DEVICE, 4096
    ),
    "work on the default stream": lambda run: copied(
        run, run.empty((8,)).data.ptr, HOST.ctypes.data, 8, HOST_TO_DEVICE, 0
    ),
    "memory that was never given": lambda run: run.cupy.cuda.runtime.free(HOST.ctypes.data),
    "more shared memory than a block has": lambda run: gathered(run, run.empty((4, 8)), shared=50_000),
    "more threads than a block has": lambda run: gathered(run, run.empty((4, 8)), threads=1056),
    "more threads than there are registers for": lambda run: run._kernels["product_weights"](
        (1,), (1024,), (run.empty((8,)),) * 20
    ),
    "a leading dimension less than a column": lambda run: multiplied(run, lda=7),
    "a product of different types": lambda run: multiplied(run, kind=2),
    "a handle of cuBLAS that nobody has made": lambda run: multiplied(run, handle=4096),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cuda_refuses_is_an_error(run, what):
    with pytest.raises(RuntimeError, match=r"cudaError|CUBLAS"):
        REFUSED[what](run)


def beside(run):
    run.other = other = run.cupy.cuda.Stream(non_blocking=True)  # which must outlive the capture
    run.stream.record(event := run.cupy.cuda.Event())
    other.wait_event(event)
    with other:
        run.cupy.cuda.runtime.memsetAsync(run.kept.data.ptr, 0, 8, other.ptr)


CAPTURED = {
    "waiting": lambda run: run.stream.synchronize(),
    "a copy of memory that is not pinned": lambda run: copied(
        run, run.kept.data.ptr, HOST.ctypes.data, 8, HOST_TO_DEVICE
    ),
    "waiting for what was before": lambda run: run.stream.wait_event(run.before),
    "memory that is given back": lambda run: run.cupy.cuda.runtime.free(run.cupy.cuda.runtime.malloc(512)),
    "a stream that is not waited for": beside,
}


@pytest.mark.parametrize("what", CAPTURED)
def test_what_a_graph_cannot_hold_ends_its_capture(run, what):
    run.kept, run.before = run.empty((8,)), run.cupy.cuda.Event()
    run.before.record(run.stream)
    run.stream.begin_capture()
    try:
        if what.startswith("a stream"):
            CAPTURED[what](run)
        else:
            with pytest.raises(RuntimeError, match="cudaError90"):
                CAPTURED[what](run)
    finally:
        with pytest.raises(RuntimeError, match=r"cudaError90[14]"):
            run.stream.end_capture()


def test_new_memory_is_not_a_number(run):
    assert np.isnan(run.fetch(run.empty((100,)))).all()


def test_memory_of_another_gpu_is_refused_by_a_library_and_by_the_stream_of_an_event(run):
    other = CUDA(index=1)
    with other.start():
        far = other.runtime.empty((8,))
    library = run.blas_library()
    handle = ctypes.c_void_p(run.new_handle())
    assert library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(far.data.ptr), ctypes.c_size_t(8)) != 0
    with pytest.raises(RuntimeError, match="cudaError400"):
        run.cupy.cuda.Event().record(other.runtime.stream)


def test_nccl_copies_between_gpus_and_refuses_memory_of_the_wrong_one():
    devices = [CUDA(index=index) for index in (0, 1)]
    here, there = (device.place(np.full(8, index, np.float32)) for index, device in enumerate(devices))
    links = Links(devices)
    links.bring([(1, there, here)])
    for device in devices:
        device.wait()
    np.testing.assert_array_equal(devices[0].fetch(here), 1)
    with pytest.raises(Exception, match="NCCL"):
        links.bring([(1, here, there)])
