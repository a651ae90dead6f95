"""Groups of rows as texts and integers."""

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
