"""Linear classifiers that are trained again with the held-out rows, once these have been scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared.candidates import DEVICE, SETTINGS, ones
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates.fitting import CandidateRows, fit_unstacked
from xmlsgd.candidates.linear import LinearClassifiers
from xmlsgd.data.csr import Dataset
from xmlsgd.estimators import candidate_training, planning


@pytest.fixture(scope="module")
def rows() -> Dataset:
    return make_xmc(1000, 300, 600, nnz_per_row=8, labels_per_row=2, random_state=0)


def test_held_out_rows_are_scored_by_classifiers_that_have_not_learned_them(rows):
    without = CandidateRows(rows, ones(1000), np.arange(0, 1000, 10), 16)
    first, again = (fit_unstacked(replace(without, refit=refit), DEVICE) for refit in (False, True))
    assert isinstance(first.model.linear, LinearClassifiers)
    assert isinstance(again.model.linear, LinearClassifiers)
    np.testing.assert_array_equal(again.margins, first.margins)
    learned, learned_again = (np.diff(each.weights.indptr) > 0 for each in (first.model.linear, again.model.linear))
    bias, bias_again = first.model.linear.bias, again.model.linear.bias
    of_held_out = np.setdiff1d(
        rows.Y.row_entries(without.held_out), rows.Y.row_entries(np.flatnonzero(without.learned))
    )
    assert len(of_held_out)
    assert not learned[of_held_out].any()
    assert learned_again[of_held_out].all()
    assert (bias_again[of_held_out] != bias[of_held_out]).all()


@pytest.mark.parametrize(("share", "expected"), [(0.04, True), (0.2, False)])
def test_classifiers_learn_the_held_out_rows_where_these_are_many(rows, monkeypatch, share, expected):
    asked, fit = [], fit_unstacked

    def noted(rows, cpu):
        asked.append(rows)
        return fit(rows, cpu)

    monkeypatch.setattr(planning, "SMALL_ROWS", 0)  # no folds
    monkeypatch.setattr(candidate_training, "REFIT_SHARE", share)
    monkeypatch.setattr(candidate_training, "fit_unstacked", noted)
    XMLClassifier(**SETTINGS, candidates=16, max_epochs=1).fit(rows.X, rows.Y)
    assert [each.refit for each in asked] == [expected]
    assert len(asked[0].held_out) == 100
