"""Groups of rows as texts and integers."""

import numpy as np
import pytest

from xmlsgd.data.validation import named_groups
from xmlsgd.errors import DataError


def test_texts_integers_and_flags_are_groups():
    assert [each.tolist() for each in named_groups(["b", "a", "b"], 3)] == [["a", "b"], [1, 0, 1]]
    assert [each.tolist() for each in named_groups([7, 7, 3], 3)] == [[3, 7], [1, 1, 0]]
    assert [each.tolist() for each in named_groups([True, False], 2)] == [[False, True], [1, 0]]


@pytest.mark.parametrize("groups", [["a"], [0.5, 1.0, 2.0], [["a"], ["b"], ["c"]], ["a", None, "b"]])
def test_what_does_not_fit_the_rows_is_refused(groups):
    with pytest.raises(DataError, match="groups: must "):
        named_groups(groups, 3)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_missing_groups_are_refused_and_never_one_group_of_their_own(missing):
    pandas = pytest.importorskip("pandas")
    for kind in ("object", "str", "category"):
        groups = pandas.Series(["a", "b", missing, "a"]).astype(kind)
        if groups[2] != "nan":  # old versions of pandas make text of it
            with pytest.raises(DataError, match=r"groups: must not be missing, got .* in row 2"):
                named_groups(groups, 4)


def test_a_number_and_the_same_number_as_text_are_not_one_group():
    with pytest.raises(DataError, match="must be all texts or all integers"):
        named_groups([1, "1", "x"], 3)
