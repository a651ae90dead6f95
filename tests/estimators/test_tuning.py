"""The search for parameters: never below the given ones, within its limits, reproducible by its seed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from optuna.trial import FixedTrial

from xmlsgd import DataError, DivergenceError, XMLClassifier, make_xmc, tune
from xmlsgd.estimators import tuning
from xmlsgd.estimators.training_data import GivenRows

ROWS = make_xmc(300, 60, 20, nnz_per_row=8, labels_per_row=2)
MODEL = XMLClassifier(max_epochs=2, random_state=0, n_jobs=1)


def without_times(trials):
    """Return trials as they compare."""
    return [(trial.parameters, trial.value) for trial in trials]


def test_the_first_trial_has_the_given_parameters_and_the_best_is_not_below_it():
    seen = []
    found = tune(ROWS.X, ROWS.Y, MODEL, n_trials=4, seconds=math.inf, callback=seen.append)
    assert found.trials == seen
    assert found.trials[0].parameters == {}
    assert found.best.value == max(trial.value for trial in found.trials) >= found.trials[0].value > 0
    assert len({str(trial.parameters) for trial in found.trials}) == 4
    assert not hasattr(MODEL, "fitted_")


def test_the_best_parameters_make_an_estimator():
    found = tune(ROWS.X, ROWS.Y, MODEL, n_trials=2, seconds=math.inf)
    model = XMLClassifier(**MODEL.get_params() | found.trials[1].parameters).fit(ROWS.X, ROWS.Y)
    assert model.score(ROWS.X, ROWS.Y) > 0.1


@pytest.mark.parametrize("seconds", ["a", None, 0, math.nan])
def test_a_time_budget_that_is_no_positive_number_is_refused(seconds):
    with pytest.raises(DataError, match="seconds: must be above 0, got"):
        tune(ROWS.X, ROWS.Y, MODEL, seconds=seconds)


def test_a_parameter_given_as_an_array_is_not_searched():
    model = XMLClassifier(hidden_layer_sizes=np.array([8]), max_epochs=2, random_state=0, n_jobs=1)
    found = tune(ROWS.X, ROWS.Y, model, n_trials=3, seconds=math.inf)
    assert not any("hidden_layer_sizes" in trial.parameters for trial in found.trials)


def test_the_same_seed_gives_the_same_trials():
    first, again = (tune(ROWS.X, ROWS.Y, MODEL, n_trials=3, seconds=math.inf) for _ in range(2))
    assert without_times(first.trials) == without_times(again.trials)
    other = tune(ROWS.X, ROWS.Y, XMLClassifier(max_epochs=2, random_state=1, n_jobs=1), n_trials=3, seconds=math.inf)
    assert without_times(other.trials) != without_times(first.trials)


def test_a_trial_has_names_for_factors_that_are_not_those_of_parameters():
    model = XMLClassifier(random_state=0, n_jobs=1)
    data = model._read_rows(GivenRows(ROWS.X, ROWS.Y))
    plan, _ = model._planned(data)
    space = tuning.SearchSpace(model, plan, data)
    drawn = {"max_epochs_factor": 2, "learning_rate_factor": 1, "hidden_dropout_tenths": 3}
    found = space.parameters(FixedTrial(space.defaults | drawn))
    assert (found["max_epochs"], found["hidden_dropout"]) == (2 * plan.schedule.epochs, 0.3)
    assert found["learning_rate_init"] == pytest.approx(plan.learning_rate, rel=0.05)


def test_no_more_rows_than_the_limit_are_validation_rows(monkeypatch):
    monkeypatch.setattr(tuning, "MOST_ROWS", 20)
    model = XMLClassifier((8,), candidates=0, max_epochs=1, random_state=0, n_jobs=1)
    assert tune(ROWS.X, ROWS.Y, model, n_trials=1, seconds=math.inf).n_validation == 20


def test_parameters_that_are_given_are_not_searched():
    model = XMLClassifier((8,), max_epochs=1, hidden_dropout=0.1, candidates=8, random_state=0, n_jobs=1)
    found = tune(ROWS.X, ROWS.Y, model, n_trials=3, seconds=math.inf)
    assert [set(trial.parameters) for trial in found.trials] == [set(), {"learning_rate_init"}, {"learning_rate_init"}]


def test_candidates_are_searched_where_the_plan_has_them():
    rows = make_xmc(700, 200, 600, nnz_per_row=8, labels_per_row=2)
    model = XMLClassifier((8,), max_epochs=1, hidden_dropout=0.1, learning_rate_init=0.01, random_state=0, n_jobs=1)
    assert model.plan(rows.X, rows.Y).n_candidates == 64
    found = tune(rows.X, rows.Y, model, n_trials=4, seconds=math.inf)
    assert {name for trial in found.trials for name in trial.parameters} == {"candidates"}


def test_no_trial_begins_after_the_time_is_up():
    assert len(tune(ROWS.X, ROWS.Y, MODEL, seconds=1e-9).trials) == 1


def test_a_trial_that_trains_beyond_the_time_does_not_count(monkeypatch):
    clock = itertools.count()  # a second at each look
    monkeypatch.setattr(tuning, "now", lambda: next(clock))
    assert len(tune(ROWS.X, ROWS.Y, MODEL, seconds=4.5).trials) == 1
    clock = itertools.count()
    assert len(tune(ROWS.X, ROWS.Y, MODEL, seconds=9.5).trials) == 2


@pytest.mark.parametrize(
    "metric", ["nDCG@3", "R@5", "PSP@1", "coverage@2", "psndcg@3", "PSR@2", "micro F1@3", "micro F1", "macro F1"]
)
def test_every_metric_can_be_searched_by(metric):
    (trial,) = tune(ROWS.X, ROWS.Y, MODEL, metric=metric, n_trials=1).trials
    assert 0 < trial.value <= 100


def test_whole_groups_are_validation_rows_and_trials_know_the_others(monkeypatch):
    fit, given = XMLClassifier._fit_data, []

    def noted(self, data, *arguments):
        given.append(data.groups)
        return fit(self, data, *arguments)

    monkeypatch.setattr(XMLClassifier, "_fit_data", noted)
    found = tune(ROWS.X, ROWS.Y, MODEL, n_trials=1, groups=np.arange(300) // 25)
    assert found.n_validation == 25
    assert [np.unique(groups, return_counts=True)[1].tolist() for groups in given] == [[25] * 11]


def test_trials_learn_label_texts(monkeypatch):
    measured = []

    def noted(model, rows):
        measured.append(model)
        return 0.0

    monkeypatch.setattr(tuning, "_find_metric", lambda name: noted)
    texts, labels = ["read a file", "open a socket", "parse a text"] * 20, [["read"], ["open"], ["parse"]] * 20
    model = XMLClassifier(max_epochs=20, candidates=4, random_state=0, n_jobs=1)
    tune(texts, labels, model, n_trials=1, label_texts={"read": "file", "close": "file"})
    assert measured[0].label_counts_.tolist()[-1] == 0
    n_learned, n_label_rows = 54, 2
    assert measured[0].candidates_.knn.Y.n_rows == n_learned + n_label_rows


def test_texts_and_label_lists_are_searched_with():
    texts = ["read a file", "open a socket", "parse a text"] * 20
    labels = [["file"], ["net", "socket"], ["text"]] * 20
    model = XMLClassifier(early_stopping=True, n_epochs_no_change=99, random_state=0, n_jobs=1)
    assert tune(texts, labels, model, n_trials=1, metric="P@1").best.value > 50


def test_a_trial_that_diverges_is_none_of_the_best(monkeypatch):
    fit, calls = XMLClassifier._fit_data, []

    def diverging(self, *arguments):
        calls.append(self)
        if len(calls) == 2:
            raise DivergenceError("loss is not finite")
        return fit(self, *arguments)

    monkeypatch.setattr(XMLClassifier, "_fit_data", diverging)
    found = tune(ROWS.X, ROWS.Y, MODEL, n_trials=3, seconds=math.inf)
    assert [math.isnan(trial.value) for trial in found.trials] == [False, True, False]
    assert found.best is not found.trials[1]
    calls[:] = [None]
    with pytest.raises(DivergenceError):
        tune(ROWS.X, ROWS.Y, MODEL, n_trials=1)


def test_a_trial_without_a_value_is_never_the_best():
    trials = [tuning.Trial({}, value, 1.0) for value in (math.nan, 30.0, math.nan, 20.0)]
    assert tuning.best_of(trials) is trials[1]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"metric": "P"}, "metric: must be a name and a rank, as in nDCG@5, or micro F1 or macro F1, got 'P'"),
        ({"metric": "accuracy"}, "got 'accuracy'; names are coverage, macro F1, macro_precision, macro_recall, "),
        ({"metric": "p@1"}, "metric: must be a name and a rank"),
        ({"metric": "P@0"}, "metric: must be a name and a rank"),
        ({"seconds": 0}, "seconds: must be above 0, got 0"),
        ({"n_trials": 0}, "n_trials: must be an integer of at least 1, got 0"),
        ({"groups": np.zeros(300, int)}, "X: must have 10 rows, and a group of at most a tenth"),
        ({"model": XMLClassifier(max_epochs=-1)}, "max_epochs: must be"),
    ],
)
def test_what_cannot_be_searched_is_an_error(options, complaint):
    with pytest.raises(DataError, match=complaint):
        tune(ROWS.X, ROWS.Y, **{"model": MODEL, "n_trials": 1, **options})


def test_one_class_a_row_is_refused():
    with pytest.raises(DataError, match="y: must be label lists or an indicator, got one class per row"):
        tune(ROWS.X, np.arange(300) % 3, MODEL, n_trials=1)
