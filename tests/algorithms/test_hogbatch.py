"""Hogwild, Hogbatch and Adaptive Hogbatch: one shared model, tasks of unequal sizes, sizes that follow the updates."""

from __future__ import annotations

import numpy as np
import pytest

from shared import light, toy
from shared.spanning import Spanning
from xmlsgd.algorithms.adaptive_hogbatch import AdaptiveHogbatch
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.devices.cpu import CPU
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

GPU = VirtualDevice(overhead=2e-3, per_row=1e-4)


def by_hand(executor, n_rows=240):
    """The paper's update on one shared number: w <- w + (copy after - copy read), at the end of every task."""
    w, flying = 0.0, {}
    for kind, what in executor.log:
        if kind == "issue":
            flying[what.worker] = toy.after(w, what, n_rows) - w
        elif kind == "done":
            w += flying.pop(what.worker)
    return w


def test_the_model_is_the_sum_of_what_every_task_changed_on_the_copy_it_read():
    """Worked by hand: what is written back is the difference, never the copy."""
    algorithm = Hogbatch(8, 0.2, sizes=(8, 32), threads=(4, 1))
    done, executor = toy.run(algorithm, [VirtualDevice(0, 1e-3), GPU])
    assert {report.staleness > 0 for report in executor.of("done")} == {True, False}
    assert toy.weight(done) == pytest.approx(by_hand(executor), rel=1e-4)


def test_a_difference_takes_effect_when_its_task_ends_and_was_computed_when_it_began():
    """A slow task read 0 and writes its own change only, on top of the three that ended before it."""
    done, executor = toy.run(Hogwild(10, 0.5), [VirtualDevice(0, 1.0), VirtualDevice(0, 0.29)], n_rows=40)
    first, *others = executor.of("issue")
    assert [report.worker for report in executor.of("done")] == [1, 1, 1, 0]
    w = 0.0
    for step in others:
        w = toy.after(w, step, 40)
    w += toy.after(0.0, first, 40)
    assert toy.weight(done, 40) == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize("kind", [Hogwild, Hogbatch, AdaptiveHogbatch])
def test_one_worker_of_one_thread_is_sequential_gradient_descent(kind):
    """To the bit."""
    data, network = toy.random_data(60, 7, 5), Network(7, 5, (4,))
    done, _ = toy.run(kind(10, 0.3), toy.fleet(1), device=toy.Reference(), data=data, network=network, epochs=2)
    np.testing.assert_array_equal(done.params, toy.sequential(data, network, epochs=2).params)


def test_long_spans_of_single_rows_change_nothing_but_the_number_of_messages():
    """The model of one worker is the same to the bit."""
    data, network, runs, messages = toy.random_data(2000, 7, 5), Network(7, 5, (4,)), [], []
    for length in (1, 1000):
        algorithm = Spanning(1, 0.02)
        algorithm.length = length
        done, executor = toy.run(algorithm, toy.fleet(1), device=toy.Reference(), data=data, network=network)
        runs.append(done.params)
        messages.append(len(executor.of("issue")))
    np.testing.assert_array_equal(*runs)
    assert messages == [2000, 2]


def test_spans_of_single_rows_are_long_and_all_workers_get_some():
    algorithm = Hogwild(1, 0.1)
    algorithm.start(range(4), 10**6)
    assert algorithm.updates_per_span(0, 10**6, True) == 1024
    algorithm.start(range(4), 1280)
    assert algorithm.updates_per_span(0, 10**6, True) == 10
    algorithm.start(range(4), 5)
    assert algorithm.updates_per_span(0, 10**6, True) == 1
    algorithm = Hogwild(256, 0.1)
    algorithm.start(range(4), 10**6)
    assert algorithm.updates_per_span(0, 10**6, True) == 4


def test_every_update_reads_the_model_anew_where_the_clock_alone_lets_workers_write_in_place():
    """Pulls and pushes take no time then; a span of several would be computed on what its first update has read."""
    _, executor = toy.run(Hogwild(1, 0.1), toy.fleet(1, 1, in_place=True), n_rows=640)
    assert {step.updates for step in executor.of("issue")} == {1}
    assert max(report.staleness for report in executor.of("done")) <= 1


def test_workers_on_disjoint_rows_and_features_may_come_in_any_order():
    """Nobody reads what another writes, so that the marks are those of any sequential order."""
    data = toy.dataset(300)
    done, executor = toy.run(Hogwild(1, 0.1), toy.fleet(1, 0.7, 0.3), data=data, device=light.Marking())
    assert {step.worker for step in executor.of("issue")} == {0, 1, 2}
    np.testing.assert_array_equal(toy.marks(done.params, data), 1)


@pytest.mark.slow
def test_threads_that_write_one_model_at_once_lower_its_loss():
    """Conflicts cost precision, not the run."""
    data, network = toy.random_data(400, 12, 9), Network(12, 9, (16,))
    devices = [CPU(1, precision="float32") for _ in range(4)]
    run = train(Job(data, network, SGD()), Hogwild(1, 0.05), Threads(devices), Schedule(5))
    losses = [record["loss"] for record in run.records]
    assert losses[-1] < 0.99 * losses[0]
    assert np.isfinite(run.params).all()


def adaptive_run(devices, n_rows=20000, **settings):
    """Return (updates by worker, sizes by task, executor) of a run whose steps cost nothing to compute."""
    sizes = {w: [] for w in range(len(devices))}

    class Noting(AdaptiveHogbatch):
        def submitted(self, w, rows, now):
            sizes[w].append(self.size[w])

    algorithm = Noting(**{"batch": 64, "learning_rate": 0.1, **settings})
    _, executor = toy.run(algorithm, devices, n_rows=n_rows, device=light.Marking())
    return algorithm.update_counts, sizes, executor


def test_sizes_stay_in_their_bounds_and_are_the_first_times_a_power_of_the_factor():
    """Also where a size of half rows lies between."""
    bounds = {"sizes": (10, 1000), "low": (2, 100), "high": (640, 1700)}
    devices = [VirtualDevice(0, 1e-3), VirtualDevice(0, 1e-4)]
    _, sizes, _ = adaptive_run(devices, **bounds)
    for w, (first, low, high) in enumerate([(10, 2, 640), (1000, 100, 1700)]):
        assert {low, high} & set(sizes[w]) or len(set(sizes[w])) > 2
        assert low <= min(sizes[w]) <= max(sizes[w]) <= high
        anchors = (first, low, high)  # a size that was clamped goes on from its bound
        for size in sizes[w]:
            assert any(np.log2(size / anchor).is_integer() for anchor in anchors), size


def test_update_counts_become_equal_where_rates_can_be():
    """1.05 after 200 tasks; with fixed sizes the fast device makes ten times as many."""
    devices = [VirtualDevice(1e-4, 1e-5), VirtualDevice(1e-4, 1e-4)]
    done, _, executor = adaptive_run(devices, n_rows=60_000, low=(8,), high=(256,))
    assert len(executor.of("done")) > 200
    assert max(done.values()) / min(done.values()) <= 1.05
    fixed, _, _ = adaptive_run(devices, n_rows=60_000, low=(64,), high=(64,))
    assert max(fixed.values()) / min(fixed.values()) > 5


def test_sizes_rest_at_opposite_bounds_where_rates_cannot_be_equal():
    devices = [VirtualDevice(0, 1e-5), VirtualDevice(0, 1e-3)]
    done, sizes, _ = adaptive_run(devices, low=(32,), high=(128,))
    assert (sizes[0][-1], sizes[1][-1]) == (128, 32)
    assert done[0] > 2 * done[1]


def test_without_room_for_changes_it_is_hogbatch():
    devices = [VirtualDevice(0, 1e-3, noise=0.1), VirtualDevice(0, 1e-4, noise=0.1)]
    adaptive, first = toy.run(
        AdaptiveHogbatch(64, 0.1, sizes=(64, 32), low=(64, 32), high=(64, 32)), devices, n_rows=2000
    )
    plain, second = toy.run(Hogbatch(64, 0.1, sizes=(64, 32)), devices, n_rows=2000)
    np.testing.assert_array_equal(adaptive.params, plain.params)
    assert first.of("issue") == second.of("issue")


def test_a_task_of_several_threads_counts_an_update_for_each():
    """23 rows in tasks of 4 threads with 2 rows each; the last task has 3 updates of 2 rows, then one of 1."""
    _, _, executor = adaptive_run([VirtualDevice(0, 1e-3)], n_rows=23, threads=(4,), sizes=(8,))
    counts = [report.updates for report in executor.of("done")]
    assert counts == [4, 4, 3, 1]
    done, _, _ = adaptive_run([VirtualDevice(0, 1e-3)], n_rows=16, threads=(4,), sizes=(8,))
    assert done == {0: 2 * 4}


def test_the_learning_rate_is_linear_in_the_rows_of_an_update_up_to_a_batch():
    """Also that of a tail."""
    _, executor = toy.run(Hogbatch(64, 0.5, sizes=(16, 256), threads=(4, 1)), toy.fleet(1, 1), n_rows=1001)
    rates = {(step.batch or step.rows, step.learning_rate) for step in executor.of("issue")}
    assert {(4, 0.5 * 4 / 64), (256, 0.5)} <= rates
    assert all(rate == 0.5 * min(rows / 64, 1) for rows, rate in rates)
    assert {rows for rows, _ in rates} - {4, 256}, "there is a tail"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"threads": (0,)}, "threads must be at least 1"),
        ({"threads": (8,), "sizes": (4,)}, "sizes must hold a row for each thread"),
        ({"low": (0,)}, "low must be at least 1"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be finite and above 0, got 0"),
    ],
)
def test_bad_numbers_are_refused_at_construction(settings, complaint):
    with pytest.raises(DataError, match=complaint):
        AdaptiveHogbatch(**settings)


@pytest.mark.parametrize("field", ["sizes", "threads", "low", "high"])
@pytest.mark.parametrize("n_workers", [2, 4])
def test_numbers_that_are_not_of_each_worker_are_refused(field, n_workers):
    algorithm = AdaptiveHogbatch(64, 0.1, **{field: (64, 64, 64)})
    with pytest.raises(DataError, match=rf"{field} must have a number for each worker or one, got .* for {n_workers}"):
        toy.run(algorithm, toy.fleet(*[1] * n_workers))


def test_bounds_that_leave_no_size_are_refused():
    with pytest.raises(DataError, match="low, with a row a thread, must be at most high, got 8 and 4 for worker 0"):
        AdaptiveHogbatch(64, 0.1, threads=(8,), low=(1,), high=(4,)).start([0, 1], 100)


def test_without_an_upper_bound_any_lower_bound_has_room():
    assert AdaptiveHogbatch(4, 0.1, low=(100,)).bounds(0) == (100, 100)


def test_a_worker_that_joins_begins_with_the_slowest_and_its_first_size():
    algorithm = AdaptiveHogbatch(64, 0.1, sizes=(64, 32))
    algorithm.start([0], 1000)
    algorithm.update_counts[0] = 7.0
    algorithm.worker_joined(1)
    assert (algorithm.update_counts[1], algorithm.size[1], algorithm.bounds(1)) == (7.0, 32, (4, 256))
    algorithm.worker_left(0)
    algorithm.worker_left(1)
    algorithm.worker_joined(0)
    assert algorithm.update_counts == {0: 0}
