"""Whether texts become words or n-grams of characters, chosen by what the neighbors of held-out texts say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..data.vectorizer import TextVectorizer, text_without_spaces
from ..errors import DataError

if TYPE_CHECKING:
    from ..data.csr import CSR

# n-grams of four characters suit languages that join and inflect words. Those of one to four suit writing without
# spaces, codes and very short texts, and take twice the time.
LONG, ALL = (4, 4), (1, 4)
MOST_TEXTS, MOST_CHARACTERS = 5000, 300_000  # that are looked at
FEW_TEXTS = 250  # which may share no n-gram
HELD_OUT, LEAST_HELD_OUT = 0.2, 50  # share of these whose neighbors are compared
# n-grams take two to four times the time of words, so their neighbors must find a tenth more true labels among the
# best five (docs/decisions/candidates.md), and more by two standard errors.
BEST, LEAST_GAIN = 5, 0.1


def choose_vectorizer(texts: Sequence[str], Y: CSR) -> TextVectorizer:
    """Return a vectorizer, not fitted, of words, or of the n-grams of characters whose neighbors share more labels.

    Some of the texts are looked at, the same in each run; those without spaces become n-grams, however few they are.
    Y : CSR (n, L).
    """
    words = TextVectorizer()
    random = np.random.default_rng(0)
    drawn = random.permutation(len(texts))[:MOST_TEXTS]
    if len(texts) != Y.n_rows or not all(isinstance(texts[row], str) for row in drawn):  # `fit` refuses them
        return words
    if text_without_spaces([texts[row] for row in drawn]):
        return _of_characters(ALL, min_df=1 if len(texts) < FEW_TEXTS else 2)
    drawn = drawn[: int(np.searchsorted(np.cumsum([len(texts[row]) for row in drawn]), MOST_CHARACTERS))]
    n_held_out = int(HELD_OUT * len(drawn))
    if n_held_out < LEAST_HELD_OUT:
        return words
    held_out, known = drawn[:n_held_out], drawn[n_held_out:]
    best, hits = words, _hits(words, texts, Y, known, held_out)
    for tried in (_of_characters(LONG), _of_characters(ALL)):
        found = _hits(tried, texts, Y, known, held_out)
        gain = found - hits
        if gain.mean() > max(LEAST_GAIN * hits.mean(), 2 * gain.std() / np.sqrt(len(gain))):
            best, hits = tried, found
    return best


def _of_characters(ngram_range: tuple[int, int], min_df: int = 2) -> TextVectorizer:
    return TextVectorizer(min_df=min_df, analyzer="char_wb", ngram_range=ngram_range)


def _hits(
    vectorizer: TextVectorizer, texts: Sequence[str], Y: CSR, known: np.ndarray, held_out: np.ndarray
) -> np.ndarray:
    """Return how many of the labels that the neighbors of each held-out text vote for most it has, int (h,)."""
    from ..candidates.knn import KNNIndex  # here: Numba is loaded late
    from ..candidates.weighting import idf_weights, unit_rows
    from ..devices.cpu import CPU

    fitted, device = TextVectorizer(**vectorizer.options), CPU(1)
    try:
        X = fitted.fit_transform([texts[row] for row in known])
    except DataError:  # not a single word
        return np.zeros(len(held_out), np.intp)
    scale, n_best = idf_weights(X), min(BEST, max(Y.n_cols // 2, 1))
    with device.start():
        index = KNNIndex.build(unit_rows(X, scale, device), Y.take(known), np.ones(len(known), np.float32))
        queries = unit_rows(fitted.transform([texts[row] for row in held_out]), scale, device)
        labels, shares = index.votes(queries, n_best, device)
    truth: np.ndarray = Y.take(held_out).has(labels) & (shares > 0)
    return truth.sum(axis=1)
