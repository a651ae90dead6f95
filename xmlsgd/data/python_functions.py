"""A real data set that every machine has: Python functions, words of what they say -> names of what they call.

The rows are the functions of the installed standard library and of this package's own dependencies. Their files are
parsed, never imported. A row's text is made of the words of the function's name, arguments and docstring
(`def read_json(path)` gives "read json path"); its labels are the names that its body calls (`open`, `loads`).
All functions of a file go to one side of the split, so that near-duplicates do not leak into the test set.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import platform
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from ..errors import DataError
from .csr import Dataset
from .files import whole_folder
from .python_sources import Function, parse, source_files
from .text import RawText, index_labels, read_raw_text, write_raw_text
from .vectorizer import TextVectorizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGES = ("joblib", "llvmlite", "numba", "numpy", "scipy", "sklearn", "threadpoolctl", "tqdm")
MIN_COUNT = 5  # a label must occur in at least so many training rows
TEST_SHARE = 10  # one file in so many is a test file
SAMPLE_MODULES = (
    *("asyncio", "concurrent", "email", "html", "http", "importlib", "json", "logging", "multiprocessing", "urllib"),
    *("wsgiref", "xml", "xmlrpc"),
)
SAMPLE_WORDS = 25  # of a text, and
SAMPLE_DIGITS = 4  # of a feature value: the files stay small
SAMPLE_MIN_COUNT = 3
SAMPLE_TEST_SHARE = 6
RULES = 1  # raise it when a change here or in `python_sources` changes the rows: old caches are then left alone
CACHE_FILES = ("train.txt", "test.txt")


@overload
def load_python_functions(
    packages: Sequence[str] = ...,
    *,
    min_count: int = ...,
    data_home: str | Path | None = ...,
    return_vectorizer: Literal[False] = ...,
) -> tuple[Dataset, Dataset]: ...


@overload
def load_python_functions(
    packages: Sequence[str] = ...,
    *,
    min_count: int = ...,
    data_home: str | Path | None = ...,
    return_vectorizer: Literal[True],
) -> tuple[Dataset, Dataset, TextVectorizer]: ...


def load_python_functions(
    packages: Sequence[str] = PACKAGES,
    *,
    min_count: int = MIN_COUNT,
    data_home: str | Path | None = None,
    return_vectorizer: bool = False,
) -> tuple[Dataset, Dataset] | tuple[Dataset, Dataset, TextVectorizer]:
    """Return train and test sets of Python functions as TF-IDF rows with named labels.

    Arguments as in `python_functions_texts`. With `return_vectorizer=True` the fitted `TextVectorizer` comes third; it
    turns new text into rows for a model that was trained on this set.
    """
    parts = python_functions_texts(packages, min_count=min_count, data_home=data_home)
    train, test, vectorizer = vectorized(*parts)
    return (train, test, vectorizer) if return_vectorizer else (train, test)


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
    folder = Path(data_home or "~/.cache/xmlsgd/datasets").expanduser() / f"python-functions-{_key(files)}"
    try:
        train, test = (read_raw_text(folder / name, labelled=True) for name in CACHE_FILES)
    except DataError:  # not there, or damaged
        train, test = split(parse(files))
        _keep(folder, (train, test))
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


def write_sample(folder: str | Path) -> None:
    """Write a small data set of some standard modules into `folder`, as raw text and as XMC text.

    `train_raw.txt` and `test_raw.txt` read `label1,label2<TAB>text`; `train.txt` and `test.txt` hold the same rows in
    XMC text; line l of `labels.txt` names label l, line f of `features.txt` feature f, both from 0.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = [(name, path) for name, path in source_files(()) if name.split("/")[1] in SAMPLE_MODULES]
    short = [f._replace(text=" ".join(f.text.split()[:SAMPLE_WORDS])) for f in parse(files)]
    raw_train, raw_test = select_labels(*split(short, SAMPLE_TEST_SHARE), SAMPLE_MIN_COUNT)
    train, test, vectorizer = vectorized(raw_train, raw_test)
    for name, raw, dataset in (("train", raw_train, train), ("test", raw_test, test)):
        write_raw_text(folder / f"{name}_raw.txt", raw)
        write_raw_text(folder / f"{name}.txt", RawText(list(_xmc_lines(dataset))))
    write_raw_text(folder / "labels.txt", RawText(list(train.label_names or ())))
    write_raw_text(folder / "features.txt", RawText(vectorizer.words))


def _xmc_lines(dataset: Dataset) -> Iterator[str]:
    """Yield the header and the rows in XMC text, values with `SAMPLE_DIGITS` digits."""
    yield f"{dataset.n_rows} {dataset.n_features} {dataset.n_labels}"
    for i in range(dataset.n_rows):
        labels, _ = dataset.Y.row(i)
        entries = (f"{feature}:{value:.{SAMPLE_DIGITS}g}" for feature, value in zip(*dataset.X.row(i), strict=True))
        yield f"{','.join(map(str, labels))} {' '.join(entries)}"


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


def _keep(folder: Path, parts: tuple[RawText, RawText]) -> None:
    """Write both parts into the cache, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError), whole_folder(folder) as whole:
        for part, name in zip(parts, CACHE_FILES, strict=True):
            write_raw_text(whole / name, part)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the sample of this data set: `python -m xmlsgd.data.python_functions --sample data`."""
    parser = argparse.ArgumentParser(prog="python -m xmlsgd.data.python_functions", description=main.__doc__)
    parser.add_argument("--sample", metavar="FOLDER", required=True, help="folder that takes the files")
    write_sample(parser.parse_args(argv).sample)


if __name__ == "__main__":
    main()
