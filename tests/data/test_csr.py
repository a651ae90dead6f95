"""Sparse rows: canonical form, refusal of broken structures, the order of an epoch."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from xmlsgd.data import csr
from xmlsgd.data.csr import CSR, Dataset, check_entries, check_pointers
from xmlsgd.data.random_streams import epoch_order
from xmlsgd.errors import DataError


def raw(indptr, indices, data, shape, kind=sp.csr_array):
    """Return a scipy array with these very arrays, unchecked."""
    matrix = kind(shape, dtype=np.float64)
    matrix.indptr, matrix.indices, matrix.data = np.array(indptr), np.array(indices), np.array(data)
    return matrix


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.lil_matrix])
def test_any_scipy_format_becomes_int64_int32_float32(kind):
    dense = np.array([[0, 2, 0], [0, 0, 0], [1, 0, -3]])
    csr = CSR.from_scipy(kind(dense))
    assert (csr.indptr.dtype, csr.indices.dtype, csr.data.dtype) == (np.int64, np.int32, np.float32)
    assert (csr.shape, csr.n_rows, csr.nnz) == ((3, 3), 3, 3)
    np.testing.assert_array_equal(csr.to_scipy().toarray(), dense)


def test_blocks_of_a_matrix_need_not_be_square():
    dense = np.array([[0, 0, 0, 0, 1, 2], [0, 3, 0, 0, 0, 0]])
    np.testing.assert_array_equal(CSR.from_scipy(sp.bsr_array(dense, blocksize=(1, 2))).to_scipy().toarray(), dense)


@pytest.mark.parametrize("n_rows", [1, 3, 50_000])
def test_what_a_matrix_says_of_its_order_is_not_believed(n_rows):
    matrix = sp.csr_array(np.tile([1.0, 0.0, 2.0], (n_rows, 1)))
    assert matrix.has_canonical_format  # and remembered
    matrix.indices[-2:], matrix.data[-2:] = [2, 0], [2.0, 1.0]
    csr = CSR.from_scipy(matrix)
    np.testing.assert_array_equal(csr.indices, np.tile([0, 2], n_rows))
    np.testing.assert_array_equal(csr.data, np.tile([1, 2], n_rows))
    assert matrix.indices[-2:].tolist() == [2, 0]


def test_entries_behind_the_last_row_do_not_count():
    csr = CSR.from_scipy(raw([0, 1, 2], [0, 1, 1], [5.0, 6.0, 7.0], (2, 2)))
    assert (csr.nnz, csr.column_counts().tolist()) == (2, [1, 1])


def test_complex_numbers_are_refused():
    with pytest.raises(DataError, match="X: must hold real numbers, got complex128"):
        CSR.from_scipy(sp.csr_array(np.array([[1j]])))


def test_duplicates_are_added_and_indices_sorted_on_a_copy():
    matrix = raw([0, 3, 4], [2, 0, 2, 1], [1.0, 5.0, 2.0, 7.0], (2, 3))
    csr = CSR.from_scipy(matrix)
    np.testing.assert_array_equal(csr.indices, [0, 2, 1])
    np.testing.assert_array_equal(csr.data, [5, 3, 7])
    np.testing.assert_array_equal(csr.indptr, [0, 2, 3])
    np.testing.assert_array_equal(matrix.indices, [2, 0, 2, 1])
    np.testing.assert_array_equal(matrix.data, [1, 5, 2, 7])


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        (raw([0, 2, 1], [0, 1], [1, 1], (2, 3)), "Y: indptr must rise from 0 to nnz = 2 over 2 rows"),
        (raw([0, 2**63 - 1, -(2**63), -1, 2], [0, 1], [1, 1], (4, 3)), "Y: indptr must rise"),
        (raw([0, 1, 2], [0, 9], [1, 1], (3, 2), sp.csc_array), r"Y: indices must be in \[0, 3\), got 0 to 9"),
        (raw([0, 2, 1], [0, 1], [1, 1], (3, 2), sp.csc_array), "Y: indptr must rise .* over 2 columns"),
        (
            raw([0, 1, 2], [0, 9], np.ones((2, 1, 1)), (2, 3), sp.bsr_array),
            r"Y: indices must be in \[0, 3\), got 0 to 9",
        ),
        (raw([1, 2, 2], [0, 1], [1, 1], (2, 3)), "Y: indptr must rise"),
        (raw([0, 1, 3], [0, 1], [1, 1], (2, 3)), "Y: indptr must rise"),
        (raw([0, 2], [0, 1], [1, 1], (2, 3)), "Y: indptr must rise"),
        (raw([0, 1, 2], [0, 3], [1, 1], (2, 3)), r"Y: indices must be in \[0, 3\), got 0 to 3"),
        (raw([0, 1, 2], [-1, 0], [1, 1], (2, 3)), r"Y: indices must be in \[0, 3\), got -1 to 0"),
        (raw([0, 1, 2], [0, 1], [1], (2, 3)), "Y: data and indices must be of one length, got 1 and 2"),
        (raw([0, 1, 2], [0.0, 1.0], [1, 1], (2, 3)), "Y: indptr and indices must be integers"),
        (raw([0, 1, 2], [0, 1], [1, np.nan], (2, 3)), "Y: row 1: values must be finite float32, got .*nan"),
        (raw([0, 0, 2], [0, 1], [1, np.inf], (2, 3)), "Y: row 1: values must be finite float32, got .*inf"),
        (raw([0, 1, 2], [0, 1], [1e60, 1], (2, 3)), "Y: row 0: values must be finite float32, got .*1e"),
    ],
)
def test_a_broken_matrix_is_refused_before_any_kernel_sees_it(matrix, complaint):
    with pytest.raises(DataError, match=complaint):
        CSR.from_scipy(matrix, "Y")


def test_to_scipy_copies_neither_indices_nor_data():
    csr = CSR.from_scipy(sp.csr_array(np.eye(3, dtype=np.float32)))
    matrix = csr.to_scipy()
    assert np.shares_memory(matrix.data, csr.data)
    assert np.shares_memory(matrix.indices, csr.indices)


def test_linear_models_of_scikit_learn_take_what_to_scipy_returns():
    X = CSR.from_scipy(sp.csr_array(np.eye(3, dtype=np.float32))).to_scipy()
    assert LinearSVC().fit(X, [0, 1, 1]).predict(X).tolist() == [0, 1, 1]


def test_row_returns_indices_and_data_side_by_side():
    csr = CSR.from_scipy(sp.csr_array([[0, 2, 3], [0, 0, 0]]))
    indices, data = csr.row(0)
    assert (indices.tolist(), data.tolist()) == ([1, 2], [2, 3])
    assert len(csr.row(1)[0]) == 0


@pytest.mark.parametrize("n_rows", [4, 400], ids=["of few", "of many"])
@pytest.mark.parametrize("rows", [[3, 0, 3], []], ids=["some", "none"])
def test_take_copies_rows_in_the_order_asked_for(rows, n_rows):
    dense = np.arange(3 * n_rows).reshape(n_rows, 3)
    matrix = CSR.from_scipy(sp.csr_array(dense))
    taken = matrix.take(np.array(rows, np.int64))
    np.testing.assert_array_equal(taken.to_scipy().toarray(), dense[rows])
    assert (taken.indptr.dtype, taken.indices.dtype) == (np.int64, np.int32)
    assert not np.shares_memory(taken.data, matrix.data)


def test_a_dataset_refuses_parts_of_different_length():
    X, Y = (CSR.from_scipy(sp.csr_array((n, 4))) for n in (3, 2))
    with pytest.raises(DataError, match="same number of rows, got 3 and 2"):
        Dataset(X, Y)


def test_a_dataset_knows_its_sizes():
    X, Y = (CSR.from_scipy(sp.csr_array((3, n))) for n in (4, 7))
    data = Dataset(X, Y)
    assert (data.n_rows, data.n_features, data.n_labels) == (3, 4, 7)


@given(st.integers(0, 200), st.integers(0, 2**31), st.integers(0, 100))
def test_the_order_of_an_epoch_is_a_permutation_fixed_by_seed_and_epoch(n_rows, seed, epoch):
    order = epoch_order(n_rows, seed, epoch)
    np.testing.assert_array_equal(np.sort(order), np.arange(n_rows))
    np.testing.assert_array_equal(order, epoch_order(n_rows, seed, epoch))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(epoch_order(50, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


@st.composite
def broken_rows(draw):
    """Return a CSR of small numbers that may break any rule."""
    indptr = [0, *draw(st.lists(st.integers(-1, 6), max_size=4)), 6]
    indices = draw(st.lists(st.integers(-1, 4), min_size=6, max_size=6))
    data = draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, -3e38, 3e38, np.nan, np.inf]), min_size=6, max_size=6))
    return CSR(np.array(indptr, np.int64), np.array(indices, np.int32), np.array(data, np.float32), 4)


@given(broken_rows(), st.sampled_from([1, 2, 3, 1 << 16]))
def test_rows_are_refused_where_one_rule_is_broken_whatever_is_looked_at_together(matrix, entries):
    indptr, indices = matrix.indptr.tolist(), matrix.indices.tolist()
    falling = any(a > b for a, b in itertools.pairwise(indptr))
    rows = [] if falling else [indices[a:b] for a, b in itertools.pairwise(indptr)]
    sound = all(0 <= i < 4 for i in indices) and all(row == sorted(set(row)) for row in rows)
    with mock.patch.object(csr, "CHECKED_ENTRIES", entries):
        if falling:
            with pytest.raises(DataError, match="pointers: must rise"):
                check_pointers(matrix.indptr, matrix.nnz, "pointers")
            return
        check_pointers(matrix.indptr, matrix.nnz, "pointers")
        if sound and np.isfinite(matrix.data).all():
            check_entries(matrix, ("indices", "data"))
        else:
            with pytest.raises(DataError, match=r"indices: must|data: values must be finite"):
                check_entries(matrix, ("indices", "data"))


@pytest.mark.parametrize("ends", [(1, 3), (0, 2), (0, 10**12)])
def test_pointers_that_do_not_lead_from_zero_to_the_end_are_refused(ends):
    with pytest.raises(DataError, match=f"pointers: must lead from 0 to 3, got {ends[0]} and {ends[1]}"):
        check_pointers(np.array(ends), 3, "pointers")


ROWS = CSR.from_scipy(sp.csr_array(np.arange(12).reshape(4, 3)))


@pytest.mark.parametrize("rows", [slice(1, 3), slice(None, None, -2), slice(3, 1), [3, 0, 3], [], [True, False] * 2])
@pytest.mark.parametrize("rest", [(), (...,)], ids=["plain", "with an ellipsis"])
def test_rows_are_chosen_as_those_of_an_array(rows, rest):
    chosen = ROWS[(rows, *rest) if rest else rows]
    expected = ROWS.to_scipy().toarray()[np.asarray(rows, int) if rows == [] else rows]
    np.testing.assert_array_equal(chosen.to_scipy().toarray(), expected)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (0, "rows: must be a slice, a list of numbers or a mask, got 0; for single rows and columns use to_scipy()"),
        ((slice(None), 1), "rows: must be a slice, a list of numbers or a mask, got "),
        ("ab", "rows: must be a slice, a list of numbers or a mask, got 'ab'"),
        ([4], "rows: must be among the 4 rows, got index 4 is out of bounds"),
        ([True], "rows: must be among the 4 rows, got boolean index"),
    ],
)
def test_what_names_no_rows_is_refused(rows, complaint):
    with pytest.raises(DataError) as error:
        ROWS[rows]
    assert str(error.value).startswith(complaint)


def test_scikit_learn_splits_rows():
    train, test = train_test_split(ROWS, test_size=0.25, random_state=0)
    assert (train.shape, test.shape) == ((3, 3), (1, 3))
    assert sorted(train.data.tolist() + test.data.tolist()) == list(range(1, 12))


def test_rows_and_data_sets_show_their_shape_and_not_their_entries():
    assert repr(ROWS) == "<CSR: 4 rows, 3 columns, 11 entries>"
    named = Dataset(ROWS, ROWS, ["a", "b", "c"])
    assert repr(named) == "<Dataset: 4 rows, 3 features, 3 labels, with label names>"


def test_where_keeps_entries_and_rows_that_lose_all_of_theirs():
    matrix = CSR.from_scipy(sp.csr_array(np.array([[1, 0, 2], [0, 3, 0], [4, 0, 0]], np.float32)), "X")
    kept = matrix.where(np.array([False, True, False, True]))
    assert kept.to_scipy().toarray().tolist() == [[0, 0, 2], [0, 0, 0], [4, 0, 0]]
    assert kept.indptr.dtype == np.int64


def test_pairs_of_a_row_and_a_column_are_found_and_no_column_is_none():
    matrix = CSR(np.array([0, 2, 2, 3]), np.array([0, 4, 1], np.int32), np.ones(3, np.float32), 5)
    columns = np.array([[4, 0, -1], [4, -1, 0], [1, 2, 4]])
    assert matrix.has(columns).tolist() == [[True, True, False], [False, False, False], [True, False, False]]
    assert not matrix[1:2].has(columns[:1]).any()
    assert not matrix.has(np.array([[11], [6], [5]])).any()  # columns behind the last one, though row 2 has column 1
