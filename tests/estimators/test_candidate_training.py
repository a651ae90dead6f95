"""Candidates that are learned while the network is trained: the same model, and nothing goes on after an error."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import SETTINGS
from shared.processes import wait_for
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates import CandidateModel, HeldOutScores, fitting
from xmlsgd.candidates.serialization import to_arrays
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.cpu import CPU, device
from xmlsgd.estimators import candidate_training, planning, workers
from xmlsgd.estimators.candidate_training import CandidateTraining
from xmlsgd.training.callbacks import Callback


@pytest.fixture(scope="module")
def rows() -> Dataset:
    return make_xmc(800, 200, 100, nnz_per_row=6, labels_per_row=2, random_state=0)


@pytest.fixture
def concurrent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planning, "thread_count", lambda n_jobs, flops=math.inf: 2)


def new_model(**given) -> XMLClassifier:
    return XMLClassifier(**SETTINGS, candidates=16, max_epochs=2, **given)


def is_learning() -> bool:
    return any(thread.name == "candidates" for thread in threading.enumerate())


class Interrupting(Callback):
    """Is interrupted after the first epoch."""

    def epoch(self, record, center) -> bool:
        raise KeyboardInterrupt


def test_entries_of_zero_change_nothing(rows):
    X, Y = rows.X.to_scipy(), rows.Y.to_scipy()
    all_stored = sp.csr_array(np.ones(X.shape, np.float32))
    all_stored.data[:] = X.toarray().ravel()
    models = [new_model().fit(each[:700], Y[:700]).partial_fit(each[700:], Y[700:]) for each in (X, all_stored)]
    without, with_zeros = (model.predict_topk(X, 5) for model in models)
    np.testing.assert_array_equal(without[0], with_zeros[0])
    np.testing.assert_array_equal(without[1], with_zeros[1])
    scores = [models[0].decision_function(each) for each in (X, all_stored, CSR.from_scipy(all_stored))]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_a_model_is_the_same_whether_candidates_are_learned_beside_the_network_or_after(rows, monkeypatch):
    fitted = []
    monkeypatch.setattr(planning, "thread_count", lambda n_jobs, flops=math.inf: 2)
    for beside in (False, True):
        monkeypatch.setattr(planning, "_plan_concurrency", lambda *_, beside=beside: beside)
        model = new_model()
        assert model.plan(rows.X, rows.Y).concurrent_candidates is beside
        fitted.append(model.fit(rows.X, rows.Y).fitted_)
    (after, _), (during, _) = (to_arrays(each.candidates) for each in fitted)
    assert after.keys() == during.keys()
    for name, array in after.items():
        np.testing.assert_array_equal(array, during[name], err_msg=name)
    np.testing.assert_array_equal(fitted[0].params, fitted[1].params)


def test_network_and_candidates_use_half_of_the_threads_until_the_other_is_done(rows, monkeypatch):
    launched: set[tuple[str, int]] = set()

    def noting(launch: Callable[..., None]) -> Callable[..., None]:
        def noted(*given: Any) -> None:
            launched.add((threading.current_thread().name, given[-1]))
            launch(*given)

        return noted

    monkeypatch.setattr(planning, "thread_count", lambda n_jobs, flops=math.inf: 2)
    with monkeypatch.context() as context:
        context.setattr(planning, "_plan_concurrency", lambda *_: False)
        alone = new_model().fit(rows.X, rows.Y).fitted_
    # The classifiers wait for the network, as either side may be the faster one.
    is_trained, wait, score = threading.Event(), CandidateTraining._base_models, fitting._fit_and_score

    def waited(self):
        self._has_network.set()
        is_trained.set()
        return wait(self)

    def scored_late(*given):
        assert is_trained.wait(60)
        return score(*given)

    monkeypatch.setattr(CandidateTraining, "_base_models", waited)
    monkeypatch.setattr(fitting, "_fit_and_score", scored_late)
    monkeypatch.setattr(CPU, "_set_threads", noting(CPU._set_threads))
    monkeypatch.setattr(device, "run_parts", noting(device.run_parts))
    beside = new_model().fit(rows.X, rows.Y).fitted_
    assert launched == {(name, n) for name in ("MainThread", "candidates") for n in (1, 2)}
    np.testing.assert_array_equal(beside.params, alone.params)


def test_what_learns_candidates_ends_when_the_network_is_interrupted(rows, concurrent):
    model = new_model()
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows.X, rows.Y, callbacks=[Interrupting()])
    wait_for(lambda: not is_learning())
    assert model.fitted_.candidates is None  # the network alone is kept
    assert model.predict_topk(rows.X, 3)[0].shape == (800, 3)


def test_no_kernel_starts_once_training_is_over():
    stopped = threading.Event()
    cpu = candidate_training._StoppableCPU(1, stopped)
    stopped.set()
    with pytest.raises(RuntimeError, match="stopped"):
        cpu.run_converted(None)


def test_an_error_of_candidates_is_raised_when_the_network_is_trained(rows, concurrent, monkeypatch):
    def failing(rows, cpu):
        raise MemoryError("of candidates")

    monkeypatch.setattr(candidate_training, "fit_base_models", failing)
    model = new_model()
    with pytest.raises(MemoryError, match="of candidates"):
        model.fit(rows.X, rows.Y)
    assert len(model.history_) == model.plan(rows.X, rows.Y).schedule.epochs
    assert model.fitted_.candidates is None


@pytest.mark.parametrize(
    ("n_jobs", "devices", "expected"),
    [(None, "cpu", True), (8, "cpu", True), (2, "cpu", True), (1, "cpu", False), (-1, "cpu*2", False)],
)
def test_with_several_threads_and_one_worker_candidates_are_learned_beside_the_network(
    rows, monkeypatch, n_jobs, devices, expected
):
    monkeypatch.setattr(workers, "usable_threads", lambda: 8)
    plan = new_model(devices=devices).set_params(n_jobs=n_jobs).plan(rows.X, rows.Y)
    assert plan.concurrent_candidates is expected


@pytest.mark.parametrize("n_errors", [1, 2])
def test_a_warning_needs_a_network_that_is_a_tenth_better(n_errors):
    numbers = np.arange(20)
    labels = (numbers % 4).astype(np.int32)[:, None]
    Y = CSR(np.arange(21), labels.ravel(), np.ones(20, np.float32), 5)
    ranked = HeldOutScores(np.where(numbers[:, None] < n_errors, np.int32(4), labels), np.ones((20, 1), np.float32))
    fold = candidate_training.ScoredFold(0, numbers, None, labels, np.zeros((2, 1)))
    data = SimpleNamespace(all_rows=Dataset(Y, Y))
    with pytest.warns(UserWarning, match="is 90.0 % with candidates") if n_errors == 2 else nullcontext():
        candidate_training._warn_if_network_is_better([fold], ranked, data)


def test_candidates_use_the_cores_that_a_step_cannot_feed(rows, monkeypatch):
    monkeypatch.setattr(workers, "usable_threads", lambda: 4)
    model = new_model().set_params(n_jobs=None)
    plan = model.plan(rows.X, rows.Y)
    assert (plan.n_threads, plan.n_candidate_threads) == (1, 4)
    calls: list[tuple[str, int]] = []

    def noted(kernel, n_parts: int, arguments, n_threads: int) -> None:
        calls.append((threading.current_thread().name, n_threads))
        run_parts(kernel, n_parts, arguments, n_threads)

    run_parts = device.run_parts
    monkeypatch.setattr(device, "run_parts", noted)
    model.fit(rows.X, rows.Y)
    counts = {n for name, n in calls if name == "candidates"}
    assert 3 in counts
    assert counts <= {3, 4}
    assert {n for name, n in calls if name == "MainThread"} == {1, 4}  # steps, stacking


def test_partial_fit_learns_candidates_on_these_cores_too(rows, monkeypatch):
    monkeypatch.setattr(workers, "usable_threads", lambda: 4)
    model, used = new_model().set_params(n_jobs=None).fit(rows.X, rows.Y), []

    def noted(self, X, Y, weight, n_label_rows, device):
        used.append(device.n_threads)
        return with_rows(self, X, Y, weight, n_label_rows, device)

    with_rows = CandidateModel.with_rows
    monkeypatch.setattr(CandidateModel, "with_rows", noted)
    model.partial_fit(rows.X, rows.Y)
    assert used == [model.plan_.n_candidate_threads] == [4]
