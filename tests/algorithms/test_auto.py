"""The choice of "auto", what becomes of the excluded, and one worker alone."""

from __future__ import annotations

import numpy as np
import pytest

from shared import toy
from xmlsgd.algorithms.auto import Auto
from xmlsgd.algorithms.base import Algorithm, Situation
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.errors import DataError
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train
from xmlsgd.training.messages import Sharing

EXCLUDED = 1.0, 1.0, 1e-3  # speeds of workers of which the last one is excluded


def test_auto_shares_one_memory_merges_over_several_and_trains_alone_with_one_worker():
    assert Auto(speeds=(1.0,)).sharing is Sharing.IN_PLACE
    assert "one worker" in Auto(speeds=(1.0,)).reason
    assert Auto(speeds=(1.0, 1.0)).sharing is Sharing.IN_PLACE
    assert Auto(speeds=(1.0, 0.1), one_memory=False).sharing is Sharing.REPLICAS


def test_auto_decides_or_passes_on_whatever_an_algorithm_may_be_asked():
    asked = {
        name
        for name, kind in vars(Algorithm).items()
        if (callable(kind) or isinstance(kind, property)) and not name.startswith("_")
    }
    assert asked >= {"weigh_rows", "deadline", "merge_due", "sharing", "trial"}
    assert asked <= vars(Auto).keys()


def test_auto_tells_the_chosen_algorithm_the_time_the_rows_left_and_that_others_write_meanwhile():
    algorithm = Auto(speeds=(1.0, 1.0), one_memory=False)
    algorithm.start([0, 1], 1000)
    algorithm.situation.now, algorithm.situation.left_rows, algorithm.situation.concurrent = 7.0, 500, True
    assert algorithm.chosen.situation == Situation(7.0, 500, True)
    assert Auto(speeds=(1.0, 1.0)).situation == Situation()


def test_auto_parks_a_worker_that_brings_less_than_it_costs_and_says_so():
    algorithm = Auto(speeds=(100.0, 100.0, 1.0), one_memory=False)
    algorithm.start([0, 1, 2], 1000)
    assert [bool(algorithm.batch_size(w)) for w in range(3)] == [True, True, False]
    assert "excluded" in algorithm.reason
    assert "2 (0.5%)" in algorithm.reason


def test_auto_says_so_too_where_parking_leaves_one_worker():
    algorithm = Auto(speeds=(100.0, 1.0))
    algorithm.start([0, 1], 1000)
    assert "one worker" in algorithm.reason
    assert "excluded, for they would bring below 2% of the rows: 1 (1.0%)" in algorithm.reason


@pytest.mark.parametrize("settings", [{}, {"one_memory": False}], ids=["shared", "replicas"])
def test_a_parked_worker_stands_in_while_all_others_are_away(settings):
    """They leave, one after the other, and the second is back when most is done."""
    away = [((0.05, np.inf),), ((0.07, 0.25),), ()]
    fleet = [VirtualDevice(0, 1e-3, absent=absent) for absent in away]

    class Looking(toy.Logged):
        def submit(self, step):
            if settings and step.worker == 2 and 2 not in [issued.worker for issued in self.of("issue")]:
                np.testing.assert_array_equal(self.table.params[3], self.center)
            super().submit(step)

    executor = Looking(toy.Quadratic(), fleet)
    data = toy.dataset(240)
    algorithm = Auto(10, 0.1, speeds=EXCLUDED, **settings)
    run = train(Job(data, toy.counting(data), SGD()), algorithm, executor, Schedule(2))
    assert [record["rows"] for record in run.records] == [240, 480]
    steps = [
        (at, what.worker) for (kind, what), at in zip(executor.log, executor.times, strict=True) if kind == "issue"
    ]
    by_excluded = [at for at, w in steps if w == 2]
    assert min(by_excluded) >= 0.07
    back = next(at for at, w in steps if w == 1 and at >= 0.25)
    assert max(by_excluded) <= back + 0.1, "excluded again"
    assert {w for at, w in steps if at > back + 0.1} == {1}


@pytest.mark.filterwarnings("ignore:worker . is lost")
@pytest.mark.parametrize("one_memory", [True, False])
def test_a_parked_process_stands_in_when_all_others_are_killed(one_memory):
    executor = Processes([toy.Marking] * 3, restarts=0, one_memory=one_memory)

    class Killing(Auto):
        def submitted(self, w, rows):
            super().submitted(w, rows)
            if w != 2 and self.situation.now:
                executor.pool.processes[w].process.kill()

    algorithm = Killing(10, 0.1, speeds=EXCLUDED, one_memory=one_memory)
    data = toy.dataset(240)
    run = train(Job(data, toy.counting(data), SGD()), algorithm, executor, Schedule(2))
    assert executor.workers == [2]
    assert [record["rows"] for record in run.records] == [240, 480]
    assert len(executor.failures) == 2


def test_auto_shares_one_model_though_only_one_of_several_workers_is_there_at_first():
    algorithm = Auto(speeds=(1.0, 1.0))
    algorithm.start([0], 1000)
    algorithm.joined(1)
    assert algorithm.batch_size(0) == algorithm.batch_size(1) == algorithm.batch


@pytest.mark.parametrize(("n_workers", "worth"), [(64, 0.02), (2, 0.9)])
def test_auto_parks_none_of_many_equal_workers(n_workers, worth):
    algorithm = Auto(speeds=(1.0,) * n_workers, worth=worth)
    assert algorithm.excluded == set()
    assert Auto(speeds=(*[1.0] * n_workers, 0.001 / n_workers)).excluded == {n_workers}


def test_of_several_workers_the_first_alive_trains_a_sequential_run():
    algorithm = Sequential(16, 0.1)
    algorithm.start([0, 1], 1000)
    assert [algorithm.batch_size(w) for w in (0, 1)] == [16, 0]
    algorithm.left(0)
    assert algorithm.batch_size(1) == 16


@pytest.mark.parametrize("numbers", [{"speeds": (1.0, 0.0)}, {"worth": 1.0}, {"worth": -0.1}])
def test_auto_refuses_numbers_that_cannot_be(numbers):
    with pytest.raises(DataError):
        Auto(**numbers)
