"""Two emulated GPUs, each in its own process, learn what the reference does; their replicas meet in host memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.devices.reference import Reference
from xmlsgd.estimators.workers import Worker, executor_of
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train


@NEEDS_COMPILER
def test_two_gpus_in_two_processes_learn_what_the_reference_does(dataset, network):
    job, algorithm = Job(dataset, network, Adam()), Synchronous(16, 0.02)
    gpus = Processes([partial(shim_device, "float32")] * 2, shares_memory=[False, False])
    found = train(job, algorithm, gpus, Schedule(2))
    expected = train(job, algorithm, Serial([Reference(), Reference()]), Schedule(2))
    np.testing.assert_allclose(found.params, expected.params, rtol=0, atol=2e-4)
    assert found.updates == expected.updates


def test_gpus_are_processes_where_each_has_one_learner(monkeypatch):
    monkeypatch.setattr("xmlsgd.estimators.workers.get_device", lambda name: lambda n_threads, precision: Reference())
    for names, kind in (
        (("cuda:0", "cuda:1"), Processes),
        (("cuda:0", "cuda:0"), Threads),
        (("cuda:0", "cuda:1", "cuda:1"), Threads),
    ):
        workers = [Worker("cuda", 1, name) for name in names]
        assert type(executor_of(workers, Reference(), "float32")) is kind
