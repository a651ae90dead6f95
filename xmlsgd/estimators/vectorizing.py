"""Choose words, words and pairs of words, or n-grams of characters by the accuracy of k-NN on held-out texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..data.csr import CSR
from ..data.vectorizer import TextVectorizer
from ..data.words import text_without_spaces
from ..errors import DataError

# n-grams of four characters suit languages that compound and inflect words. Those of one to four suit scripts without
# spaces, codes and very short texts, and take twice the time.
FOUR, ONE_TO_FOUR = (4, 4), (1, 4)
MOST_TEXTS, MOST_CHARACTERS = 5000, 300_000  # most texts, and most characters in all, that are compared
LONGEST = 1_000  # most characters of each text that are compared
FEW_TEXTS = 250  # fewer texts may have no n-gram in common
FOLDS, LEAST_HELD_OUT = 5, 50  # a fold of the texts, of so many at least, is held out, on which k-NN is evaluated
# n-grams take two to four times the time of words. So they must find a tenth more true labels among the best TOP_K
# (docs/decisions/texts.md), and more by two standard errors.
TOP_K, LEAST_GAIN = 5, 0.1
# Words and pairs of adjacent words take up to twice the time. Smaller gains of hits pay, too, so that more characters
# are compared, and each fold is held out in turn. Of more than MOST_PAIRED characters in all, pairs would fill memory.
LEAST_GAIN_OF_PAIRS, COMPARED_WITH_PAIRS, MOST_PAIRED = 0.02, 1_000_000, 30_000_000


def choose_vectorizer(texts: Sequence[str], Y: CSR) -> TextVectorizer:
    """Return an unfitted vectorizer of words, of words and pairs, or of n-grams of characters; `reason` says why.

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
    folds = _folds(read, MOST_CHARACTERS)
    if len(folds[0]) < LEAST_HELD_OUT:
        return _because("there are too few texts to compare words and n-grams", TextVectorizer())
    words = best = TextVectorizer()
    hits = hits_of_words = _hits(words, read, Y, folds, 0)
    tried = ""
    for ngrams in (_of_characters(FOUR), _of_characters(ONE_TO_FOUR)):
        found = _hits(ngrams, read, Y, folds, 0)
        if _is_more(found, hits, LEAST_GAIN):
            best, hits = ngrams, found
        tried += f", {found.sum()} by n-grams of {'-'.join(map(str, sorted(set(ngrams.ngram_range))))} characters"
    n_characters = len(texts) * float(np.mean([len(texts[row]) for row in drawn]))
    if best is words and n_characters <= MOST_PAIRED:
        pairs = TextVectorizer(min_df=2, ngram_range=(1, 2))
        alone, found = _compare(words, pairs, read, Y)
        if _is_more(found, alone, LEAST_GAIN_OF_PAIRS):
            best = pairs
        tried += f"; of {len(alone)}, {alone.sum()} by words, {found.sum()} by words and pairs of words"
    why = f"of {len(folds[0])} held-out texts, neighbors find {hits_of_words.sum()} labels by words{tried}"
    return _because(why, best)


def _folds(texts: Mapping[int, str], most_characters: int) -> list[np.ndarray]:
    """Return the rows of the first texts that have at most so many characters, in `FOLDS` parts."""
    n = int(np.searchsorted(np.cumsum([len(text) for text in texts.values()]), most_characters))
    rows = np.fromiter(texts, np.intp)
    return [rows[fold * n // FOLDS : (fold + 1) * n // FOLDS] for fold in range(FOLDS)]


def _compare(
    words: TextVectorizer, pairs: TextVectorizer, texts: Mapping[int, str], Y: CSR
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hits of two vectorizers for the texts of one fold after the other, while the second finds more."""
    folds, of_words, of_pairs = _folds(texts, COMPARED_WITH_PAIRS), np.empty(0, np.intp), np.empty(0, np.intp)
    for fold in range(FOLDS):
        of_words = np.append(of_words, _hits(words, texts, Y, folds, fold))
        of_pairs = np.append(of_pairs, _hits(pairs, texts, Y, folds, fold))
        if of_pairs.sum() <= of_words.sum():
            break
    return of_words, of_pairs


def _is_more(found: np.ndarray, hits: np.ndarray, least: float) -> bool:
    """Return whether more hits are found, by at least a share of them and two standard errors; both : int (h,)."""
    gain = found - hits
    return bool(gain.mean() > max(least * hits.mean(), 2 * gain.std() / np.sqrt(len(gain))))


def _because(reason: str, vectorizer: TextVectorizer) -> TextVectorizer:
    vectorizer.reason = reason
    return vectorizer


def _of_characters(ngram_range: tuple[int, int], min_df: int = 2) -> TextVectorizer:
    return TextVectorizer(min_df=min_df, analyzer="char_wb", ngram_range=ngram_range)


def _hits(
    vectorizer: TextVectorizer, texts: Mapping[int, str], Y: CSR, folds: Sequence[np.ndarray], fold: int
) -> np.ndarray:
    """Return the number of true labels among the TOP_K with the most votes for each text of a fold, int (h,)."""
    from ..candidates.knn import KNNIndex  # here, so that Numba is imported late
    from ..candidates.weighting import idf_weights, unit_rows
    from ..devices.cpu import CPU

    known, held_out = np.concatenate([*folds[:fold], *folds[fold + 1 :]]), folds[fold]
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
