"""What a data argument may be: a file of any form, a folder, a store, the name of a data set."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..data import BUILT_IN, load_dataset
from ..data.csr import CSR, Dataset
from ..data.files import BLOCK_BYTES, scratch_folder
from ..data.store import is_store
from ..data.text import index_labels, read_raw_text
from ..data.text_files import MAX_LINE_BYTES
from ..data.vectorizer import VECTORIZER_FILE, TextVectorizer
from ..errors import DataError
from .format_options import are_labelled, first_lines, is_raw_text, row_options, texts_told
from .outputs import STDIN

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from ..data.text import RawText
    from ..estimators import XMLClassifier, XMLEnsemble

NO_VECTORIZER = "the model was trained on rows of numbers and has no words, got text; pass rows, or train on text"


@dataclass(frozen=True)
class Known:
    """What test rows must fit: features F, labels L, the labels' names, and what turns texts into rows."""

    n_features: int
    n_labels: int
    names: Sequence[str] | None = None
    vectorizer: TextVectorizer | None = None

    @classmethod
    def of_model(cls, model: XMLClassifier | XMLEnsemble) -> Known:
        """Return what a trained model knows."""
        names = model.classes_.tolist() if model.classes_.dtype.kind in "OU" else None
        return cls(model.n_features_in_, len(model.classes_), names, getattr(model, "vectorizer_", None))


@dataclass(frozen=True)
class Training:
    """What `train` learns from: rows, the test rows that belong to them, and what turns texts into such rows."""

    train: Dataset
    test: Dataset | None = None
    vectorizer: TextVectorizer | None = None

    @property
    def known(self) -> Known:
        """Return what test rows must fit."""
        return Known(self.train.n_features, self.train.n_labels, self.train.label_names, self.vectorizer)


@contextmanager
def on_disk(path: str) -> Iterator[str]:
    """Give the name of a file that holds standard input where `path` is `-`, else `path` itself.

    Readers look at a file more than once: for its form, then for its rows.
    """
    if path != STDIN:
        yield path
        return
    with scratch_folder() as folder:
        file = folder / "stdin"
        with file.open("wb") as stream:
            _copy_lines(sys.stdin.buffer, stream)
        try:
            yield str(file)
        except DataError as error:
            raise DataError(str(error).replace(str(file), "stdin")) from error


def _copy_lines(source: BinaryIO, target: BinaryIO) -> None:
    """Copy text; raise `DataError` for a line that no reader would take, before it fills the disk."""
    length = 0
    while block := source.read(BLOCK_BYTES):
        target.write(block)
        end = block.rfind(b"\n") + 1
        length = len(block) - end if end else length + len(block)
        if length > MAX_LINE_BYTES:
            raise DataError(f"stdin: a line must be at most {MAX_LINE_BYTES} bytes, got more")


def read_training(args: Namespace, known: Known | None = None) -> Training:
    """Return the rows of TRAIN and --test. `known` is of the model to go on with, whose features and labels stay."""
    with on_disk(args.train) as path:
        data = _training_rows(path, args, known)
    if args.test is not None:
        data = replace(data, test=read_test(args.test, args, data.known))
    elif data.test is not None:
        data = replace(data, test=fitted(data.test, data.known, args.train))
    return data


def read_parts(
    path: str, args: Namespace, words_of: str | None = None
) -> tuple[Dataset, Dataset | None, TextVectorizer | None]:
    """Return the rows of any source, its test part and its vectorizer where it has them.

    Raw text becomes rows by the words of the model or store `words_of`, by its own words without one.
    """
    known = None if words_of is None else Known(0, 0, None, TextVectorizer.from_files(words_of))
    with on_disk(path) as file:
        data = _training_rows(file, args, known)
    return data.train, data.test, data.vectorizer


def read_test(path: str, args: Namespace, known: Known) -> Dataset:
    """Return labelled rows with the features and the label columns of `known`; new labels stand behind those."""
    with on_disk(path) as file:
        return _test_rows(file, args, known)


def read_labels(path: str, args: Namespace, known: Known) -> tuple[CSR, Known]:
    """Return the labels of training rows in the columns of `known`, and `known` with those that are new behind its own.

    Features do not matter here: the rows may have others than `known`.
    """
    with on_disk(path) as file:
        raw = _training_texts(file, args)
        if raw is None:
            train, _ = load(file, args)
            Y, names = _matched(train.Y, train.label_names, known)
            if names is None and known.names is not None:  # by number, then
                names = known.names
                if Y.n_cols != len(names):
                    raise DataError(
                        f"{file}: must have label names, or the {len(names)} labels of the model, "
                        f"got {Y.n_cols} without names; pass the rows that it was trained on"
                    )
        elif known.names is None:
            raise DataError(f"{file}: {NO_VECTORIZER}")
        else:
            Y, names = index_labels(raw.labels or (), known.names)
    return Y, replace(known, n_labels=Y.n_cols, names=names if known.names is not None else None)


def _training_texts(path: str, args: Namespace) -> RawText | None:
    """Return the labelled documents of a source, of its training part where it has two; None for rows of numbers."""
    if is_raw_text(path, args, labelled=True):
        return read_raw_text(path, labelled=True)
    if not _is_built_in(path):
        return None
    from ..data.python_functions import python_functions_texts

    return python_functions_texts()[0]


def _test_rows(path: str, args: Namespace, known: Known, labels_required: bool = True) -> Dataset:
    """Return the rows of a file or a named set, as `read_test` says."""
    if is_raw_text(path, args, labelled=True):
        raw = read_raw_text(path, labelled=True)
        return _rows_of_text(path, raw, known.vectorizer, known.names)
    if _is_built_in(path):
        if known.vectorizer is None:
            raise DataError(f"{path}: {NO_VECTORIZER}")
        from ..data.python_functions import python_functions_texts

        return _rows_of_text(path, python_functions_texts()[1], known.vectorizer, known.names)
    first, second = load(path, args, labels_required)
    check_words(_words_beside(path), known, path)
    return fitted(second or first, known, path)


def read_features(path: str, args: Namespace, known: Known) -> CSR:
    """Return the rows of a file, store, folder or named set to predict labels for; they may do without labels."""
    if not is_raw_text(path, args, labelled=False):
        return _test_rows(path, args, known, labels_required=False).X
    if known.vectorizer is None:
        raise DataError(f"{path}: {NO_VECTORIZER}")
    labelled = args.format == "auto" and are_labelled(first_lines(Path(path)))
    return known.vectorizer.transform(read_raw_text(path, labelled=labelled).texts)


def load(path: str, args: Namespace, labels_required: bool = True) -> tuple[Dataset, Dataset | None]:
    """Return the rows of a file, store, folder or named set, and its test part where it has one."""
    with texts_told(path, args):
        return load_dataset(path, labels_required=labels_required, **row_options(args))


def fitted(dataset: Dataset, known: Known, path: str) -> Dataset:
    """Return test rows with the columns of `known`; `DataError` for a feature that training did not have."""
    check_features(dataset.n_features, known, path)
    return Dataset(replace(dataset.X, n_cols=known.n_features), *_matched(dataset.Y, dataset.label_names, known))


def check_features(n_features: int, known: Known, path: str) -> None:
    """Raise `DataError` for more features than training had."""
    if n_features > known.n_features:
        raise DataError(
            f"{path}: must have the {known.n_features} features of training, got {n_features};"
            " give the training file a header with the larger number"
        )


def check_words(vectorizer: TextVectorizer | None, known: Known, path: str) -> None:
    """Check rows of numbers for a model that was trained on text, whose features are words.

    `vectorizer` is what is known of theirs: `DataError` where it has other words, a warning where there is none.
    """
    if known.vectorizer is None:
        return
    if vectorizer is None:
        what = f"{path}: rows of numbers, but the model was trained on text, and feature j is its word j"
        remedy = "pass texts (--format raw where they look like numbers), or rows by xmlsgd convert --vectorizer MODEL"
        warnings.warn(f"{what}; {remedy}", stacklevel=2)
    elif vectorizer.words != known.vectorizer.words:
        raise DataError(f"{path}: must have the words of the model, got others; convert it with --vectorizer MODEL")


def _matched(Y: CSR, names: Sequence[str] | None, known: Known) -> tuple[CSR, Sequence[str] | None]:
    """Return Y with its columns in the order of `known`, by name where both have names, and the names of the columns.

    New labels stand behind those known.
    """
    if known.names is not None and names is not None:
        if list(names) == list(known.names)[: len(names)]:
            names = known.names
        else:
            Y, names = index_labels(_names_of(Y, names), known.names)
    return replace(Y, n_cols=max(Y.n_cols, known.n_labels)), names


def known_labels(Y: CSR, n_labels: int) -> CSR:
    """Return Y without the columns from `n_labels` on."""
    if Y.n_cols == n_labels:
        return Y
    return CSR.from_scipy(Y.to_scipy()[:, :n_labels], "Y")


def names_of_rows(dataset: Dataset) -> list[list[str]]:
    """Return the label names of each row of a data set that has names."""
    return _names_of(dataset.Y, dataset.label_names or ())


def _training_rows(path: str, args: Namespace, known: Known | None) -> Training:
    """Return the rows of TRAIN, and its own test part; a vectorizer is fitted where there is none to go on with."""
    if is_raw_text(path, args, labelled=True):
        raw = read_raw_text(path, labelled=True)
        names, vectorizer = (known.names, known.vectorizer) if known else (None, None)
        vectorizer = vectorizer or TextVectorizer().fit(raw.texts)
        return Training(_rows_of_text(path, raw, vectorizer, names), None, vectorizer)
    if _is_built_in(path):
        from ..data.python_functions import load_python_functions

        return Training(*load_python_functions(return_vectorizer=True))
    data = Training(*load(path, args), _words_beside(path))
    if known is not None:
        check_words(data.vectorizer, known, path)
    return data


def _words_beside(path: str) -> TextVectorizer | None:
    """Return the vectorizer that `convert` kept with a store."""
    for folder in (Path(path), Path(path, "train")):
        if is_store(folder) and (folder / VECTORIZER_FILE).is_file():
            return TextVectorizer.from_files(folder)
    return None


def _rows_of_text(path: str, raw: RawText, vectorizer: TextVectorizer | None, names: Sequence[str] | None) -> Dataset:
    """Return documents as rows."""
    if vectorizer is None:
        raise DataError(f"{path}: {NO_VECTORIZER}")
    Y, columns = index_labels(raw.labels or (), names)
    if names is None and not columns:
        raise DataError(f"{path}: must have at least one label, got none in {len(raw.texts)} documents")
    return Dataset(vectorizer.transform(raw.texts), Y, columns)


def _names_of(Y: CSR, names: Sequence[str]) -> list[list[str]]:
    """Return the label names of each row."""
    return [[names[label] for label in Y.row(i)[0]] for i in range(Y.n_rows)]


def _is_built_in(path: str) -> bool:
    return path == BUILT_IN and not Path(path).exists()
