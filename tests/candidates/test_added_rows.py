"""Rows that a model with candidates learns later."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import DEVICE, SETTINGS
from xmlsgd import XMLClassifier
from xmlsgd.candidates import linear
from xmlsgd.candidates.stacking import MarginCalibration
from xmlsgd.data.csr import CSR
from xmlsgd.estimators.initial_model import grown_start
from xmlsgd.metrics import precision_at_k


@pytest.fixture(scope="module")
def parts(many):
    """Return rows and labels of two parts; labels 0 to 99 come in the second only."""
    X, Y = many[0].X.to_scipy(), many[0].Y.to_scipy()
    is_second = np.asarray(Y[:, :100].sum(axis=1)).ravel() > 0
    return (X[~is_second], Y[~is_second]), (X[is_second], Y[is_second])


@pytest.fixture(scope="module")
def first(parts):
    """Return a model of the first part."""
    return XMLClassifier(**SETTINGS).fit(*parts[0])


@pytest.fixture
def model(first):
    """Return a copy of the model of the first part, for a test to teach."""
    return copy.deepcopy(first)


def precision(model, rows, k=1):
    return precision_at_k(rows.Y, model.predict_topk(rows.X)[0], k)[-1]


def test_labels_that_come_later_get_classifiers_and_are_found(many, parts, model):
    new = many[1].Y.to_scipy()[:, :100].sum(axis=1) > 0
    X, Y = many[1].X.to_scipy()[new], sp.csr_array(many[1].Y.to_scipy()[new][:, :100])

    def found():
        best = model.predict_topk(X, 5)[0]
        return sum(len({*best[i]} & {*Y.indices[Y.indptr[i] : Y.indptr[i + 1]]}) for i in range(len(best))) / Y.nnz

    assert not np.diff(model.candidates_.linear.weights.indptr)[:100].any()
    assert found() == 0
    before = precision(model, many[1], 5)
    model.partial_fit(*parts[1])
    assert np.diff(model.candidates_.linear.weights.indptr)[:100].all()
    assert found() > 0.2
    assert precision(model, many[1], 5) > before + 0.02


def test_rows_without_features_change_no_linear_classifier(parts, model):
    X, Y = parts[0]
    before = model.candidates_.linear.bias.copy()
    model.partial_fit(sp.csr_array((50, X.shape[1])), Y[:50])
    np.testing.assert_array_equal(model.candidates_.linear.bias, before)


def test_known_weights_are_kept_however_many_chunks_labels_are_solved_in(parts, model, monkeypatch):
    """A chunk has room for the known weights of its labels, too, of which some have far more than new rows."""
    X, Y = parts[0]
    X, Y = sp.vstack([X[:30]] + 20 * [X[:1]]), sp.vstack([Y[:30]] + 20 * [Y[:1]])
    learned = []
    for chunks in (1, 8, 100):
        monkeypatch.setattr(linear, "CHUNKS", chunks)
        learned.append(copy.deepcopy(model).partial_fit(X, Y).candidates_.linear)
    for other in learned[1:]:
        np.testing.assert_array_equal(other.weights.indptr, learned[0].weights.indptr)
        np.testing.assert_array_equal(other.weights.data, learned[0].weights.data)


def grown(model, rows, calibration):
    """Return the classifiers of a model with this calibration of margins after further rows."""
    before = model.candidates_
    before = replace(before, stacking=before.stacking._replace(calibration=calibration))
    X, Y = map(CSR.from_scipy, rows)
    return before.with_rows(X, Y, np.ones(X.n_rows, np.float32), 0, DEVICE).linear


def test_the_margin_of_a_label_that_comes_without_rows_is_calibrated_as_that_of_others(parts, model):
    (X, Y), calibration = parts[0], MarginCalibration(slope=-0.2, shift=0.3, mean=2.0)
    wider = sp.hstack([Y[:30], sp.csr_array((30, 1))]).tocsr()
    factor, shift = calibration.factor_and_shift(np.zeros(1, np.float32))
    assert grown(model, (X[:30], wider), calibration).bias[-1] == pytest.approx(float(shift[0] - factor[0]))


def test_classifiers_stay_finite_where_calibration_has_made_their_margins_zero(parts, model):
    X, Y = parts[0]
    found = grown(model, (X[:30], Y[:30]), MarginCalibration(slope=-10.0))
    assert np.isfinite(found.bias).all()
    assert np.isfinite(found.weights.data).all()


def test_new_labels_are_rarely_the_best_of_earlier_rows(parts, model):
    model.partial_fit(*parts[1])
    assert np.mean(model.predict_topk(parts[0][0], 1)[0] < 100) < 0.1


def test_the_network_learns_new_labels_at_a_higher_rate_than_known_ones(parts, model):
    def outputs():
        return model.fitted_.network.layout.views(model.fitted_.params)["W1"]

    before = outputs().copy()
    model.partial_fit(*parts[1])
    change = np.abs(outputs() - before).mean(axis=1)
    assert change[:100].mean() > 10 * change[100:].mean() > 0


def test_rows_learned_one_by_one_do_no_harm(many, parts, model):
    before = precision(model, many[1])
    for i in range(40):
        model.partial_fit(parts[1][0][[i]], parts[1][1][[i]])
    assert precision(model, many[1]) > before - 0.01
    assert model.candidates_.knn.Y.n_rows == parts[0][0].shape[0] + 40


def test_only_labels_that_rows_have_or_are_offered_change(parts, model):
    before = model.candidates_
    model.partial_fit(parts[1][0][[0]], parts[1][1][[0]])
    old, new = (each.linear.weights.to_scipy() for each in (before, model.candidates_))
    changed = np.flatnonzero((abs(old - new)).sum(axis=1))
    assert 0 < len(changed) <= parts[1][1][[0]].nnz + before.n_voted + 16
    assert np.isin(parts[1][1][[0]].indices, changed).all()


def test_the_bias_of_a_new_label_starts_at_its_frequency_among_all_rows(parts, model):
    Y, fitted = parts[1][1][[0]], model.fitted_
    n_known, twice = fitted.n_samples_seen, CSR.from_scipy(sp.vstack([Y, Y]).tocsr())
    for rows, n_label_rows in ((CSR.from_scipy(Y), 0), (twice, 1)):  # the last is of a label text: not counted
        start = grown_start(fitted, model.plan_, rows, n_label_rows)
        bias = fitted.network.layout.views(start.params)["b1"][Y.indices[Y.indices < 100]]
        np.testing.assert_allclose(bias, np.log(1.01 / (n_known + 2)), rtol=1e-4)


def test_a_model_that_was_saved_learns_the_same(parts, model, tmp_path):
    model.save(tmp_path / "m")
    again = XMLClassifier.load(tmp_path / "m").set_params(n_jobs=1)
    for each in (model, again):
        each.partial_fit(parts[1][0][:50], parts[1][1][:50])
    for a, b in zip(model.predict_topk(parts[0][0]), again.predict_topk(parts[0][0]), strict=True):
        np.testing.assert_array_equal(a, b)
