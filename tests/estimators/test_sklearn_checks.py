"""The estimator keeps scikit-learn's own rules, and works in its tools."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from shared.sklearn_rules import EXPECTED_TO_FAIL
from xmlsgd import XMLClassifier


@pytest.fixture(scope="module")
def rows():
    X, Y = make_multilabel_classification(300, 60, n_classes=8, random_state=0)
    return sp.csr_matrix(X.astype(np.float32)), sp.csr_matrix(Y)


@parametrize_with_checks(
    [XMLClassifier((32,), max_epochs=8)], expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL
)
def test_the_classifier_keeps_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_pipeline_scales_and_classifies():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), XMLClassifier((32,), random_state=0)).fit(X, y)
    assert pipeline.score(X, y) > 0.95
    assert pipeline.predict_proba(X).shape == (150, 3)


def test_a_pipeline_takes_sparse_rows_and_labels(rows):
    X, Y = rows
    pipeline = make_pipeline(Normalizer(), XMLClassifier((32,), random_state=0)).fit(X, Y)
    assert pipeline.predict(X).shape == Y.shape
    assert pipeline.score(X, Y) > 0.8


def test_grid_search_over_sparse_labels_finds_the_rate_that_learns(rows):
    X, Y = rows
    grid = {"learning_rate_init": [1e-7, 4e-3], "hidden_layer_sizes": [(32,)]}
    alone = XMLClassifier(candidates=0, max_epochs=20, random_state=0)
    search = GridSearchCV(alone, grid, cv=KFold(3)).fit(X, Y)
    assert search.best_params_["learning_rate_init"] == 4e-3
    assert search.best_estimator_.predict(X).shape == Y.shape


def test_cross_validation_splits_dense_labels(rows):
    X, Y = rows
    scores = cross_val_score(XMLClassifier((32,), random_state=0), X, Y.toarray(), cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.6


def test_cross_validation_by_search_splits_sparse_labels(rows):
    # cross_val_score itself takes no sparse y (scikit-learn 1.9); a search over one point does the same.
    search = GridSearchCV(XMLClassifier((32,), random_state=0), {}, cv=3, refit=False).fit(*rows)
    assert search.cv_results_["mean_test_score"][0] > 0.6


def test_cross_validation_splits_label_lists(rows):
    X, Y = rows
    lists = [[f"label {label}" for label in row.indices] for row in Y]
    scores = cross_val_score(XMLClassifier((32,), random_state=0), X, lists, cv=KFold(3))
    assert scores.mean() > 0.6


def test_a_clone_has_the_parameters_and_none_of_the_learned(rows):
    model = XMLClassifier((16,), max_epochs=2, random_state=3, optimizer="adagrad").fit(*rows)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "params_")
