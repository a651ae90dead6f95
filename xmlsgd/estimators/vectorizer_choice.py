"""Choose words, words and pairs of words, or n-grams of characters by the precision of models on held-out texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data.csr import CSR, Dataset
from ..data.vectorizer import TextVectorizer
from ..data.words import text_without_spaces
from ..errors import DataError
from .defaults import N_CANDIDATES

# n-grams of four characters suit languages that compound and inflect words. Those of one to four suit scripts without
# spaces, codes and very short texts.
WORDS, PAIRS = "words", "words and pairs of words"
FOUR, ONE_TO_FOUR = "n-grams of 4 characters", "n-grams of 1-4 characters"
OPTIONS: dict[str, dict[str, Any]] = {
    WORDS: {},
    PAIRS: {"min_df": 2, "ngram_range": (1, 2)},
    FOUR: {"min_df": 2, "analyzer": "char_wb", "ngram_range": (4, 4)},
    ONE_TO_FOUR: {"min_df": 2, "analyzer": "char_wb", "ngram_range": (1, 4)},
}
MOST_TEXTS, MOST_CHARACTERS = 5000, 500_000  # most texts, and most characters in all, that are compared
LONGEST = 1_000  # most characters of each text that are compared
FEW_TEXTS = 250  # fewer texts may have no n-gram in common
FOLDS, LEAST_HELD_OUT = 5, 50  # folds, of which each is held out in turn, and the least texts of a fold
TOP_K = 1, 3, 5  # the mean of these P@k is compared
# n-grams of one to four characters take two to three times as long as those of four. So they must gain more: this many
# standard errors, and this share of the precision. They are compared on the first texts with this many characters.
ONE_TO_FOUR_ERRORS, ONE_TO_FOUR_SHARE, ONE_TO_FOUR_CHARACTERS = 3, 0.05, 100_000
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
        return _vectorizer(ONE_TO_FOUR, "most texts have hardly any spaces", min_df=min_df)
    sample = Sample([texts[row][:LONGEST] for row in drawn], Y.take(drawn))
    compared = sample.first(MOST_CHARACTERS)
    if len(compared.texts) < FOLDS * LEAST_HELD_OUT:
        return _vectorizer(WORDS, "there are too few texts to compare words and n-grams")
    too_many = len(texts) * float(np.mean([len(texts[row]) for row in drawn])) > MOST_PAIRED
    # The smaller the share of the texts that are compared, the less they tell about all: with more texts, n-grams gain
    # less and pairs of words gain more.
    errors = 1 + np.log10(len(texts) / len(compared.texts))
    best, reason = compared.best_of([WORDS, FOUR] if too_many else [WORDS, FOUR, PAIRS], errors)
    if best == FOUR:
        best, more = sample.first(ONE_TO_FOUR_CHARACTERS).best_of(
            [FOUR, ONE_TO_FOUR], ONE_TO_FOUR_ERRORS, ONE_TO_FOUR_SHARE
        )
        reason += f"; {more}"
    if too_many and best == WORDS:
        reason += f"; {_vectorizer(PAIRS)!r} may gain, not tried on so many characters"
    return _vectorizer(best, reason)


class Sample(NamedTuple):
    """Texts and their labels, CSR (n, L)."""

    texts: Sequence[str]
    Y: CSR

    def first(self, most: int) -> Sample:
        """Return the first texts with at most `most` characters in all, and the labels that they have."""
        n = int(np.searchsorted(np.cumsum([len(text) for text in self.texts]), most))
        Y = self.Y.span(0, n)
        found, labels = np.unique(Y.indices, return_inverse=True)
        return Sample(self.texts[:n], CSR(Y.indptr, labels.astype(np.int32), Y.data, len(found)))

    def best_of(self, features: Sequence[str], errors: float, share: float = 0.0) -> tuple[str, str]:
        """Return the kind of features with the highest precision, and all precisions as a text.

        The first kind is the baseline. Another must gain more than `errors` standard errors, and more than `share` of
        the baseline's precision.
        """
        known, *others = features
        found = {known: self._precision(known)}
        best, n = known, len(self.texts)
        for other in others:
            found[other] = self._precision(other)
            gain = found[other] - found[known]
            is_more = gain.mean() > max(share * found[known].mean(), errors * gain.std() / np.sqrt(n))
            if is_more and found[other].mean() > found[best].mean():
                best = other
        precisions = ", ".join(f"{100 * precision.mean():.1f} % by {name}" for name, precision in found.items())
        return best, f"mean P@{'/'.join(map(str, TOP_K))} of {n:,} held-out texts: {precisions}"

    def _precision(self, features: str) -> np.ndarray:
        """Return the mean P@k of each text, float (n,), by a candidate model that has not learned it.

        Features of a held-out text and one other are kept, too, since of all texts more would have them.
        """
        from ..candidates.fitting import CandidateRows, fit_base_models  # here, so that Numba is imported late
        from ..candidates.linear import COST
        from ..candidates.stacking_training import best_columns
        from ..devices.cpu import CPU

        n, k = len(self.texts), np.unique(np.minimum(TOP_K, max(self.Y.n_cols // 2, 1)))
        try:
            X = _vectorizer(features).fit(self.texts).rows_of(self.texts)
        except DataError:  # not a single word
            return np.zeros(n)
        folds = np.array_split(np.arange(n), FOLDS)
        rows = CandidateRows(Dataset(X, self.Y), np.ones(n, np.float32), folds, N_CANDIDATES, COST)
        base = fit_base_models(rows, CPU(1))
        labels, no_logits = base.held_out.labels, np.zeros(base.margins.shape, np.float32)
        regression = base.model.stacking.regression
        scores = regression.scores(no_logits, base.votes, base.margins, base.cooccurrence)
        best = best_columns(labels, scores, int(k[-1]))
        hits = self.Y.has(np.take_along_axis(labels, best, axis=1)).cumsum(axis=1)
        precision: np.ndarray = (hits[:, k - 1] / k).mean(axis=1)
        return precision


def _vectorizer(features: str, reason: str = "", **changed: Any) -> TextVectorizer:
    """Return an unfitted vectorizer of these features, with the reason for choosing it."""
    vectorizer = TextVectorizer(**{**OPTIONS[features], **changed})
    vectorizer.reason = reason
    return vectorizer
