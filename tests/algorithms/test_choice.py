"""The choice of "auto", excluded workers that stand in for others, and one worker alone."""

from __future__ import annotations

import numpy as np
import pytest

from shared import toy
from xmlsgd.algorithms import choose_algorithm, get_algorithm
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.errors import DataError
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train

EXCLUDED = 1.0, 1.0, 1e-3  # speeds of workers of which the last one is excluded


def chosen(*speeds, **settings):
    return choose_algorithm(10, 0.1, speeds, **settings)


def test_one_worker_trains_alone_one_memory_is_shared_and_replicas_are_merged_over_several():
    assert isinstance(chosen(1.0), Sequential)
    assert "one worker" in chosen(1.0).reason
    assert isinstance(chosen(1.0, 1.0), Hogwild)
    assert isinstance(chosen(1.0, 0.1, one_memory=False), LocalSGD)
    assert (chosen(1.0).batch, chosen(1.0).learning_rate) == (10, 0.1)


def test_auto_by_name_is_the_choice_for_the_speeds_that_are_given():
    assert isinstance(get_algorithm("auto", 10, 0.1), Sequential)
    assert isinstance(get_algorithm("auto", 10, 0.1, (1.0, 1.0), one_memory=False), LocalSGD)


def test_a_worker_that_brings_less_than_it_costs_is_excluded_and_this_is_said():
    algorithm = chosen(100.0, 100.0, 1.0, one_memory=False)
    assert algorithm.excluded == {2}
    assert "excluded" in algorithm.reason
    assert "2 (0.5%)" in algorithm.reason


def test_it_is_said_too_where_one_worker_is_left():
    algorithm = chosen(100.0, 1.0)
    assert "one worker" in algorithm.reason
    assert "excluded, for they would bring below 2% of the rows: 1 (1.0%)" in algorithm.reason


@pytest.mark.parametrize("settings", [{}, {"one_memory": False}], ids=["shared", "replicas"])
def test_an_excluded_worker_stands_in_while_all_others_are_away(settings):
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
    run = train(Job(data, toy.counting(data), SGD()), chosen(*EXCLUDED, **settings), executor, Schedule(2))
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
@pytest.mark.parametrize("kind", [Hogwild, LocalSGD])
def test_an_excluded_process_stands_in_when_all_others_are_killed(kind):
    executor = Processes([toy.Marking] * 3, restarts=0, shares_memory=[kind is Hogwild] * 3)

    class Killing(kind):
        excluded = frozenset({2})

        def submitted(self, w, rows, now):
            super().submitted(w, rows, now)
            if w != 2 and self.begun:
                executor.pool.processes[w].process.kill()
            self.begun = True

        begun = False

    data = toy.dataset(240)
    run = train(Job(data, toy.counting(data), SGD()), Killing(10, 0.1), executor, Schedule(2))
    assert executor.workers == [2]
    assert [record["rows"] for record in run.records] == [240, 480]
    assert len(executor.failures) == 2


def test_one_model_is_shared_though_only_one_of_several_workers_is_there_at_first():
    algorithm = chosen(1.0, 1.0)
    algorithm.start([0], 1000)
    algorithm.joined(1)
    assert algorithm.batch_size(0, 0.0) == algorithm.batch_size(1, 0.0) == algorithm.batch


@pytest.mark.parametrize("n_workers", [2, 64])
def test_none_of_many_equal_workers_is_excluded(n_workers):
    assert chosen(*[1.0] * n_workers).excluded == set()
    assert chosen(*[1.0] * n_workers, 0.001 / n_workers).excluded == {n_workers}


def test_of_several_workers_the_first_alive_trains_a_sequential_run():
    algorithm = Sequential(16, 0.1)
    algorithm.start([0, 1], 1000)
    assert [algorithm.batch_size(w, 0.0) for w in (0, 1)] == [16, 0]
    algorithm.left(0)
    assert algorithm.batch_size(1, 0.0) == 16


@pytest.mark.parametrize("speeds", [(1.0, 0.0), (-1.0,), ()])
def test_speeds_that_cannot_be_are_refused(speeds):
    with pytest.raises(DataError, match="speeds must be above 0, one a worker"):
        chosen(*speeds)
