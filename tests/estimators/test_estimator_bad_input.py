"""Rows, parameters and arguments that break a rule are refused in one line that says what was got."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.ma import masked_array as masked

from shared.planted import N_LABELS, small
from xmlsgd import CSR, DataError
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.nn.optimizers import SGD, Adam


class Unrated(SGD):
    """SGD of which no learning rate is known."""

    default_rate = None


X2, Y2 = sp.csr_array(np.eye(2)), sp.csr_array(np.eye(2))


def whole(n_cols=2, dtype=np.float32):
    """Return the unit matrix of two rows as our own rows."""
    return CSR(np.arange(3), np.arange(2, dtype=np.int32), np.ones(2, dtype), n_cols)


FLAWED = CSR(np.array([0, 2]), np.array([0, 9], np.int32), np.ones(2, np.float32), 2)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (X2, sp.csr_array(np.eye(3)), "X and Y must have the same number of rows, got 2 and 3"),
        (X2, [["a"]], "X and Y must have the same number of rows, got 2 and 1"),
        (X2, np.array([1, 2, 3]), "X and Y must have the same number of rows, got 2 and 3"),
        (np.array([[0, 1], [np.nan, 1]]), Y2, "X: row 1: .*got nan in column 0; give missing values a number"),
        (np.array([[0, 1e60], [1, 1]]), Y2, "X: row 0: .*must be finite"),
        (sp.csr_array([[0, 1], [np.inf, 1]]), Y2, "X: row 1: values must be finite float32, got inf in column 0$"),
        (FLAWED, Y2[:1], r"X: indices: must be in \[0, 2\), got 9 in row 0"),
        (X2[:1], FLAWED, r"Y: indices: must be in \[0, 2\), got 9 in row 0"),
        (CSR(np.array([0, 1]), np.array([0]), np.ones(1), 2), Y2[:1], "X: must be of int64, int32 and float32 arrays"),
        (
            CSR(np.array([1, 1]), np.array([0], np.int32), np.ones(1, np.float32), 2),
            Y2[:1],
            "X: indptr: must lead from 0 to 1, got 1 and 1",
        ),
        (X2, sp.csr_array((2, 4)), "Y: must have at least one label, got none in 2 rows"),
        (X2, [[], []], "Y: must have at least one label, got none in 2 rows"),
        (X2, sp.csr_array((2, 0)), r"Y: must have at least one label column, got shape \(2, 0\)"),
        (X2, np.array([[0, 2], [1, 0]]), "Y: row 0: an indicator must hold 0 and 1, got 2 in column 1"),
        (X2, np.array([["a", "b"], ["a", "c"]]), "Y: row 0: an indicator must hold 0 and 1, got .*; pass lists of"),
        (X2, np.array([[1, 0], [None, 1]]), "Y: row 1: an indicator must hold 0 and 1, got None; give missing cells"),
        (X2, [], r"Y: must have at least one row and one column, got shape \(0,\)"),
        (X2, [["a"], "bc"], "Y: row 1: must be a list of labels, got 'bc'"),
        (X2, [["a"], [0.5]], "Y: row 1: a label must be an int or a string, got 0.5"),
        (X2, [["a"], [3]], "Y: row 1: labels must be all of one type, got .* and .*; strings suit all"),
        (X2, np.array([0.5, 0.7]), "Unknown label type"),
        (X2, None, "requires y to be passed"),
        (np.ones(3), Y2, "Expected 2D array"),
        ("cat kitten", Y2, r"X: must be a list of texts or a matrix, got one text 'cat kitten'; pass \[text\]"),
        (whole(dtype=">f4"), Y2, "X: must be of int64, int32 and float32 arrays, got int64, int32, >f4"),
        (whole(n_cols="x"), Y2, "X: n_cols must be an integer, got 'x'"),
        (X2, whole(n_cols=2.0), "Y: n_cols must be an integer, got 2.0"),
    ],
)
def test_bad_rows_are_refused_with_a_reason(X, Y, message):
    with pytest.raises(ValueError, match=message):
        small().fit(X, Y)


@pytest.mark.skipif(X2[0].ndim == 2, reason="SciPy before 1.15 has rows of two dimensions")
@pytest.mark.parametrize("call", ["fit", "partial_fit", "predict", "predict_topk", "explain"])
def test_a_row_of_a_sparse_array_is_refused_as_one_of_a_dense_array_is(call):
    given = (Y2[:1],) if "fit" in call else ()
    with pytest.raises(DataError, match=r"X: Expected 2D array, got shape \(2,\). Reshape your data"):
        getattr(small().fit(X2, Y2), call)(X2[0], *given)


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_a_call_without_labels_is_refused_with_a_remedy(learn):
    with pytest.raises(DataError, match=r"requires y to be passed, but the target y is None; pass labels$"):
        getattr(small(), learn)(X2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes: must be 'auto' or one or more positive integers"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes: .*got"),
        ({"hidden_layer_sizes": 64}, "hidden_layer_sizes: .*got 64"),
        ({"loss": "mse"}, "loss must be one of bce, softmax, got 'mse'"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of adagrad, .*got 'lbfgs'"),
        ({"optimizer": Unrated()}, "learning_rate_init: no rate is known for .*pass a number"),
        ({"learning_rate": "step"}, "learning_rate must be one of constant, .*got 'step'"),
        ({"learning_rate": 0.1}, r"got 0.1; the rate itself is learning_rate_init \(--lr\)"),
        ({"learning_rate_init": 0}, "learning_rate_init: must be 'auto' or above 0, got 0"),
        ({"learning_rate_init": math.nan}, "learning_rate_init: must be 'auto' or above 0, got nan"),
        ({"batch_size": 0}, "batch_size: must be 'auto' or a positive integer, got 0"),
        ({"max_epochs": 1.5}, "max_epochs: must be 'auto' or a positive integer, got 1.5"),
        ({"negatives": 0}, "negatives: must be 'auto', 'all' or a positive integer, got 0"),
        ({"negatives": "none"}, "negatives: must be 'auto', 'all' or a positive integer, got 'none'"),
        ({"negatives": np.array([1, 2])}, "negatives: must be 'auto', 'all' or a positive integer, got array"),
        ({"candidates": -1}, "candidates: must be 'auto', 0 or a positive integer, got -1"),
        ({"candidates": True}, "candidates: must be 'auto', 0 or a positive integer, got True"),
        ({"n_epochs_no_change": 0}, "n_epochs_no_change: must be a positive integer, got 0"),
        ({"warm_up": 1}, r"warm_up: must be in \[0, 1\), got 1"),
        ({"hidden_dropout": 1.0}, r"hidden_dropout: must be in \[0, 1\), got 1.0"),
        ({"hidden_dropout": "0.5"}, r"hidden_dropout: must be in \[0, 1\), got '0.5'"),
        ({"weight_decay": -1}, "weight_decay: must be 0 or above, got -1"),
        ({"validation_fraction": 0}, r"validation_fraction: must be in \(0, 1\), got 0"),
        ({"class_weight": "balanced"}, "class_weight: must be None unless Y has one class per row, got labels"),
        (
            {"algorithm": Sequential(64, 0.01), "batch_size": 32},
            r"batch_size: is part of the algorithm, got 32 beside Sequential\(batch=64, learning_rate=0.01\); leave it",
        ),
        (
            {"algorithm": Sequential(64, 0.01), "learning_rate_init": 0.1},
            "learning_rate_init: is part of the algorithm",
        ),
        ({"optimizer": Adam(), "clip_norm": 1.0}, r"clip_norm: is part of the optimizer, got it beside Adam\("),
        ({"algorithm": "annealing"}, "algorithm must be one of .*got 'annealing'"),
        ({"devices": "abacus"}, "devices: must be of the kinds cpu, cuda, got 'abacus'"),
        ({"devices": "cpu*" + "9" * 5000}, "devices: must be kind:index.learners, as in 'cpu.2', got 'cpu.999"),
        ({"precision": "float8"}, "precision must be one of .*got 'float8'"),
        ({"n_jobs": 0}, "n_jobs: must be None or an integer other than 0, got 0"),
    ],
)
def test_a_parameter_outside_its_range_is_refused(rows, parameters, message):
    with pytest.raises(DataError, match=message):
        small(**parameters).fit(*rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_weight": [1, 2]}, "sample_weight: must have one value for each of 600 rows, got 2"),
        ({"sample_weight": -np.ones(600)}, "sample_weight: row 0: must be finite and not negative, got -1"),
        ({"sample_weight": np.full(600, 1e38)}, r"must be 0 or 1e-20 to 1e\+09, got 1e\+38 in row 0; scale them"),
        ({"sample_weight": np.full(600, 1e-30)}, r"must be 0 or 1e-20 to 1e\+09, got 1e-30 in row 0; scale them"),
        ({"sample_weight": np.zeros(600)}, "sample_weight: must have at least one value above zero"),
        ({"sample_weight": "heavy"}, "sample_weight: must be numbers, got 'heavy'"),
        ({"label_names": ["a"]}, "Y: must have a column for each of the 1 named labels, got 40; name all of them"),
        ({"label_names": [math.nan] * N_LABELS}, "label_names: a label must be finite, got nan"),
        ({"label_names": masked(np.arange(N_LABELS))}, "label_names: masked arrays are not supported, got one; pass a"),
        ({"groups": masked(np.zeros(600, int))}, "groups: masked arrays are not supported"),
        ({"label_texts": masked(np.ones((N_LABELS, 120)))}, "label_texts: masked arrays are not supported"),
        ({"eval_set": 3}, r"eval_set: must be a pair \(X, Y\), got 3"),
        ({"eval_set": (X2, Y2)}, "eval_set: X has 2 features, but XMLClassifier is expecting 120 features as input"),
        ({"eval_set": (sp.csr_array((2, 120)), [1, 2])}, "eval_set: Y: must have the form of the training labels"),
        ({"eval_set": (sp.csr_array((2, 120)), sp.csr_array((3, 40)))}, "eval_set: X and Y must have the same number"),
    ],
)
def test_bad_arguments_of_fit_are_refused(rows, arguments, message):
    with pytest.raises(DataError, match=message):
        small().fit(*rows, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k: must be an integer of at least 1, got 0"),
        ({"k": 2.0}, "k: must be an integer of at least 1, got 2.0"),
        ({"threshold": math.nan}, r"threshold: must be a probability in \[0, 1\], 'micro' or 'macro', got nan"),
        ({"threshold": 10**400}, r"threshold: must be a probability in \[0, 1\], 'micro' or 'macro', got 1000"),
        ({"labels": [40]}, r"labels: must be columns in \[0, 40\), got 40"),
        ({"labels": []}, "labels: must be a list of column numbers"),
        ({"labels": masked(np.arange(2))}, "labels: masked arrays are not supported"),
        ({"exclude": masked(np.arange(2))}, "exclude: masked arrays are not supported"),
        ({"label_weight": masked(np.ones(N_LABELS))}, "label_weight: masked arrays are not supported"),
        ({"labels": ["a"]}, "labels: must be of classes_, got 'a'"),
        ({"exclude": ["a"]}, "exclude: must be of classes_, got 'a'"),
        ({"exclude": [0.5]}, r"exclude: must be a list of column numbers, or of names that are strings, got \[0.5\]"),
    ],
)
def test_bad_arguments_of_predict_topk_are_refused(fitted, rows, arguments, message):
    with pytest.raises(DataError, match=message):
        fitted.predict_topk(rows[0], **arguments)


def test_partial_fit_refuses_fewer_features_labels_and_another_form(rows):
    X, Y = rows
    model = small().partial_fit(X, Y)
    with pytest.raises(DataError, match="X has 100 features, but XMLClassifier is expecting 120"):
        model.partial_fit(X[:, :100], Y)
    with pytest.raises(DataError, match="Y: must have a column for each of the 40 labels named or seen before, got 39"):
        model.partial_fit(X, Y[:, :39])
    with pytest.raises(
        DataError, match="Y: must have the form of the training labels, label lists or an indicator matrix"
    ):
        model.partial_fit(X, np.zeros(600, int))


@pytest.mark.parametrize(
    ("X", "Y", "told"),
    [
        ([b"read a", b"file"], np.eye(2), r"X: must be texts or numbers, got bytes, b'read a'; decode them"),
        ([["a"], ["b", "c"]], np.eye(2), r"X: .* got lists of words, \['a'\]; are X and Y swapped\?"),
        (
            np.array([[1, "one text"], [2, "another"]], dtype=object),
            [["a"], ["b"]],
            r"with texts in column 1; pass that column alone, or .* ColumnTransformer\(\[\('text', Text",
        ),
        (
            np.array([["new", 1, "one text"], ["used", 2, "another"]], dtype=object),
            [["a"], ["b"]],
            r"ColumnTransformer\(\[\('text', TextVectorizer\(\), 2\), \('classes', OneHotEncoder\(.*\), \[0\]\)\], ",
        ),
        (
            np.array([["a rather short title", "used", "one text that is longer"], ["", "new", ""]], dtype=object),
            [["a"], ["b"]],
            r"\('text', TextVectorizer\(\), 2\), \('text1', TextVectorizer\(\), 0\), \('classes', .*, \[1\]\)\], ",
        ),
        ((row for row in np.eye(2)), [["a"], ["b"]], r"X: must have a length, got a generator; pass list\(...\) of it"),
        (np.eye(2), (labels for labels in (["a"], ["b"])), r"Y: must have a length, got a generator; pass list"),
    ],
    ids=["bytes", "swapped", "texts", "classes", "two texts", "generator of rows", "generator of labels"],
)
def test_what_only_looks_like_rows_or_labels_is_refused_with_what_would_do(X, Y, told):
    with pytest.raises(DataError, match=told):
        small().fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": ["bce"]}, "loss must be one of bce, softmax, got ['bce']"),
        ({"optimizer": ["adam"]}, "optimizer must be one of adagrad, adam"),
        ({"learning_rate": ["linear"]}, "learning_rate must be one of constant"),
        ({"learning_rate_init": np.array([1, 2])}, "learning_rate_init: must be 'auto' or above 0, got array([1, 2])"),
        ({"learning_rate_init": 10**400}, "learning_rate_init: must be 'auto' or above 0, got 1000"),
        ({"clip_norm": 1e300}, "clip_norm: must be 0 or above, got 1e+300"),
        ({"hidden_layer_sizes": [[1], [2, 3]]}, "hidden_layer_sizes: must be 'auto' or one or more positive integers"),
        ({"early_stopping": "yes"}, "early_stopping: must be True or False, got 'yes'"),
        ({"warm_start": "no"}, "warm_start: must be True or False, got 'no'"),
        ({"verbose": "x"}, "verbose: must be 0 or 1, got 'x'"),
        ({"verbose": 2}, "verbose: must be 0 or 1, got 2"),
        ({"algorithm": 5}, "algorithm: must be a name or an Algorithm such as LocalSGD(), got 5"),
        ({"precision": np.array(["a", "b"])}, "precision must be one of"),
        ({"n_jobs": "2"}, "n_jobs: must be None or an integer other than 0, got '2'"),
        *(
            ({"random_state": seed}, "random_state: must be None, an integer in [0, 4294967295] or a RandomState, got ")
            for seed in ("x", -1, 2**70, 1.5, [1], np.random.default_rng(0))
        ),
    ],
)
def test_a_strange_parameter_is_refused(parameters, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        small(**parameters).fit(X2, Y2)
