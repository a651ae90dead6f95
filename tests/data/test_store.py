"""Stores give back what was written, and appear whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from shared.data_sets import csr, equal, example
from shared.paths import ROOT
from xmlsgd.data.csr import Dataset, row_spans
from xmlsgd.data.formats import store
from xmlsgd.data.formats.store import open_store, write_blocks, write_store
from xmlsgd.data.loading import convert, load_file
from xmlsgd.errors import DataError

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), min_size=1).filter(
    str.strip
)


@st.composite
def datasets(draw):
    n, F, L = draw(st.integers(0, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    values = st.just(0.0) | st.floats(width=32, allow_nan=False, allow_infinity=False)
    X = csr(draw(npst.arrays(np.float32, (n, F), elements=values)))
    Y = csr(draw(npst.arrays(np.bool_, (n, L))).astype(np.float32))
    return Dataset(X, Y, draw(st.none() | st.lists(NAMES, min_size=L, max_size=L, unique=True)))


def checked_anew(path):
    """Open a store as if its files had never been checked."""
    (path / "verified.json").unlink()
    return open_store(path)


@settings(max_examples=25, deadline=None)
@given(dataset=datasets())
def test_a_store_gives_back_the_data_set(tmp_path_factory, dataset):
    path = tmp_path_factory.mktemp("stores") / "set"
    write_store(dataset, path)
    assert equal(checked_anew(path), dataset)


@settings(max_examples=25, deadline=None)
@given(dataset=datasets(), entries=st.integers(1, 20))
def test_blocks_of_any_size_make_the_same_store(tmp_path_factory, dataset, entries):
    path = tmp_path_factory.mktemp("stores") / "set"
    blocks = list(row_blocks(dataset, entries))
    write_blocks(blocks, lambda: (dataset.n_features, dataset.n_labels), path, dataset.label_names)
    assert equal(checked_anew(path), dataset)


def row_blocks(dataset, entries):
    """Yield blocks of rows with at most so many entries of X and of Y, or of a single row."""
    for start, stop in row_spans([dataset.X, dataset.Y], entries):
        yield Dataset(dataset.X.span(start, stop), dataset.Y.span(start, stop))


def test_every_array_is_a_plain_npy_file(tmp_path):
    dataset = example()
    write_store(dataset, tmp_path / "set")
    for name, dtype in store.DTYPES.items():
        array = np.load(tmp_path / "set" / f"{name}.npy")
        assert array.dtype == dtype
        assert np.array_equal(array, getattr(getattr(dataset, name[0]), name[2:]))


def test_a_store_leaves_out_entries_of_zero_which_would_count_as_features(tmp_path):
    (tmp_path / "rows.txt").write_text("0 0:1 1:0 2:3\n1 1:0\n0,1 2:5\n")
    write_store(load_file(tmp_path / "rows.txt"), tmp_path / "written")
    convert(tmp_path / "rows.txt", tmp_path / "converted")
    for name in ("written", "converted"):
        X = open_store(tmp_path / name).X
        assert (X.indptr.tolist(), X.indices.tolist(), X.data.tolist()) == ([0, 2, 2, 3], [0, 2, 2], [1, 3, 5])


def test_an_open_store_is_mapped_read_only_and_keeps_no_label_values(tmp_path):
    write_store(example(), tmp_path / "set")
    opened = open_store(tmp_path / "set")
    for array in (opened.X.indptr, opened.X.indices, opened.X.data, opened.Y.indptr, opened.Y.indices):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable
    assert opened.Y.data.strides == (0,)


def test_scipy_and_numba_take_an_open_store(tmp_path):
    @numba.njit
    def column_sums(indptr, indices, data, sums):
        for i in range(len(indptr) - 1):
            for j in range(indptr[i], indptr[i + 1]):
                sums[indices[j]] += data[j]
        return sums

    dataset = example()
    write_store(dataset, tmp_path / "set")
    opened = open_store(tmp_path / "set")
    for matrix, original in ((opened.X, dataset.X), (opened.Y, dataset.Y)):
        expected = original.to_scipy().toarray().sum(axis=0)
        found = column_sums(matrix.indptr, matrix.indices, matrix.data, np.zeros(matrix.n_cols))
        np.testing.assert_allclose(matrix.to_scipy().sum(axis=0), expected, rtol=1e-6)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_opening_a_store_loads_neither_numba_nor_scipy(tmp_path):
    write_store(example(), tmp_path / "set")
    code = (
        "import sys; from xmlsgd.data.formats.store import open_store; "
        f"d = open_store({str(tmp_path / 'set')!r}); d.label_names[0]; print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"numba", "scipy", "sklearn"}.isdisjoint(result.stdout.split())


def test_label_names_are_read_at_the_first_look(tmp_path):
    write_store(example(), tmp_path / "set")
    names = open_store(tmp_path / "set").label_names
    assert len(names) == 20
    (tmp_path / "set" / "labels.txt").write_text("one\n")
    with pytest.raises(DataError, match=r"labels.txt: must have a line for each of 20 labels, got 1"):
        names[0]


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("indices", 3, 30, r"X: indices: must be in \[0, 30\), got 30 in row 0"),
        ("indptr", 5, 10**6, "X: indptr: must rise, got"),
        ("data", 4, np.inf, "X: values must be finite, got inf in row 0"),
    ],
)
def test_rows_that_no_reader_would_take_are_not_written(tmp_path, name, index, value, message):
    dataset = example()
    getattr(dataset.X, name)[index] = value
    with pytest.raises(DataError, match=message):
        write_store(dataset, tmp_path / "set")
    assert not list(tmp_path.iterdir())


def test_values_that_float32_cannot_hold_are_not_written(tmp_path):
    dataset = example()
    X = replace(dataset.X, data=np.full(dataset.X.nnz, 1e300))
    with pytest.raises(DataError, match="X: must be of int64, int32 and float32 arrays, got int64, int32, float64"):
        write_store(replace(dataset, X=X), tmp_path / "set")
    assert not list(tmp_path.iterdir())


def failing_blocks(dataset):
    yield from row_blocks(dataset, 10)
    raise OSError("the disk is full")


def test_a_failure_in_the_middle_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="the disk is full"):
        write_blocks(failing_blocks(example()), lambda: (30, 20), tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_in_the_middle_leaves_the_earlier_store(tmp_path):
    write_store(example(seed=1), tmp_path / "set")
    with pytest.raises(OSError, match="the disk is full"):
        write_blocks(failing_blocks(example()), lambda: (30, 20), tmp_path / "set")
    assert equal(checked_anew(tmp_path / "set"), example(seed=1))
    assert [entry.name for entry in tmp_path.iterdir()] == ["set"]


def test_what_took_the_name_while_a_store_was_written_is_kept(tmp_path):
    def blocks():
        yield from row_blocks(example(), 10)
        (tmp_path / "set").write_text("mine")

    with pytest.raises(FileExistsError, match="set: exists and is not a store"):
        write_blocks(blocks(), lambda: (30, 20), tmp_path / "set")
    assert (tmp_path / "set").read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["set"]


def test_a_store_is_replaced_under_one_who_reads_it(tmp_path):
    write_store(example(seed=1), tmp_path / "set")
    opened = open_store(tmp_path / "set")
    assert opened.label_names[0] == "label 0"
    write_store(example(seed=2), tmp_path / "set")
    assert equal(opened, example(seed=1))
    assert equal(open_store(tmp_path / "set"), example(seed=2))


@pytest.mark.parametrize("folder", [True, False])
def test_what_is_not_a_store_is_never_replaced(tmp_path, folder):
    path = tmp_path / "thesis"
    if folder:
        path.mkdir()
    kept = path / "chapter" if folder else path
    kept.write_text("mine")
    with pytest.raises(FileExistsError, match="thesis: exists and is not a store; choose another name or remove it"):
        write_store(example(), path)
    assert kept.read_text() == "mine"


def test_a_store_with_a_file_of_the_user_is_never_replaced(tmp_path):
    write_store(example(), tmp_path / "rows")
    (tmp_path / "rows" / "notes.md").write_text("mine")
    with pytest.raises(FileExistsError, match=r"rows: holds notes.md, which is no part of the store; move it"):
        write_store(example(seed=2), tmp_path / "rows")
    assert (tmp_path / "rows" / "notes.md").read_text() == "mine"
    assert equal(open_store(tmp_path / "rows"), example())


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "a\0b", "\ufeffmark", "\ud800", 5])
def test_a_label_name_that_is_no_line_is_refused(tmp_path, name):
    dataset = example(L=2)
    with pytest.raises(DataError, match="label 1: its name must be a line of text that is not blank"):
        write_store(Dataset(dataset.X, dataset.Y, ["fine", name]), tmp_path / "set")
    with pytest.raises(DataError, match="label names must be one for each of 2 labels, got 1"):
        write_store(Dataset(dataset.X, dataset.Y, ["fine"]), tmp_path / "set")
    assert list(tmp_path.iterdir()) == []
