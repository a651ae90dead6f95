"""Omnivore: compute groups and their update, who leaves them and who comes, numbers that are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from shared import light, toy
from shared.omnivore_runs import BATCH, N_ROWS, NETWORK, RATE, Recorded, Updates, cpu, go, simulated
from xmlsgd.algorithms.omnivore import Omnivore, explicit_momentum, most_groups
from xmlsgd.algorithms.omnivore_groups import ComputeGroups
from xmlsgd.algorithms.omnivore_tuner import Result
from xmlsgd.algorithms.outer import merges_to_fade
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.errors import DataError
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.learner import Learner
from xmlsgd.training.loop import train
from xmlsgd.training.merging import BROADCAST
from xmlsgd.training.messages import Report, Sharing, Span


@pytest.mark.parametrize("split", ["rows", "work"])
def test_one_group_without_momentum_equals_sgd_on_the_whole_batch(dataset, split):
    algorithm = Updates(BATCH, RATE, groups=1, momentum=0.0, split=split)
    run = go(dataset, algorithm, simulated())
    if split == "rows":
        alone = go(dataset, Sequential(BATCH, RATE), Serial([cpu()])).params
    else:  # the batches are those that equal work makes
        alone = by_hand(dataset, [sum(rows.values()) for _, rows in algorithm.log])
    np.testing.assert_allclose(run.params, alone, rtol=2e-5, atol=2e-6)


def by_hand(dataset, batches):
    """Return the model after SGD on batches of these rows, epoch after epoch."""
    flat = np.zeros(NETWORK.layout.size, np.float32)
    job = Job(dataset, NETWORK, SGD())
    NETWORK.initialize(flat, dataset.Y, 0)
    learner, at = Learner(job, cpu(), flat), 0
    for rows in batches:
        epoch, start = divmod(at, N_ROWS)
        learner.train_span(Span(0, epoch, start, start + rows, RATE))
        at += rows
    return flat


def test_gradients_of_the_members_sum_to_that_of_the_whole_batch(dataset):
    job = Job(dataset, NETWORK, SGD())
    first = np.random.default_rng(1).standard_normal(NETWORK.layout.size).astype(np.float32)

    def change(start, stop):
        flat = first.copy()
        Learner(job, cpu(), flat).train_span(Span(0, 0, start, stop, 1.0))
        return flat - first

    cuts = [0, 3, 4, 11, 20]
    total = sum((b - a) / 20 * change(a, b) for a, b in pairwise(cuts))
    np.testing.assert_allclose(total, change(0, 20), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("n_features", [14, 600])
def test_the_update_is_that_of_the_paper_worked_by_hand(dataset, momentum, n_features):
    """Two groups of two: v <- m v - eta G of the model that the group read, w <- w + v; in rows that few have, too."""
    network = replace(NETWORK, n_features=n_features)
    if n_features > 14:
        X = np.random.default_rng(1).random((N_ROWS, n_features))
        dataset = Dataset(CSR.from_scipy(sp.csr_array(X * (X < 0.005))), dataset.Y)
    algorithm, executor = Updates(BATCH, RATE, groups=2, momentum=momentum), simulated(kind=Recorded)
    with executor.device.start():
        run = train(Job(dataset, network, SGD()), algorithm, executor, Schedule(1, "constant", 0))
    of_all_rows = len(algorithm.log) * 4 * 2 * 5 * network.layout.size / executor.bandwidth
    assert (executor.merge_seconds < 0.5 * of_all_rows) == (n_features > 14), "merges are sparse where rows are"
    w = np.zeros(network.layout.size, np.float32)
    network.initialize(w, dataset.Y, 0)
    v, waiting = np.zeros_like(w), {worker: [] for worker in range(4)}
    for span in executor.spans:
        waiting[span.worker].append(span)
    read = dict.fromkeys(range(2), w)
    for _, rows in algorithm.log:
        j = min(rows) % 2
        total = sum(rows.values())
        G = np.zeros_like(w)
        for member, trained in rows.items():
            if trained:
                span, flat = waiting[member].pop(0), read[j].copy()
                assert span.rows == trained
                Learner(Job(dataset, network, SGD()), cpu(), flat).train_span(span)
                G += (read[j] - flat) / np.float32(RATE) * np.float32(trained / total)
        v = np.float32(momentum) * v - np.float32(RATE) * G
        w = w + v
        read[j] = w
    assert len(algorithm.log) > 4
    assert not any(waiting.values())
    np.testing.assert_allclose(run.params, w, rtol=1e-4, atol=1e-5)


def test_a_group_steps_from_what_it_read_while_others_write(dataset):
    """Without momentum two groups of one add the differences of both to the model."""
    executor = simulated((1.0, 0.9))
    algorithm = Omnivore(BATCH, RATE, groups=2, momentum=0.0)
    algorithm.measure_costs(dataset)
    executor.start(Job(dataset, NETWORK, SGD()), Sharing.REPLICAS)
    algorithm.start(executor.workers, N_ROWS)
    first = executor.center.copy()
    for w, start in ((0, 0), (1, BATCH)):
        executor.submit(Span(w, 0, start, start + BATCH, RATE))
        algorithm.submitted(w, BATCH, 0.0)
    for _ in range(2):
        algorithm.finished(executor.wait())
    changes = executor.shared.params[1:] - first
    algorithm.merge(executor, [0])
    np.testing.assert_array_equal(executor.shared.params[1], executor.center)
    algorithm.merge(executor, [1])
    np.testing.assert_allclose(executor.center, first + changes[0] + changes[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(executor.shared.params[2], executor.center)
    assert algorithm.notes()["staleness"] == 0.5


@pytest.mark.parametrize("momentum", [0.0, 0.2])
def test_merges_of_two_groups_stay_as_sparse_as_the_rows(dataset, momentum):
    """A touched row is merged by the group that touched it, and once by the other; also after ten epochs.

    With momentum, also in the merges in which it moves on.
    """
    X = np.random.default_rng(1).random((N_ROWS, 2000))
    dataset = Dataset(CSR.from_scipy(sp.csr_array(X * (X < 0.002))), dataset.Y)
    network = replace(NETWORK, n_features=2000)
    dense = sum(int(np.prod(shape)) for name, shape in network.layout.shapes.items() if name != "W0")
    merged, touched = [], []

    class Counted(Simulated):
        def merge(self, rule, members):
            touched.append(np.count_nonzero(self.shared.touched[sorted(members), :2000].any(axis=0)))
            before = self.merge_bytes
            super().merge(rule, members)
            vectors = 1 + len(members) + 2 * (rule is not BROADCAST)  # velocity and what the group read
            merged.append(((self.merge_bytes - before) / (8 * vectors) - dense) / network.hidden[0])

    executor = simulated((1.0, 0.9), kind=Counted)
    with executor.device.start():
        job = Job(dataset, network, SGD())
        train(job, Omnivore(4, RATE, groups=2, momentum=momentum), executor, Schedule(10, "constant", 0))
    assert sum(touched) > 1000
    assert sum(merged) <= (2 + merges_to_fade(momentum)) * sum(touched)


@pytest.mark.parametrize("g", [1, 2, 4])
def test_a_gradient_is_on_average_as_stale_as_there_are_other_groups(dataset, g):
    """The whole model has the staleness that the paper gives to the hidden layers."""
    algorithm = Omnivore(2, 0.01, groups=g)
    go(dataset, algorithm, simulated((1, 1, 1, 1), noise=0.3, overhead=0), epochs=6)
    starts = g * 6  # the first update of each group after an epoch's barrier is fresher
    n = algorithm.version
    assert n > 100
    assert algorithm.notes()["staleness"] == pytest.approx(g - 1, abs=starts * g / n + 1e-9)


def test_all_rows_are_trained_once_an_epoch_and_all_end_with_one_model(dataset):
    algorithm, executor = Updates(BATCH, 0.1, groups=2), simulated()
    go(dataset, algorithm, executor, epochs=3)
    assert sum(sum(rows.values()) for _, rows in algorithm.log) == 3 * N_ROWS
    np.testing.assert_array_equal(executor.shared.params, np.tile(executor.center, (5, 1)))


def test_momentum_is_what_asynchrony_lacks_to_the_best():
    assert [round(explicit_momentum(g), 6) for g in (1, 2, 4, 10, 20)] == [0.9, 0.4, 0.15, 0, 0]
    for g in (1, 2, 4):
        algorithm = Omnivore(groups=g)
        algorithm.start(range(4), N_ROWS)
        assert algorithm.notes()["momentum"] == explicit_momentum(g)


@pytest.mark.parametrize(("n", "g"), [(4, 4), (10, 10), (12, 6), (11, 1)])
def test_there_are_as_many_groups_as_momentum_allows(n, g):
    assert most_groups(n) == g


def test_a_worker_that_leaves_takes_its_rows_along_and_one_that_comes_gets_a_group(dataset):
    fleet = [VirtualDevice(), VirtualDevice(speed=0.8, absent=((0.004, 0.012),)), VirtualDevice(absent=((0.0, 0.006),))]
    for g, groups in ((3, 3), (1, 1)):
        algorithm, executor = Updates(4, 0.1, groups=g), Recorded(cpu(), fleet)
        run = go(dataset, algorithm, executor, epochs=4)
        assert [record["rows"] for record in run.records] == [N_ROWS * e for e in (1, 2, 3, 4)]
        assert sum(sum(rows.values()) for _, rows in algorithm.log) == 4 * N_ROWS
        assert sum(span.rows for span in executor.spans) > 4 * N_ROWS, "what was lost is given out again"
        assert {w for _, rows in algorithm.log[-6:] for w in rows} == {0, 1, 2}
        assert len(algorithm.notes()["members"]) == groups


def test_a_run_outlives_the_absence_of_everybody(dataset):
    fleet = [VirtualDevice(absent=((0.003, 0.02),)), VirtualDevice(absent=((0.004, 0.01),))]
    algorithm = Updates(4, 0.1, groups=2)
    run = go(dataset, algorithm, Simulated(cpu(), fleet), epochs=3)
    assert sum(sum(rows.values()) for _, rows in algorithm.log) == 3 * N_ROWS
    assert not run.diverged
    assert np.isfinite(run.params).all()


def test_a_worker_that_waits_for_a_group_goes_on_alone_when_all_others_leave():
    algorithm = Omnivore(BATCH, groups=1, tune=False)
    algorithm.start([0], N_ROWS)
    algorithm.worker_joined(1)
    assert algorithm.batch_size(1, 0.0) == 0
    algorithm.closing = True  # also at the end of a trial
    algorithm.worker_left(0)
    assert algorithm.batch_size(1, 0.0) == BATCH
    assert algorithm.notes()["members"] == [[1]]


class PlayedGroups:
    """Workers of Omnivore without momentum that are played: a batch adds a number to the replica of its worker."""

    def __init__(self, dataset, n_workers, **settings):
        self.algorithm = Omnivore(BATCH, RATE, split="rows", **settings)
        self.algorithm.measure_costs(dataset)
        self.comm = toy.Replicas(*[0.0] * (1 + n_workers))

    def train(self, w, step, loss=0.0):
        self.algorithm.submitted(w, BATCH, self.comm.seconds)
        self.comm.shared.params[1 + w] += step
        self.comm.shared.touched[w] = 1
        self.algorithm.finished(Report(w, BATCH, BATCH, loss, 1.0))
        self.algorithm.merge(self.comm, self.algorithm.merge_due((), self.comm.seconds))

    def join(self, w):
        self.comm.merger.copy_center(w)
        self.algorithm.worker_joined(w)


def test_a_worker_that_leaves_while_it_waits_for_a_group_gets_none(dataset):
    played = PlayedGroups(dataset, 2, groups=1, momentum=0.0)
    played.algorithm.start([0], N_ROWS)
    played.join(1)
    played.algorithm.worker_left(1)
    played.train(0, 1.0)
    assert played.algorithm.notes()["members"] == [[0]]


def test_a_new_group_steps_from_the_model_that_it_joined_and_not_from_that_of_an_earlier_group(dataset):
    played = PlayedGroups(dataset, 2, groups=2, momentum=0.0)
    played.algorithm.start([0, 1], N_ROWS)
    played.train(0, 2.0)
    played.algorithm.worker_left(1)
    played.join(1)
    played.train(0, 3.0)
    assert played.algorithm.notes()["members"] == [[0], [1]]
    played.train(1, 1.0)
    assert played.comm.values()[0] == 2 + 3 + 1


def test_the_seconds_per_update_of_a_trial_count_from_its_first_update(dataset):
    played = PlayedGroups(dataset, 1, tune=True, slice_seconds=7.0)
    played.algorithm.start([0], N_ROWS)
    for played.comm.seconds in (5.0, 6.0, 7.0):
        played.train(0, 0.0, loss=2.0 * BATCH)
    assert played.algorithm.tuner.results == [Result(loss=2.0, seconds=1.0)]


def test_a_group_whose_last_worker_leaves_is_gone():
    groups = ComputeGroups(8)
    groups.form([0, 1, 2], 2)
    assert groups.members == {0: [0, 2], 1: [1]}
    groups.remove(1)
    assert groups.members == {0: [0, 2]}
    assert groups.free_number() == 1
    assert groups.wanted(1) == 0
    groups.add(1, 1)
    assert groups.wanted(1) == 8


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"groups": 0}, "groups must be at least 1 or None, got 0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\) or None, got 1.0"),
        ({"split": "even"}, "split must be one of work, rows, got 'even'"),
        (
            {"tune": True, "groups": 2},
            "groups and momentum must be None with tune, which finds them, got groups 2 and momentum None",
        ),
        ({"slice_seconds": 0}, "slice_seconds must be above 0, got 0"),
    ],
)
def test_numbers_outside_their_ranges_are_refused_at_once(numbers, message):
    with pytest.raises(DataError, match=message):
        Omnivore(**numbers)


def test_more_groups_than_workers_are_refused_although_some_may_join_later():
    """They would train with the momentum of groups that there are not."""
    job, late = Job(toy.dataset(5), toy.counting(toy.dataset(5)), SGD()), ((0.0, 0.01),)
    fleet = [VirtualDevice(1e-3, 1e-3), VirtualDevice(1e-3, 1e-3, absent=late)]
    assert train(job, Omnivore(2, 0.1, groups=2), Simulated(light.Marking(), fleet), Schedule(1)).records
    with pytest.raises(DataError, match="groups must be at most the number of workers, got 3 for 2"):
        train(job, Omnivore(2, 0.1, groups=3), Simulated(light.Marking(), fleet), Schedule(1))


def test_a_batch_of_fewer_rows_than_members_goes_to_the_others_if_those_with_rows_leave():
    data = toy.dataset(5)
    fleet = [VirtualDevice(1e-3, 1e-3, absent=((1e-3, np.inf),) if w < 2 else ()) for w in range(4)]
    job, algorithm = Job(data, toy.counting(data), SGD()), Omnivore(2, 0.1, groups=1, momentum=0.0)
    run = train(job, algorithm, Simulated(light.Marking(), fleet), Schedule(2))
    assert run.records[-1]["rows"] == 10
    assert (toy.marks(run.params, data) > 0).all()
