"""Logistic stacking: its weights, the calibration of margins, held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from shared.candidates import DEVICE, SETTINGS, fit_linear, one_fold, ones
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates.stacking import (
    MIN_COOCCURRENCE,
    MIN_NETWORK,
    MIN_VOTE,
    Inputs,
    LogisticStacking,
    MarginCalibration,
    log_probability,
    meta_features,
)
from xmlsgd.candidates.stacking_training import PROPENSITY_POWER, fit_stacking
from xmlsgd.metrics.propensity import inverse_propensity_of


def test_stacking_finds_the_weights_of_a_logistic_model():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60_000, 4))
    odds = features @ [0.3, 0.9, 2.0, 0.5] - 1.0
    stacking = LogisticStacking.fit(features, rng.random(60_000) < 1 / (1 + np.exp(-odds)))
    np.testing.assert_allclose(stacking, [0.3, 0.9, 2.0, 0.5, -1.0], atol=0.06)


def test_without_margins_other_inputs_stand_for_them():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60_000, 4))
    features[:, 2] += features[:, 3]
    truth = rng.random(60_000) < 1 / (1 + np.exp(-features @ [0.3, 0.9, 2.0, 0.1]))
    selection = LogisticStacking.fit_without_margins(features, truth)
    others = LogisticRegression(C=100).fit(features[:, [0, 1, 3]], truth)
    np.testing.assert_allclose(np.delete(selection[:4], 2), others.coef_[0], rtol=1e-3)
    assert selection.linear == 0
    assert selection.cooccurrence > 5 * LogisticStacking.fit(features, truth).cooccurrence


def test_stacking_keeps_its_defaults_if_all_pairs_are_equal():
    assert LogisticStacking.fit(np.zeros((5, 4)), np.zeros(5, bool)) == LogisticStacking()


def test_what_speaks_against_a_label_is_left_out_and_the_rest_learned_without_it():
    rng = np.random.default_rng(0)
    features = rng.normal([0, 5, 0, 0], size=(20_000, 4))
    features[:, 0] += 0.8 * features[:, 1]  # so that the first weight depends on whether the second is used
    truth = rng.random(20_000) < 1 / (1 + np.exp(4 - features @ [1.0, -0.5, 1.0, 0.5]))
    stacking = LogisticStacking.fit(features, truth)
    assert stacking.neighbors == 0
    alone = LogisticRegression(C=10, tol=1e-8).fit(features[:, [0, 2, 3]], truth)
    np.testing.assert_allclose(np.delete(stacking[:4], 1), alone.coef_[0], rtol=1e-4)
    assert stacking.intercept == pytest.approx(alone.intercept_[0], rel=1e-4)


def test_a_feature_that_is_the_same_for_all_pairs_has_no_weight():
    rng = np.random.default_rng(0)
    features = rng.normal(-6, 3, size=(60_000, 4)).astype(np.float32)
    features[:, 3] = 0  # and warnings are errors: a singular Hessian would be one
    odds = 0.5 * features[:, 0] + 0.5 * features[:, 1] + 6
    stacking = LogisticStacking.fit(features, rng.random(60_000) < 1 / (1 + np.exp(-odds)))
    np.testing.assert_allclose(stacking, [0.5, 0.5, 0, 0, 6], atol=0.2)


def test_margins_are_calibrated_by_how_frequent_a_label_is():
    rng = np.random.default_rng(0)
    features, frequency = rng.normal(size=(60_000, 4)), rng.integers(0, 500, size=60_000).astype(np.float32)
    x = np.log1p(frequency) - np.log1p(frequency).mean()
    odds = features @ [0.3, 0.9, 2.0, 0.5] - 1.0 + x * (0.5 * features[:, 2] - 0.8)
    truth = rng.random(60_000) < 1 / (1 + np.exp(-odds))
    stacking, calibration = LogisticStacking.fit_calibrated(features, truth, frequency)
    np.testing.assert_allclose(stacking, [0.3, 0.9, 2.0, 0.5, -1.0], atol=0.07)
    np.testing.assert_allclose(calibration[:2], [0.25, -0.4], atol=0.03)
    factor, shift = calibration.factor_and_shift(np.array([0, 10, 400], np.float32))
    of_pair = stacking.linear * (factor * 1.5 + shift)
    there = np.log1p([0, 10, 400]) - np.log1p(frequency).mean()
    assert factor[0] == 0  # 1 + 0.25 * -5.2 would turn the margin round
    np.testing.assert_allclose(of_pair[1:], (2.0 * 1.5 + there * (0.5 * 1.5 - 0.8))[1:], atol=0.15)


def test_margins_are_calibrated_also_where_the_network_is_left_out():
    rng = np.random.default_rng(0)
    features, frequency = rng.normal(size=(60_000, 4)), rng.integers(0, 500, size=60_000).astype(np.float32)
    x = np.log1p(frequency) - np.log1p(frequency).mean()
    odds = features @ [-0.3, 0.9, 2.0, 0.5] - 1.0 + x * (0.5 * features[:, 2] - 0.8)
    truth = rng.random(60_000) < 1 / (1 + np.exp(-odds))
    stacking, calibration = LogisticStacking.fit_calibrated(features, truth, frequency)
    np.testing.assert_allclose(stacking, [MIN_NETWORK, 0.9, 2.0, 0.5, -1.0], atol=0.1)
    np.testing.assert_allclose(calibration[:2], [0.25, -0.4], atol=0.03)


def test_of_two_labels_as_probable_the_rarer_one_ranks_first():
    rng = np.random.default_rng(0)
    labels, frequency = np.tile(np.arange(8, dtype=np.int32), (4000, 1)), np.repeat(np.float32([2, 500]), 4)
    margins = rng.normal(size=labels.shape).astype(np.float32)
    truth, nothing = rng.random(labels.shape) < 1 / (1 + np.exp(-margins)), np.zeros(labels.shape, np.float32)
    inputs = Inputs(nothing, nothing, margins, nothing)
    with DEVICE.start():
        stacking, _ = fit_stacking(one_fold(labels, inputs, truth, frequency, 10_000), frequency, DEVICE)
        alike = Inputs(*(each[:1] for each in inputs))._replace(
            margins=stacking.calibration.factor_and_shift(frequency)[1][None]
        )
        scores = stacking.scores(labels[:1], alike, 8, DEVICE)
    rare, frequent = inverse_propensity_of(np.float32([2, 500]), 10_000)
    assert scores[0, 0] - scores[0, 7] == pytest.approx(PROPENSITY_POWER * np.log(rare / frequent), abs=0.1)


def test_weights_of_features_of_a_small_range_are_not_held_back():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1000, 4)) * [1, 1, 0.02, 1]
    truth = rng.random(1000) < 1 / (1 + np.exp(-(features @ [0.3, 0.9, 40.0, 0.5])))
    assert 30 < LogisticStacking.fit(features, truth).linear < 50


@pytest.mark.parametrize("sign", [1, -1])
def test_margins_stay_as_they_are_where_nothing_is_learned_of_them(sign):
    rng = np.random.default_rng(0)
    features, frequency = rng.normal(size=(1000, 4)), np.ones(1000, np.float32)
    assert LogisticStacking.fit_calibrated(features, np.ones(1000, bool), frequency) == (
        LogisticStacking(),
        MarginCalibration(),
    )
    truth = features @ [1, 1, sign, 1] > 0
    stacking, calibration = LogisticStacking.fit_calibrated(features, truth, frequency)
    np.testing.assert_allclose(stacking, LogisticStacking.fit(features, truth), rtol=1e-3)
    assert (stacking.linear == 0) == (sign < 0)
    factor, shift = calibration.factor_and_shift(np.ones(4, np.float32))
    np.testing.assert_allclose([factor, shift], [np.ones(4), np.zeros(4)], atol=1e-5)


def test_a_calibrated_path_has_the_margins_that_its_factors_say(data, rows, monkeypatch):
    monkeypatch.setattr("xmlsgd.candidates.linear.LABELS", 7)
    lists = np.tile(np.arange(80, dtype=np.int32), (600, 1))
    factor, shift = np.random.default_rng(0).random((2, 80)).astype(np.float32)
    with DEVICE.start():
        linear = fit_linear(rows, data.Y, ones(600), lists)
        before = linear.margins(rows, lists, DEVICE)
        after = linear.calibrate_in_place(factor, shift).margins(rows, lists, DEVICE)
    np.testing.assert_allclose(after, factor * before + shift, rtol=1e-4, atol=1e-5)


def test_scores_of_stacking_are_log_odds():
    stacking = LogisticStacking(0.5, 1.0, 2.0, 0.25, -1.0)
    z, votes, margins, cooccurrence = (np.array([x], np.float32) for x in (0.7, 0.25, 0.5, 0.1))
    expected = -0.5 * np.log1p(np.exp(-0.7)) + np.log(0.25) + 2.0 * 0.5 + 0.25 * np.log(0.1) - 1.0
    found, none = stacking.scores(z, votes, margins, cooccurrence), np.zeros(1, np.float32)
    np.testing.assert_allclose(found, [expected], rtol=1e-5)
    features = meta_features(z, votes, margins, cooccurrence)
    np.testing.assert_allclose(features @ np.array(stacking[:4]) + stacking.intercept, found, rtol=1e-5)
    no_vote, unknown = stacking.scores(z, none, margins, cooccurrence), stacking.scores(z, votes, margins, none)
    np.testing.assert_allclose(no_vote - found, np.log(MIN_VOTE / 0.25), rtol=1e-4)
    np.testing.assert_allclose(unknown - found, 0.25 * np.log(MIN_COOCCURRENCE / 0.1), rtol=1e-4)
    assert log_probability(np.float32([-200.0]))[0] == pytest.approx(-200)


def test_where_too_few_rows_are_held_out_the_default_weights_are_used():
    data = make_xmc(99, 500, 200, nnz_per_row=8, labels_per_row=2, random_state=0)
    model = XMLClassifier(**SETTINGS, max_epochs=1, candidates=16).fit(data.X, data.Y)
    assert model.candidates_.stacking.regression == LogisticStacking()
