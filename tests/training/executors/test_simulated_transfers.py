"""Simulated seconds of merges, pulls and pushes: those of their bytes."""

from __future__ import annotations

import pytest

from shared import light, toy
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.messages import Sharing


def test_norms_of_replicas_and_copies_of_the_center_take_the_time_of_their_bytes():
    executor = Simulated(toy.Reference(), toy.fleet(1, 1, 1), bandwidth=1e6)
    executor.start(Job(toy.learnable_data(40), toy.FITTING, SGD()), Sharing.REPLICAS)
    size = toy.FITTING.layout.size
    executor.norm(0)
    assert executor.merge_bytes == 4 * size
    executor.save_center("kept")
    assert executor.merge_bytes == 3 * 4 * size
    assert executor.merge_seconds == executor.now() == pytest.approx(3 * 4 * size / 1e6)
    assert executor.merges == 0


def test_the_norm_of_a_replica_that_has_diverged_is_infinite_and_warns_of_nothing():
    executor = Simulated(toy.Reference(), toy.fleet(1, 1))
    executor.start(Job(toy.learnable_data(40), toy.FITTING, SGD()), Sharing.REPLICAS)
    executor.shared.params[1] = 1e30
    assert executor.norm(0) == float("inf")


def seconds_of(algorithm, fleet, bandwidth, n_rows=40):
    """The seconds of an epoch of a toy model, and those of its pulls and pushes."""
    data = toy.dataset(n_rows)
    executor = Simulated(light.Marking(), fleet, bandwidth=bandwidth)
    run = train(Job(data, toy.counting(data), SGD()), algorithm, executor, Schedule(1))
    return run.records[0]["seconds"], executor.transfer_seconds


def test_a_worker_that_pulls_and_pushes_waits_for_its_bytes():
    """Center, copy and base at a pull; copy and center at a push when nobody else has written."""
    layout = toy.counting(toy.dataset(40)).layout
    floats = layout.size - 40 + 10  # of W0 only the ten rows of a batch travel
    seconds, transfers = seconds_of(Hogwild(10, 0.1, copies=True), toy.fleet(1), bandwidth=1e3)
    assert transfers == pytest.approx(4 * 4 * (3 + 2) * floats / 1e3)
    assert seconds == pytest.approx(40 * 1e-3 + transfers)


def test_the_coordinator_serves_one_worker_after_the_other():
    seconds, transfers = seconds_of(Hogwild(10, 0.1), toy.fleet(1, 1, 1, 1), bandwidth=1e3)
    assert transfers - 1e-5 < seconds < transfers + 0.02


def test_a_worker_that_writes_in_place_has_no_transfers_unless_it_steps_on_a_copy():
    fleet = toy.fleet(1, 1, in_place=True)
    assert seconds_of(Hogwild(10, 0.1), fleet, bandwidth=1e3) == (pytest.approx(0.02), 0)
    assert seconds_of(Hogwild(10, 0.1), toy.fleet(1), bandwidth=1e3) == (pytest.approx(0.04), 0), "nor who is alone"
    assert seconds_of(Hogwild(10, 0.1, copies=True), fleet, bandwidth=1e3)[1] > 1
