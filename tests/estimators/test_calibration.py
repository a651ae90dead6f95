"""Probabilities that say how often labels are true: calibration of a network's scores on held-out rows."""

from __future__ import annotations

import numpy as np
import pytest

from shared.candidates import ones
from shared.planted import planted, small
from shared.saved_models import rewrite
from xmlsgd import XMLEnsemble, load_model
from xmlsgd.candidates import HeldOutScores
from xmlsgd.data.csr import CSR
from xmlsgd.errors import ModelFileError
from xmlsgd.estimators.calibrated_model import _calibration_of_classes
from xmlsgd.estimators.calibration import UNCALIBRATED, BetaCalibration
from xmlsgd.estimators.thresholds import Thresholds
from xmlsgd.metrics import expected_calibration_error


def sigmoid(z):
    return 1 / (1 + np.exp(-np.asarray(z, float)))


def noisy(n_rows, seed):
    """Return planted rows of which a third of the labels were not written down: no label is certain."""
    X, Y = planted(n_rows, seed)
    Y = Y.tocsr()
    Y.data = (np.random.default_rng(seed).random(Y.nnz) > 1 / 3).astype(Y.dtype)
    Y.eliminate_zeros()
    return X, Y


@pytest.fixture(scope="module")
def overfitted():
    """A model that was trained for far too long, and has held out rows."""
    return small(max_epochs=60, candidates=0).fit(*noisy(1500, 0))


@pytest.fixture(scope="module")
def test_rows():
    return noisy(1500, 1)


def test_the_weights_by_which_classes_were_drawn_are_found():
    rng = np.random.default_rng(0)
    scores = rng.normal(-1, 3, (20_000, 5)).astype(np.float32)
    drawn = BetaCalibration(0.7, 1.6).log_odds(scores) + rng.gumbel(size=scores.shape)
    found = BetaCalibration.fit_classes(scores, drawn.argmax(axis=1))
    assert (found.low, found.high, found.intercept) == (pytest.approx(0.7, abs=0.05), pytest.approx(1.6, abs=0.1), 0)
    padded = np.pad(scores, ((0, 0), (2, 1)), constant_values=-np.inf)
    again = BetaCalibration.fit_classes(padded, 2 + drawn.argmax(axis=1))
    assert (again.low, again.high) == (pytest.approx(found.low, rel=1e-3), pytest.approx(found.high, rel=1e-3))


def test_few_rows_of_one_class_each_do_not_make_probabilities_extreme():
    found = BetaCalibration.fit_classes(np.float32([[3, -2], [-1, 2]]), np.array([0, 1]))
    assert 1 <= found.low < 1.5
    assert 1 <= found.high < 1.5


def test_the_logistic_regression_that_made_the_labels_is_found():
    rng = np.random.default_rng(0)
    scores = rng.normal(-1, 3, 100_000).astype(np.float32)
    truth = rng.random(100_000) < sigmoid(0.4 * scores - 0.7)
    found = BetaCalibration.fit(scores, truth)
    np.testing.assert_allclose([found.low, found.high, found.intercept], [0.4, 0.4, -0.7], atol=0.05)
    np.testing.assert_allclose(found.log_odds([0.0, 2.0]), [-0.7, 0.1], atol=0.05)


def test_a_higher_score_never_means_a_lower_probability():
    scores = np.linspace(-5, 5, 1000, dtype=np.float32)
    for truth in (scores < 0, np.abs(scores) < 1, np.abs(scores) > 4):
        assert (np.diff(BetaCalibration.fit(scores, truth).log_odds(scores)) > 0).all()


@pytest.mark.parametrize("truth", [True, False])
def test_scores_of_pairs_that_are_all_alike_stay_as_they_are(truth):
    assert BetaCalibration.fit(np.zeros(5, np.float32), np.full(5, truth)) == UNCALIBRATED


def test_an_overfitted_network_is_calibrated_on_rows_that_it_has_not_learned(overfitted, test_rows):
    X, Y = test_rows
    labels, scores = overfitted.predict_topk(X, 3)
    same, chances = overfitted.predict_topk(X, 3, proba=True)
    np.testing.assert_array_equal(labels, same)
    raw, calibrated = (expected_calibration_error(Y, labels, each) for each in (sigmoid(scores), chances))
    assert calibrated < 0.5 * raw
    assert raw > 0.1


def test_probabilities_of_all_labels_and_of_the_best_are_the_same(overfitted, test_rows):
    X, _ = test_rows
    labels, chances = overfitted.predict_topk(X, 3, proba=True)
    whole = overfitted.predict_proba(X)
    np.testing.assert_allclose(np.take_along_axis(whole, labels.astype(int), axis=1), chances, rtol=1e-3)
    sparse = overfitted.predict_topk(X, 3, proba=True, as_csr=True)
    np.testing.assert_array_equal(sparse.toarray()[np.arange(X.shape[0])[:, None], labels], chances)


@pytest.mark.parametrize("compact", [False, True])
def test_calibration_and_thresholds_are_saved(overfitted, test_rows, tmp_path, compact):
    overfitted.save(tmp_path / "m", compact=compact)
    again = load_model(tmp_path / "m")
    again.save(tmp_path / "again", compact=compact)
    for model in (again, load_model(tmp_path / "again")):
        assert model.fitted_.calibration == overfitted.fitted_.calibration != UNCALIBRATED
        assert model.thresholds_["micro"] == overfitted.thresholds_["micro"] != 0.5
        np.testing.assert_array_equal(model.thresholds_["macro"], overfitted.thresholds_["macro"])


def test_a_model_that_learns_on_keeps_calibration_and_thresholds(overfitted, test_rows, tmp_path):
    overfitted.save(tmp_path / "m")
    model = type(overfitted).load(tmp_path / "m")
    X, Y = planted(50, 5)
    model.partial_fit(X, np.pad(Y.toarray(), ((0, 0), (0, 3))))
    assert model.fitted_.calibration == overfitted.fitted_.calibration
    macro = model.thresholds_["macro"]
    np.testing.assert_array_equal(macro[:40], overfitted.thresholds_["macro"])
    assert macro[40:].tolist() == [model.thresholds_["micro"]] * 3


def test_an_ensemble_has_the_means_of_its_classifiers(test_rows):
    X, Y = test_rows
    model = XMLEnsemble(small(max_epochs=30), 2, random_state=0).fit(X, Y)
    members = [each.fitted_ for each in model.estimators_]
    assert model.fitted_.calibration == BetaCalibration.mean([each.calibration for each in members])
    assert model.thresholds_["micro"] == pytest.approx(np.mean([each.thresholds.micro for each in members]))


def test_a_mean_counts_every_calibration_and_the_thresholds_of_every_label():
    calibrations = BetaCalibration(1.0, 2.0, 3.0), BetaCalibration(2.0, 4.0, -1.0)
    assert BetaCalibration.mean(calibrations) == BetaCalibration(1.5, 3.0, 1.0)
    thresholds = Thresholds(0.25, np.array([0.5, 0.25])), Thresholds(0.75, np.array([0.5, 0.75]))
    assert Thresholds.mean(thresholds).array.tolist() == [0.5, 0.5, 0.5]


def test_classes_are_calibrated_by_candidates_alone():
    """Rows with fewer candidates than others are padded by labels of -1, whose scores mean nothing."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(5, dtype=np.int32), (200, 1))
    scores = rng.normal(-1, 3, labels.shape).astype(np.float32)
    Y = CSR(np.arange(201), (2 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(np.int32), ones(200), 5)
    found = _calibration_of_classes(HeldOutScores(labels, scores), Y)
    padded = HeldOutScores(*(np.pad(each, ((0, 0), (0, 2)), constant_values=-1) for each in (labels, scores)))
    again = _calibration_of_classes(padded._replace(log_odds=np.where(padded.labels < 0, 9, padded.log_odds)), Y)
    assert found.low > 1.5
    assert (again.low, again.high) == (pytest.approx(found.low, rel=1e-3), pytest.approx(found.high, rel=1e-3))


def test_scores_that_are_no_probabilities_hold_out_no_rows(test_rows):
    X, Y = test_rows
    model = small(max_epochs=1, loss="softmax").fit(X, Y)
    assert model.fitted_.thresholds is None
    assert model.thresholds_["micro"] == 0.5
    assert {d.name: d.value for d in model.plan_.decisions}["held_out_rows"] == 0


@pytest.mark.parametrize(
    ("change", "arrays", "message"),
    [
        ({"calibration": [1, -1, 0]}, {}, "calibration must be two weights above 0 and an intercept, got"),
        ({"calibration": None}, {}, "calibration must be two weights above 0 and an intercept, got None"),
        ({}, {"thresholds": np.full(41, 1.5)}, "thresholds must be between 0 and 1"),
        ({}, {"thresholds": np.full(40, 0.5)}, r"thresholds must be float64 \(41,\), got float64 \(40,\)"),
    ],
)
def test_altered_calibrations_and_thresholds_are_refused(overfitted, tmp_path, change, arrays, message):
    overfitted.save(tmp_path / "m")
    rewrite(tmp_path / "m", change, arrays)
    with pytest.raises(ModelFileError, match=message):
        load_model(tmp_path / "m")
