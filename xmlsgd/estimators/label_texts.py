"""Label rows: additional training rows, each made of the words of one label's text, with this label alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..data.csr import CSR, Dataset
from ..data.frames import as_list, column_names
from ..data.validation import check_no_index, check_unmasked
from ..data.vectorizer import TextVectorizer, smooth_idf
from ..errors import DataError, shorten
from .inputs import FeatureSpace, as_data_errors
from .names import Names, label_array, python_values, with_new_names
from .targets import Labels


def with_new_labels(labels: Labels, texts: Any) -> Labels:
    """Return label lists with columns for the labels that no row has but `texts`, if a dictionary, names."""
    if labels.form != "lists" or not isinstance(texts, dict):
        return labels
    named = np.sort(label_array(list(texts), "label_texts"))
    names = with_new_names(labels.classes, named.tolist(), "label_texts")
    return Labels(replace(labels.Y, n_cols=len(names)), names, labels.form)


def read_label_rows(texts: Any, labels: Names, X: CSR, features: FeatureSpace) -> Dataset:
    """Return the label rows, each with its label; a label without a known word has none.

    texts : a list with a text or None for each label; a dictionary of texts by label; or a matrix (L, F) of features.
    X : the training rows, whose document frequencies decide the weights of the words of numeric features.
    """
    if column_names(texts) is not None:
        raise DataError(f"label_texts: must be texts by label, got a table {shorten(texts)}; pass {{label: text}}")
    if sp.issparse(texts) or isinstance(texts, CSR) or getattr(texts, "ndim", 1) == 2:
        rows = _read_matrix(texts, (len(labels), features.n_features), features)
    else:
        rows = _vectorizer(X, features).rows_of(_read_texts(texts, labels))
    rows = features.transform(rows)
    named = np.flatnonzero(np.diff(rows.indptr))
    ones = np.ones(len(named), np.float32)
    Y = CSR(np.arange(len(named) + 1, dtype=np.int64), named.astype(np.int32), ones, len(labels))
    return Dataset(rows.take(named), Y)


def _read_texts(texts: Any, labels: Names) -> list[str]:
    """Return the text of each label; "" for labels without one."""
    check_no_index(texts, "label_texts", "series.to_dict()")
    texts = as_list(texts)
    if isinstance(texts, dict):
        column = {label: i for i, label in enumerate(python_values(labels))}
        unknown = [label for label in texts if label not in column]
        if unknown:
            raise DataError(f"label_texts: must name labels of Y, got {shorten(unknown[0])}; add a column for it to Y")
        listed: list[Any] = [None] * len(labels)
        for label, text in texts.items():
            listed[column[label]] = text
    elif isinstance(texts, list | tuple) or (isinstance(texts, np.ndarray) and texts.ndim == 1):
        listed = list(texts)
    else:
        raise DataError(f"label_texts: must be a list, a dictionary or a matrix (L, F), got {shorten(texts)}")
    if len(listed) != len(labels):
        raise DataError(
            f"label_texts: must have a text for each of {len(labels)} labels, got {len(listed)}; "
            "pass {label: text} for some of them"
        )
    for label, text in enumerate(listed):
        if text is not None and not isinstance(text, str):
            raise DataError(f"label_texts: label {label}: must be a string or None, got {shorten(text)}")
    return ["" if text is None else text for text in listed]


def _vectorizer(X: CSR, features: FeatureSpace) -> TextVectorizer:
    """Return the vectorizer that turns label texts into rows with the features of X."""
    if features.vectorizer is not None:
        return features.vectorizer
    names = features.shown
    if names is None:
        raise DataError(
            "label_texts: numeric features have no words; pass feature_names (--feature-names), the word of each "
            "column of X, or, in Python, a matrix of features (L, F)"
        )
    words = [str(name) for name in names]
    if len(set(words)) < len(words):
        different, counts = np.unique(words, return_counts=True)
        raise DataError(f"feature_names: must differ, got {shorten(str(different[counts > 1][0]))} twice")
    from ..candidates.weighting import document_frequency  # here, so that Numba is imported late

    return TextVectorizer.of_words(words, smooth_idf(document_frequency(X)[features.n_landmarks :], X.n_rows))


def _read_matrix(texts: Any, shape: tuple[int, int], features: FeatureSpace) -> CSR:
    """Return a matrix (L, F) of features of labels as a CSR, checked."""
    check_unmasked(texts, "label_texts")
    with as_data_errors("label_texts"):
        matrix = texts if isinstance(texts, CSR) else CSR.from_scipy(sp.csr_array(texts), "label_texts")
    if matrix.shape != shape:
        text = f"label_texts: a matrix must have shape {shape}, labels by features, got {matrix.shape}"
        remedy = "; words of new texts are features, too: pass the texts of the labels, not a matrix"
        raise DataError(f"{text}{remedy if features.vectorizer is not None else ''}")
    return matrix
