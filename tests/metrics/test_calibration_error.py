"""Calibration of predicted probabilities: bins worked by hand, and errors of probabilities that are known."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd.errors import DataError
from xmlsgd.metrics import expected_calibration_error, reliability

Y = sp.csr_array(np.array([[1, 0, 0], [0, 1, 1]]))
LABELS = np.array([[0, 1, -1], [2, 0, 1]])
CHANCES = np.array([[0.9, 0.1, 0.7], [0.8, 0.2, 0.4]])  # 0.7 is of no label


def test_a_reliability_table_worked_by_hand():
    table = reliability(Y, LABELS, CHANCES, n_bins=2)
    np.testing.assert_array_equal(table.edges, [0, 0.5, 1])
    np.testing.assert_array_equal(table.count, [3, 2])
    np.testing.assert_allclose(table.probability, [0.7 / 3, 0.85])
    np.testing.assert_allclose(table.true, [1 / 3, 1])


def test_the_expected_calibration_error_worked_by_hand():
    expected = 3 / 5 * (1 / 3 - 0.7 / 3) + 2 / 5 * 0.15
    assert expected_calibration_error(Y, LABELS, CHANCES, n_bins=2) == pytest.approx(expected)


def test_true_probabilities_have_no_error_and_overconfident_ones_theirs():
    rng = np.random.default_rng(0)
    chances = rng.random((20_000, 1))
    truth = sp.csr_array((rng.random((20_000, 1)) < chances).astype(int))
    labels = np.zeros((20_000, 1), int)
    assert expected_calibration_error(truth, labels, chances) < 0.02
    certain = expected_calibration_error(truth, labels, np.round(chances))
    assert certain == pytest.approx(0.25, abs=0.01), "0 is true in a quarter, and 1 false in a quarter"


def test_probability_one_is_in_the_last_bin_and_empty_bins_are_zero():
    table = reliability(Y, LABELS[:, :1], np.array([[1.0], [1.0]]))
    np.testing.assert_array_equal(table.count, [0] * 9 + [2])
    np.testing.assert_array_equal(table.true, [0] * 9 + [1])


def test_no_predicted_label_has_no_error():
    assert expected_calibration_error(Y, np.full((2, 1), -1), np.zeros((2, 1))) == 0
    assert expected_calibration_error(Y, np.empty((2, 0), int), np.empty((2, 0))) == 0


@pytest.mark.parametrize(
    ("labels", "chances", "n_bins", "message"),
    [
        (LABELS, CHANCES[:1], 10, "labels and probabilities: must be integers and numbers of one shape"),
        (LABELS.astype(float), CHANCES, 10, "labels and probabilities: must be integers"),
        (LABELS, CHANCES + 0.5, 10, r"probabilities: must be in \[0, 1\], got \d"),
        (LABELS, np.where(CHANCES > 0.8, np.nan, CHANCES), 10, r"probabilities: must be in \[0, 1\], got nan"),
        (LABELS, CHANCES, 0, "n_bins: must be an integer from 1 to 1000000, got 0"),
        (LABELS, CHANCES, 10**9, "n_bins: must be an integer from 1 to 1000000, got 1000000000"),
        (LABELS, CHANCES.astype(str), 10, "labels and probabilities: must be integers and numbers"),
        ([[0], [0, 1]], CHANCES, 10, "labels: must have rows of one length"),
        (LABELS[:1], CHANCES[:1], 10, "must have the 2 rows of Y_true, got 1"),
    ],
)
def test_what_does_not_fit_is_refused(labels, chances, n_bins, message):
    with pytest.raises(DataError, match=message):
        reliability(Y, labels, chances, n_bins)
