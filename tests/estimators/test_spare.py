"""Calls of `partial_fit` with few rows write over a model that nobody holds any more, and over no other."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from shared.planted import small
from xmlsgd.estimators.spare import Spare

CALLS = range(8)


@pytest.fixture
def taken(monkeypatch):
    """A list that tells of each look at spare arrays whether they were taken."""
    found, take = [], Spare.take

    def noted(spare):
        arrays = take(spare)
        found.append(arrays is not None)
        return arrays

    monkeypatch.setattr(Spare, "take", noted)
    return found


def learner(**parameters):
    """Return a classifier that draws few of the labels."""
    return small(negatives=6, **parameters)


def learn(model, rows, calls=CALLS):
    """Learn one row a call."""
    X, Y = rows
    for i in calls:
        model.partial_fit(X[i : i + 1], Y[i : i + 1])
    return model


def arrays_of(fitted):
    return fitted.params, fitted.optimizer.state


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"hidden_layer_sizes": (16, 8), "hidden_dropout": 0.5},
        {"weight_decay": 0.1, "input_dropout": 0.2},
        {"clip_norm": 0.1},
        {"optimizer": "adagrad"},
        {"optimizer": "row_adagrad"},
        {"optimizer": "momentum", "weight_decay": 0.01},
        {"optimizer": "sgd"},
        {"sampler": "lsh"},
    ],
    ids=str,
)
def test_what_is_written_over_is_what_a_copy_would_be(parameters, rows, taken, monkeypatch):
    found = arrays_of(learn(learner(**parameters), rows).fitted_)
    assert taken == [True] * (len(CALLS) - 2)  # the first model is the start, the second has none before it
    monkeypatch.setattr(Spare, "take", lambda spare: None)
    assert_same(found, arrays_of(learn(learner(**parameters), rows).fitted_))


def test_models_that_somebody_holds_stay_as_they_were(rows, taken):
    model, held, copies = learner(), [], []
    for i in CALLS:
        held.append(arrays_of(learn(model, rows, [i]).fitted_))
        copies.append([array.copy() for array in held[-1]])
    assert not any(taken)
    for found, wanted in zip(held, copies, strict=True):
        assert_same(found, wanted)


@pytest.mark.parametrize("which", [0, 1], ids=["parameters", "state"])
def test_a_view_of_part_of_a_model_holds_it(which, rows, taken):
    model = learn(learner(), rows)
    view = arrays_of(model.fitted_)[which][8:80].reshape(2, 36)
    before = view.copy()
    del taken[:]
    learn(model, rows, [8, 9, 10])
    assert taken == [True, False, True]
    np.testing.assert_array_equal(view, before)


def test_of_two_models_that_go_on_from_one_only_one_gets_its_spare_arrays(rows, taken):
    model = learn(learner(), rows)
    other, before = copy.copy(model), model.fitted_.params.copy()
    del taken[:]
    learn(model, rows, [8])
    np.testing.assert_array_equal(other.fitted_.params, before)
    learn(other, rows, [8])
    assert taken == [True, False]
    assert_same(arrays_of(model.fitted_), arrays_of(other.fitted_))


def test_a_pickle_has_no_spare_arrays_and_learns_the_same(rows, taken):
    model = learn(learner(), rows)
    again = pickle.loads(pickle.dumps(model))
    del taken[:]
    assert_same(*(arrays_of(learn(each, rows, [8]).fitted_) for each in (again, model)))
    assert taken == [False, True]


def test_a_call_that_learns_much_keeps_no_arrays(rows):
    model = learn(learner(), rows)
    assert model.fitted_.optimizer.spare is not None
    model.partial_fit(*rows)
    assert model.fitted_.optimizer.spare is None


def test_another_optimizer_begins_with_a_copy(rows, taken):
    model = learn(learner(), rows)
    del taken[:]
    learn(model.set_params(optimizer="sgd"), rows, [8])
    assert not taken


def test_more_features_begin_with_a_copy(rows, taken):
    model = learn(learner(), rows)
    del taken[:]
    X, Y = rows
    wider = sp.csr_array(sp.hstack([X[8:9], np.ones((1, 1), np.float32)]))
    model.partial_fit(wider, Y[8:9])
    assert model.n_features_in_ == X.shape[1] + 1
    assert not taken


def test_fit_lets_go_of_spare_arrays(rows):
    model = learn(learner(max_epochs=1), rows)
    earlier = model.fitted_
    model.fit(*rows)
    assert earlier.optimizer.spare.take() is None
