"""Folds of held-out rows: each is rated by models that have not learned it."""

from __future__ import annotations

import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from shared.candidates import SETTINGS
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates import fitting as candidate_fitting
from xmlsgd.data.csr import Dataset, stacked
from xmlsgd.data.held_out import HELD_OUT_SMALL
from xmlsgd.estimators import candidate_training, fitting, planning
from xmlsgd.estimators.held_out import folds_to_hold_out
from xmlsgd.estimators.training_data import GivenRows, read_training_data
from xmlsgd.training.callbacks import Callback, Evaluation
from xmlsgd.training.learner import Learner


@pytest.fixture(scope="module", autouse=True)
def few_folds() -> None:
    """Have as many folds as users have."""


@pytest.fixture(scope="module")
def rows() -> Dataset:
    return make_xmc(1000, 300, 600, nnz_per_row=8, labels_per_row=2, random_state=0)


def new_model(**given) -> XMLClassifier:
    return XMLClassifier(**{**SETTINGS, "candidates": 16, "max_epochs": 1, **given})


def test_each_fold_is_scored_by_a_network_and_classifiers_that_have_not_learned_it(rows, monkeypatch):
    networks, biases, given = [], [], []
    train, fit = fitting._train, candidate_fitting.fit_base_models

    def noted_train(plan, job, *others, **named):
        networks.append(job.sample_weight)
        biases.append(plan.network.layout.views(job.start.params)[plan.network.output_bias].copy())
        return train(plan, job, *others, **named)

    def noted_fit(found, cpu):
        given.append(found)
        return fit(found, cpu)

    monkeypatch.setattr(fitting, "_train", noted_train)
    monkeypatch.setattr(candidate_training, "fit_base_models", noted_fit)
    model = new_model().fit(rows.X, rows.Y)
    (candidates,) = given  # learned once, for all folds
    assert candidates.weight.all()
    left_out = [np.flatnonzero(weight == 0) for weight in networks]
    assert [len(fold) for fold in left_out] == [100] * 6
    assert len(np.unique(np.concatenate(left_out))) == 600
    for number, weight in enumerate(networks):
        np.testing.assert_array_equal(weight, candidates.weight_without_fold(number))
        np.testing.assert_array_equal(biases[number], model.network_.initial_biases(rows.Y, weight))
    assert len(model.history_) == 1


@pytest.mark.parametrize(
    ("n_rows", "given", "held_out", "folds"),
    [
        (90, {}, 0, 0),
        (500, {}, 500, 10),
        (1000, {}, 600, 6),
        (3000, {}, 600, 2),
        (10_000, {}, 1000, 1),
        (10_001, {}, 1000, 1),
        (30_000, {}, 2000, 1),
        (1000, {"devices": "cpu*2"}, 100, 1),
    ],
)
def test_small_data_are_held_out_in_turn(n_rows, given, held_out, folds):
    X, Y = np.eye(n_rows, 100, dtype=np.float32), np.eye(n_rows, 100, dtype=np.int64)
    plan = new_model(**given).plan(X, Y)
    found = {decision.name: decision.value for decision in plan.decisions}
    assert (found["held_out_rows"], found["folds"], plan.n_folds) == (held_out, folds, folds)
    assert plan.n_temporary_networks == max(folds - 1, 0)  # the network that is kept leaves out one fold


def test_warm_start_scores_held_out_rows_by_a_network_that_starts_anew(monkeypatch):
    """Its own network has learned them before."""
    rows = make_xmc(10_500, 300, 200, nnz_per_row=4, labels_per_row=2, random_state=0)
    model = new_model(warm_start=True).fit(rows.X, rows.Y)
    weights, starts, train = [], [], fitting._train

    def noted(plan, job, *others, **named):
        weights.append(job.sample_weight)
        starts.append(job.start.epochs)
        return train(plan, job, *others, **named)

    monkeypatch.setattr(fitting, "_train", noted)
    planned, needed = model.plan(rows.X, rows.Y).to_dict(), model.estimate_memory(rows.X, rows.Y)
    model.fit(rows.X, rows.Y)
    assert (weights[0], starts) == (None, [1, 0])
    assert planned == {**model.plan_.to_dict(), "memory": planned["memory"]}
    assert planned["folds"]["reason"].endswith("a temporary network leaves out each fold")
    assert needed["folds"] > model.set_params(warm_start=False).estimate_memory(rows.X, rows.Y)["folds"] == 0
    assert np.count_nonzero(weights[1] == 0) == 1050


def test_an_error_in_a_fold_keeps_the_network(rows, monkeypatch):
    model = new_model()

    def failing(self, number, device, params):
        raise MemoryError("of a fold")

    monkeypatch.setattr(candidate_training.CandidateTraining, "score_fold", failing)
    with pytest.raises(MemoryError, match="of a fold"):
        model.fit(rows.X, rows.Y)
    assert model.fitted_.candidates is None
    assert len(model.history_) == 1


def test_folds_train_for_as_many_epochs_as_the_model_and_measure_nothing(rows, monkeypatch):
    runs, train = [], fitting._train

    def noted(plan, job, device, callbacks, *others, **named):
        run = train(plan, job, device, callbacks, *others, **named)
        runs.append((len(run.records), any(isinstance(each, Evaluation) for each in callbacks)))
        return run

    class Stop(Callback):
        def epoch(self, record, center) -> bool:
            return record["epoch"] == 1

    monkeypatch.setattr(fitting, "_train", noted)
    new_model(max_epochs=5).fit(rows.X, rows.Y, eval_set=(rows.X, rows.Y), callbacks=[Stop()])
    assert runs == [(2, True), *[(2, False)] * 5]


def test_folds_train_with_the_learning_rates_of_the_epochs_that_early_stopping_keeps(rows, monkeypatch):
    monkeypatch.setattr(planning, "FOLDED_ROWS", 300)
    runs, train, step = [], fitting._train, Learner.train_span

    def noted_train(*given, **named):
        runs.append([])
        return train(*given, **named)

    def noted_step(self, task, *others):
        runs[-1].append((task.epoch, task.learning_rate))
        return step(self, task, *others)

    class SecondIsBest(Evaluation):
        def epoch(self, record, center) -> bool:
            record["P@1"] = float(record["epoch"] == 1)
            return False

    monkeypatch.setattr(fitting, "_train", noted_train)
    monkeypatch.setattr(fitting, "Evaluation", SecondIsBest)
    monkeypatch.setattr(Learner, "train_span", noted_step)
    model = new_model(max_epochs=9, early_stopping=True, n_epochs_no_change=2)
    model.fit(rows.X, rows.Y, eval_set=(rows.X, rows.Y))
    whole, *of_folds = runs
    assert whole[-1][0] == 3
    assert of_folds == [[each for each in whole if each[0] <= 1]] * 2


def test_folds_train_for_all_epochs_of_a_model_that_diverged_while_early_stopping_waited(rows, monkeypatch):
    lengths, train = [], fitting._train

    class Poison(Callback):
        def epoch(self, record, center) -> bool:
            if record["epoch"] == 2:
                center[:] = np.nan
            return False

    def noted(*given, **named):
        run = train(*given, **named)
        lengths.append(len(run.records))
        return run

    monkeypatch.setattr(planning, "FOLDED_ROWS", 200)
    monkeypatch.setattr(fitting, "_train", noted)
    model = new_model(max_epochs=5, early_stopping=True, tol=1.0, n_epochs_no_change=9)
    with pytest.warns(ConvergenceWarning, match="the last good model is kept"):
        model.fit(rows.X, rows.Y, eval_set=(rows.X, rows.Y), callbacks=[Poison()])
    assert lengths == [3, 3]


def test_folds_train_for_all_epochs_of_a_model_that_goes_on(rows, monkeypatch):
    monkeypatch.setattr(planning, "FOLDED_ROWS", 200)
    model = new_model(max_epochs=2, warm_start=True).fit(rows.X, rows.Y).fit(rows.X, rows.Y)
    model.partial_fit(rows.X.span(0, 10), rows.Y.span(0, 10))
    lengths, train = [], fitting._train

    def noted(*given, **named):
        run = train(*given, **named)
        lengths.append(len(run.records))
        return run

    monkeypatch.setattr(fitting, "_train", noted)
    X, Y = (stacked([each, each.span(0, 10)]) for each in (rows.X, rows.Y))
    model.fit(X, Y)
    assert lengths == [2, 6, 6]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes")
def test_an_error_in_a_fold_tells_the_epochs_of_the_model_alone(rows, monkeypatch):
    train, n = fitting._train, 0

    class Failing(Callback):
        def span(self, report) -> None:
            if n == 2:
                raise MemoryError("of a fold")

    def noted(plan, job, device, callbacks, *others, **named):
        nonlocal n
        n += 1
        return train(plan, job, device, [*callbacks, Failing()], *others, **named)

    monkeypatch.setattr(fitting, "_train", noted)
    with pytest.raises(MemoryError) as raised:
        new_model(max_epochs=3).fit(rows.X, rows.Y)
    (told,) = raised.value.__notes__
    assert "is kept, 3 whole epochs of this run" in told


def test_candidates_are_kept_if_calibration_fails(rows, monkeypatch):
    def failing(*_):
        raise MemoryError("of calibration")

    monkeypatch.setattr(fitting, "calibrated", failing)
    model, whole = new_model(max_epochs=3), new_model(max_epochs=3)
    with pytest.raises(MemoryError):
        model.fit(rows.X, rows.Y)
    monkeypatch.undo()
    whole.fit(rows.X, rows.Y)
    for found, expected in zip(model.predict_topk(rows.X, 5), whole.predict_topk(rows.X, 5), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_memory_estimate_counts_the_networks_of_folds_beside_that_of_the_model(rows):
    parts, n = new_model().estimate_memory(rows.X, rows.Y), new_model().plan(rows.X, rows.Y).n_temporary_networks
    assert n > 1
    assert parts["folds"] == (1 + n) * parts["parameters"] + parts["optimizer_state"]


def test_rows_of_weight_0_are_neither_held_out_nor_counted_as_copies(rows):
    X, Y = (each.take(np.append(np.arange(1000), np.zeros(800, np.intp))) for each in (rows.X, rows.Y))
    given = GivenRows(X, Y, sample_weight=np.repeat([1.0, 0.0], [1000, 800]))
    data = read_training_data(new_model(), given)
    folds = folds_to_hold_out(data, HELD_OUT_SMALL, 6, 0)  # and warnings are errors
    assert np.concatenate(folds).max() < 1000


def test_a_fold_that_diverges_is_left_out(rows, monkeypatch):
    train, n = fitting._train, 0

    def diverging(*given, **named):
        nonlocal n
        run, n = train(*given, **named), n + 1
        return replace(run, diverged=n == 2)

    monkeypatch.setattr(fitting, "_train", diverging)
    rated = []

    def noted(fitted, data, rows, *_):
        rated.append(rows)
        return fitted

    monkeypatch.setattr(fitting, "calibrated", noted)
    assert new_model().fit(rows.X, rows.Y).candidates_ is not None
    assert len(rated[0]) == 500


def test_the_device_of_a_temporary_network_is_freed_once_its_fold_is_scored(rows, monkeypatch):
    """A device in bfloat16 keeps its packed output layer, which is half as large as the network."""
    devices, alive, score = [], [], candidate_training.CandidateTraining.score_fold

    def noted_score(self, number, device, params):
        devices.append(weakref.ref(device))
        alive.append(sum(device() is not None for device in devices))
        return score(self, number, device, params)

    monkeypatch.setattr(candidate_training.CandidateTraining, "score_fold", noted_score)
    new_model().fit(rows.X, rows.Y)
    assert alive == [1] * 6
