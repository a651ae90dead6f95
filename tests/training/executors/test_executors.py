"""Every executor: where steps run, who writes which replica, how replicas are merged."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shared.every_executor import KINDS, N_ROWS, NETWORK, SIZE, broken, span
from shared.light import Light
from shared.lockstep import Lockstep
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.data.random_streams import ORDER
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError, WorkerDied
from xmlsgd.nn.network import state_layout
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job, Start
from xmlsgd.training.learner import Learner
from xmlsgd.training.loop import train
from xmlsgd.training.merging import MergeRule
from xmlsgd.training.messages import Report, Sharing, Span

pytestmark = pytest.mark.usefixtures("forked")


@pytest.mark.parametrize("make", [Serial, Threads, Processes, partial(Simulated, Reference())])
def test_an_executor_needs_a_worker(make):
    with pytest.raises(DataError, match="an executor needs at least one device, got none"):
        make([])


def test_replicas_start_as_copies_of_the_center(executor, job):
    executor.start(job, Sharing.REPLICAS)
    expected = np.zeros(SIZE, np.float32)
    NETWORK.initialize(expected, job.dataset.Y, job.seed)
    np.testing.assert_array_equal(executor.shared.params, np.tile(expected, (4, 1)))
    line = 64  # bytes of a cache line
    assert executor.shared.params.ctypes.data % line == executor.shared.params.strides[0] % line == 0


@pytest.mark.parametrize("sharing", [Sharing.IN_PLACE, Sharing.DELTA])
def test_every_worker_of_a_shared_model_changes_the_center(executor, job, sharing):
    executor.start(job, sharing)
    for worker in executor.workers:
        before = executor.center.copy()
        executor.submit(span(worker, 4 * worker, 4 * worker + 4))
        report = executor.wait()
        executor.push(worker)
        assert np.any(executor.center != before)
        assert report.staleness == 0


def test_a_worker_writes_its_replica_and_nothing_else(executor, job):
    executor.start(job, Sharing.REPLICAS)
    before = executor.shared.params.copy()
    executor.submit(span(1, 0, 4))
    executor.wait()
    changed = np.flatnonzero(np.any(executor.shared.params != before, axis=1))
    assert changed.tolist() == [2]
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[:4]
    marks = np.zeros(6, np.uint8)
    marks[job.dataset.X.columns_of(rows)] = 1
    np.testing.assert_array_equal(executor.shared.touched, [0 * marks, marks, 0 * marks])


def test_every_step_is_reported_once_and_busy_lists_the_workers_with_a_step(executor, job):
    executor.start(job, Sharing.REPLICAS)
    for worker in (2, 0, 1):
        executor.submit(span(worker, 0, 2 + worker))
    assert executor.busy == {0, 1, 2}
    reports = {report.worker: report for report in (executor.wait() for _ in range(3))}
    assert {w: report.rows for w, report in reports.items()} == {0: 2, 1: 3, 2: 4}
    assert executor.busy == set()


def test_a_span_is_as_many_updates_as_its_steps_one_by_one(executor, job):
    executor.start(job, Sharing.REPLICAS)
    executor.submit(Span(0, 0, 0, 8, 0.1, batch=3))
    whole = executor.wait()
    losses = []
    for start, stop in ((0, 3), (3, 6), (6, 8)):
        executor.submit(span(1, start, stop))
        losses.append(executor.wait().loss)
    np.testing.assert_array_equal(executor.shared.params[1], executor.shared.params[2])
    assert (whole.updates, whole.rows) == (3, 8)
    assert whole.loss == pytest.approx(sum(losses))


def test_all_executors_compute_the_same_replicas_to_the_bit(executor, job):
    executor.start(job, Sharing.REPLICAS)
    serial = KINDS["serial"]()
    serial.start(job, Sharing.REPLICAS)
    for made in (executor, serial):
        for first in (0, 6):
            for w in made.workers:
                made.submit(span(w, first + 2 * w, first + 2 * w + 2))
            for _ in made.workers:
                made.wait()
    np.testing.assert_array_equal(executor.shared.params, serial.shared.params)


def test_a_merge_applies_its_rule_to_the_center_and_the_members(executor, job):
    executor.start(job, Sharing.REPLICAS)
    executor.shared.params[:] = np.array([9, 0, 2, 4], np.float32)[:, None]
    executor.shared.touched[:] = 1

    @MergeRule
    def rule(part):
        part.center[:] = part.weighted_sum({0: 0.5, 2: 0.25})
        part.broadcast()

    executor.merge(rule, [0, 2])
    for row, value in enumerate([1, 1, 2, 1]):
        for view in NETWORK.layout.views(executor.shared.params[row]).values():
            np.testing.assert_array_equal(view, np.full(view.shape, value))


def test_the_clock_starts_at_zero_and_runs(executor, job):
    executor.start(job, Sharing.IN_PLACE)
    first = executor.now()
    executor.submit(span(0, 0, 4))
    executor.wait()
    assert 0 <= first < executor.now()


@pytest.mark.parametrize("sharing", list(Sharing))
def test_a_run_goes_on_from_the_model_state_and_steps_of_an_earlier_one(executor, job, sharing):
    optimizer = Adam()
    params = np.full(SIZE, 0.1, np.float32)
    state = np.full(state_layout(NETWORK.layout, optimizer).size, 0.01, np.float32)
    executor.start(Job(job.dataset, NETWORK, optimizer, start=Start(params, state, updates=7)), sharing)
    np.testing.assert_array_equal(executor.center, params)
    np.testing.assert_array_equal(executor.shared.states[0], state)
    executor.submit(span(0, 0, 4))
    executor.wait()
    _, state_now, steps = executor.result()
    assert np.any(state_now != 0.01)
    assert steps == 8


def test_what_a_worker_raises_is_raised_where_it_is_waited_for(executor, job):
    if isinstance(executor, Threads):
        return  # other workers may go on: test_failing_workers
    if isinstance(executor, Processes):
        executor.pool.makers = [broken] * 3
        with pytest.raises(WorkerDied, match=r"worker [012] failed:\n(.|\n)*RuntimeError: out of order"):
            executor.start(job, Sharing.REPLICAS)
        return
    executor.start(job, Sharing.REPLICAS)
    executor.learners[0].device.input_forward = broken

    def run():
        executor.submit(span(0, 0, 4))
        executor.wait()

    with pytest.raises(RuntimeError, match="out of order"):
        run()


def test_serial_steps_finish_in_the_order_of_submission(job):
    executor = KINDS["serial"]()
    executor.start(job, Sharing.REPLICAS)
    for worker in (2, 0, 1):
        executor.submit(span(worker, 0, 2))
    assert [executor.wait().worker for _ in range(3)] == [2, 0, 1]
    executor.submit(span(0, 0, 4))
    executor.close()
    assert executor.busy == set()
    with pytest.raises(IndexError):
        executor.wait()


def test_one_serial_worker_goes_on_in_the_arrays_of_an_earlier_run(job):
    optimizer = Adam()
    params = np.full(SIZE, 0.1, np.float32)
    state = np.zeros(state_layout(NETWORK.layout, optimizer).size, np.float32)
    executor = Serial([Reference()])
    executor.start(Job(job.dataset, NETWORK, optimizer, start=Start(params, state, updates=7)), Sharing.IN_PLACE)
    executor.submit(span(0, 0, 4))
    executor.wait()
    assert np.shares_memory(executor.center, params)
    assert state.any()
    assert np.shares_memory(executor.result()[1], state)


def test_a_lockstep_run_over_processes_equals_the_simulated_one_to_the_bit(job):
    """One step at a time, in the order in which the simulated clock has them."""
    fleet = [VirtualDevice(speed=1.0, noise=0.1), VirtualDevice(speed=0.6)]
    runs = []
    for executor in (Simulated(Reference(), fleet, seed=1), Lockstep(Light, fleet, seed=1)):
        algorithm = Hogwild(batch=2, learning_rate=0.1)
        runs.append(train(job, algorithm, executor, Schedule(2)))
    np.testing.assert_array_equal(runs[0].params, runs[1].params)
    assert [record["seconds"] for record in runs[0].records] == [record["seconds"] for record in runs[1].records]


@pytest.mark.parametrize(("sharing", "staleness"), [(Sharing.IN_PLACE, 1), (Sharing.DELTA, 6)])
def test_an_update_in_place_misses_what_others_wrote_during_it_and_a_difference_what_they_wrote_since_its_pull(
    job, sharing, staleness
):
    """Of two equal spans of six updates: the one that ends last."""
    executor = Threads([Reference() for _ in range(2)])
    executor.start(job, sharing)
    for w in (0, 1):
        executor.submit(Span(w, 0, 6 * w, 6 * w + 6, 0.1, batch=1))
    found = []
    for _ in range(2):
        report = executor.wait()
        assert isinstance(report, Report)
        found.append(report.staleness)
        executor.push(report.worker)
    executor.close()
    assert found == [0, staleness]


def test_a_difference_is_added_to_what_others_have_written_meanwhile(job):
    executor = Simulated(Reference(), [VirtualDevice(speed=1.0), VirtualDevice(speed=0.5)])
    executor.start(job, Sharing.IN_PLACE)
    first = executor.center.copy()
    executor.submit(span(1, 0, 4))
    executor.submit(span(0, 4, 8))
    alone = [Learner(job, Reference(), first.copy()) for _ in range(2)]
    for learner, (start, stop) in zip(alone, ((4, 8), (0, 4)), strict=True):
        learner.train_span(span(0, start, stop))
    changes = [learner.flat - first for learner in alone]
    for worker, staleness, expected in ((0, 0, first + changes[0]), (1, 1, first + changes[0] + changes[1])):
        report = executor.wait()
        assert isinstance(report, Report)
        executor.push(report.worker)
        assert (report.worker, report.staleness) == (worker, staleness)
        np.testing.assert_allclose(executor.center, expected, rtol=1e-6, atol=1e-7)
