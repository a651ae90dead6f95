"""Where the rows of a command come from."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd.cli.input_options import InputOptions
from xmlsgd.cli.sources import (
    Columns,
    check_words,
    in_columns,
    read_more,
    read_test,
    read_training,
    read_training_labels,
)
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats.store import write_store
from xmlsgd.data.text import Documents
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.errors import DataError

TRAIN = Documents(
    ["read a file", "read the file", "close the file", "close it"], [("open",), ("open",), ("close",), ()]
)
TEST = Documents(["read it new", "close"], [("open", "new"), ("close",)])


@pytest.fixture
def files(tmp_path):
    """Files of few functions: to learn from, and to measure on."""
    for name, raw in (("train", TRAIN), ("test", TEST)):
        lines = (f"{','.join(labels)}\t{text}\n" for labels, text in zip(raw.labels, raw.texts, strict=True))
        (tmp_path / name).write_text("".join(lines))
    return str(tmp_path / "train"), str(tmp_path / "test")


def test_test_rows_are_read_in_the_columns_of_training(files):
    train, test = files
    rows = read_training(train, test, InputOptions.of_flags(min_df=2))
    assert rows.vectorizer.words == ["close", "file", "read", "the"]
    assert (rows.train.X.shape, rows.train.label_names) == ((4, 4), ["close", "open"])
    assert (rows.test.X.shape, rows.test.label_names) == ((2, 4), ["close", "open", "new"])
    np.testing.assert_array_equal(rows.test.Y.indices, [1, 2, 0])


def test_rows_are_read_in_the_columns_of_a_model(files):
    train, test = files
    fitted = read_training(train, None, InputOptions.of_flags(min_df=2)).vectorizer
    columns = Columns(4, 2, ["open", "other"], fitted)
    more, *_ = read_more(train, InputOptions(), columns)
    assert (more.X.shape, more.label_names) == ((4, 4), ["open", "other", "close"])
    assert read_test(test, InputOptions(), columns)[0].label_names == ["open", "other", "close", "new"]
    Y, known = read_training_labels(train, InputOptions(), columns)
    assert (Y.shape, known.names) == ((4, 3), ["open", "other", "close"])


def test_labels_of_rows_are_matched_by_name_even_if_both_have_the_same_in_another_order():
    one_each = CSR.from_scipy(sp.csr_array(np.eye(2)))
    rows = in_columns(Dataset(one_each, one_each, ["open", "close"]), Columns(2, 2, ["close", "open"]), "rows")
    assert (rows.label_names, rows.Y.indices.tolist()) == (["close", "open"], [1, 0])


def test_a_store_of_texts_suits_a_model_that_has_learned_more_words_since():
    converted = TextVectorizer().fit(["read files"])
    learned = converted.with_words_of(["close files"], 1)
    check_words(converted, Columns(3, 1, None, learned), "store")
    with pytest.raises(DataError, match="store: must have the words of the model, got others"):
        check_words(TextVectorizer().fit(["read sockets"]), Columns(3, 1, None, learned), "store")


def test_saved_options_of_wrong_types_change_nothing():
    saved = {"text_column": 5, "one_based": "yes", "label_column": "tags"}
    assert InputOptions().with_saved(saved) == InputOptions(label_column="tags")


def test_saved_options_of_text_do_not_count_for_a_store_unlike_flags(tmp_path):
    one_each = CSR.from_scipy(sp.csr_array(np.eye(2)))
    write_store(Dataset(one_each, one_each), tmp_path / "store")
    (tmp_path / "rows.txt").write_text("1 1:1\n")
    saved, given = InputOptions().with_saved({"one_based": True}), InputOptions.of_flags(one_based=True)
    names = ("store", "rows.txt")
    assert [saved.libsvm_options(str(tmp_path / name))["zero_based"] for name in names] == [True, False]
    assert [given.libsvm_options(str(tmp_path / name))["zero_based"] for name in names] == [False, False]
