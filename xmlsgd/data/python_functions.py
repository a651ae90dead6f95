"""The built-in data set: Python functions, words of what they say -> names of what they call.

The rows are functions of Python's standard library (`sample/README.md`). The text of a row is made of the words of the
function's name, arguments and docstring (`def read_json(path)` gives "read json path"); its labels are the names that
its body calls (`open`, `loads`). All functions of a file are on one side of the split.
"""

from __future__ import annotations

from pathlib import Path

from .csr import Dataset
from .text import RawText, index_labels, read_raw_text
from .vectorizer import TextVectorizer

SAMPLE = Path(__file__).with_name("sample")


def load_python_functions() -> tuple[Dataset, Dataset]:
    """Return train and test sets of Python functions as TF-IDF rows with named labels.

    Returns
    -------
    train, test : Dataset
    """
    train, test, _ = vectorized(*python_functions_texts())
    return train, test


def python_functions_texts() -> tuple[RawText, RawText]:
    """Return the texts and label names of the train and the test functions."""
    train, test = (read_raw_text(SAMPLE / f"{part}.txt.xz", labelled=True) for part in ("train", "test"))
    return train, test


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
