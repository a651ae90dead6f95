"""Replicas on one GPU are merged there, by the rules of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.merging import MergeRule
from xmlsgd.training.messages import Sharing, Span
from xmlsgd.training.simulation import Experiment, simulate


def test_replicas_on_the_gpu_are_merged_as_those_of_the_reference(make, dataset, network, algorithm):
    runs = []
    for devices in ([make("float32") for _ in range(3)], [Reference() for _ in range(3)]):
        executor = Serial(devices)
        runs.append(train(Job(dataset, network, SGD()), algorithm, executor, Schedule(2)))
        assert executor.merger.on_device == (devices[0].memory is not None)
        assert executor.merges >= 2
    np.testing.assert_allclose(runs[0].params, runs[1].params, rtol=0, atol=2e-5)


@NEEDS_COMPILER
def test_replicas_stay_on_the_gpu_from_merge_to_merge(dataset, network, monkeypatch):
    copied = []
    devices = [shim_device("float32") for _ in range(2)]
    for device in devices:
        for name in ("to_host", "copy_to_device"):
            monkeypatch.setattr(device, name, lambda *both, name=name: copied.append(name))
    train(Job(dataset, network, SGD()), Synchronous(16, 0.02), Serial(devices), Schedule(2))
    assert copied == ["to_host", "to_host"] * 2, "state and model of both for the result, and nothing before"


@NEEDS_COMPILER
@pytest.mark.parametrize("executor", [Serial, Threads])
def test_replicas_in_different_memories_meet_in_that_of_the_process(dataset, network, executor):
    run = executor([shim_device("float32"), Reference()])
    train(Job(dataset, network, SGD()), Synchronous(16, 0.02), run, Schedule(1))
    assert not run.merger.on_device


@NEEDS_COMPILER
def test_curves_of_simulated_runs_follow_the_center_on_the_gpu(dataset, network):
    """Also between two ends of epochs, when nothing else asks for it."""
    curves = []
    for device in (shim_device("float32"), Reference()):
        job = Job(dataset, network, SGD())
        experiment = Experiment(job, Schedule(1), device, lambda flat: {"sum": float(flat.sum())}, points=3)
        with device.start():
            outcome = simulate(experiment, Synchronous(16, 0.02), [VirtualDevice()] * 2)
        curves.append([point["sum"] for point in outcome.curve])
    assert curves[0] == pytest.approx(curves[1], abs=1e-3)
    assert len(set(curves[1])) == 3


@NEEDS_COMPILER
def test_what_is_set_aside_and_a_merge_state_are_those_of_the_center_on_the_gpu(dataset, network):
    executor = Serial([shim_device("float32") for _ in range(2)])
    executor.start(Job(dataset, network, SGD()), Sharing.REPLICAS)

    def moved():
        """Return by how much the output layer of the center, zeros at first, has moved; by the same everywhere."""
        (value,) = np.unique(network.layout.views(executor.center)["W1"])
        return value

    @MergeRule
    def move(params):
        params.center += np.float32(1)
        params.broadcast()

    @MergeRule
    def from_state(params):
        params.center[:] = params.state("kept")

    executor.merge(move, [0, 1])
    executor.save_snapshot()
    executor.save_center("kept")
    for w in (0, 1):
        executor.submit(Span(w, 0, 0, 16, 0.1))
        executor.wait()
    executor.merge(move, [0])
    assert moved() == 2, "steps of replicas have not moved it"
    executor.merge(from_state, [0, 1])
    assert moved() == 1
    executor.merge(move, [0, 1])
    executor.restore_snapshot()
    assert moved() == 1
    assert executor.norm(0) == pytest.approx(np.linalg.norm(executor.center) / len(executor.center), rel=1e-6)
    executor.merge(move, [1])
    assert moved() == 2
    executor.close()
