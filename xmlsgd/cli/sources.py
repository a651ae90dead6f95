"""Read the data arguments of commands: a file in any format, a folder, a store, or the name of a data set."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.csr import CSR, Dataset
from ..data.datasets import load_dataset
from ..data.document_formats import first_lines
from ..data.files.manifest import VECTORIZER_FILE
from ..data.files.temporary import temporary_folder
from ..data.formats.base import is_store
from ..data.label_names import index_labels
from ..data.loading import load_test
from ..data.text import Documents, read_raw_text
from ..data.vectorizer import TextVectorizer
from ..errors import DataError, shorten, warn
from ..estimators import XMLClassifier, XMLEnsemble
from ..estimators.names import first_number
from .exit_codes import UsageError
from .input_options import InputOptions
from .label_texts import LabelTexts, are_named, find_label_texts, text_of_each, with_label_texts
from .line_files import groups_in_file
from .messages import STDIN, STDIN_NAME
from .swapped_columns import found_swapped

BLANK_BYTES = 1 << 16
NO_VECTORIZER = (
    "the model was trained on numeric features and has no words, got text; pass numeric features, or train on text"
)


@dataclass(frozen=True)
class Columns:
    """The columns that rows must have: F features, L labels, the names of labels, and the vectorizer of texts.

    Before training only the vectorizer may be known.
    """

    n_features: int = 0
    n_labels: int = 0
    names: Sequence[str] | None = None
    vectorizer: TextVectorizer | None = None

    @classmethod
    def of_model(cls, model: XMLClassifier | XMLEnsemble) -> Columns:
        """Return the columns of a trained model."""
        names = model.classes_.tolist() if model.classes_.dtype.kind in "OU" else None
        return cls(model.n_features_in_, len(model.classes_), names, getattr(model, "vectorizer_", None))


@dataclass(frozen=True)
class InputRows:
    """Training rows, test rows if there are any, and the vectorizer if they come from texts.

    fit_options : further arguments of `fit`, for groups and label texts. names_of_uris : names of the vocabulary.
    saved_options : options of reading data that are saved with the model.
    """

    train: Dataset
    test: Dataset | None = None
    vectorizer: TextVectorizer | None = None
    fit_options: dict[str, Any] = field(default_factory=dict)
    names_of_uris: Mapping[str, str] | None = None
    saved_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label_names(self) -> Sequence[Any] | None:
        """Return the names of labels, for `fit`; numbers if labels without names count from 1."""
        if self.train.label_names is None and self.saved_options.get("one_based_labels"):
            return range(1, self.train.n_labels + 1)
        return self.train.label_names

    @property
    def columns(self) -> Columns:
        """Return the columns that test rows must have."""
        return Columns(self.train.n_features, self.train.n_labels, self.train.label_names, self.vectorizer)


class UnlabelledRows(NamedTuple):
    """Rows to predict labels for, and their identifiers if these were asked for."""

    X: CSR
    ids: Sequence[str | int | None] | None = None


@contextmanager
def on_disk(path: str, head: bytes = b"") -> Iterator[str]:
    """Yield `path`, or for `-` the path of a file with a copy of standard input, as readers open a file repeatedly.

    head : the bytes that were read from standard input already.
    """
    if path != STDIN:
        yield path
        return
    with temporary_folder() as folder:
        file = folder / STDIN_NAME
        with file.open("wb") as stream:
            stream.write(head)
            shutil.copyfileobj(sys.stdin.buffer, stream)
        try:
            yield str(file)
        except DataError as error:
            raise DataError(str(error).replace(str(file), STDIN_NAME)) from error


def read_training(train: str, test: str | None, options: InputOptions) -> InputRows:
    """Return the rows of TRAIN and of --test, and what belongs to them: groups, texts of labels, names of features."""
    with on_disk(train) as path:
        lines, documents = find_label_texts(path, options), _read_documents(path, options)
        if lines and documents is not None and are_named(lines, documents.label_names):
            text_of_each(lines, options.label_texts)  # before words are chosen, which may take a minute
        rows = _training_rows(path, options, None, documents, lines)
    dataset = rows.train
    fit_options: dict[str, Any] = {}
    if options.feature_names is not None:
        if rows.vectorizer is not None:
            raise UsageError(f"--feature-names: {train} has words of its own; leave it out")
        fit_options["feature_names"] = read_raw_text(options.feature_names).texts
    if lines:
        dataset, fit_options["label_texts"] = with_label_texts(dataset, lines, options.label_texts)
    groups = options.groups  # a file of the name "similar" is ./similar
    fit_options["groups"] = groups if groups == "similar" else groups_in_file(groups, dataset.n_rows)
    rows = replace(rows, train=dataset, fit_options=fit_options)
    rows = replace(rows, names_of_uris=options.names_of_uris, saved_options=options.to_save)
    if test is not None:
        known = rows.label_names or range(rows.columns.n_labels)
        return replace(rows, test=without_gaps(read_test(test, options, rows.columns)[0], known))
    return rows if rows.test is None else replace(rows, test=in_columns(rows.test, rows.columns, train))


def read_more(
    path: str, options: InputOptions, columns: Columns
) -> tuple[Dataset, Sequence[str] | None, dict[str, str]]:
    """Return more rows for a trained model, their texts if they have any, and the texts of new labels by name.

    New features and labels get columns after those of the model; so do labels that only have a text. Rows of texts are
    empty: the model computes their features when it learns them.
    """
    with on_disk(path) as file:
        lines, documents = find_label_texts(file, options), _read_documents(file, options)
        train, is_raw = _labelled_rows(file, options, columns, documents), options.document_format(file) == "raw"
    if documents is not None and is_raw and (swapped := found_swapped(documents, columns.names)):
        raise DataError(f"{path}: {swapped}")  # the model would learn texts as labels, and keep them
    X = replace(train.X, n_cols=max(train.n_features, columns.n_features))
    train = Dataset(X, *_match_labels(train.Y, train.label_names, columns))
    texts = None if documents is None else documents.texts
    if not lines:
        return train, texts, {}
    if columns.vectorizer is None:
        raise UsageError(f"--label-texts: {NO_VECTORIZER.partition(',')[0]}; leave it out")
    dataset, texts_of_columns = with_label_texts(train, lines, options.label_texts)
    names, known = dataset.label_names or (), columns.n_labels
    new = zip(names[known:], texts_of_columns[known:], strict=True)
    return dataset, texts, {name: text for name, text in new if text is not None}


def read_source(path: str, options: InputOptions, vectorizer_of: str | None) -> InputRows:
    """Return the rows of any source.

    Raw text is vectorized by the words of the model or store `vectorizer_of`, by default by its own words.
    """
    columns = None
    if vectorizer_of is not None:
        options.refuse_vectorizer_options(f"those of --vectorizer {vectorizer_of}")
        if not Path(vectorizer_of, VECTORIZER_FILE).is_file():
            wanted = "pass a model that was trained on text, or a store that was converted from text"
            raise UsageError(f"--vectorizer {vectorizer_of}: has no words; {wanted}")
        columns = Columns(vectorizer=TextVectorizer.from_files(vectorizer_of))
    with on_disk(path) as file:
        return _training_rows(file, options, columns, _read_documents(file, options))


def read_test(path: str, options: InputOptions, columns: Columns) -> tuple[Dataset, list[str] | None]:
    """Return labelled rows with the given columns, and their texts; None for numeric features.

    New labels get columns after the others.
    """
    with on_disk(path) as file:
        documents = _read_documents(file, options)
        return _test_rows(file, options, columns, documents), None if documents is None else documents.texts


def with_learned_columns(rows: Dataset, texts: list[str] | None, columns: Columns, path: str) -> Dataset:
    """Return what `read_test` has returned, with the columns of a model that has learned more words and labels."""
    if texts is not None and columns.vectorizer is not None:
        rows = replace(rows, X=columns.vectorizer.rows_of(texts))
    return in_columns(rows, columns, path)


def read_training_labels(path: str, options: InputOptions, columns: Columns) -> tuple[CSR, Columns]:
    """Return the labels of training rows in the given columns, and the columns with new labels added at the end."""
    with on_disk(path) as file:
        train = _labelled_rows(file, options, columns, _read_documents(file, options))
    Y, names = _match_labels(train.Y, train.label_names, columns)
    if names is None and columns.names is not None:  # labels are matched by number
        names = columns.names
        if Y.n_cols != len(names):
            raise DataError(
                f"{path}: must have label names, or the {len(names)} labels of the model, "
                f"got {Y.n_cols} without names; pass the rows that it was trained on"
            )
    return Y, replace(columns, n_labels=Y.n_cols, names=names if columns.names is not None else None)


def read_unlabelled(path: str, options: InputOptions, columns: Columns, head: bytes) -> UnlabelledRows:
    """Return rows to predict labels for, which need no labels; head : see `on_disk`."""
    with on_disk(path, head) as file:
        if columns.vectorizer is not None and _is_blank(Path(file)):
            return UnlabelledRows(columns.vectorizer.rows_of([]))
        form = options.document_format(file, labelled=False)
        if form is None:
            documents = _read_documents(file, options)
            return UnlabelledRows(_test_rows(file, options, columns, documents, labels_required=False).X)
        if columns.vectorizer is None:
            raise DataError(f"{file}: {NO_VECTORIZER}")
        labelled = form == "raw" and options.have_labels(first_lines(Path(file)))
        documents = options.read_documents(file, form, labelled)
        if labelled and (swapped := found_swapped(documents, columns.names)):
            warn(f"{path}: {swapped}")
        if documents.texts[:1] == [options.text_column] and form == "raw":
            warn(f"{path}: the first line, {options.text_column!r}, is a text, too; delete it if it is a header")
        return UnlabelledRows(columns.vectorizer.rows_of(documents.texts), documents.ids)


def _is_blank(file: Path) -> bool:
    """Return whether a file has no documents, such as an export of a day without new ones."""
    return file.is_file() and file.stat().st_size < BLANK_BYTES and not file.read_bytes().strip()


def _read_documents(path: str, options: InputOptions) -> Documents | None:
    """Return the labelled documents of a file, None if it holds numeric features."""
    form = options.document_format(path)
    return None if form is None else options.read_documents(path, form, labelled=True)


def _training_rows(
    path: str, options: InputOptions, columns: Columns | None, documents: Documents | None,
    label_texts: LabelTexts = (),
) -> InputRows:  # fmt: skip
    """Return the rows of a source, and those of its test split; without `columns`, fit a vectorizer to its texts.

    documents : of the source; None for numeric features.
    """
    if documents is not None:
        columns = columns or Columns(vectorizer=_fit_vectorizer(documents, path, options, label_texts))
        return InputRows(_rows_of_documents(path, documents, columns), None, columns.vectorizer)
    if not _is_blank(Path(path)):  # which is refused below, whatever it was to hold
        options.refuse_vectorizer_options(f"{path}, which holds numeric features")
    rows = InputRows(*load_dataset(path, **options.libsvm_options(path)), _vectorizer_of_store(path))
    if columns is not None:
        check_words(rows.vectorizer, columns, path)
    return rows


def _labelled_rows(path: str, options: InputOptions, columns: Columns, documents: Documents | None) -> Dataset:
    """Return training rows for a model with `columns`; rows of documents have labels but no features."""
    if documents is None:
        return _training_rows(path, options, columns, None).train
    return _rows_of_documents(path, replace(documents, texts=[""] * len(documents.texts)), columns)


def _fit_vectorizer(documents: Documents, path: str, options: InputOptions, label_texts: LabelTexts) -> TextVectorizer:
    """Return a vectorizer fitted to the texts of a file and of labels; without flags, choose its options by data."""
    vectorizer = options.new_vectorizer()
    if documents.labels and not options.vectorizer_options:
        from ..estimators.vectorizer_choice import choose_vectorizer  # here: it needs scikit-learn

        vectorizer = choose_vectorizer(documents.texts, index_labels(documents.labels)[0])
    try:
        return vectorizer.fit(documents.texts, label_texts=[text for _, text in label_texts])
    except DataError as error:
        raise DataError(f"{path}: {str(error).removeprefix('texts: ')}") from error


def _test_rows(
    path: str, options: InputOptions, columns: Columns, documents: Documents | None, labels_required: bool = True
) -> Dataset:
    """Return rows as `read_test` does; documents : of the file, None for numeric features."""
    if documents is not None:
        return _rows_of_documents(path, documents, columns)
    if Path(path).is_dir():
        test = load_test(path, labels_required=labels_required, **options.libsvm_options(path))
    else:
        first, second = load_dataset(path, labels_required=labels_required, **options.libsvm_options(path))
        test = second or first
    check_words(_vectorizer_of_store(path), columns, path)
    return in_columns(test, columns, path)


def in_columns(dataset: Dataset, columns: Columns, path: str) -> Dataset:
    """Return test rows with the given columns; raise `DataError` for a feature that training did not have."""
    if dataset.n_features > columns.n_features:
        raise DataError(
            f"{path}: must have the {columns.n_features} features of training, got {dataset.n_features}; "
            "give the training file a header with the larger number"
        )
    Y, names = _match_labels(dataset.Y, dataset.label_names, columns)
    return Dataset(replace(dataset.X, n_cols=columns.n_features), Y, names)


def check_words(vectorizer: TextVectorizer | None, columns: Columns, path: str) -> None:
    """Check that numeric features come from the words of a model that was trained on text.

    vectorizer : that made the rows, or None. Raises `DataError` if it has other words than the model, and warns if
    there is none.
    """
    if columns.vectorizer is None:
        return
    if vectorizer is None:
        what = f"{path}: numeric features, but the model was trained on text, and feature j is its word j"
        remedy = "pass texts (--format raw where they look like numbers), or rows by xmlsgd convert --vectorizer MODEL"
        warn(f"{what}; {remedy}")
    elif vectorizer.words != columns.vectorizer.words[: vectorizer.n_features]:  # the model may have learned others
        raise DataError(f"{path}: must have the words of the model, got others; convert it with --vectorizer MODEL")


def _match_labels(Y: CSR, names: Sequence[str] | None, columns: Columns) -> tuple[CSR, Sequence[str] | None]:
    """Return Y in the given label columns, matched by name if both have names, and the names of its columns.

    New labels get columns after the others.
    """
    if columns.names is not None and names is not None:
        if list(names) == list(columns.names)[: len(names)]:
            names = columns.names
        else:
            Y, names = index_labels(names_of_rows(Y, names), columns.names)
    return replace(Y, n_cols=max(Y.n_cols, columns.n_labels)), names


def first_labels(Y: CSR, n_labels: int) -> CSR:
    """Return Y without the columns from `n_labels` on."""
    return replace(Y.where(Y.indices < n_labels), n_cols=n_labels)


def without_gaps(test: Dataset, known: Sequence[Any]) -> Dataset:
    """Return test rows; if labels are numbers, move unknown ones to the columns right after the `known` labels.

    Arrays have an entry per column, so that a single large number, such as a typing error, would take all memory.
    """
    n_known, Y = len(known), test.Y
    if test.label_names is not None or Y.n_cols - n_known <= Y.nnz:
        return test
    is_new = Y.indices >= n_known
    numbers, columns = np.unique(Y.indices[is_new], return_inverse=True)
    indices = Y.indices.copy()
    indices[is_new] = n_known + columns
    names = [str(label) for label in (*known, *(numbers + first_number(known)).tolist())]
    return replace(test, Y=replace(Y, indices=indices, n_cols=len(names)), label_names=names)


def names_of_rows(Y: CSR, names: Sequence[str]) -> list[list[str]]:
    """Return the label names of each row."""
    return [[names[label] for label in Y.row(i)[0]] for i in range(Y.n_rows)]


def _vectorizer_of_store(path: str) -> TextVectorizer | None:
    """Return the vectorizer that `convert` saved with a store."""
    for folder in (Path(path), Path(path, "train")):
        if is_store(folder) and (folder / VECTORIZER_FILE).is_file():
            return TextVectorizer.from_files(folder)
    return None


def _rows_of_documents(path: str, documents: Documents, columns: Columns) -> Dataset:
    """Convert documents to rows with these columns; new labels get columns after them."""
    if columns.vectorizer is None:
        raise DataError(f"{path}: {NO_VECTORIZER}")
    known = _names_to_match(columns, documents, path)
    Y, names = index_labels(documents.labels or (), known)
    if known is None and not names:
        got = f"got none in {len(documents.texts)} documents; do labels stand before a tab, or in a column?"
        raise DataError(f"{path}: must have at least one label, {got}")
    return Dataset(columns.vectorizer.rows_of(documents.texts), Y, names)


def _names_to_match(columns: Columns, documents: Documents, path: str) -> Sequence[str] | None:
    """Return the names by which labels of documents are matched; for a model without names, its numbers as texts."""
    if columns.names is not None or not columns.n_labels:
        return columns.names
    numbers = [str(label) for label in range(columns.n_labels)]
    unknown = sorted(documents.label_names.difference(numbers))
    if unknown:
        raise DataError(
            f"{path}: must have labels from 0 to {columns.n_labels - 1}, since the model was trained on numbered ones, "
            f"got {shorten(unknown[0])}; train it on label lists, or a table whose columns name the labels"
        )
    return numbers
