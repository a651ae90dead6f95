"""Replicas on several GPUs meet on one of them, over NCCL, by the rules of the CPU; the GPUs are those of the shim."""

from __future__ import annotations

import numpy as np
import pytest

from shared.fake_gpu.shim import device_of, fake_cupy
from shared.needs import NEEDS_COMPILER
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.devices.cuda.nccl import Links
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.on_device import DeviceMerger
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train

pytestmark = NEEDS_COMPILER


class LinkedSerial(Serial):
    """Workers in turn, so that two runs are one; they merge as those of threads do."""

    nccl = True


def test_replicas_on_two_gpus_are_merged_as_those_of_the_reference(dataset, network, algorithm):
    cupy = fake_cupy()
    devices = [device_of(cupy, index, "float32") for index in (1, 0, 1)]
    runs = []
    for executor in (LinkedSerial(devices), Serial([Reference() for _ in range(3)])):
        runs.append(train(Job(dataset, network, SGD()), algorithm, executor, Schedule(2)))
        assert isinstance(executor.merger, DeviceMerger) is isinstance(executor, LinkedSerial)
    np.testing.assert_allclose(runs[0].params, runs[1].params, rtol=0, atol=2e-5)
    assert cupy.cuda.nccl.moved > 2 * 4 * network.layout.size, "there and back"


def test_threads_on_two_gpus_merge_over_nccl_where_they_are_told_to(dataset, network):
    for nccl in (True, False):
        cupy = fake_cupy()
        executor = Threads([device_of(cupy, index, "float32") for index in (0, 1)], nccl=nccl)
        run = train(Job(dataset, network, SGD()), Synchronous(16, 0.02), executor, Schedule(2))
        assert np.isfinite(run.params).all()
        assert (cupy.cuda.nccl.moved > 0) is executor.merger.on_device is nccl


def test_without_nccl_it_is_said_what_is_missing():
    cupy = fake_cupy()
    cupy.cuda.nccl.available = False
    with pytest.raises(DataError, match=r"^devices: CuPy finds no NCCL to link GPUs; pip install nvidia-nccl-cu12 or"):
        Links([device_of(cupy, index, "float32") for index in (0, 1)])


def test_memory_of_another_gpu_is_refused_by_kernels_and_by_arithmetic():
    cupy = fake_cupy()
    here, there = (device_of(cupy, index, "float32").runtime for index in (0, 1))
    with there.start():
        x = there.place(np.ones(4, np.float32))
    with here.start():
        y = here.place(np.ones(4, np.float32))
        for work in (lambda: here.launch("drop", 1, x, 4, 0, 0, 1.0), lambda: x + y, lambda: y.__setitem__(..., x)):
            with pytest.raises(AssertionError, match="memory of another GPU"):
                work()
