"""Workers that are late: nobody waits for them, and what they learn meanwhile is neither lost nor in anybody's way."""

from __future__ import annotations

import numpy as np
import pytest

from shared import toy
from shared.adaptive_runs import did, started
from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.outer import HeavyBall, Outer, merges_to_fade
from xmlsgd.algorithms.rounds import LocalWork, Throughput
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.training.messages import Report

LONG = 20.0  # seconds, of workers that take one for a batch: the straggler_timeout of the others is at an end by then


class Played:
    """Local SGD of one-row batches whose workers are played: each batch adds 1 to a row of W0, one row a worker.

    These rows are orthogonal: AdaSum keeps what each has learned whole.
    """

    def __init__(self, n_workers=2, combine="adasum", outer=None):
        self.algorithm = LocalSGD(1, 0.1, steps=1, combine=combine, outer=outer or Outer(), merging=1.0)
        self.comm = toy.Replicas(*[0.0] * (1 + n_workers))
        self.algorithm.start(range(n_workers), 10_000)
        self.workers, self.busy, self.now = range(n_workers), {}, 0.0
        self.trained = [0] * n_workers
        self.round()  # so that all paces are known

    @property
    def shared(self):
        """The first number of each worker's row in the shared model."""
        return [float(self.comm.views(0)["W0"][w, 0]) for w in self.workers]

    def at(self, seconds):
        """Let time go by."""
        self.now += seconds
        self.comm.seconds = self.now

    def begin(self):
        """Give batches to whoever is free and gets one."""
        for w in self.workers:
            if w not in self.busy and self.algorithm.batch_size(w, self.now):
                self.algorithm.submitted(w, 1, self.now)
                self.busy[w] = self.now

    def end(self, w):
        """Let a worker's batch be done."""
        self.comm.views(1 + w)["W0"][w] += 1
        self.comm.shared.touched[w, w] = 1
        self.trained[w] += 1
        self.algorithm.finished(Report(w, 1, 1, 0.0, self.now - self.busy.pop(w)))

    def merged(self):
        """Merge what is due; return who took part."""
        members = list(self.algorithm.merge_due(set(self.busy), self.now))
        if members:
            self.algorithm.merge(self.comm, members)
        return members

    def round(self, without=()):
        """Play a round in which all others are in time, until it is merged; return who took part."""
        members = []
        while not members:
            self.begin()
            if set(self.busy) <= set(without):  # nobody has anything left to do: time goes by
                self.at(LONG)
            else:
                self.at(1.0)
                for w in set(self.busy) - set(without):
                    self.end(w)
            members = self.merged()
        return members


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_late_worker_takes_back_nothing_of_what_others_merged_and_loses_nothing(n):
    played = Played()
    for _ in range(n):
        assert played.round(without=[1]) == [0]
    assert played.shared == [played.trained[0], 1]
    played.end(1)
    assert played.round() == [0, 1]
    assert played.shared == played.trained
    assert played.trained[0] > n
    assert played.round() == [0, 1], "it began at the model of all, as the others did"
    assert played.shared == played.trained


def test_a_mean_counts_the_rows_of_a_late_worker_with_those_of_the_others():
    played = Played(combine="mean")
    for _ in range(3):
        played.round(without=[1])
    before, trained = played.shared, list(played.trained)
    played.end(1)
    played.round()
    rows = [now - then for now, then in zip(played.trained, trained, strict=True)]
    assert played.shared == pytest.approx([old + n * n / sum(rows) for old, n in zip(before, rows, strict=True)])


def test_a_worker_that_is_late_again_before_a_merge_is_measured_from_where_it_began():
    played = Played()
    played.round(without=[1])
    played.end(1)
    for _ in range(3):
        played.round(without=[1])
    assert played.shared == [played.trained[0], 1]
    played.end(1)
    played.round()
    assert played.shared == played.trained


def test_late_workers_begin_at_models_of_their_own():
    played = Played(3)
    assert played.round(without=[2]) == [0, 1]
    assert played.round(without=[1, 2]) == [0]
    played.end(1)
    played.end(2)
    assert played.round() == [0, 1, 2]
    assert played.shared == played.trained


def test_a_worker_that_was_late_is_waited_for_again():
    played = Played()
    played.round(without=[1])
    played.end(1)
    played.begin()
    played.at(1.0)
    played.end(0)
    assert set(played.busy) == {1}
    assert played.merged() == []
    played.at(LONG)
    assert played.merged() == [0]


def test_what_a_late_worker_has_learned_moves_the_model_with_momentum_like_anything_else():
    played = Played(outer=HeavyBall(0.5))
    played.round(without=[1])
    assert played.shared[1] == 1.5, "the motion of the first merge, halved"
    played.end(1)
    played.round()
    assert played.shared[1] == 1.5 + 0.25 + (played.trained[1] - 1)


@pytest.mark.parametrize("algorithm", [LocalSGD(8, combine="mean"), AdaptiveSGD(8)], ids=["local", "adaptive"])
def test_momentum_is_that_of_all_workers_also_where_a_merge_leaves_some_out(algorithm):
    fades = []

    class Merging(toy.Replicas):
        def merge(self, rule, members):
            fades.append(rule.fade_merges)

    algorithm.start(range(4), 1000)
    comm = Merging(0, *[0] * 4)
    for members in ((0, 1, 2, 3), (0, 1), (2,)):
        algorithm.merge_replicas(comm, {w: LocalWork(1, 8, 8) for w in members})
    assert fades == [merges_to_fade(0.75)] * 3


def test_a_late_worker_that_leaves_takes_its_work_with_it_and_begins_anew_when_it_returns():
    played = Played()
    played.round(without=[1])
    del played.busy[1]
    played.algorithm.worker_left(1)
    played.comm.merger.copy_center(1)
    played.algorithm.worker_joined(1)
    played.round()
    assert played.shared == played.trained


def test_the_updates_of_a_late_worker_are_those_of_two_mega_batches_and_change_no_size():
    algorithm = started(3)
    algorithm.behind.add(1)
    did(algorithm, [100, 180, 100])
    algorithm.merge(toy.Replicas(0, *[0] * 3), [0, 1, 2])
    assert algorithm.size == {0: 1024, 1: 1024, 2: 1024}


@pytest.mark.parametrize("kind", [LocalSGD, AdaptiveSGD])
def test_a_worker_that_was_alone_is_not_pushed_by_motion_from_before_when_another_joins(kind):
    algorithm = kind(1, 0.1, **({"combine": "mean"} if kind is LocalSGD else {}))
    comm = toy.Replicas(0, 1, 1)
    algorithm.start([0, 1], 1000)
    work = {0: LocalWork(1, 1, 1), 1: LocalWork(1, 1, 1)}
    algorithm.merge_replicas(comm, work)
    assert comm.values() == [1, 1, 1]
    algorithm.worker_left(1)
    comm.shared.touched[:] = 1
    algorithm.merge_replicas(comm, {0: work[0]})
    assert comm.values()[0] == 1, "one worker alone has no momentum"
    algorithm.worker_joined(1)
    comm.merger.copy_center(1)
    comm.shared.touched[:] = 1
    algorithm.merge_replicas(comm, work)
    assert comm.values() == [1, 1, 1]


@pytest.mark.parametrize(("straggler_timeout", "batches"), [(2.0, 0), (np.inf, 4)])
def test_no_worker_waits_for_a_last_batch_that_others_could_have_trained_sooner(straggler_timeout, batches):
    """Beside a device of a quarter of its speed, which is asked first; as published it waits for four batches."""
    algorithm = AdaptiveSGD(10, 0.1, mega_batch=210, low=10, straggler_timeout=straggler_timeout)
    _, executor = toy.run(algorithm, toy.fleet(0.25, 1), n_rows=8 * 210)
    waits, ended = [], 0.0
    for (kind, what), now in zip(executor.log, executor.times, strict=True):
        if kind == "merge":
            waits.append(now - ended)
        elif kind == "done" and what.worker == 1:
            ended = now
    assert waits == pytest.approx([batches * 10 * 0.001] * 8)


def test_others_are_sooner_only_if_they_would_be_done_before_and_not_with_a_batch():
    throughput, size = Throughput(2.0), dict.fromkeys(range(3), 10)
    assert not throughput.others_are_sooner(0, 1, size, 0.0), "of whom nothing is known"
    throughput.row_seconds = {0: 1.0, 1: 1.0, 2: 0.25}
    assert throughput.others_are_sooner(0, 30, size, 0.0), "worker 2 does three batches and would end a fourth with it"
    assert not throughput.others_are_sooner(0, 31, size, 0.0)
    assert not throughput.others_are_sooner(2, 1, size, 0.0)
    throughput.ends[2] = 5.0
    assert [throughput.others_are_sooner(0, rows, size, 0.0) for rows in (10, 11)] == [True, False]
    throughput.due[2] = 10.0
    assert throughput.others_are_sooner(0, 10, size, 9.9)
    assert not throughput.others_are_sooner(0, 1, size, 10.0), "worker 2 is a straggler"


class Awake(toy.Logged):
    """Fails if the coordinator asks again and again and nothing can change meanwhile."""

    asked = 0

    def wait(self, until=None):
        event = super().wait(until)
        self.asked = self.asked + 1 if event is None else 0
        assert self.asked < 3
        return event


def test_a_worker_that_left_the_rest_to_a_faster_one_trains_it_if_that_stalls(monkeypatch):
    """The fast device trains 20 rows before the slow one could train ten; in its seventh batch it all but stops."""
    monkeypatch.setattr(toy, "Logged", Awake)
    fleet = [*toy.fleet(0.25), *toy.fleet(1, trace=((0.065, 1e-3),))]
    algorithm = AdaptiveSGD(10, 0.1, mega_batch=20, low=10)
    done, executor = toy.run(algorithm, fleet, n_rows=120)
    assert done.records[-1]["rows"] == 120
    assert sum(step.rows for step in executor.of("issue") if step.worker == 0) > 20


def test_a_worker_that_joins_a_round_without_rows_waits_for_a_straggler_asleep(monkeypatch):
    monkeypatch.setattr(toy, "Logged", Awake)
    fleet = [*toy.fleet(1, trace=((0.035, 0.1),)), *toy.fleet(1, absent=((0.0, 0.036),))]
    done, _ = toy.run(AdaptiveSGD(10, 0.1, mega_batch=40, low=10), fleet, n_rows=120)
    assert done.records[-1]["rows"] == 120


@pytest.mark.parametrize("text", [*algorithm_names(), "adaptive/mega_batch=60", "local_sgd/steps=1"])
def test_the_coordinator_sleeps_until_something_can_change_however_devices_stall(monkeypatch, text):
    monkeypatch.setattr(toy, "Logged", Awake)
    for seed in range(8):
        speeds = np.random.default_rng(seed).choice([1, 0.5, 0.1], 4)
        fleet = toy.fleet(*speeds, noise=0.3, stalls=(0.2, 30.0))
        done, _ = toy.run(get_algorithm(text, 10, 0.1), fleet, n_rows=360, seed=seed)
        assert done.records[-1]["rows"] == 360


@pytest.mark.parametrize("kind", [LocalSGD, AdaptiveSGD])
def test_batches_that_take_no_time_on_the_simulated_clock_are_trained_too(kind):
    """Rows without features, on devices that only features keep busy."""
    data = toy.dataset(240)
    empty = CSR(np.zeros(241, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 240)
    done, _ = toy.run(kind(10, 0.1), toy.fleet(1, 1, per_row=0.0, per_nnz=1e-3), data=Dataset(empty, data.Y))
    assert done.records[-1]["rows"] == 240
