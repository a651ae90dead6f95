"""LIBSVM text that is written: read back bit for bit, compressed by its name, whole or not at all."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.libsvm_grammar import PLAIN, assert_same
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats import libsvm
from xmlsgd.data.formats.libsvm import read_libsvm, write_libsvm
from xmlsgd.errors import DataError


@st.composite
def datasets(draw):
    """Return a data set with at least one feature and one label."""
    n_rows, n_features, n_labels = draw(st.integers(1, 8)), draw(st.integers(1, 12)), draw(st.integers(1, 6))
    value = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
    rows = draw(st.lists(st.dictionaries(st.integers(0, n_features - 1), value), min_size=n_rows, max_size=n_rows))
    labels = draw(st.lists(st.sets(st.integers(0, n_labels - 1)), min_size=n_rows, max_size=n_rows))
    rows[draw(st.integers(0, n_rows - 1))][0] = draw(value)
    labels[draw(st.integers(0, n_rows - 1))].add(n_labels - 1)
    X_indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    Y_indptr = np.cumsum([0, *map(len, labels)], dtype=np.int64)
    X_indices = np.array([f for row in rows for f in sorted(row)], np.int32)
    X_data = np.array([row[f] for row in rows for f in sorted(row)], np.float32)
    Y_indices = np.array([label for row in labels for label in sorted(row)], np.int32)
    X = CSR(X_indptr, X_indices, X_data, n_features)
    return Dataset(X, CSR(Y_indptr, Y_indices, np.ones(len(Y_indices), np.float32), n_labels))


@settings(max_examples=200, deadline=None)
@given(datasets(), st.sampled_from(["", ".gz", ".bz2", ".xz"]), st.sampled_from([1, 5, 1 << 16]))
def test_what_is_written_is_read_back_bit_for_bit(tmp_path_factory, dataset, suffix, entries):
    path = tmp_path_factory.getbasetemp() / f"round.txt{suffix}"
    with mock.patch.object(libsvm, "WRITE_ENTRIES", entries):
        write_libsvm(dataset, path)
    assert_same(read_libsvm(path), dataset)


@pytest.mark.parametrize(
    ("suffix", "magic"), [("", b"2 4 3\n"), (".gz", b"\x1f\x8b"), (".bz2", b"BZh"), (".xz", b"\xfd7zXZ\0")]
)
def test_the_name_says_how_the_output_is_compressed(read, tmp_path, suffix, magic):
    path = tmp_path / f"out.txt{suffix}"
    write_libsvm(read(PLAIN), path)
    assert path.read_bytes().startswith(magic)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(read, tmp_path, monkeypatch):
    dataset = read(PLAIN)
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "data.txt.gz"
    write_libsvm(dataset, path)
    before = path.read_bytes()
    monkeypatch.setattr(libsvm, "write_rows", mock.Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_libsvm(dataset, path)
    assert [p.name for p in folder.iterdir()] == ["data.txt.gz"]
    assert path.read_bytes() == before


def test_rows_that_could_not_be_read_back_are_not_written(tmp_path):
    empty = CSR(np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 4)
    full = CSR(np.array([0, 1, 1]), np.array([2], np.int32), np.ones(1, np.float32), 4)
    nan = CSR(np.array([0, 0, 1]), np.array([2], np.int32), np.full(1, np.nan, np.float32), 4)
    path = tmp_path / "out.txt"
    with pytest.raises(DataError, match="at least one feature, got 2 rows without any"):
        write_libsvm(Dataset(empty, full), path)
    with pytest.raises(DataError, match="at least one label, got 2 rows without any"):
        write_libsvm(Dataset(full, empty), path)
    with pytest.raises(DataError, match="X: values must be finite, got nan in row 1"):
        write_libsvm(Dataset(nan, full), path)
    assert not list(tmp_path.iterdir())
