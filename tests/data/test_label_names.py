"""Names of labels: lists of them in one field, and their columns."""

import numpy as np
import pytest

from xmlsgd.data.label_names import index_labels, split_labels


@pytest.mark.parametrize(
    ("field", "separator", "names"),
    [
        ('"Woolf, Virginia",novel', ",", ("Woolf, Virginia", "novel")),
        (' "a ""b"", c" ,d,"a ""b"", c"', ",", ('a "b", c', "d")),
        ('"a; b"; c', ";", ("a; b", "c")),
        ('"a', ",", ('"a',)),
        ('"a" b,c "d"', ",", ('"a" b', 'c "d"')),
        ('"a, b', ",", ('"a', "b")),
        ('"",a', ",", ("a",)),
        ('a"b', '"', ("a", "b")),
        ('"a\nb",c', ",", ("a\nb", "c")),
    ],
)
def test_quotes_around_a_name_keep_its_separators(field, separator, names):
    assert split_labels(field, separator) == names


def test_index_labels_sorts_names_and_rows():
    Y, names = index_labels([("b", "a"), (), ("c", "b", "b")])
    assert names == ["a", "b", "c"]
    assert Y.shape == (3, 3)
    assert Y.indptr.tolist() == [0, 2, 2, 4]
    assert Y.indices.tolist() == [0, 1, 1, 2]
    assert (Y.indptr.dtype, Y.indices.dtype, Y.data.dtype) == (np.int64, np.int32, np.float32)


def test_index_labels_sorts_whole_numbers_by_value_and_other_names_by_letter():
    assert index_labels([("10", "3"), ("0", "200")])[1] == ["0", "3", "10", "200"]
    assert index_labels([("10", "3"), ("b", "200")])[1] == ["10", "200", "3", "b"]


def test_index_labels_puts_unknown_names_behind_the_known_ones():
    Y, names = index_labels([("new", "b"), ("also",)], ["b", "a"])
    assert names == ["b", "a", "also", "new"]
    assert [Y.row(i)[0].tolist() for i in range(2)] == [[0, 3], [2]]
