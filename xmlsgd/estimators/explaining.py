"""The method `explain` of fitted estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .inference.explanation import Explanation

if TYPE_CHECKING:
    from .classifier import XMLClassifier
    from .ensemble import XMLEnsemble


def explain(model: XMLClassifier | XMLEnsemble, X: Any, labels: Any = None, k: int = 5) -> list[list[Explanation]]:
    """Return what the scores of labels are made of: words, neighbors, co-occurrence and network.

    Parameters
    ----------
    X : matrix, CSR or texts
        Rows (n, F) as in `fit`.
    labels : array of int (m,), optional
        The columns to explain; by default the k best of each row.
    k : int
        Labels per row, where `labels` are not given.

    Returns
    -------
    list of list of Explanation
        Of each row, the label with the highest score first.
    """
    from .inference.explaining import explain_row  # here, so that an estimator can be made without loading Numba

    rows = model._read(X)
    best, scores = model.predict_topk(rows, k if labels is None else max(np.size(labels), 1), labels=labels)
    features, classes = model.fitted_.features, model.fitted_.classes
    words = features.names if features.vectorizer is None else features.vectorizer.words
    explained = []
    for i in range(rows.n_rows):
        row, listed = rows.span(i, i + 1), best[i] >= 0
        scorer = model._scorer(row)
        members = [explain_row(each, row, best[i][listed]) for each in getattr(scorer, "scorers", [scorer])]
        found = [Explanation.mean(each) for each in zip(*members, strict=True)]
        if len(members) == 1:
            given = zip(found, scores[i][listed].tolist(), strict=True)
            found = [replace(each, score=score) for each, score in given]
        names = classes[best[i][listed]].tolist()
        named = [each.named(name, words) for each, name in zip(found, names, strict=True)]
        explained.append(sorted(named, key=lambda each: -each.score))  # means need not be in the order of the ranking
    return explained
