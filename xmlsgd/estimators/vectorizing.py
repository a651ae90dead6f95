"""Choose words or n-grams of characters by the accuracy of k-NN on held-out texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..data.csr import CSR
from ..data.vectorizer import TextVectorizer, text_without_spaces
from ..errors import DataError

# n-grams of four characters suit languages that compound and inflect words. Those of one to four suit scripts without
# spaces, codes and very short texts, and take twice the time.
FOUR, ONE_TO_FOUR = (4, 4), (1, 4)
MOST_TEXTS, MOST_CHARACTERS = 5000, 300_000  # most texts, and most characters in all, that are compared
LONGEST = 1_000  # most characters of each text that are compared
FEW_TEXTS = 250  # fewer texts may have no n-gram in common
HELD_OUT, LEAST_HELD_OUT = 0.2, 50  # share, and least number, of the texts on which k-NN is evaluated
# n-grams take two to four times the time of words. So they must find a tenth more true labels among the best TOP_K
# (docs/decisions/texts.md), and more by two standard errors.
TOP_K, LEAST_GAIN = 5, 0.1


def choose_vectorizer(texts: Sequence[str], Y: CSR) -> TextVectorizer:
    """Return an unfitted vectorizer of words or of n-grams of characters; its `reason` says why.

    A random sample of the texts decides, the same in each run. Texts without spaces always become n-grams. Y : labels
    of the texts, CSR (n, L).
    """
    random = np.random.default_rng(0)
    drawn = random.permutation(len(texts))[:MOST_TEXTS]
    if len(texts) != Y.n_rows or not all(isinstance(texts[row], str) for row in drawn):
        return TextVectorizer()  # `fit` refuses these texts
    if text_without_spaces([texts[row] for row in drawn]):
        min_df = 1 if len(texts) < FEW_TEXTS else 2
        return _because("most texts have hardly any spaces", _of_characters(ONE_TO_FOUR, min_df))
    read = {row: texts[row][:LONGEST] for row in drawn}
    drawn = drawn[: int(np.searchsorted(np.cumsum([len(text) for text in read.values()]), MOST_CHARACTERS))]
    n_held_out = int(HELD_OUT * len(drawn))
    if n_held_out < LEAST_HELD_OUT:
        return _because("there are too few texts to compare n-grams of characters", TextVectorizer())
    held_out, known = drawn[:n_held_out], drawn[n_held_out:]
    words = best = TextVectorizer()
    hits = hits_of_words = _hits(words, read, Y, known, held_out)
    tried = ""
    for ngrams in (_of_characters(FOUR), _of_characters(ONE_TO_FOUR)):
        found = _hits(ngrams, read, Y, known, held_out)
        gain = found - hits
        if gain.mean() > max(LEAST_GAIN * hits.mean(), 2 * gain.std() / np.sqrt(len(gain))):
            best, hits = ngrams, found
        tried += f", {found.sum()} by n-grams of {'-'.join(map(str, sorted(set(ngrams.ngram_range))))} characters"
    why = f"of {n_held_out} held-out texts, neighbors find {hits_of_words.sum()} labels by words{tried}"
    return _because(why, best)


def _because(reason: str, vectorizer: TextVectorizer) -> TextVectorizer:
    vectorizer.reason = reason
    return vectorizer


def _of_characters(ngram_range: tuple[int, int], min_df: int = 2) -> TextVectorizer:
    return TextVectorizer(min_df=min_df, analyzer="char_wb", ngram_range=ngram_range)


def _hits(
    vectorizer: TextVectorizer, texts: Mapping[int, str], Y: CSR, known: np.ndarray, held_out: np.ndarray
) -> np.ndarray:
    """Return the number of true labels among the TOP_K with the most votes for each held-out text, int (h,)."""
    from ..candidates.knn import KNNIndex  # here, so that Numba is imported late
    from ..candidates.weighting import idf_weights, unit_rows
    from ..devices.cpu import CPU

    fitted, device = TextVectorizer(**vectorizer.options), CPU(1)
    try:
        learned = [texts[row] for row in known]
        X = fitted.fit(learned).rows_of(learned)
    except DataError:  # not a single word
        return np.zeros(len(held_out), np.intp)
    scale, n_best = idf_weights(X), min(TOP_K, max(Y.n_cols // 2, 1))
    with device.start():
        index = KNNIndex.build(unit_rows(X, scale, device), Y.take(known), np.ones(len(known), np.float32))
        queries = unit_rows(fitted.rows_of([texts[row] for row in held_out]), scale, device)
        labels, shares = index.votes(queries, n_best, device)
    truth: np.ndarray = Y.take(held_out).has(labels) & (shares > 0)
    return truth.sum(axis=1)
