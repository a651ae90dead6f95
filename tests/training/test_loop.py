"""The loop: every row once an epoch, rates by the schedule, callbacks, divergence, and equality with a loop by hand."""

from __future__ import annotations

import numpy as np
import pytest

from shared.running_mean import RunningMean
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.random_streams import epoch_order
from xmlsgd.devices.base import EXACT, Targets
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network, state_layout
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import SCHEDULES, Schedule
from xmlsgd.training.callbacks import Callback, EarlyStopping, Evaluation
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job, Start
from xmlsgd.training.kept_model import KeptModel
from xmlsgd.training.learner import _batch_seed
from xmlsgd.training.loop import train
from xmlsgd.training.messages import Sharing
from xmlsgd.training.router import Router

N_ROWS, BATCH = 53, 10
NETWORK = Network(12, 9, (8,), hidden_dropout=0.2)


@pytest.mark.parametrize("device", [Reference, lambda: CPU(1, "float32")], ids=["reference", "cpu"])
def test_rows_of_no_features_at_all_train_the_biases(dataset, device):
    none = CSR(np.zeros(N_ROWS + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 0)
    job, made = Job(Dataset(none, dataset.Y), Network(0, 9, (8,))), device()
    with made.start():
        losses = [record["loss"] for record in train(job, Sequential(BATCH), Serial([made]), Schedule(5)).records]
    assert losses[-1] < losses[0]


class Spy(Callback):
    """Keeps everything that a callback is shown."""

    def start(self, n_rows, epochs, center):
        self.began = (n_rows, epochs, center.copy())
        self.reports, self.models, self.centers, self.records, self.finished = [], [], [], [], 0
        self.center = center

    def span(self, report):
        self.reports.append(report)
        self.models.append(self.center.copy())

    def epoch(self, record, center):
        self.records.append(record)
        self.centers.append(center.copy())
        return False

    def finish(self, center):
        self.finished += 1


class Recording(Serial):
    """Keeps the spans that were submitted."""

    def __init__(self, devices):
        super().__init__(devices)
        self.spans = []

    def submit(self, span):
        self.spans.append(span)
        super().submit(span)


class Rows(Reference):
    """Keeps the rows of each batch."""

    def __init__(self):
        self.batches = []

    def input_forward(self, X, rows, layer):
        self.batches.append(rows.copy())
        return super().input_forward(X, rows, layer)


class Faulty(Reference):
    """Spoils one step: its loss, or only the weights that it writes."""

    def __init__(self, at, loss=np.nan, weight=None):
        self.at, self.loss, self.weight, self.n_steps = at, loss, weight, 0

    def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
        value, dA = super().output_step(A, targets, layer, loss, update, rounding)
        self.n_steps += 1
        if self.n_steps != self.at:
            return value, dA
        if self.weight is not None:
            layer.W[0, 0] = self.weight
            return value, dA
        layer.W[:] = np.nan
        return self.loss, dA


def test_the_clock_stands_still_while_callbacks_start_and_see_an_epoch(dataset):
    executor = Serial([Reference()])

    class Slow(Callback):
        def start(self, n_rows, epochs, center):
            executor._started -= 1000

        def epoch(self, record, center):
            executor._started -= 1000
            return False

    run = train(Job(dataset, NETWORK), Sequential(BATCH, 0.01), executor, Schedule(2), [Slow()])
    assert run.records[-1]["seconds"] < 1000


@pytest.mark.parametrize("n_workers", [1, 3])
def test_each_row_is_trained_on_exactly_once_an_epoch(dataset, n_workers):
    devices = [Rows() for _ in range(n_workers)]
    executor = Recording(devices)
    train(Job(dataset, NETWORK), Hogwild(BATCH, 0.01), executor, Schedule(3))
    assert {span.worker for span in executor.spans} == set(range(n_workers))
    for epoch in range(3):
        spans = sorted((span.start, span.stop) for span in executor.spans if span.epoch == epoch)
        assert spans == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50), (50, 53)]
    rows = np.concatenate([batch for device in devices for batch in device.batches])
    np.testing.assert_array_equal(np.bincount(rows, minlength=N_ROWS), 3)


def test_epochs_take_the_rows_in_different_orders(dataset):
    device = Rows()
    train(Job(dataset, NETWORK, seed=5), Sequential(BATCH, 0.01), Serial([device]), Schedule(3))
    orders = np.concatenate(device.batches).reshape(3, N_ROWS)
    for epoch, order in enumerate(orders):
        np.testing.assert_array_equal(order, epoch_order(N_ROWS, 5, epoch))
    assert len({tuple(order) for order in orders}) == 3


def test_the_router_gives_spans_of_the_sizes_asked_for_until_the_epoch_is_out():
    router = Router(10)
    assert [router.take(0, size) for size in (4, 1, 9, 3)] == [(0, 4), (4, 5), (5, 10), None]


@pytest.mark.parametrize("device", [Reference, lambda: CPU(1)], ids=["reference", "cpu"])
def test_one_serial_worker_equals_a_loop_written_by_hand_to_the_bit(dataset, device):
    weight = np.random.default_rng(1).uniform(0.5, 2, N_ROWS).astype(np.float32)
    optimizer, made, schedule = Adam(weight_decay=0.01), device(), Schedule(2, "cosine", 0.1)
    with made.start():
        job = Job(dataset, NETWORK, optimizer, seed=4, sample_weight=weight)
        run = train(job, Sequential(BATCH, 0.05), Serial([made]), schedule)
        flat = np.zeros(NETWORK.layout.size, np.float32)
        NETWORK.initialize(flat, dataset.Y, 4, weight)
        states = state_layout(NETWORK.layout, optimizer)
        state = np.zeros(states.size, np.float32)
        layers = NETWORK.layers(flat, states.views(state))
        done, steps, losses = 0, 0, []
        for epoch in range(2):
            order, loss = epoch_order(N_ROWS, 4, epoch), 0.0
            for start in range(0, N_ROWS, BATCH):
                rows = order[start : start + BATCH]
                factor = schedule.factor((done + len(rows) / 2) / (2 * N_ROWS))
                done, steps = done + len(rows), steps + 1
                loss += len(rows) * NETWORK.step(
                    made, layers, dataset.X, Targets(dataset.Y, rows, weight[rows] * np.float32(1 / len(rows))),
                    optimizer.update(0.05 * factor, steps), _batch_seed(4, epoch, start),
                )  # fmt: skip
            losses.append(loss / N_ROWS)
    np.testing.assert_array_equal(run.params, flat)
    np.testing.assert_array_equal(run.state, state)
    assert [record["loss"] for record in run.records] == losses
    assert run.updates == steps == 12
    assert not run.diverged


def test_training_lowers_the_loss(dataset):
    run = train(Job(dataset, Network(12, 9, (32,))), Sequential(BATCH, 0.05), Serial([Reference()]), Schedule(20))
    losses = [record["loss"] for record in run.records]
    assert losses[-1] < 0.75 * losses[0]


def test_two_runs_in_a_row_equal_one_that_is_not_interrupted(dataset):
    def go(epochs, start=None):
        job, schedule = Job(dataset, NETWORK, start=start), Schedule(epochs, "constant", 0)
        return train(job, Sequential(BATCH, 0.01), Serial([Reference()]), schedule)

    whole, first = go(3), go(1)
    second = go(2, Start(first.params, first.state, first.updates, epochs=1))
    np.testing.assert_array_equal(second.params, whole.params)
    np.testing.assert_array_equal(second.state, whole.state)
    assert second.updates == whole.updates
    assert [record["epoch"] for record in second.records] == [1, 2]
    assert [record["loss"] for record in second.records] == [record["loss"] for record in whole.records[1:]]


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "inverse_sqrt"])
def test_rates_follow_the_schedule_over_the_whole_run_at_the_middle_of_each_batch(dataset, kind):
    executor, schedule = Recording([Reference()]), Schedule(2, kind, 0.25)
    train(Job(dataset, NETWORK), Sequential(BATCH, 0.5), executor, schedule)
    for span in executor.spans:
        middle = (span.epoch * N_ROWS + (span.start + span.stop) / 2) / (2 * N_ROWS)
        assert span.learning_rate == pytest.approx(0.5 * schedule.factor(middle))
    rates = [span.learning_rate for span in executor.spans]
    assert rates[0] < rates[1] < rates[2], "the rate must rise while the run warms up"
    assert max(rates) <= 0.5


@pytest.mark.parametrize("factor", [np.nan, np.inf, -0.5, "1"])
def test_a_schedule_that_returns_no_factor_is_refused(dataset, monkeypatch, factor):
    """Otherwise the run would diverge, or climb."""
    monkeypatch.setitem(SCHEDULES, "mine", lambda done: 1.0 if done < 0.5 else factor)
    complaint = f"Schedule 'mine': its factor must be finite and at least 0, got {factor!r} at row 58 of 106$"
    with pytest.raises(DataError, match=complaint):
        train(Job(dataset, NETWORK), Sequential(BATCH), Serial([Reference()]), Schedule(2, "mine"))


@pytest.mark.parametrize(
    ("method", "got", "wanted"),
    [
        ("batch_size", -5, "a whole number of at least 0"),
        ("batch_size", 2.5, "a whole number of at least 0"),
        ("updates_per_span", 0, "a whole number of at least 1"),
        ("updates_per_span", -1, "a whole number of at least 1"),
        ("learning_rate_of", -0.1, "a finite rate, at least 0"),
        ("learning_rate_of", np.nan, "a finite rate, at least 0"),
    ],
)
def test_an_algorithm_that_asks_for_the_impossible_is_named(dataset, method, got, wanted):
    odd = type("Odd", (Sequential,), {method: lambda self, *given: got})
    with pytest.raises(DataError, match=f"^Odd.{method} must return {wanted}, got {got}$"):
        train(Job(dataset, NETWORK), odd(BATCH), Serial([Reference()]), Schedule(1))


def test_an_algorithm_that_merges_replicas_in_training_is_named(dataset):
    class Hasty(Synchronous):
        def merge_due(self, busy, now):
            return sorted(self.size)

    with pytest.raises(DataError, match=r"^Hasty.merge_due must return idle workers, of \[0\], got \[0, 1\]$"):
        train(Job(dataset, NETWORK), Hasty(BATCH), Serial([Reference()] * 2), Schedule(1))


def test_callbacks_see_the_start_every_step_every_epoch_and_the_end(dataset):
    spy, second = Spy(), Spy()
    run = train(
        Job(dataset, NETWORK), Sequential(BATCH, 0.01), Serial([Reference()]), Schedule(2), callbacks=[spy, second]
    )
    n_rows, epochs, first = spy.began
    expected = np.zeros_like(run.params)
    NETWORK.initialize(expected, dataset.Y, 0)
    assert (n_rows, epochs) == (N_ROWS, 2)
    np.testing.assert_array_equal(first, expected)
    assert [report.rows for report in spy.reports] == 2 * [10, 10, 10, 10, 10, 3]
    assert sum(report.nnz for report in spy.reports) == 2 * dataset.X.nnz
    assert [record["rows"] for record in spy.records] == [N_ROWS, 2 * N_ROWS]
    for epoch, record in enumerate(spy.records):
        losses = [report.loss for report in spy.reports[6 * epoch : 6 * epoch + 6]]
        assert record["loss"] == pytest.approx(sum(losses) / N_ROWS)
    assert spy.records == run.records
    assert spy.finished == second.finished == 1
    assert len(second.reports) == 12
    np.testing.assert_array_equal(spy.centers[-1], run.params)


def test_early_stopping_ends_the_run_and_leaves_the_best_model(dataset):
    precision = iter([10.0, 30.0, 20.0, 25.0, 99.0])
    spy, kept = Spy(), KeptModel()
    stopping = EarlyStopping("P@1", patience=2, tol=0.0, kept=kept)
    callbacks = [Evaluation(lambda center: {"P@1": next(precision)}), stopping, spy]
    run = train(Job(dataset, NETWORK), Sequential(BATCH, 0.01), Serial([Reference()]), Schedule(5), callbacks)
    kept.close()
    assert [record["P@1"] for record in run.records] == [10, 30, 20, 25]
    np.testing.assert_array_equal(run.params, spy.centers[1])
    assert np.any(run.params != spy.centers[-1])


def test_a_callback_may_replace_the_model_at_the_end(dataset):
    spy, mean = Spy(), RunningMean()
    run = train(
        Job(dataset, NETWORK), Sequential(BATCH, 0.05), Serial([Reference()]), Schedule(4), callbacks=[spy, mean]
    )
    assert mean.samples == len(spy.models)
    np.testing.assert_allclose(run.params, np.mean(spy.models, axis=0, dtype=np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "fault", [{}, {"loss": np.inf}, {"weight": np.nan}, {"weight": -np.inf}], ids=["nan", "inf", "w-nan", "w-inf"]
)
def test_a_run_that_diverges_keeps_the_model_of_the_last_good_epoch(dataset, fault):
    """Steps 7 to 12 are those of epoch 1; the last of them spoils a weight that no loss of its epoch shows."""
    spy = Spy()
    device = Faulty(at=12 if "weight" in fault else 9, **fault)
    run = train(Job(dataset, NETWORK), Sequential(BATCH, 0.01), Serial([device]), Schedule(4), callbacks=[spy])
    assert run.diverged
    assert [record["epoch"] for record in run.records] == [0]
    np.testing.assert_array_equal(run.params, spy.centers[0])
    assert np.all(np.isfinite(run.params))
    assert not run.state.any()
    assert run.updates == 0
    assert device.n_steps == device.at, "no further step may run"


def test_a_run_that_diverges_at_once_keeps_the_model_it_began_with(dataset):
    spy = Spy()
    run = train(Job(dataset, NETWORK), Sequential(BATCH, 0.01), Serial([Faulty(at=1)]), Schedule(2), callbacks=[spy])
    assert run.diverged
    assert run.records == []
    np.testing.assert_array_equal(run.params, spy.began[2])


def test_a_run_of_one_epoch_copies_no_model_that_does_not_change(dataset, monkeypatch):
    first = train(Job(dataset, NETWORK), Sequential(BATCH, 0.01), Serial([Reference()]), Schedule(1))
    start = Start(first.params.copy(), first.state.copy(), first.updates, epochs=1, origin=first.params)
    kept = []
    monkeypatch.setattr(KeptModel, "keep", lambda self, flat: kept.append(flat))
    run = train(Job(dataset, NETWORK, start=start), Sequential(BATCH, 0.01), Serial([Faulty(at=2)]), Schedule(1))
    assert run.diverged
    np.testing.assert_array_equal(run.params, first.params)
    assert kept == []


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_a_far_too_large_rate_is_noticed_as_divergence(dataset, loss):
    network, device = Network(12, 9, (8,), loss), CPU(1)
    # NumPy warns of what overflows on the way.
    with device.start(), np.errstate(over="ignore", invalid="ignore"):
        run = train(Job(dataset, network, SGD()), Sequential(BATCH, 1e30), Serial([device]), Schedule(3))
    assert run.diverged
    assert np.all(np.isfinite(run.params))


def test_an_executor_is_closed_when_a_step_fails(dataset):
    class Broken(Reference):
        def drop(self, A, dropout):
            raise RuntimeError("out of order")

    executor = Serial([Broken(), Reference()])
    with pytest.raises(RuntimeError, match="out of order"):
        train(Job(dataset, NETWORK), Sequential(BATCH, 0.01), executor, Schedule(1))
    assert executor.busy == set()


def test_replicas_are_merged_when_the_algorithm_says_so(dataset):
    """Synchronous averaging: a worker that has done its batch of a round waits for the other."""

    class Averaging(Synchronous):
        merges = 0

        def merge(self, comm, members):
            super().merge(comm, members)
            self.merges += 1

    network, algorithm, executor = Network(12, 9, (8,)), Averaging(BATCH, 0.01), Recording([Reference(), Reference()])
    run = train(Job(dataset, network, SGD()), algorithm, executor, Schedule(1, "constant", 0))
    assert [(span.worker, span.start) for span in executor.spans] == [(i % 2, 10 * i) for i in range(6)]
    assert algorithm.merges == 3
    np.testing.assert_allclose(executor.shared.params, np.tile(run.params, (3, 1)), rtol=1e-5, atol=1e-7)
    by_hand = np.zeros(network.layout.size, np.float32)
    network.initialize(by_hand, dataset.Y, 0)
    order = epoch_order(N_ROWS, 0, 0)
    for first in (0, 20, 40):
        models = []
        for start in (first, first + BATCH):
            rows, flat = order[start : start + BATCH], by_hand.copy()
            scale = np.full(len(rows), 1 / len(rows), np.float32)
            layers = network.layers(flat)
            network.step(Reference(), layers, dataset.X, Targets(dataset.Y, rows, scale), SGD().update(0.01, 1), seed=0)
            models.append(flat)
        share = min(2 * BATCH, N_ROWS - first) - BATCH
        by_hand = (BATCH * models[0] + share * models[1]) / (BATCH + share)
    np.testing.assert_allclose(run.params, by_hand, rtol=1e-6, atol=1e-7)


def test_an_algorithm_of_replicas_without_a_merge_is_refused_instead_of_training_nothing(dataset):
    class Unmerged(Sequential):
        sharing = Sharing.REPLICAS

    with pytest.raises(NotImplementedError, match="Unmerged trains replicas but defines no merge"):
        train(Job(dataset, NETWORK), Unmerged(BATCH, 0.01), Serial([Reference()]), Schedule(1))
