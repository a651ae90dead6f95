"""The stand-in for a GPU refuses what CuPy refuses, or would do otherwise than NumPy."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER

pytestmark = NEEDS_COMPILER


@pytest.fixture
def runtime():
    return shim_device("float32").runtime


def test_a_kernel_that_writes_more_shared_memory_than_it_asked_for_is_refused(runtime):
    with runtime.start():
        keys = runtime.to_device(np.arange(8, dtype=np.uint64).reshape(2, 4))
        with pytest.raises(RuntimeError, match="more shared memory is written than was asked for"):
            runtime.launch("sort_rows", 2, keys, 4, 4, shared=24)
        runtime.launch("sort_rows", 2, keys, 4, 4, shared=32)
        np.testing.assert_array_equal(runtime.to_host(keys), [[3, 2, 1, 0], [7, 6, 5, 4]])


def test_a_cluster_is_whole_and_a_kernel_asks_before_it_has_more_shared_memory():
    runtime = shim_device("bfloat16").runtime
    parameters = runtime.parameters["hopper_exponentials"]
    with runtime.start():
        arguments = [runtime.empty((64,), p.dtype) if p.is_pointer else 0 for p in parameters]
        with pytest.raises(RuntimeError, match="a launch that no GPU takes"):
            runtime.launch("hopper_exponentials", (3, 1), *arguments, threads=384)
        with pytest.raises(AssertionError, match="more shared memory than a block has"):
            runtime._kernels["drop"]((1, 1), (32,), (), shared_mem=60_000)
        runtime.allow_shared("hopper_exponentials", 228 << 10)
        with pytest.raises(AssertionError, match="more shared memory than a block has"):
            runtime.launch("hopper_exponentials", (2, 1), *arguments, threads=384)


REFUSED = {
    "a conversion to NumPy": lambda x: np.asarray(x),
    "a function of NumPy that nobody has tried": lambda x: np.linalg.norm(x),
    "arithmetic with an array of the process": lambda x: x + np.ones(4, np.float32),
    "assignment from an array of the process": lambda x: x.__setitem__(slice(None), np.ones(4, np.float32)),
    "an index that copies": lambda x: x[np.array([1, 2])],
    "a mask": lambda x: x[x > 0],
}


@pytest.mark.parametrize("what", REFUSED)
def test_arrays_of_the_gpu_do_not_become_those_of_the_process(runtime, what):
    with runtime.start():
        x = runtime.to_device(np.ones(4, np.float32))
        with pytest.raises(TypeError):
            REFUSED[what](x)
    with pytest.raises(AttributeError):
        x.tolist()


def test_an_element_is_an_array_that_becomes_a_number_when_asked(runtime):
    with runtime.start():
        x = runtime.to_device(np.arange(4, dtype=np.float32))
        assert (x[2].shape, float(x[2])) == ((), 2.0)
        assert float(0.5 + np.float32(2) * x[3] * 2) == 12.5
        assert [float(one) for one in x] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "work",
    [
        lambda run, x: x * 2, lambda run, x: x.copy(), lambda run, x: x.sort(), lambda run, x: run.empty((3,)),
        lambda run, x: run.launch("drop", 1, x, 4, 0, 0, 1.0), lambda run, x: run.gemm(x, x, x),
        lambda run, x: x.__setitem__(slice(2), 0), lambda run, x: float(x[0, 0]),
    ],
)  # fmt: skip
def test_work_on_no_stream_of_the_device_is_refused(runtime, work):
    with runtime.start():
        x = runtime.to_device(np.ones((4, 4), np.float32))
        work(runtime, x)
    with pytest.raises(RuntimeError, match="on no stream"):
        work(runtime, x)


@pytest.mark.parametrize(
    ("grid", "block", "arguments", "shared"),
    [
        ([1, 1], (32,), (), 0), ((1, 1), 32, (), 0), ((1, 1), (33,), (), 0), ((1, 1), (1056,), (), 0),
        ((0, 1), (32,), (), 0), ((1, 70_000), (32,), (), 0), ((1, 1), (32,), (), 50_000), ((1, 1), (32,), [1], 0),
        ((1, 1), (32,), (1,), 0), ((1, 1), (32,), (1.0,), 0), ((1, 1), (32,), (np.ones(2, np.float32),), 0),
    ],
)  # fmt: skip
def test_a_launch_that_cuda_would_refuse_or_misread_is_refused(runtime, grid, block, arguments, shared):
    with runtime.start(), pytest.raises(AssertionError):
        runtime._kernels["drop"](grid, block, arguments, shared_mem=shared)


def test_copies_say_from_where_to_where(runtime):
    host = np.ones(4, np.float32)
    with runtime.start():
        there = runtime.to_device(host)
        for kind in (2, 3):
            with pytest.raises(AssertionError, match="cudaMemcpyKind"):
                runtime.copy(there.data.ptr, host.ctypes.data, 16, kind, runtime.stream)
        with pytest.raises(AssertionError, match="cudaMemcpyKind"):
            runtime.copy(there.data.ptr, host.ctypes.data, 17, 1, runtime.stream)


def test_a_device_gives_back_what_cublas_has_taken_for_it():
    device = shim_device("float32")
    handles = device.runtime.cublas.handles
    assert len(handles) == 1
    del device
    gc.collect()
    assert not handles


def test_a_matrix_with_gaps_is_copied_as_it_reads(runtime):
    host = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    with runtime.start():
        np.testing.assert_array_equal(runtime.to_host(runtime.to_device(host)), host)
