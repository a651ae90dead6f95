"""A real data set that every machine has: Python functions, words of what they say -> names of what they call.

The rows are the functions of the installed standard library and of this package's own dependencies. Their files are
parsed, never imported. A row's text is made of the words of the function's name, arguments and docstring
(`def read_json(path)` gives "read json path"); its labels are the names that its body calls (`open`, `loads`).
All functions of a file go to one side of the split, so that near-duplicates do not leak into the test set.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataError
from .csr import Dataset
from .files.atomic import atomic_file, parents_created
from .python_sources import Function, parse_functions, source_files
from .text import RawText, index_labels
from .vectorizer import TextVectorizer

PACKAGES = ("joblib", "llvmlite", "numba", "numpy", "scipy", "sklearn", "threadpoolctl", "tqdm")
MIN_COUNT = 5  # a label must occur in at least so many training rows
TEST_SHARE = 10  # one file in so many is a test file
RULES = 1  # raise it when a change here or in `python_sources` changes the rows: old caches are then left alone


def load_python_functions(
    packages: Sequence[str] = PACKAGES, *, min_count: int = MIN_COUNT, data_home: str | Path | None = None
) -> tuple[Dataset, Dataset]:
    """Return train and test sets of Python functions as TF-IDF rows with named labels.

    Parameters
    ----------
    packages : sequence of str
        Packages whose sources are read beside the standard library, as far as they are installed.
    min_count : int
        Number of training rows that a label must have; rows left without a label are dropped.
    data_home : str or path, optional
        Where the parsed functions are kept, by default `~/.cache/xmlsgd/datasets`.

    Returns
    -------
    train, test : Dataset

    Raises
    ------
    DataError
        If no Python source is installed.
    """
    train, test, _ = vectorized(*python_functions_texts(packages, min_count=min_count, data_home=data_home))
    return train, test


def python_functions_texts(
    packages: Sequence[str] = PACKAGES, *, min_count: int = MIN_COUNT, data_home: str | Path | None = None
) -> tuple[RawText, RawText]:
    """Return the texts and label names of the train and the test functions.

    Read are the standard library and those of the `packages` that are installed. Labels in fewer than `min_count`
    training rows are dropped, rows left without a label too. Parsing takes about 15 seconds; its result is kept in
    `data_home` (default `~/.cache/xmlsgd/datasets`) under a key of the Python version and all files' names and sizes.
    Raises `DataError` where no Python source is installed.
    """
    files = list(source_files(packages))
    cache = Path(data_home or "~/.cache/xmlsgd/datasets").expanduser() / f"python-functions-{_key(files)}.json"
    try:
        saved = json.loads(cache.read_text(encoding="utf-8"))
        train, test = (RawText(texts, list(map(tuple, labels))) for texts, labels in saved)
    except (OSError, ValueError, TypeError):  # not there, or damaged
        train, test = split(parse_functions(files))
        with contextlib.suppress(OSError), parents_created(cache), atomic_file(cache) as stream:
            stream.write(json.dumps([[part.texts, part.labels] for part in (train, test)]).encode())
    return select_labels(train, test, min_count)


def split(functions: Sequence[Function], test_share: int = TEST_SHARE) -> tuple[RawText, RawText]:
    """Return train and test parts, one file in `test_share` to test, by a hash of its name: the same everywhere."""
    parts: list[list[Function]] = [[], []]
    for function in functions:
        digest = hashlib.blake2b(function.file.encode(), digest_size=8).digest()
        parts[int.from_bytes(digest, "little") % test_share == 0].append(function)
    if not all(parts):
        raise DataError(f"python-functions: needs installed Python sources, got {len(functions)} functions")
    train, test = (RawText([f.text for f in part], [f.calls for f in part]) for part in parts)
    return train, test


def select_labels(train: RawText, test: RawText, min_count: int) -> tuple[RawText, RawText]:
    """Return both parts with the labels of at least `min_count` training rows, without rows that have none of them."""
    counts = Counter(name for names in train.labels or () for name in names)
    kept = {name for name, count in counts.items() if count >= min_count}
    if not kept:
        raise DataError(f"python-functions: no name is called in min_count={min_count} functions")
    return _with_labels(train, kept), _with_labels(test, kept)


def vectorized(train: RawText, test: RawText) -> tuple[Dataset, Dataset, TextVectorizer]:
    """Return both parts as TF-IDF rows with the labels of the train part, and the vectorizer fitted on it."""
    vectorizer = TextVectorizer().fit(train.texts)
    Y, names = index_labels(train.labels or ())
    Y_test, _ = index_labels(test.labels or (), names)
    return (
        Dataset(vectorizer.transform(train.texts), Y, names),
        Dataset(vectorizer.transform(test.texts), Y_test, names),
        vectorizer,
    )


def _with_labels(part: RawText, kept: set[str]) -> RawText:
    rows = (
        (text, tuple(filter(kept.__contains__, names)))
        for text, names in zip(part.texts, part.labels or (), strict=True)
    )
    chosen = [(text, names) for text, names in rows if names]
    return RawText([text for text, _ in chosen], [names for _, names in chosen])


def _key(files: Sequence[tuple[str, Path]]) -> str:
    """Return a short key of the rules, the Python version (its parser and builtins), and all files' names and sizes."""
    digest = hashlib.blake2b(f"{RULES} {platform.python_version()}\n".encode(), digest_size=8)
    for name, path in files:
        with contextlib.suppress(OSError):
            digest.update(f"{name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()
