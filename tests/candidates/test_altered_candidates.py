"""Saved candidate models that were altered are refused, with what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shared.candidates import SETTINGS
from xmlsgd import XMLClassifier
from xmlsgd.candidates.serialization import from_arrays, to_arrays
from xmlsgd.data.files.folders import FolderArrays
from xmlsgd.errors import ModelFileError


@pytest.fixture(scope="module")
def saved(data):
    """Return the description and the arrays of a candidate model."""
    return to_arrays(XMLClassifier(**SETTINGS).fit(data.X, data.Y).candidates_)


def read(described, arrays):
    """Read a candidate model for 300 features and 80 labels."""
    return from_arrays(described, FolderArrays(arrays, Path("model")), (300, 80))


def test_an_unaltered_candidate_model_is_read(saved):
    assert read(*saved).n_voted == 64


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("linear_indices", lambda a: a + 10_000, "linear_indices: must be in"),
        ("postings_indptr", lambda a: a + 1, "postings_indptr: must lead from 0"),
        ("bias", lambda a: a * np.nan, "bias must be finite"),
        ("scale", lambda a: a[:-1], "scale must be float32"),
        ("labels_indices", lambda a: a.astype(np.int64), "labels_indices must be uint16"),
        ("postings_data", lambda a: a * 0 + 1e30, "postings_data must be within -1 and 1"),
        ("weight", lambda a: -a, "weight must be at least 0"),
        ("cooccurrence_indices", lambda a: a + 10_000, "cooccurrence_indices: must be in"),
        ("cooccurrence_data", lambda a: a + 1, "cooccurrence_data must be within -1 and 1"),
        ("cooccurrence_totals", lambda a: -a, "cooccurrence_totals must be at least 0"),
    ],
)
def test_altered_arrays_of_a_candidate_model_are_refused(saved, name, change, complaint):
    described, arrays = saved
    altered = {f"candidates_{name}": change(arrays[f"candidates_{name}"])}
    with pytest.raises(ModelFileError, match=complaint):
        read(described, arrays | altered)


@pytest.mark.parametrize(
    "weights", [[1, 2, None, 4, 5], [1, 1e39, 3, 4, 5], [10**400, 2, 3, 4, 5], [-0.1, 2, 3, 4, 5], [1, 2, 3, 4], 7]
)
@pytest.mark.parametrize("name", ["stacking", "selection"])
def test_altered_weights_of_a_regression_are_refused(saved, name, weights):
    described, arrays = saved
    with pytest.raises(ModelFileError, match="candidates must have size, cost, stacking"):
        read({**described, name: weights}, arrays)


@pytest.mark.parametrize("weights", [[1, None], [1, 1e39], [0, 2], [1], [1, 2, 3], "12", None])
def test_altered_scores_of_other_labels_are_refused(saved, weights):
    described, arrays = saved
    with pytest.raises(ModelFileError, match="candidates must have size, cost, stacking"):
        read({**described, "non_candidates": weights}, arrays)


def test_more_candidates_than_labels_are_refused(saved):
    described, arrays = saved
    with pytest.raises(ModelFileError, match="the size at most 80, got"):
        read({**described, "size": 81}, arrays)
