"""Executors: where steps run, who writes which replica, how replicas are merged."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd.csr import CSR, ORDER, Dataset
from xmlsgd.devices.reference import Reference
from xmlsgd.executors.serial import Serial
from xmlsgd.learner import Job, Learner, Start
from xmlsgd.network import Network, state_layout
from xmlsgd.optimizers import SGD, Adam
from xmlsgd.records import Step

N_ROWS = 12
NETWORK = Network(6, 5, (4,))
SIZE = NETWORK.layout.size


@pytest.fixture
def job():
    rng = np.random.default_rng(0)
    X, Y = (CSR.from_scipy(sp.csr_array(rng.random((N_ROWS, n)) * (rng.random((N_ROWS, n)) < 0.5))) for n in (6, 5))
    return Job(Dataset(X, Y), NETWORK, SGD(), seed=3)


@pytest.fixture
def executor():
    made = Serial([Reference(), Reference(), Reference()])
    yield made
    made.close()


def step(worker, start, stop, epoch=0, rate=0.1):
    return Step(worker, epoch, start, stop, rate)


def test_replicas_start_as_copies_of_the_center(executor, job):
    executor.start(job, shared=False)
    assert executor.table.shape == (4, SIZE)
    expected = np.zeros(SIZE, np.float32)
    NETWORK.initialize(expected, job.dataset.Y, job.seed)
    np.testing.assert_array_equal(executor.table, np.tile(expected, (4, 1)))


def test_a_shared_model_has_one_row_that_all_workers_write(executor, job):
    executor.start(job, shared=True)
    assert executor.table.shape == (1, SIZE)
    before = executor.center.copy()
    seen = [before]
    for worker in executor.workers:
        executor.submit(step(worker, 4 * worker, 4 * worker + 4))
        executor.wait()
        assert np.any(executor.center != seen[-1])
        seen.append(executor.center.copy())


def test_a_worker_writes_its_replica_and_nothing_else(executor, job):
    executor.start(job, shared=False)
    before = executor.table.copy()
    executor.submit(step(1, 0, 4))
    executor.wait()
    changed = np.flatnonzero(np.any(executor.table != before, axis=1))
    assert changed.tolist() == [2]


def test_steps_finish_in_the_order_of_submission_and_busy_says_who_runs(executor, job):
    executor.start(job, shared=False)
    for worker in (2, 0, 1):
        executor.submit(step(worker, 0, 2 + worker))
    assert executor.busy == {0, 1, 2}
    reports = [executor.wait() for _ in range(3)]
    assert [report.worker for report in reports] == [2, 0, 1]
    assert [report.rows for report in reports] == [4, 2, 3]
    assert executor.busy == set()


def test_reduce_is_the_weighted_sum_of_the_replicas(executor, job):
    executor.start(job, shared=False)
    executor.table[1:] = np.arange(3, dtype=np.float32)[:, None] + 1
    np.testing.assert_array_equal(executor.reduce([0.5, 0.25, 2]), np.full(SIZE, 0.5 + 0.5 + 6))


def test_reduce_wants_one_weight_a_worker(executor, job):
    executor.start(job, shared=False)
    with pytest.raises(ValueError, match="shorter"):
        executor.reduce([0.5, 0.5])


def test_blend_moves_the_members_by_a_share_of_the_way(executor, job):
    executor.start(job, shared=False)
    executor.table[:] = np.array([9, 0, 2, 4], np.float32)[:, None]
    executor.blend(np.full(SIZE, 8, np.float32), alpha=0.25, members=[0, 2])
    np.testing.assert_array_equal(executor.table[:, 0], [9, 2, 2, 5])
    executor.blend(executor.center)
    np.testing.assert_array_equal(executor.table, np.full((4, SIZE), 9))


def test_the_clock_starts_at_zero_and_runs(executor, job):
    executor.start(job, shared=True)
    first, second = executor.now(), executor.now()
    assert 0 <= first <= second < 60


def test_close_drops_what_was_queued(executor, job):
    executor.start(job, shared=True)
    executor.submit(step(0, 0, 4))
    executor.close()
    assert executor.busy == set()
    with pytest.raises(IndexError):
        executor.wait()


def test_one_worker_goes_on_in_the_arrays_of_an_earlier_run(job):
    optimizer = Adam()
    params = np.full(SIZE, 0.1, np.float32)
    state = np.zeros(state_layout(NETWORK.layout, optimizer).size, np.float32)
    executor = Serial([Reference()])
    executor.start(Job(job.dataset, NETWORK, optimizer, start=Start(params, state, steps=7)), shared=True)
    executor.submit(step(0, 0, 4))
    executor.wait()
    assert np.shares_memory(executor.center, params)
    assert state.any()
    got, steps = executor.optimizer_state()
    assert np.shares_memory(got, state)
    assert steps == 8


# --- the learner -------------------------------------------------------------------------------------------------


def test_a_report_counts_rows_features_and_the_sum_of_their_losses(job):
    flat = np.zeros(SIZE, np.float32)
    report = Learner(job, Reference(), flat).step(step(5, 2, 9))
    assert (report.worker, report.rows) == (5, 7)
    assert report.loss == pytest.approx(7 * 5 * np.log(2), rel=1e-6)  # all logits are 0
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[2:9]
    assert report.nnz == job.dataset.X.take(rows).nnz
    assert report.seconds >= 0


def test_sample_weights_scale_the_loss_of_their_rows(job):
    weight = np.arange(N_ROWS, dtype=np.float32)
    weighted = Job(job.dataset, NETWORK, SGD(), seed=3, sample_weight=weight)
    report = Learner(weighted, Reference(), np.zeros(SIZE, np.float32)).step(step(0, 0, 4))
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[:4]
    assert report.loss == pytest.approx(weight[rows].sum() * 5 * np.log(2), rel=1e-6)


def test_dropout_masks_depend_on_the_batch_and_not_on_who_trains_it(job):
    dropping = Job(job.dataset, Network(6, 5, (4,), input_dropout=0.5, hidden_dropout=0.5), SGD(), seed=3)

    def after(*steps):
        flat = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
        learner = Learner(dropping, Reference(), flat)
        for one in steps:
            learner.step(one)
        return flat

    np.testing.assert_array_equal(after(step(0, 0, 4)), after(step(2, 0, 4)))
    assert np.any(after(step(0, 0, 4)) != after(step(0, 0, 4, epoch=1)))
