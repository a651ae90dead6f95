"""Classifiers of labels that come with added rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import DEVICE, ones
from xmlsgd.candidates.knn import KNNIndex
from xmlsgd.candidates.linear import COST, MARGIN_WITHOUT_ROWS, LinearClassifiers
from xmlsgd.candidates.new_labels import AddedRows, fit_new_labels
from xmlsgd.candidates.weighting import idf, idf_weights, unit_rows
from xmlsgd.data.csr import CSR

N_EARLIER, N_ADDED, NEW = 300, 30, 1


@pytest.fixture(scope="module")
def X() -> CSR:
    """Return earlier rows, and added ones that have one more feature, which earlier rows lack, but else are alike."""
    dense = np.random.default_rng(0).random((N_EARLIER + N_ADDED, 21), np.float32)
    dense[:, :20] *= dense[:, :20] > 0.6
    dense[:, 20] = 1.5 * (np.arange(len(dense)) >= N_EARLIER)
    return CSR.from_scipy(sp.csr_array(dense))


def scale_of(earlier: CSR) -> np.ndarray:
    """Return the weights of all features."""
    return np.append(idf_weights(earlier), idf(np.ones(1), N_EARLIER))


def fitted(X: CSR, is_earlier_counted: bool = True, is_weighted: bool = False) -> LinearClassifiers:
    """Return the classifiers after all earlier rows had label 0 and all added ones have the new label.

    is_weighted : whether they are for rows as the index has them.
    """
    earlier, added = X.span(0, N_EARLIER), X.span(N_EARLIER, X.n_rows)
    known, new = (
        CSR.from_scipy(sp.csr_array(np.eye(2, dtype=np.float32)[[i] * n])) for i, n in ((0, N_EARLIER), (1, N_ADDED))
    )
    earlier = CSR.from_scipy(earlier.to_scipy()[:, :20])
    scale = scale_of(earlier)
    with DEVICE.start():
        before = KNNIndex.build(unit_rows(earlier, scale[:20], DEVICE), known, ones(N_EARLIER) * is_earlier_counted)
        rows = unit_rows(added, scale, DEVICE)
        after = before.with_rows(rows, new, ones(N_ADDED), np.ones(20, bool), DEVICE)
        proposed = np.full((N_ADDED, 4), -1, np.int32)
        proposed[:, 0] = NEW  # a candidate that is true is no negative
        of_added = AddedRows(rows, new, ones(N_ADDED), proposed, np.ones_like(scale) if is_weighted else scale)
        return fit_new_labels(before, after, of_added, np.array([False, True]), COST, DEVICE)


def margins(found: LinearClassifiers, X: CSR, scale: np.ndarray | None = None) -> np.ndarray:
    with DEVICE.start():
        return found.margins(unit_rows(X, scale, DEVICE), np.full((X.n_rows, 1), NEW, np.int32), DEVICE).ravel()


def test_a_new_label_is_told_from_earlier_rows_like_its_own(X):
    found = margins(fitted(X), X)
    assert found[:N_EARLIER].max() < 0
    assert np.mean(found[N_EARLIER:] > 0) > 0.9


def test_margins_of_new_labels_do_not_depend_on_how_rows_are_scaled(X):
    scale = scale_of(CSR.from_scipy(X.to_scipy()[:N_EARLIER, :20]))
    learned, found = margins(fitted(X, is_weighted=True), X, scale), margins(fitted(X), X)
    assert found[N_EARLIER:].mean() == pytest.approx(learned[N_EARLIER:].mean(), abs=0.05)


def test_earlier_rows_of_weight_0_are_no_negatives(X):
    assert margins(fitted(X, is_earlier_counted=False), X)[:N_EARLIER].min() > 0


def test_labels_that_are_not_new_get_no_classifier(X):
    found = fitted(X)
    assert np.diff(found.weights.indptr)[0] == 0
    assert found.bias[0] == MARGIN_WITHOUT_ROWS


def test_new_labels_of_rows_without_features_get_finite_classifiers(X):
    found = fitted(CSR.from_scipy(sp.vstack([X.to_scipy()[:N_EARLIER], sp.csr_array((N_ADDED, X.n_cols))])))
    assert np.isfinite(found.weights.data).all()
    assert np.isfinite(found.bias).all()
