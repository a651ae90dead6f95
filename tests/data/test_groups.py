"""Groups of rows that are held out as a whole."""

import numpy as np
import pytest

from xmlsgd.data.groups import draw_rows, read_groups
from xmlsgd.errors import DataError


def test_without_groups_rows_are_drawn_one_by_one():
    rows = draw_rows(100, 10, None, np.random.default_rng(0))
    assert (len(set(rows.tolist())), rows.tolist()) == (10, sorted(rows.tolist()))


@pytest.mark.parametrize("seed", range(5))
def test_all_rows_of_a_group_are_drawn_or_none(seed):
    groups = np.random.default_rng(9).integers(0, 30, 200)
    rows = draw_rows(200, 40, groups, np.random.default_rng(seed))
    drawn = np.isin(np.arange(200), rows)
    assert 30 <= len(rows) <= 40
    assert not set(groups[drawn]) & set(groups[~drawn])


def test_groups_that_are_too_large_are_left_out():
    groups = np.array([0] * 90 + [1] * 10)
    assert draw_rows(100, 20, groups, np.random.default_rng(0)).tolist() == list(range(90, 100))
    assert len(draw_rows(100, 5, groups, np.random.default_rng(0))) == 0


@pytest.mark.parametrize("size", [1, 4])
def test_of_earlier_rows_none_but_those_drawn_before_are_drawn_again(size):
    groups = None if size == 1 else np.arange(8000)[::-1] // size  # the numbers of earlier groups change
    before = draw_rows(5000, 400, None if groups is None else groups[:5000], np.random.default_rng(3))
    again = draw_rows(8000, 400, groups, np.random.default_rng(3))
    assert 200 < np.count_nonzero(again < 5000) < 300
    assert np.isin(again[again < 5000], before).all()


def test_texts_and_integers_are_groups():
    assert read_groups(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    assert read_groups([7, 7, 3], 3).tolist() == [1, 1, 0]
    assert read_groups(None, 3) is None


@pytest.mark.parametrize("groups", [["a"], [0.5, 1.0, 2.0], [["a"], ["b"], ["c"]], ["a", None, "b"]])
def test_what_does_not_fit_the_rows_is_refused(groups):
    with pytest.raises(DataError, match="groups: must "):
        read_groups(groups, 3)
