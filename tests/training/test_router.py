"""The router: each row once, whoever takes it, leaves or joins; batches by rows and by work."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shared import light, toy
from shared.replayed import Recorded, Replayed
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.easgd import EASGD
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adagrad, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training import loop as engine
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.merging import MergeRule
from xmlsgd.training.router import Router

pytestmark = pytest.mark.usefixtures("forked")

N_ROWS = 600


class Naive(Router):
    """The rule that loses rows: what was reported counts as committed, merged or not."""

    def give_back(self, worker):
        spans = self.leases.pop(worker, [])
        self.returned += spans[-1:]  # what it was at


class Adding(LocalSGD):
    """Merges marks."""

    def merge_replicas(self, comm, work):
        comm.merge(MergeRule(toy.add_trained), work)


@pytest.mark.parametrize("by_work", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_committed_once_whoever_takes_leaves_and_joins(seed, by_work):
    """At every moment rows are committed, leased, returned or not yet taken, each in one place."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 200))
    work = np.concatenate([[0.0], np.cumsum(rng.exponential(1, n))]) if by_work else None
    router, done = Router(n, work), []

    def parts():
        leased = [span for spans in router.leases.values() for span in spans]
        return [*done, *leased, *router.returned, (router.at, n)]

    while router.committed < n:
        w = int(rng.integers(4))
        action = rng.random()
        if action < 0.6:
            router.take(w, int(rng.integers(1, 20)), int(rng.integers(1, 4)))
        elif action < 0.8:
            router.give_back(w)
        else:
            done += router.leases.get(w, [])
            router.commit([w])
        rows = np.concatenate([np.arange(*span) for span in parts()])
        np.testing.assert_array_equal(np.sort(rows), np.arange(n))
        assert router.committed == sum(stop - start for start, stop in done)
    assert router.rows_left == 0
    assert router.take(0, 5) is None


def test_the_first_rows_served_cover_many_labels_where_rows_are_sorted_by_label():
    """Labels 0 to 99, 60 rows each; in the order of the file 1,000 rows would bring 17 of them."""
    labels = np.repeat(np.arange(100), 60)
    for epoch in range(3):
        assert len(np.unique(labels[toy.epoch_order(6000, 0, epoch)[:1000]])) >= 95


def test_batches_of_a_span_have_the_size_asked_for_and_a_shorter_one_is_a_span_of_its_own():
    router = Router(25)
    assert [router.take(0, 4, 3), router.take(1, 5, 3), router.take(0, 5, 3)] == [(0, 12), (12, 22), (22, 25)]
    router.give_back(1)
    assert [router.take(2, 4, 9), router.take(2, 4, 9), router.take(2, 4, 9)] == [(12, 20), (20, 22), None]


def test_what_a_worker_gave_back_is_handed_out_in_its_order():
    router = Router(12)
    for w in (0, 1, 0):
        router.take(w, 3)
    router.give_back(0)
    assert router.rows_left == 9
    assert [router.take(1, 3) for _ in range(4)] == [(0, 3), (6, 9), (9, 12), None]


def test_a_batch_by_work_has_the_work_of_average_rows_to_half_a_row():
    """The row at the border goes to where the work is nearer to what was asked for."""
    rng = np.random.default_rng(0)
    each = rng.exponential(1, 1000)
    work = np.concatenate([[0.0], np.cumsum(each)])
    router, sizes = Router(1000, work), []
    while (span := router.take(0, 50)) is not None:
        start, stop = span
        sizes.append(stop - start)
        if stop < 1000:
            assert abs(work[stop] - work[start] - 50 * each.mean()) <= each[stop - 1 : stop + 1].max() / 2 + 1e-9
    assert sum(sizes) == 1000
    assert min(sizes[:-1]) < 50 < max(sizes)


def test_a_row_of_more_work_than_a_batch_is_a_batch():
    router = Router(4, np.array([0.0, 1.0, 101.0, 102.0, 103.0]))
    spans = [router.take(0, 1) for _ in range(4)]
    assert spans == [(0, 1), (1, 2), (2, 4), None]


def absences(rng, n_times, until):
    moments = np.sort(rng.uniform(0, until, 2 * n_times)).tolist()
    return tuple(zip(moments[::2], moments[1::2], strict=True))


def unreliable_run(seed, algorithm):
    """Four devices, each away five times at random; return how often each row is in the model."""
    rng = np.random.default_rng(seed)
    devices = [
        VirtualDevice(0.0, 1e-3, speed=speed, noise=0.2, absent=absences(rng, 5, 0.5)) for speed in (1, 0.9, 0.5, 0.2)
    ]
    data = toy.dataset(N_ROWS)
    done, executor = toy.run(algorithm, devices, data=data, device=light.Marking())
    assert len(executor.of("left")) >= 10
    return toy.marks(done.params, data)


@pytest.mark.parametrize("algorithm", [Adding(7, 0.1, steps=3), Hogwild(7, 0.1)], ids=["replicas", "shared"])
@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_in_the_model_once_though_workers_come_and_go(seed, algorithm):
    """Workers leave in the middle of steps and between merges, and come back."""
    np.testing.assert_array_equal(unreliable_run(seed, algorithm), 1)


@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_in_the_model_once_though_some_steps_are_late_and_their_workers_leave(seed):
    """Who stalls is left out of a merge, and merged by itself later or lost with its rows."""
    rng = np.random.default_rng(seed)
    devices = [
        VirtualDevice(0.0, 1e-3, speed=speed, stalls=(0.1, 20.0), absent=absences(rng, 4, 0.8))
        for speed in (1, 0.8, 0.6)
    ]
    data, algorithm = toy.dataset(N_ROWS), Adding(7, 0.1, steps=3)
    done, executor = toy.run(algorithm, devices, data=data, device=light.Marking())
    assert {len(members) for members in executor.of("merge")} >= {1, 2, 3}
    np.testing.assert_array_equal(toy.marks(done.params, data), 1)


def test_a_report_taken_for_a_commit_loses_rows(monkeypatch):
    """The same runs under the naive rule."""
    monkeypatch.setattr(engine, "Router", Naive)
    counts = unreliable_run(0, Adding(7, 0.1, steps=3))
    assert counts.max() == 1
    assert np.sum(counts == 0) > 20


@pytest.mark.slow
def test_every_row_is_in_a_shared_model_once_though_processes_that_send_differences_are_killed(tmp_path):
    """What was half done when a process died is in its copy, not in the model."""
    data = toy.dataset(400)
    order = toy.epoch_order(400, 0, 0)
    executor = Processes([partial(light.Fatal, tmp_path, [int(order[at]) for at in (95, 203)])] * 2)
    with pytest.warns(UserWarning, match="is lost: killed by SIGKILL"):
        done = train(Job(data, toy.counting(data), SGD()), Hogwild(10, 0.1, copies=True), executor, Schedule(1))
    assert len(executor.pool.failures) == 2
    np.testing.assert_array_equal(toy.marks(done.params, data), 1)


@pytest.mark.parametrize("optimizer", [Adam(), Adagrad()], ids=["adam", "adagrad"])
@pytest.mark.parametrize(
    "algorithm",
    [
        Hogwild(10, 0.01, copies=True), Synchronous(10, 0.01), Elastic(10, 0.01, mega_batch=100),
        EASGD(10, 0.01, sync_every=2), Crossbow(10, 0.01, sync_every=1), Crossbow(10, 0.01, sync_every=2),
        AdaptiveSGD(10, 0.01, mega_batch=100), LocalSGD(10, 0.01), Omnivore(10, 0.01, groups=2),
    ],
    ids=["differences", "mean", "elastic", "easgd", "crossbow", "rounds", "adaptive", "local", "omnivore"],
)  # fmt: skip
@pytest.mark.slow
def test_model_and_states_of_killed_processes_are_those_of_whole_steps(tmp_path, algorithm, optimizer):
    """To the bit those of a replay in lockstep, in which nobody dies in the middle of a step."""
    data, network = toy.random_data(400, 30, 12), Network(30, 12, (8,))
    order = toy.epoch_order(400, 0, 0)
    executor = Recorded([partial(light.FatalReference, tmp_path, [int(order[at]) for at in (95, 203)])] * 2)
    job = Job(data, network, optimizer)
    with pytest.warns(UserWarning, match="is lost: killed by SIGKILL"):
        done = train(job, algorithm, executor, Schedule(3))
    assert len(executor.pool.failures) == 2
    replayed = Replayed(executor, Reference())
    again = train(job, algorithm, replayed, Schedule(3))
    np.testing.assert_array_equal(done.params, again.params)
    np.testing.assert_array_equal(done.state, again.state)
    assert done.updates == again.updates
    for w in executor.workers:
        state = executor.arrays[w].state
        np.testing.assert_array_equal(executor.kept[state], replayed.shared.states[state])


@pytest.mark.parametrize("naive", [False, True])
@pytest.mark.slow
def test_every_row_is_in_the_model_once_though_processes_are_killed(tmp_path, monkeypatch, naive):
    """Three processes die by `kill -9` in the middle of a step, one during a merge; the naive rule loses rows."""
    if naive:
        monkeypatch.setattr(engine, "Router", Naive)

    class Killing(Adding):
        killed = 0

        def merge(self, comm, members):
            if not self.killed:
                executor.pool.processes[min(members)].process.kill()
                self.killed += 1
            super().merge(comm, members)

    data = toy.dataset(400)
    order = toy.epoch_order(400, 0, 0)
    fatal = [int(order[at]) for at in (95, 203, 340)]
    executor = Processes([partial(light.Fatal, tmp_path, fatal)] * 2, restarts=4)
    algorithm = Killing(10, 0.1, steps=5)
    with pytest.warns(UserWarning, match="is lost: killed by SIGKILL"):
        done = train(Job(data, toy.counting(data), SGD()), algorithm, executor, Schedule(1))
    assert algorithm.killed == 1
    assert 3 <= len(executor.pool.failures) <= 4, "who is killed at the last merge is not missed"
    counts = toy.marks(done.params, data)
    assert counts.max() == 1
    assert (counts.min() == 0) == naive


def test_the_rows_of_a_resumed_epoch_that_are_trained_already_count_as_committed():
    router = Router(100)
    router.resume(60, [(10, 20)])
    assert router.committed == 50
    assert router.take(0, 10) == (10, 20)
    router.commit([0])
    assert router.committed == 60
