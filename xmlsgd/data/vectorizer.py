"""Convert texts to TF-IDF rows; the vectorizer is saved as JSON, without pickle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, ModelFileError, shorten, warn
from .csr import CSR
from .files.manifest import VECTORIZER_FILE, read_json_object
from .frames import column_names, only_column
from .validation import FLOAT32_MAX, is_integer, is_positive_integer
from .words import TOKEN, TOKEN_PATTERN, encodable, prepared, text_without_spaces

if TYPE_CHECKING:
    import scipy.sparse as sp

MOST_SHOWN = 80  # characters of an option in errors: there may be thousands of stop words
MAX_N = 16  # of n-grams: a text has as many for each n as it is long
FORMAT = "xmlsgd text vectorizer"
FORMAT_VERSION = 4
MAX_FILE_BYTES = 1 << 29  # enough for about 15 million words


def _is_frequency(value: Any) -> bool:
    return is_positive_integer(value) or (isinstance(value, float) and 0 < value <= 1)


def _is_ngram_range(value: Any) -> bool:
    is_pair = isinstance(value, tuple | list) and len(value) == 2 and all(map(is_positive_integer, value))
    return is_pair and value[0] <= value[1] <= MAX_N


def _are_words(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(word, str) for word in value)


# The allowed values of each option: a text for errors, and a test.
OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "min_df": ("a positive integer, or a float in (0, 1]", _is_frequency),
    "max_df": ("a positive integer, or a float in (0, 1]", _is_frequency),
    "max_features": ("a positive integer or None", lambda value: value is None or is_positive_integer(value)),
    "ngram_range": (f"two integers from 1 to {MAX_N}, the smaller one first", _is_ngram_range),
    "analyzer": ("'word' or 'char_wb'", lambda value: isinstance(value, str) and value in ("word", "char_wb")),
    "stop_words": (
        "a list of words, such as scikit-learn's ENGLISH_STOP_WORDS, or None",
        lambda value: value is None or _are_words(value),
    ),
    "sublinear_tf": ("True or False", lambda value: isinstance(value, bool)),
}


@dataclass(eq=False, repr=False)
class TextVectorizer:
    """Convert texts to TF-IDF rows: lower-cased words of letters and digits, (1 + ln tf) idf, L2 norm 1.

    Texts are converted to Unicode's composed form (NFC), in which a letter with an accent is one character. Unlike in
    scikit-learn, single letters and digits are words, also with + or # behind them, as in C++, and marks of vowels, as
    in Hindi, belong to words. Formulas, names and meanings of options are those of its `TfidfVectorizer` (smoothed
    idf), which is imported on first use.

    Parameters
    ----------
    min_df, max_df : int or float, default 1 and 1.0
        Least and greatest number (int) or share (float) of training texts in which a word must occur: 1 is one text,
        1.0 all texts. Words of a single text cost memory, yet tell much about another short text that has them.
    max_features : int, optional
        Number of words to keep, the most frequent ones; by default all.
    ngram_range : tuple (int, int), default (1, 1)
        Least and greatest n of n-grams. (1, 2) adds pairs of adjacent words. "char_wb" needs a greater n, as (4, 4).
    analyzer : {"word", "char_wb"}, default "word"
        "word": n-grams of words. "char_wb": n-grams of characters within words, with a space before and after each;
        all characters but white space count.
    stop_words : collection of str, optional
        Words to leave out, split and lower-cased as texts are; only for the analyzer "word".
    sublinear_tf : bool, default True
        Whether a word that occurs tf times in a text counts as 1 + ln tf, not as tf.

    Examples
    --------
    >>> from xmlsgd import TextVectorizer
    >>> X = TextVectorizer().fit_transform(["read a file", "write a file"])
    >>> X.shape
    (2, 3)
    >>> TextVectorizer(ngram_range=(1, 2)).fit(["read a file"]).words
    ['file', 'read', 'read file']
    """

    min_df: float = 1
    max_features: int | None = None
    _: KW_ONLY
    max_df: float = 1.0
    ngram_range: tuple[int, int] = (1, 1)
    analyzer: str = "word"
    stop_words: Collection[str] | None = None
    sublinear_tf: bool = True

    def __post_init__(self) -> None:
        """Begin without words; `reason` tells why held-out texts have chosen the options, and is empty if none have."""
        self.reason = ""
        self._words: list[str] | None = None
        self._idf = np.empty(0, dtype=np.float32)
        self._tfidf: Any = None

    def __repr__(self) -> str:
        defaults = TextVectorizer().options
        given = {name: value for name, value in self.options.items() if value != defaults[name]}
        return f"TextVectorizer({', '.join(f'{name}={shorten(value, MOST_SHOWN)}' for name, value in given.items())})"

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of a vectorizer with the same options."""
        return {name: getattr(self, name) for name in OPTIONS}

    @property
    def options_as_json(self) -> dict[str, Any]:
        """Return the options in types of JSON."""
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in self.options.items()}
        words = None if self.stop_words is None else sorted(set(self.stop_words))
        return {**plain, "ngram_range": [int(n) for n in self.ngram_range], "stop_words": words}

    @classmethod
    def from_options(cls, saved: Any) -> TextVectorizer:
        """Return a vectorizer with the options from `options_as_json`; raise `DataError` for anything else."""
        if not isinstance(saved, dict) or set(saved) != set(OPTIONS):
            raise DataError(f"options: must be {', '.join(OPTIONS)}, got {shorten(saved)}")
        vectorizer = cls(**saved)
        vectorizer.check_options()
        vectorizer.ngram_range = tuple(saved["ngram_range"])
        return vectorizer

    def check_options(self) -> None:
        """Raise `DataError` for an option that is out of range."""
        for name, value in self.options.items():
            allowed, fits = OPTIONS[name]
            if not fits(value):
                raise DataError(f"{name}: must be {allowed}, got {shorten(value)}")
        for word in self.stop_words or ():
            if len(word.split()) > 1:
                raise DataError(f"stop_words: must be single words, got {shorten(word)}")
        if self.analyzer != "word" and self.stop_words:
            raise DataError(f"stop_words: must be None for analyzer={self.analyzer!r}, got {shorten(self.stop_words)}")
        if self.analyzer != "word" and self.ngram_range[1] == 1:
            got = f"got {shorten(self.ngram_range)}, single characters"
            raise DataError(f"ngram_range: must be given for analyzer={self.analyzer!r}, such as (4, 4), {got}")

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

    def fit(self, texts: Iterable[str], y: Any = None, *, label_texts: Iterable[str] = ()) -> TextVectorizer:
        """Learn the words and their idf; return self.

        Words of `label_texts` are kept even if they occur in fewer than `min_df` texts; idf counts texts only. y is not
        used.

        Raises `DataError` if no word occurs in `min_df` texts, and for an option that is out of range.
        """
        self.check_options()
        if self.max_df == 1 and is_integer(self.max_df):
            warn("max_df=1 leaves out words of two texts and more; 1.0 leaves out none")
        limits = {name: getattr(self, name) for name in ("min_df", "max_df", "max_features")}
        tfidf, texts = self._new_tfidf(**limits), list(_checked_texts(texts))
        if self.analyzer == "word" and (unspaced := text_without_spaces(texts)):
            got = f"most have hardly any spaces between words, as {shorten(unspaced)}"
            in_python = "TextVectorizer(analyzer='char_wb', ngram_range=(1, 4))"
            warn(f"texts: {got}; pass --analyzer char_wb --ngram-range 1,4, in Python {in_python}")
        try:
            tfidf.fit(texts)
        except ValueError as error:  # "empty vocabulary", "no terms remain": scikit-learn has no class of its own
            what = "word of letters or digits" if self.analyzer == "word" else "n-gram"
            most = "" if self.max_df == 1.0 else f" and at most max_df={self.max_df}"
            changed = "min_df" if self.max_df == 1.0 else "min_df and max_df"
            wanted = f"no {what} occurs in at least min_df={self.min_df}{most} texts"
            raise DataError(f"texts: {wanted}, got {len(texts)} texts; change {changed}, or pass more texts") from error
        words, split = tfidf.get_feature_names_out().tolist(), tfidf.build_analyzer()
        if more := {word for text in label_texts for word in split(text)}.difference(words):
            tfidf = self._new_tfidf(vocabulary=sorted([*words, *more])).fit(texts)
            most_texts = self.max_df if is_integer(self.max_df) else self.max_df * len(texts)
            n_texts_with = np.rint((1 + len(texts)) / np.exp(tfidf.idf_.astype(np.float64) - 1) - 1)
            kept = n_texts_with <= most_texts
            self._set_words(tfidf.get_feature_names_out()[kept].tolist(), tfidf.idf_[kept])
        else:
            self._set_words(words, tfidf.idf_)
        return self

    def with_words_of(self, texts: Iterable[str], n_texts: int, label_texts: Iterable[str] = ()) -> TextVectorizer:
        """Return a vectorizer with the new words of more texts after its own; itself if no word is new.

        A new word must occur in `min_df` of `texts`; if `min_df` is a share, in this share of all texts: the `n_texts`
        earlier ones and these. Words of `label_texts` are always added. The idf of known words does not change. With
        `max_features` or `max_df`, no word is added, as it is not known which words were left out as too frequent.
        """
        if self.max_features is not None or self.max_df != 1.0 or is_integer(self.max_df):
            return self
        texts, split, known = list(_checked_texts(texts)), self._new_tfidf().build_analyzer(), set(self.words)
        counts = Counter(word for text in texts for word in set(split(text)).difference(known))
        n = n_texts + len(texts)
        least = self.min_df if is_integer(self.min_df) else self.min_df * n
        found = {word for word, count in counts.items() if count >= least}
        found.update(word for text in label_texts for word in split(text) if word not in known)
        if not (new := sorted(found)):
            return self
        idf = smooth_idf(np.array([counts[word] for word in new]), n)
        grown = copy(self)
        grown._set_words([*self.words, *new], np.concatenate([self._idf, idf]))
        return grown

    def transform(self, texts: Iterable[str]) -> sp.csr_array:
        """Return X, float32 (n, F), of the texts; a text without a known word is an empty row."""
        return self.rows_of(texts).to_scipy()

    def rows_of(self, texts: Iterable[str]) -> CSR:
        """Return the same rows as `transform`, as a `CSR`."""
        words = self.words
        if self._tfidf is None:
            tfidf = self._new_tfidf(vocabulary=words)
            tfidf.idf_ = self._idf
            self._tfidf = tfidf  # last, as another thread may use it at once
        texts = list(_checked_texts(texts))
        if not texts:  # scikit-learn refuses zero rows
            return CSR(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), len(words))
        return CSR.from_scipy(self._tfidf.transform(texts), "texts")

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> sp.csr_array:
        """Fit to the texts and return their rows X; y is not used."""
        read = list(_checked_texts(texts))  # as an iterator can be read only once
        return self.fit(read).transform(read)

    @classmethod
    def of_words(cls, words: Sequence[str], idf: np.ndarray) -> TextVectorizer:
        """Return a vectorizer with these words, one per feature in this order, and their idf, all positive."""
        vectorizer = cls(min_df=1)
        vectorizer._set_words(list(words), idf)
        return vectorizer

    def to_files(self, folder: str | Path) -> None:
        """Write `vectorizer.json` into an existing folder."""
        header = {"format": FORMAT, "version": FORMAT_VERSION, "options": self.options_as_json}
        text = json.dumps({**header, "words": self.words, "idf": self._idf.tolist()}, ensure_ascii=False)
        (Path(folder) / VECTORIZER_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def from_files(cls, folder: str | Path) -> TextVectorizer:
        """Return the vectorizer that `to_files` wrote; raise `ModelFileError` for anything else."""
        path = Path(folder) / VECTORIZER_FILE
        saved = read_json_object(path, MAX_FILE_BYTES)
        if saved.get("format") != FORMAT or saved.get("version") != FORMAT_VERSION:
            got = shorten((saved.get("format"), saved.get("version")))
            raise ModelFileError(f"{path}: must be of format {FORMAT!r}, version {FORMAT_VERSION}, got {got}")
        if set(saved) != {"format", "version", "options", "words", "idf"}:
            wanted = f"must have the fields of version {FORMAT_VERSION}"
            raise ModelFileError(f"{path}: {wanted}, got {shorten(sorted(saved))}")
        words, idf = saved["words"], saved["idf"]
        try:
            vectorizer = cls.from_options(saved["options"])
        except DataError as error:
            raise ModelFileError(f"{path}: {error}") from error
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise ModelFileError(f"{path}: words must be a list of strings, got {shorten(words)}")
        if len(set(words)) < len(words):
            raise ModelFileError(f"{path}: words must be different, got one twice")
        if not isinstance(idf, list) or len(idf) != len(words):
            got = f"{len(idf)} values" if isinstance(idf, list) else shorten(idf)
            raise ModelFileError(f"{path}: idf must be a list of {len(words)} numbers, got {got}")
        if not all(isinstance(value, float) and 0 < value <= FLOAT32_MAX for value in idf):  # NaN fails too
            raise ModelFileError(f"{path}: idf must be positive finite numbers, got {shorten(idf)}")
        vectorizer._set_words(words, idf)
        return vectorizer

    # Methods that a `Pipeline` or a search needs. Clones by the base class of scikit-learn would lose the words.
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options by name; `deep` is not used."""
        return self.options

    def set_params(self, **params: Any) -> TextVectorizer:
        """Change options and forget all words; return self."""
        if unknown := [name for name in params if name not in OPTIONS]:
            raise DataError(f"{unknown[0]}: TextVectorizer has no such option; it has {', '.join(OPTIONS)}")
        for name, value in params.items():
            setattr(self, name, value)
        if params:
            self._words = self._tfidf = None
        return self

    def set_output(self, *, transform: str | None = None) -> TextVectorizer:
        """Return self for "default" and None; raise `DataError` for tables, which would need a column per word."""
        if transform not in (None, "default"):
            remedy = "leave the default; get_feature_names_out() names the columns"
            raise DataError(f"transform: TextVectorizer makes sparse rows, got {shorten(transform)}; {remedy}")
        return self

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the words as an array; `input_features` are not used."""
        return np.array(self.words, dtype=object)

    def __sklearn_clone__(self) -> TextVectorizer:
        return copy(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        inputs = InputTags(one_d_array=True, two_d_array=False, string=True)
        return Tags(None, TargetTags(required=False), TransformerTags(), input_tags=inputs)

    def __getstate__(self) -> dict[str, Any]:
        # `_tfidf` is rebuilt on first use: a pickle must not depend on the private state of scikit-learn.
        return {**self.__dict__, "_tfidf": None}

    def _set_words(self, words: list[str], idf: np.ndarray) -> None:
        self._words, self._idf, self._tfidf = words, np.asarray(idf, dtype=np.float32), None

    def _new_tfidf(self, **limits: Any) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        options = {"ngram_range": tuple(self.ngram_range), "sublinear_tf": self.sublinear_tf, "dtype": np.float32}
        # Compose texts first, so that no accent is a character of its own. This is also part of the file format.
        options["strip_accents"] = encodable
        if self.analyzer == "word":  # scikit-learn warns of options that other analyzers do not use
            stop_words = TOKEN.findall(prepared(" ".join(self.stop_words or ()).lower()))
            options |= {"token_pattern": TOKEN_PATTERN, "stop_words": stop_words, "strip_accents": prepared}
        return TfidfVectorizer(analyzer=self.analyzer, **options, **limits)


def smooth_idf(counts: np.ndarray, n_texts: int) -> np.ndarray:
    """Return the idf of features that so many of `n_texts` texts have, as `smooth_idf` of scikit-learn defines it."""
    return np.log((1 + n_texts) / (1 + counts)) + 1


def _checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts, also those of a table of one column; raise `DataError` unless all are strings."""
    if isinstance(texts, str | bytes):
        raise DataError(f"texts: must be a sequence of strings, got one string {shorten(texts)}; pass [text]")
    texts = only_column(texts)
    if isinstance(texts, np.ndarray) and texts.ndim == 2 and texts.shape[1] == 1:  # as imputers return a column
        texts = texts[:, 0]
    if names := column_names(texts):
        raise DataError(f"texts: must be one column, got a table of {len(names)} columns; pass one of them, df[name]")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"texts: row {row}: must be a string, got {shorten(text)}; write '' where there is none")
        yield text
