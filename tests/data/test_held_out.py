"""Held-out rows: how many, and which, also of groups that are held out as a whole."""

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd.data import held_out
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.held_out import (
    HELD_OUT_SMALL,
    HELD_OUT_STACKING,
    are_copies,
    draw_rows,
    groups_of_similar_rows,
    held_out_folds,
)


def test_rows_are_held_out_if_there_are_enough():
    (held,) = held_out_folds(25_000, 0, HELD_OUT_STACKING, None, 1)
    assert len(held) == 2000 == len(np.unique(held))
    sizes = [[len(rows) for rows in held_out_folds(n, 0, HELD_OUT_STACKING, None, 1)] for n in (999, 1000, 12_000)]
    assert sizes == [[], [100], [1200]]
    assert not np.array_equal(held, held_out_folds(25_000, 1, HELD_OUT_STACKING, None, 1)[0])


@pytest.mark.parametrize("groups", [None, np.arange(640) // 4])
def test_folds_have_no_row_in_common(groups):
    folds = held_out_folds(640, 0, HELD_OUT_SMALL, groups, 10)
    assert [len(rows) for rows in folds] == [64] * 10
    assert np.array_equal(np.sort(np.concatenate(folds)), np.arange(640))
    assert all((np.diff(rows) > 0).all() for rows in folds)
    if groups is not None:
        assert all((np.bincount(groups[rows])[groups[rows]] == 4).all() for rows in folds)


def test_there_are_fewer_folds_than_asked_for_where_groups_are_too_large():
    groups = np.array([0] * 400 + [1] * 50 + [2] * 50)
    assert [sorted(set(groups[rows])) for rows in held_out_folds(500, 0, HELD_OUT_SMALL, groups, 10)] in (
        [[1], [2]],
        [[2], [1]],
    )
    assert held_out_folds(99, 0, HELD_OUT_SMALL, None, 10) == []


@pytest.mark.parametrize(("size", "n_folds"), [(9, 0), (10, 1)])
def test_groups_of_too_few_rows_make_no_fold(size, n_folds):
    groups = np.repeat([0, 1], [500 - size, size])
    assert len(held_out_folds(500, 0, HELD_OUT_SMALL, groups, 10)) == n_folds


def test_a_tenth_is_held_out_for_stacking_but_no_more_than_2000_rows():
    assert [HELD_OUT_STACKING.of(n) for n in (999, 10_000, 47_175, 10**6)] == [0, 1000, 2000, 2000]


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


def test_rows_with_the_same_rarest_feature_are_a_group():
    dense = np.zeros((40, 6), np.float32)
    dense[:, 0] = 1  # of all rows: says nothing
    dense[:4, 1] = dense[2:5, 2] = dense[5:7, 3] = 1  # row 4 has the second alone, rows 2 and 3 have it as their rarest
    dense[7, 4] = dense[0, 5] = 1  # each of one row: say nothing either
    groups = groups_of_similar_rows(CSR.from_scipy(sp.csr_array(dense)))
    members = {tuple(np.flatnonzero(groups == group).tolist()) for group in groups}
    assert members == {(0, 1), (2, 3, 4), (5, 6), *((row,) for row in range(7, 40))}


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (5, 3)])
def test_rows_without_features_are_groups_by_themselves(shape):
    groups = groups_of_similar_rows(CSR.from_scipy(sp.csr_array(np.zeros(shape, np.float32))))
    assert groups.tolist() == list(range(shape[0]))


def test_an_empty_row_is_not_grouped_with_the_next_one():
    dense = np.zeros((40, 2), np.float32)
    dense[[3, 5], 1] = 1
    groups = groups_of_similar_rows(CSR.from_scipy(sp.csr_array(dense)))
    assert groups[3] == groups[5]
    assert np.count_nonzero(groups == groups[3]) == 2


@pytest.mark.parametrize("entries", [1, 1 << 22])
def test_copies_have_equal_features_and_labels(entries, monkeypatch):
    monkeypatch.setattr(held_out, "COMPARED_ENTRIES", entries)
    X = [[1, 0, 2], [1, 0, 2], [1, 0, 2], [0, 3, 0], [3, 0, 0], [0, 0, 0], [0, 0, 0], [0, 3, 0]]
    Y = [[1, 0], [1, 0], [0, 1], [0, 0], [0, 0], [1, 1], [1, 1], [0, 0]]
    rows = Dataset(*(CSR.from_scipy(sp.csr_array(np.array(each, np.float32))) for each in (X, Y)))
    assert are_copies(rows).tolist() == [True, True, False, True, False, False, False, True]
