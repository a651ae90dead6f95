"""Groups of rows as texts and integers."""

import pytest

from xmlsgd.data.validation import read_groups
from xmlsgd.errors import DataError


def test_texts_and_integers_are_groups():
    assert read_groups(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    assert read_groups([7, 7, 3], 3).tolist() == [1, 1, 0]
    assert read_groups(None, 3) is None


@pytest.mark.parametrize("groups", [["a"], [0.5, 1.0, 2.0], [["a"], ["b"], ["c"]], ["a", None, "b"]])
def test_what_does_not_fit_the_rows_is_refused(groups):
    with pytest.raises(DataError, match="groups: must "):
        read_groups(groups, 3)
