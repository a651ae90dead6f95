"""Columns and tables of data-frame libraries: they give the model that lists and arrays of the same content give."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from xmlsgd import XMLClassifier
from xmlsgd.data.frames import as_list, column_names
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.errors import DataError

N = 5
TEXTS = ["read a file", "write a file", "close the door", "open the door"] * N
LISTS = [["file", "read"], ["file"], ["door"], ["door", "open"]] * N
CLASSES = ["file", "file", "door", "door"] * N
NUMBERS = [[1, 2], [1], [3], [3]] * N
WEIGHTS = [1.0, 2.0] * (2 * N)
X = np.eye(4, dtype=np.float32)[[0, 1, 2, 3] * N]
Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]] * N)
COLUMNS = {"text": TEXTS, "labels": LISTS, "class": CLASSES, "numbers": NUMBERS, "weight": WEIGHTS}


class Table:
    """The least that a table can be: columns by name that give their values as a list."""

    def __init__(self, columns):
        self.columns_of_lists = columns
        self.column_names = list(columns)
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, key):
        if isinstance(key, slice):
            return Table({name: values[key] for name, values in self.columns_of_lists.items()})
        return SimpleNamespace(to_pylist=lambda: list(self.columns_of_lists[key]))

    def __array__(self, dtype=None, copy=None):
        return np.array(list(self.columns_of_lists.values()), dtype=object).T.astype(dtype or object)


def library(name):
    """Return a function that makes a table of a dictionary of lists; skip the test where the library is missing."""
    if name == "none":
        return Table
    module = pytest.importorskip(name.split(" ")[0], reason=f"{name} is not installed")
    if name == "pandas of arrow":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        return lambda table: module.DataFrame(table).convert_dtypes(dtype_backend="pyarrow")
    return {
        "pandas": lambda table: module.DataFrame(table),
        "polars": lambda table: module.DataFrame(table),
        "pyarrow": lambda table: module.table(table),
        "datasets": lambda table: module.Dataset.from_dict(table),
    }[name]


@pytest.fixture(params=["none", "pandas", "pandas of arrow", "polars", "pyarrow", "datasets"], scope="module")
def table_of(request):
    """What makes a table of a dictionary of lists."""
    return library(request.param)


@pytest.fixture
def table(table_of):
    """A table of all columns."""
    return table_of(COLUMNS)


def small():
    return XMLClassifier(hidden_layer_sizes=(4,), max_epochs=1, random_state=0, n_jobs=1)


def scores(model, X=TEXTS):
    return model.predict_topk(X, 2)[1]


def test_a_table_with_a_column_of_lists_is_refused_by_its_name(table_of):
    with pytest.raises(DataError, match=r"lists in column 'vector'; leave it out, or .*\(np.stack\)"):
        small().fit(table_of({"text": TEXTS, "vector": [[1.0, 2.0]] * len(TEXTS)}), LISTS)


def only(table_of, name):
    return table_of({name: COLUMNS[name]})


@pytest.mark.parametrize("name", ["labels", "class", "numbers"])
def test_columns_of_texts_and_labels_are_lists(table, name):
    expected = small().fit(TEXTS, COLUMNS[name])
    model = small().fit(table["text"], table[name])
    assert model.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_array_equal(scores(model, table["text"]), scores(expected))


def test_a_vectorizer_takes_a_column_and_a_table_of_one_column(table_of, table):
    words = TextVectorizer().fit(TEXTS).words
    assert TextVectorizer().fit(table["text"]).words == TextVectorizer().fit(only(table_of, "text")).words == words
    with pytest.raises(DataError, match=r"texts: must be one column, got a table of \d columns; pass one of them, df"):
        TextVectorizer().fit(table)


@pytest.mark.parametrize("name", ["labels", "class", "numbers"])
def test_a_table_of_one_column_is_its_column(table_of, name):
    expected = small().fit(TEXTS, COLUMNS[name])
    texts, labels = only(table_of, "text"), only(table_of, name)
    model = small().fit(texts, labels)
    assert model.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_array_equal(scores(model, texts), scores(expected))
    assert model.partial_fit(texts, labels).score(texts, labels) == expected.partial_fit(TEXTS, labels).score(
        TEXTS, COLUMNS[name]
    )


def test_tables_of_numbers_are_matrices(table_of):
    rows = table_of({name: X[:, i].tolist() for i, name in enumerate("abcd")})
    labels = table_of({name: Y[:, i].tolist() for i, name in enumerate("ef")})
    expected = small().fit(X, Y, eval_set=(X, Y))
    model = small().fit(rows, labels, eval_set=(rows, labels))
    np.testing.assert_array_equal(scores(model, rows), scores(expected, X))
    assert model.history_[-1]["P@1"] == expected.history_[-1]["P@1"]
    one = table_of({"a": X[:, 0].tolist()})
    np.testing.assert_array_equal(scores(small().fit(one, Y), one), scores(small().fit(X[:, :1], Y), X[:, :1]))


def test_names_of_columns_of_numbers_are_kept_and_checked(table_of):
    if table_of is Table:
        pytest.skip("scikit-learn reads names from tables of libraries alone")
    columns = {name: X[:, i].tolist() for i, name in enumerate("abcd")}
    model = small().fit(table_of(columns), Y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(DataError, match="feature names"):
        model.predict_topk(table_of(dict(reversed(columns.items()))))


def test_names_of_the_columns_of_an_indicator_are_classes(table_of, tmp_path):
    columns = {name: Y[:, i].tolist() for i, name in enumerate(["file", "door"])}
    model = small().fit(X, table_of(columns), eval_set=(X, table_of(columns)))
    assert model.classes_.tolist() == ["file", "door"]
    np.testing.assert_array_equal(scores(model, X), scores(small().fit(X, Y), X))
    assert model.predict(X).shape == Y.shape
    assert model.score(X, table_of(columns)) == model.score(X, Y)
    model.save(tmp_path / "model")
    assert XMLClassifier.load(tmp_path / "model").classes_.tolist() == ["file", "door"]
    with pytest.raises(DataError, match=r"Y: column 0 must be 'file', as seen before, got 'door'; bring the columns"):
        model.score(X, table_of(dict(reversed(columns.items()))))
    model.partial_fit(X, table_of({**columns, "read": Y[:, 0].tolist()}))
    assert model.classes_.tolist() == ["file", "door", "read"]


def test_columns_named_by_tuples_cause_a_warning_as_their_names_are_not_used():
    told = r"Y: columns are named by tuples, got \('a', 'x'\), so that labels are numbers; name them by texts"
    with pytest.warns(UserWarning, match=told):  # as those of a MultiIndex of pandas
        model = small().fit(X, Table({("a", "x"): Y[:, 0].tolist(), ("a", "y"): Y[:, 1].tolist()}))
    assert model.classes_.tolist() == [0, 1]


def test_names_that_are_given_hold_beside_those_of_columns(table_of):
    labels = table_of({name: Y[:, i].tolist() for i, name in enumerate("ef")})
    model = small().fit(X, labels, label_names=["first", "second"])
    assert model.classes_.tolist() == ["first", "second"]
    assert model.score(X, labels) == model.score(X, Y)
    assert small().partial_fit(X, labels, classes=["first", "second"]).classes_.tolist() == ["first", "second"]
    assert small().fit(X, Y).score(X, labels) == small().fit(X, Y).score(X, Y)


def test_two_columns_of_labels_are_refused_with_their_name(table_of):
    with pytest.raises(DataError, match=r"Y: must be one column of labels, .* got 2 columns with .* in 'class'; pass"):
        small().fit(TEXTS, table_of({"class": CLASSES, "labels": LISTS}))


class Lazy:
    """A table whose rows are not read yet."""

    def collect(self):
        return only(Table, "class")


def test_a_lazy_table_is_refused_with_the_call_that_reads_it():
    for X_given, y in ((TEXTS, Lazy()), (Lazy(), CLASSES)):
        with pytest.raises(DataError, match=r"must be read, got a Lazy; call its collect\(\) first"):
            small().fit(X_given, y)


def test_weights_groups_names_and_label_texts_are_columns(table, table_of):
    few = table_of({"name": ["f", "d"], "text": ["a file", "a door"]})
    listed = {
        "sample_weight": WEIGHTS,
        "groups": CLASSES,
        "label_names": ["f", "d"],
        "label_texts": ["a file", "a door"],
    }
    columns = {"label_names": few["name"], "label_texts": few["text"]}
    model = small().fit(TEXTS, Y, sample_weight=table["weight"], groups=table["class"], **columns)
    expected = small().fit(TEXTS, Y, **listed)
    assert model.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_array_equal(scores(model), scores(expected))


def test_a_vectorizer_takes_a_column(table):
    assert TextVectorizer().fit(table["text"]).words == TextVectorizer().fit(TEXTS).words


def test_a_table_of_texts_and_other_columns_is_refused_with_the_name_of_its_texts(table, table_of):
    with pytest.raises(DataError, match=r"with texts in column 'text'; pass that column alone"):
        small().fit(table_of({"weight": WEIGHTS, "text": TEXTS}), table["labels"])
    with pytest.raises(DataError, match=r"lists of words, .*are X and Y swapped"):
        small().fit(only(table_of, "labels"), table["text"])


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_categorical_column_is_not_taken_for_texts(name):
    frame, module = (
        library(name)({"weight": WEIGHTS, "text": ["a", "b"] * (2 * N), "class": CLASSES}),
        sys.modules[name],
    )
    frame = frame.astype({"class": "category"}) if name == "pandas" else frame.cast({"class": module.Categorical})
    told = r"got a table with categories in column 'class'; make numbers of all: .*\(\[\('classes', OneHot.*\['class'\]"
    with pytest.raises(DataError, match=told):
        small().fit(frame[["weight", "class"]], LISTS)
    with pytest.raises(DataError, match=r"texts in column 'text'; pass that column .*, \['class'\]\)\], remainder"):
        small().fit(frame, LISTS)


@pytest.mark.parametrize("texts", [["a file", None], [None, "a file"]])
def test_a_missing_text_is_named_by_its_row(table_of, texts):
    with pytest.raises(DataError, match=rf"row {texts.index(None)}: must be a string, got .*; write '' where there is"):
        small().fit(table_of({"text": texts})["text"], [["a"], ["b"]])


def test_a_sequence_of_any_kind_is_a_list():
    assert as_list(range(3)) == [0, 1, 2]
    assert as_list("texts") == "texts"
    assert as_list({"a": 1}) == {"a": 1}


def test_a_matrix_with_a_method_named_columns_is_no_table():
    assert column_names(SimpleNamespace(shape=(2, 1), columns=lambda: ["a"])) is None
    assert column_names(SimpleNamespace(shape=(2, 1), columns=["a"])) == ["a"]
