"""Texts as TF-IDF rows; the vectorizer is saved as JSON, never pickled."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, ModelFileError, shorten
from .csr import CSR
from .files.manifest import read_object
from .validation import FLOAT32_MAX, is_positive_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Part of the file format, not an option: a pattern read from a model file could be made to run for ever.
TOKEN_PATTERN = r"(?u)[^\W_]{2,}"
FORMAT = "xmlsgd text vectorizer"
FORMAT_VERSION = 1
VECTORIZER_FILE = "vectorizer.json"
MAX_FILE_BYTES = 1 << 29  # a vocabulary of about 15 million words


class TextVectorizer:
    """Turn texts into TF-IDF rows: lower-cased words of two or more letters or digits, (1 + ln tf) idf, L2 norm 1.

    The arithmetic is that of scikit-learn's `TfidfVectorizer` (smoothed idf), which is imported at the first use.

    Parameters
    ----------
    min_df : int, default 1
        Number of training texts in which a word must occur. A word of one text costs memory, yet says much about a
        short text that has it, too (docs/decisions/candidates.md).
    max_features : int, optional
        Number of words to keep, the most frequent ones; by default all.

    Examples
    --------
    >>> from xmlsgd.data.vectorizer import TextVectorizer
    >>> X = TextVectorizer().fit_transform(["read a file", "write a file"])
    >>> X.shape
    (2, 3)
    """

    def __init__(self, min_df: int = 1, max_features: int | None = None) -> None:
        self.min_df = min_df
        self.max_features = max_features
        self._words: list[str] | None = None
        self._idf = np.empty(0, dtype=np.float32)
        self._tfidf: Any = None

    def __repr__(self) -> str:
        return f"TextVectorizer(min_df={self.min_df}, max_features={self.max_features})"

    @property
    def is_fitted(self) -> bool:
        """Return whether it has words."""
        return self._words is not None

    @property
    def words(self) -> list[str]:
        """Return the word of each feature, in order. Raises `DataError` before `fit`."""
        if self._words is None:
            raise DataError("TextVectorizer: must be fitted before use, call fit(texts)")
        return self._words

    @property
    def n_features(self) -> int:
        """Return F, the number of words."""
        return len(self.words)

    def fit(self, texts: Iterable[str], label_texts: Iterable[str] = ()) -> TextVectorizer:
        """Learn the words and their idf; return self.

        The words of `label_texts` are kept however few texts have them; idf counts texts alone.

        Raises `DataError` if no word occurs in `min_df` texts, and for an option outside its range.
        """
        if not _are_counts(self.min_df, self.max_features):
            got = shorten((self.min_df, self.max_features))
            raise DataError(f"TextVectorizer: min_df and max_features must be positive integers, got {got}")
        tfidf, texts = self._new_tfidf(min_df=self.min_df, max_features=self.max_features), list(_checked_texts(texts))
        try:
            tfidf.fit(texts)
        except ValueError as error:  # "empty vocabulary", "no terms remain": scikit-learn has no class of its own
            wanted = f"no word of two letters or digits occurs in at least min_df={self.min_df} texts"
            raise DataError(f"texts: {wanted}, got {len(texts)} texts; pass more of them") from error
        words, split = tfidf.get_feature_names_out().tolist(), tfidf.build_analyzer()
        if more := {word for text in label_texts for word in split(text)}.difference(words):
            words = sorted([*words, *more])
            tfidf = self._new_tfidf(vocabulary=words).fit(texts)
        self._adopt(words, tfidf.idf_)
        return self

    def transform(self, texts: Iterable[str]) -> CSR:
        """Return X float32 (n, F) of the texts; a text without a known word is an empty row."""
        words = self.words
        if self._tfidf is None:
            self._tfidf = self._new_tfidf(vocabulary=words)
            self._tfidf.idf_ = self._idf
        texts = list(_checked_texts(texts))
        if not texts:  # scikit-learn refuses zero rows
            return CSR(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), len(words))
        return CSR.from_scipy(self._tfidf.transform(texts), "texts")

    def fit_transform(self, texts: Sequence[str]) -> CSR:
        """Learn from the texts and return their X."""
        return self.fit(texts).transform(texts)

    @classmethod
    def of_words(cls, words: Sequence[str], idf: np.ndarray) -> TextVectorizer:
        """Return the vectorizer with these words, one a feature in this order, and their idf, positive."""
        vectorizer = cls(min_df=1)
        vectorizer._adopt(list(words), idf)
        return vectorizer

    def to_files(self, folder: str | Path) -> None:
        """Write `vectorizer.json` into an existing folder."""
        header = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "min_df": self.min_df,
            "max_features": self.max_features,
            "words": self.words,
            "idf": self._idf.tolist(),
        }
        (Path(folder) / VECTORIZER_FILE).write_text(json.dumps(header, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def from_files(cls, folder: str | Path) -> TextVectorizer:
        """Return the vectorizer that `to_files` wrote; `ModelFileError` for anything else."""
        saved = _read_vectorizer(Path(folder) / VECTORIZER_FILE)
        vectorizer = cls(min_df=saved["min_df"], max_features=saved["max_features"])
        vectorizer._adopt(saved["words"], saved["idf"])
        return vectorizer

    def __getstate__(self) -> dict[str, Any]:
        # Rebuilt at the first use: a pickle must not depend on scikit-learn's private state.
        return {**self.__dict__, "_tfidf": None}

    def _adopt(self, words: list[str], idf: np.ndarray) -> None:
        self._words, self._idf, self._tfidf = words, np.asarray(idf, dtype=np.float32), None

    @staticmethod
    def _new_tfidf(**options: Any) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(token_pattern=TOKEN_PATTERN, sublinear_tf=True, dtype=np.float32, **options)


def _are_counts(min_df: object, max_features: object) -> bool:
    """Return whether both parameters are positive integers; `max_features` may be None."""
    return is_positive_integer(min_df) and (max_features is None or is_positive_integer(max_features))


def _checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; `DataError` for a single string and for what is not a string."""
    if isinstance(texts, str | bytes):
        raise DataError(f"texts: must be a sequence of strings, got one string {shorten(texts)}; pass [text]")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"texts: row {row}: must be a string, got {shorten(text)}")
        yield text


def _read_vectorizer(path: Path) -> dict[str, Any]:
    """Return the checked content of `vectorizer.json`."""
    saved = read_object(path, MAX_FILE_BYTES)
    if saved.get("format") != FORMAT:
        raise ModelFileError(f"{path}: must be of format {FORMAT!r}, got {shorten(saved)}")
    if not is_positive_integer(saved.get("version")) or saved["version"] != FORMAT_VERSION:
        raise ModelFileError(f"{path}: must be of version {FORMAT_VERSION}, got {shorten(saved.get('version'))}")
    if set(saved) != {"format", "version", "min_df", "max_features", "words", "idf"}:
        raise ModelFileError(f"{path}: must have the fields of version {FORMAT_VERSION}, got {shorten(sorted(saved))}")
    min_df, max_features, words, idf = (saved[name] for name in ("min_df", "max_features", "words", "idf"))
    if not _are_counts(min_df, max_features):
        got = shorten((min_df, max_features))
        raise ModelFileError(f"{path}: min_df and max_features must be positive integers, got {got}")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ModelFileError(f"{path}: words must be a list of strings, got {shorten(words)}")
    if any(a >= b for a, b in itertools.pairwise(words)):
        raise ModelFileError(f"{path}: words must be in ascending order, none twice")
    if not isinstance(idf, list) or len(idf) != len(words):
        got = f"{len(idf)} values" if isinstance(idf, list) else shorten(idf)
        raise ModelFileError(f"{path}: idf must be a list of {len(words)} numbers, got {got}")
    if not all(isinstance(value, float) and 0 < value <= FLOAT32_MAX for value in idf):  # NaN fails too
        raise ModelFileError(f"{path}: idf must be positive finite numbers, got {shorten(idf)}")
    return saved
