"""Raw text: one document a line in, TF-IDF rows out; the vectorizer is saved as JSON, never pickled."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..csr import CSR
from ..errors import TO_UTF8, DataError, ModelFileError, shorten
from ..files import BROKEN_STREAM, open_packed, whole_file
from ..kinds import is_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Part of the file format, not an option: a pattern read from a model file could be made to run for ever.
TOKEN_PATTERN = r"(?u)[^\W_]{2,}"
FORMAT = "xmlsgd text vectorizer"
FORMAT_VERSION = 1
VECTORIZER_FILE = "vectorizer.json"
MAX_FILE_BYTES = 1 << 29  # a vocabulary of about 15 million words
MAX_LINE_BYTES = 64 << 20  # the limit of every text reader of the package
FLOAT32_MAX = float(np.finfo(np.float32).max)
LINE_END = re.compile(r"[\0\r\n]")
LABEL_END = re.compile(r"[\0\r\n\t,]")


@dataclass(frozen=True, slots=True)
class RawText:
    """Documents and, where the file had them, the label names of each."""

    texts: list[str]
    labels: list[tuple[str, ...]] | None = None


def read_raw_text(path: str | Path, labels_path: str | Path | None = None, *, labelled: bool = False) -> RawText:
    """Return the documents of a UTF-8 file, one a line; `.gz`, `.bz2` and `.xz` are unpacked.

    `labels_path` names a file whose line i holds the label names of document i, separated by commas. With
    `labelled=True` each line of the file itself reads `label1,label2<TAB>text`. A label twice in a row counts once.
    An empty line is an empty document; those at the end are ignored where they have no label either.
    Raises `DataError` with file and line for bytes that are not UTF-8, NUL, a line above 64 MB, a missing tab, a broken
    archive, and for files of different length.
    """
    if labelled and labels_path is not None:
        raise DataError(
            f"{path}: labels come from {labels_path} or from the lines themselves (labelled=True), not both"
        )
    texts = list(_lines(path))
    labels: list[tuple[str, ...]] | None = None
    if labels_path is not None:
        labels = [_names(line) for line in _lines(labels_path)]
        n_rows = max(_filled(texts), _filled(labels))
        if min(len(texts), len(labels)) < n_rows:
            raise DataError(f"{labels_path}: must have a line for each of {len(texts)} documents, got {len(labels)}")
        texts, labels = texts[:n_rows], labels[:n_rows]
    else:
        texts = texts[: _filled(texts)]
    if labelled:
        labels = []
        for i, line in enumerate(texts):
            head, texts[i] = split_labels(line, f"{path}:{i + 1}")
            labels.append(_names(head))
    if not texts:
        raise DataError(f"{path}: must hold at least one document, got an empty file")
    return RawText(texts, labels)


def split_labels(line: str, where: str) -> tuple[str, str]:
    """Return labels and text of a line `label1,label2<TAB>text`; `where` is `file:line` for the error."""
    labels, tab, text = line.partition("\t")
    if not tab:
        raise DataError(f"{where}: must read `label1,label2<TAB>text`, got no tab in {shorten(line)}")
    return labels, text


def write_raw_text(path: str | Path, raw: RawText) -> None:
    """Write documents in the form that `read_raw_text` reads, with `labelled=True` where `raw` has labels.

    The file appears whole or not at all. Raises `DataError` for what the form cannot hold: a line end in a text; a
    comma, tab, line end, or blanks around a label name.
    """
    path = Path(path)
    for row, text in enumerate(raw.texts):
        if LINE_END.search(text):
            raise DataError(f"{path}: row {row}: a text must be one line, got {shorten(text)}")
        for name in raw.labels[row] if raw.labels else ():
            if not name or name != name.strip() or LABEL_END.search(name):
                raise DataError(f"{path}: row {row}: a label name must be free of `,`, tab, outer blanks, got {name!r}")
    lines = raw.texts if raw.labels is None else map("\t".join, zip(map(",".join, raw.labels), raw.texts, strict=True))
    with whole_file(path) as stream:
        stream.writelines(f"{line}\n".encode() for line in lines)


def index_labels(labels: Iterable[Sequence[str]], names: Sequence[str] | None = None) -> tuple[CSR, list[str]]:
    """Return Y (n, L) with ones, and the L label names, from the label names of each row.

    Without `names` the columns are all names in sorted order. With it the columns are `names`, followed by names
    seen here first, so that a test set keeps its labels that were never trained.
    """
    rows = [set(row) for row in labels]
    if names is None:
        columns = sorted({name for row in rows for name in row})
    else:
        columns = [*names, *sorted({name for row in rows for name in row}.difference(names))]
    index = {name: column for column, name in enumerate(columns)}
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    ids = (column for row in rows for column in sorted(index[name] for name in row))
    indices = np.fromiter(ids, dtype=np.int32, count=int(indptr[-1]))
    return CSR(indptr, indices, np.ones(len(indices), dtype=np.float32), len(columns)), columns


class TextVectorizer:
    """Turn texts into TF-IDF rows: lower-cased words of two or more letters or digits, (1 + ln tf) idf, L2 norm 1.

    `min_df`: a word must occur in at least so many training texts; `max_features`: keep the most frequent words only.
    The arithmetic is scikit-learn's `TfidfVectorizer` (smoothed idf), which is imported at the first use.
    """

    def __init__(self, min_df: int = 2, max_features: int | None = None) -> None:
        self.min_df = min_df
        self.max_features = max_features
        self._words: list[str] | None = None
        self._idf = np.empty(0, dtype=np.float32)
        self._tfidf: Any = None

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

    def fit(self, texts: Iterable[str]) -> TextVectorizer:
        """Learn the words and their idf; return self.

        Raises `DataError` if no word occurs in `min_df` texts, and for an option outside its range.
        """
        if not is_count(self.min_df) or not (self.max_features is None or is_count(self.max_features)):
            got = shorten((self.min_df, self.max_features))
            raise DataError(f"TextVectorizer: min_df and max_features must be positive integers, got {got}")
        tfidf, texts = self._new_tfidf(min_df=self.min_df, max_features=self.max_features), list(_checked_texts(texts))
        try:
            tfidf.fit(texts)
        except ValueError as error:  # "empty vocabulary", "no terms remain": scikit-learn has no class of its own
            wanted = f"no word occurs in at least min_df={self.min_df} texts"
            raise DataError(f"texts: {wanted}, got {len(texts)} texts; pass more of them") from error
        self._adopt(tfidf.get_feature_names_out().tolist(), tfidf.idf_)
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


def _checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; `DataError` for a single string and for what is not a string."""
    if isinstance(texts, str | bytes):
        raise DataError(f"texts: must be a sequence of strings, got one string {shorten(texts)}; pass [text]")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"texts: row {row}: must be a string, got {shorten(text)}")
        yield text


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes, unpacked if it is packed."""
    if not path.is_file():
        reason = "no such file" if not path.exists() else "a directory" if path.is_dir() else "not a regular file"
        raise DataError(f"{path}: must be a readable file, got {reason}")
    with open_packed(path) as stream:
        yield stream


def _lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text file without their ends, decoded and checked one at a time."""
    try:
        with _open(Path(path)) as stream:
            yield from lines_of(stream, str(path))
    except BROKEN_STREAM as error:
        raise DataError(f"{path}: cannot be read, got {error}") from error


def lines_of(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a stream without their ends, decoded and checked one at a time; `name` is for the errors."""
    number = 0
    try:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            yield _decode(line, f"{name}:{number}")
    except BROKEN_STREAM as error:
        raise DataError(f"{name}:{number + 1}: cannot be read, got {error}") from error


def _decode(line: bytes, where: str) -> str:
    """Return a line as text; `where` is `file:line` for the errors."""
    if len(line) > MAX_LINE_BYTES:
        raise DataError(f"{where}: a line must be at most {MAX_LINE_BYTES} bytes, got more")
    if b"\0" in line:
        raise DataError(f"{where}: must be text, got a NUL byte")
    try:
        text = line.decode("utf-8-sig" if where.endswith(":1") else "utf-8")
    except UnicodeDecodeError as error:
        got = f"byte 0x{line[error.start]:02x} at {error.start}"
        raise DataError(f"{where}: must be UTF-8, got {got}; {TO_UTF8}") from error
    return text.rstrip("\r\n")


def _filled(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of rows up to the last one that is not blank."""
    return max((i for i, row in enumerate(rows, 1) if row and not (isinstance(row, str) and row.isspace())), default=0)


def _names(field: str) -> tuple[str, ...]:
    """Return the distinct label names of `a,b,c`, in order."""
    return tuple(dict.fromkeys(name for part in field.split(",") if (name := part.strip())))


def _read_vectorizer(path: Path) -> dict[str, Any]:
    """Return the checked content of `vectorizer.json`."""
    if path.is_symlink() or not path.is_file():
        raise ModelFileError(f"{path}: must be a regular file, got {'a link' if path.is_symlink() else 'none'}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ModelFileError(f"{path}: must be at most {MAX_FILE_BYTES} bytes, got {path.stat().st_size}")
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: must be JSON, got {shorten(error)}") from error
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise ModelFileError(f"{path}: must be of format {FORMAT!r}, got {shorten(saved)}")
    if not is_count(saved.get("version")) or saved["version"] != FORMAT_VERSION:
        raise ModelFileError(f"{path}: must be of version {FORMAT_VERSION}, got {shorten(saved.get('version'))}")
    if set(saved) != {"format", "version", "min_df", "max_features", "words", "idf"}:
        raise ModelFileError(f"{path}: must have the fields of version {FORMAT_VERSION}, got {shorten(sorted(saved))}")
    _check_values(saved, path)
    return saved


def _check_values(saved: dict[str, Any], path: Path) -> None:
    """Raise `ModelFileError` unless every field has its type and range."""
    min_df, max_features, words, idf = (saved[name] for name in ("min_df", "max_features", "words", "idf"))
    if not is_count(min_df) or not (max_features is None or is_count(max_features)):
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
