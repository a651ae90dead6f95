"""Messages of several batches: as many as a worker will get in any case, fewer where others would wait for them."""

from __future__ import annotations

import pytest

from shared import toy
from shared.spanning import Spanning
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.adaptive_hogbatch import AdaptiveHogbatch
from xmlsgd.algorithms.easgd import EASGD
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.rounds import MOST_UPDATES_PER_SPAN, TAPER, LocalWork
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.devices.cpu import CPU
from xmlsgd.nn.network import Network
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.router import Router

BATCH = 10


def messages(executor):
    """The batches of each message by worker, in rounds that end with a merge."""
    rounds = [{}]
    for kind, what in executor.log:
        if kind == "merge":
            rounds.append({})
        elif kind == "issue":
            rounds[-1].setdefault(what.worker, []).append(what.updates)
    return rounds


def test_a_learner_gets_all_that_it_has_of_a_round_in_messages_of_three_batches():
    _, executor = toy.run(EASGD(BATCH, 0.1, sync_every=5), toy.fleet(1, 0.5), n_rows=1000)
    assert messages(executor)[0] == {0: [3, 2], 1: [3, 2]}


def test_where_every_batch_ends_in_a_merge_a_message_is_a_batch():
    _, executor = toy.run(Synchronous(BATCH, 0.1), toy.fleet(1, 0.5), n_rows=400)
    assert {step.updates for step in executor.of("issue")} == {1}


@pytest.mark.parametrize(
    "algorithm", [LocalSGD(BATCH, 0.1, steps=24), AdaptiveSGD(BATCH, 0.1, mega_batch=720, low=BATCH)]
)
def test_rows_for_whoever_is_free_are_leased_by_the_speeds_as_soon_as_all_are_known(algorithm):
    """The slow worker has a seventh of the speed: of 72 batches it gets half of its share at most, at once."""
    _, executor = toy.run(algorithm, toy.fleet(1, 1, 0.15), n_rows=7200)
    first, second, *_ = messages(executor)
    assert [batches[0] for batches in first.values()] == [1, 1, 1]
    assert second[0][0] == second[1][0] == MOST_UPDATES_PER_SPAN
    assert second[2][0] == 2  # of 72 - 6 batches, a 14th of them to whom half is not certain
    assert second[0][-1] == second[1][-1] == 1
    assert len(second[0]) < sum(second[0]) / 2


def test_no_batch_of_adaptive_sgd_is_smaller_than_three_quarters_of_the_largest_unless_it_is_asked_for():
    for low, expected in ((None, 192), (32, 32)):
        algorithm = AdaptiveSGD(256, 0.1, low=low)
        algorithm.start([0, 1], 10**6)
        algorithm.work = {0: LocalWork(99, 99 * 256, 256), 1: LocalWork(1, 256, 256)}
        algorithm.scale_batches(algorithm.work)
        assert algorithm.size == {0: 256, 1: expected}


def test_no_worker_waits_for_longer_than_a_batch_of_the_slowest_because_of_long_messages():
    _, executor = toy.run(LocalSGD(BATCH, 0.1, steps=24), toy.fleet(1, 0.3), n_rows=4800)
    ends = {}
    for (kind, what), at in zip(executor.log, executor.times, strict=True):
        if kind == "done":
            ends[what.worker] = at
        elif kind == "merge" and len(ends) == 2:
            assert max(ends.values()) - min(ends.values()) <= BATCH * 1e-3 / 0.3
            ends = {}


@pytest.mark.parametrize("algorithm", [Spanning(1, 0.1), EASGD(BATCH, 0.1, sync_every=8)])
def test_the_last_spans_of_an_epoch_are_short(algorithm):
    n_rows = 3200
    _, executor = toy.run(algorithm, toy.fleet(1, 1), n_rows=n_rows)
    left = n_rows
    for step in executor.of("issue"):
        assert step.rows <= max(left // (TAPER * 2), algorithm.batch)
        left -= step.rows
    assert executor.of("issue")[-1].rows == algorithm.batch


def test_the_rows_left_are_those_never_given_out_and_those_given_back():
    router = Router(100)
    for worker in (0, 1):
        router.take(worker, 30)
    assert router.rows_left == 40
    router.give_back(0)
    assert router.rows_left == 70
    router.take(1, 20)
    assert router.rows_left == 50


class Reports(Callback):
    """Keeps the updates of every message."""

    def __init__(self):
        self.updates = []

    def span(self, report):
        self.updates.append(report.updates)


@pytest.mark.parametrize(("kind", "expected"), [(Hogbatch, 12), (AdaptiveHogbatch, 2)])
def test_tasks_share_a_message_where_workers_write_one_model_and_sizes_are_fixed(kind, expected):
    """Of 3,200 rows and two workers 50 make a message, of which a task of two threads has 8."""
    data, seen = toy.random_data(3200, 7, 5), Reports()
    executor = Threads([CPU(1, precision="float32") for _ in range(2)])
    train(Job(data, Network(7, 5, (4,))), kind(4, 0.01, threads=(2,)), executor, Schedule(1), callbacks=[seen])
    assert seen.updates[0] == expected


def test_a_task_is_a_message_of_its_own_where_it_pulls_and_pushes_the_model():
    _, executor = toy.run(Hogbatch(4, 0.1, threads=(2,)), toy.fleet(1, 1), n_rows=3200)
    assert {step.updates for step in executor.of("issue")} == {2}
