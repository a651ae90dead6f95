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
MOST_TEXTS, MOST_CHARACTERS = 5000, 500_000  # most texts, and most characters in all, that are compared
LONGEST = 1_000  # most characters of each text that are compared
FEW_TEXTS = 250  # fewer texts may have no n-gram in common
FOLDS, LEAST_HELD_OUT = 5, 50  # each fold, of so many texts at least, is held out in turn, on which k-NN is evaluated
# Pairs take up to twice the time of words, n-grams of four characters two to four times. So they must find more true
# labels among the best TOP_K, by a share and by two standard errors (docs/decisions/texts.md); n-grams of one to four
# must find a larger share more than those of four.
TOP_K, LEAST_GAIN, LEAST_GAIN_OF_ALL = 5, 0.02, 0.1
MOST_PAIRED = 30_000_000  # characters in all; of more, pairs double the memory, and a sample does not choose rightly


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
    words, pairs, four = TextVectorizer(), TextVectorizer(min_df=2, ngram_range=(1, 2)), _of_characters(FOUR)
    comparison = Comparison(words, {row: texts[row][:LONGEST] for row in drawn}, Y)
    if len(comparison.folds[0]) < LEAST_HELD_OUT:
        return _because("there are too few texts to compare words and n-grams", words)
    rivals = {"n-grams of 4 characters": four}
    too_many = len(texts) * float(np.mean([len(texts[row]) for row in drawn])) > MOST_PAIRED
    if not too_many:
        rivals["words and pairs of words"] = pairs
    best = comparison.best_of(words, rivals, LEAST_GAIN)
    if best is four:
        every = {"n-grams of 1-4 characters": _of_characters(ONE_TO_FOUR)}
        best = comparison.best_of(four, every, LEAST_GAIN_OF_ALL, n_folds=1)
    untried = f"; {pairs!r} may gain, not tried on so many characters" if too_many and best is words else ""
    return _because(comparison.summary() + untried, best)


class Comparison:
    """Compares vectorizers of texts with one of words by the true labels that k-NN finds for held-out texts.

    folds : the rows of the first texts that have at most MOST_CHARACTERS, in FOLDS parts. compared : the vectorizers
    that were compared, by what they make of texts. hits : of a vectorizer, the `_hits` of the first folds.
    """

    def __init__(self, words: TextVectorizer, texts: Mapping[int, str], Y: CSR) -> None:
        self.words, self.texts, self.Y = words, texts, Y
        n = int(np.searchsorted(np.cumsum([len(text) for text in texts.values()]), MOST_CHARACTERS))
        rows = np.fromiter(texts, np.intp)
        self.folds = [rows[fold * n // FOLDS : (fold + 1) * n // FOLDS] for fold in range(FOLDS)]
        self.compared: dict[str, TextVectorizer] = {}
        self.hits: dict[TextVectorizer, list[np.ndarray]] = {}

    def best_of(
        self, known: TextVectorizer, rivals: Mapping[str, TextVectorizer], least: float, n_folds: int = FOLDS
    ) -> TextVectorizer:
        """Return the rival with the most hits, if these are more than those of `known` (`_is_more`); else `known`.

        A rival that is behind after a fold is out.
        """
        self.compared |= rivals
        ahead = list(rivals.values())
        for n in range(1, n_folds + 1):
            ahead = [rival for rival in ahead if self.hits_in(rival, n).sum() > self.hits_in(known, n).sum()]
        more = [rival for rival in ahead if _is_more(self.hits_in(rival, n_folds), self.hits_in(known, n_folds), least)]
        return max(more, key=lambda rival: self.hits_in(rival, n_folds).sum(), default=known)

    def hits_in(self, vectorizer: TextVectorizer, n: int) -> np.ndarray:
        """Return the hits of a vectorizer for each text of the first n folds, int (h,)."""
        hits = self.hits.setdefault(vectorizer, [])
        hits += [_hits(vectorizer, self.texts, self.Y, self.folds, fold) for fold in range(len(hits), n)]
        return np.concatenate(hits[:n])

    def summary(self) -> str:
        """Return the numbers of hits in words."""
        lines = []
        for what, vectorizer in self.compared.items():
            n = len(self.hits[vectorizer])
            found, known = self.hits_in(vectorizer, n), self.hits_in(self.words, n)
            lines.append(f"of {len(found)} held-out texts, {known.sum()} by words, {found.sum()} by {what}")
        return f"labels that neighbors find: {'; '.join(lines)}"


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
