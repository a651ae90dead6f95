"""Rows whose features and labels are in a file each, npz or split text: what is read, and what is refused."""

from __future__ import annotations

import io
import shutil
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from shared.data_sets import TEST, TRAIN, csr, equal, put
from xmlsgd import XMLClassifier
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats import npz, split
from xmlsgd.data.loading import load_file, load_folder
from xmlsgd.errors import DataError


def write_npz(path, train, test=None):
    npz.FORMAT.write(path, train, test, single=False)


def write_split(path, train, test=None):
    split.FORMAT.write(path, train, test, single=False)


@pytest.mark.parametrize("write", [write_npz, write_split])
def test_a_pair_is_loaded_by_either_of_its_files(tmp_path, write):
    write(tmp_path / "set", TRAIN, TEST)
    expected = Dataset(TEST.X, TEST.Y)
    files = sorted(file for file in (tmp_path / "set").iterdir() if "tst" in file.name)
    assert len(files) == 2
    assert all(equal(load_file(file), expected) for file in files)


def test_written_npz_files_are_those_of_scipy(tmp_path):
    write_npz(tmp_path / "set", TRAIN)
    X = sp.load_npz(tmp_path / "set" / "X.trn.npz")
    assert isinstance(X, sp.csr_matrix)
    assert (TRAIN.X.to_scipy() != X).nnz == 0


@pytest.mark.parametrize(
    ("write", "remedy"),
    [(write_npz, "for rows without labels, save a Y without entries"), (write_split, "add trn_X_Y.txt")],
)
def test_half_a_pair_is_refused(tmp_path, write, remedy):
    write(tmp_path / "set", TRAIN)
    next((tmp_path / "set").glob("*Y*")).unlink()
    with pytest.raises(DataError, match=f"X and Y must lie beside each other, got only one of them; {remedy}$"):
        load_folder(tmp_path / "set")


@pytest.mark.parametrize("write", [write_npz, write_split])
def test_halves_of_different_length_are_refused(tmp_path, write):
    for name, dataset in (("a", TRAIN), ("b", TEST)):
        write(tmp_path / name, dataset)
    Y = next((tmp_path / "b").glob("*Y*"))
    shutil.copy(Y, tmp_path / "a" / Y.name)
    with pytest.raises(DataError, match=f"{Y.name}: must have the 40 rows of .*, got 15"):
        load_folder(tmp_path / "a")


@pytest.mark.parametrize("content", [b"", b"no npz", b"PK\x03\x04 broken", b"\x93NUMPY\x01\x00v\x00{}"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    write_npz(tmp_path / "set", TRAIN)
    (tmp_path / "set" / "X.trn.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"X.trn.npz: must be a sparse matrix saved by scipy"):
        load_folder(tmp_path / "set")


def test_a_truncated_npz_and_one_without_a_matrix_are_refused(tmp_path):
    write_npz(tmp_path / "set", TRAIN)
    file = tmp_path / "set" / "X.trn.npz"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"X.trn.npz: must be a sparse matrix saved by scipy"):
        load_folder(tmp_path / "set")
    np.savez(file, data=np.array([{}]), format=np.array([{}]))  # pickled objects, which nobody may load
    with pytest.raises(DataError, match=r"X.trn.npz: data must be real numbers, got object"):
        load_folder(tmp_path / "set")


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("data", complex, "data must be real numbers, got complex128"),
        ("data", "datetime64[s]", "data must be real numbers, got datetime64"),
        ("data", str, "data must be real numbers, got <U32"),
        ("indices", float, "indices must be integers, got float64"),
        ("indptr", float, "indptr must be integers, got float64"),
    ],
)
def test_an_npz_of_other_types_is_refused(tmp_path, name, dtype, message):
    write_npz(tmp_path / "set", TRAIN)
    file = tmp_path / "set" / "X.trn.npz"
    arrays = dict(np.load(file))
    values = arrays[name].astype(int) if dtype == "datetime64[s]" else arrays[name]
    np.savez(file, **(arrays | {name: values.astype(dtype)}))
    with pytest.raises(DataError, match=message):
        load_folder(tmp_path / "set")


@pytest.mark.parametrize(
    ("more", "message"), [({}, "its arrays claim 160 MB, too much"), ({"data": np.ones(3)}, "must be of one length")]
)
def test_a_small_npz_of_large_arrays_is_refused_by_its_headers(tmp_path, monkeypatch, more, message):
    write_npz(tmp_path / "set", TRAIN)
    arrays = {"data": np.zeros(10**7), "indices": np.zeros(10**7, np.int64), "indptr": np.zeros(41, np.int64)}
    np.savez_compressed(tmp_path / "set" / "X.trn.npz", format="csr", shape=(40, 30), **(arrays | more))
    if more:
        monkeypatch.setattr("xmlsgd.data.formats.npz.FREE_BYTES", 1 << 30)
    monkeypatch.setattr("scipy.sparse.load_npz", lambda stream: pytest.fail("its arrays were read"))
    with pytest.raises(DataError, match=message):
        load_folder(tmp_path / "set")


def test_an_npz_whose_header_claims_more_than_it_holds_is_refused_before_it_is_read(tmp_path, monkeypatch):
    write_npz(tmp_path / "set", TRAIN)
    file = tmp_path / "set" / "X.trn.npz"
    with zipfile.ZipFile(file) as archive:
        arrays = {name: archive.read(name) for name in archive.namelist()}
    with io.BytesIO() as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
        np.lib.format.write_array_header_1_0(stream, header)
        arrays["data.npy"] = stream.getvalue()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in arrays.items():
            archive.writestr(name, content)
    monkeypatch.setattr("scipy.sparse.load_npz", lambda stream: pytest.fail("its arrays were read"))
    with pytest.raises(DataError, match="its arrays claim 4,000,000 MB"):
        load_folder(tmp_path / "set")


@pytest.mark.parametrize(("kind", "shape"), [("coo", (2**26, 30)), ("csc", (2**26, 3)), ("dia", (2**26, 2**26))])
def test_a_small_npz_of_very_many_rows_is_refused_by_its_shape(tmp_path, monkeypatch, kind, shape):
    write_npz(tmp_path / "set", TRAIN)
    entries = np.ones(3), (np.arange(3), np.arange(3))
    matrix = (
        sp.dia_array((np.ones((1, 3)), [0]), shape) if kind == "dia" else sp.coo_array(entries, shape).asformat(kind)
    )
    sp.save_npz(tmp_path / "set" / "X.trn.npz", matrix)
    monkeypatch.setattr("scipy.sparse.load_npz", lambda stream: pytest.fail("its arrays were read"))
    with pytest.raises(DataError, match="its arrays claim 537 MB"):
        load_folder(tmp_path / "set")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("indices", 30, "X.trn.npz: "),
        ("indices", -1, "X.trn.npz: "),
        ("data", np.nan, "X.trn.npz: row 0: values must be finite float32, got"),
    ],
)
def test_an_npz_with_a_wrong_number_is_refused(tmp_path, name, value, message):
    write_npz(tmp_path / "set", TRAIN)
    file = tmp_path / "set" / "X.trn.npz"
    arrays = dict(np.load(file))
    arrays[name][0] = value
    np.savez(file, **arrays)
    with pytest.raises(DataError, match=message):
        load_folder(tmp_path / "set")


def test_an_npz_of_another_layout_becomes_canonical_rows(tmp_path):
    X = sp.coo_array((np.array([1.0, 2, 4]), ([0, 0, 1], [2, 2, 0])), shape=(2, 3))
    sp.save_npz(tmp_path / "X.trn.npz", X)
    sp.save_npz(tmp_path / "Y.trn.npz", sp.csc_array([[0, 1.0], [1, 1]]))
    train, _ = load_folder(tmp_path)
    assert train.X.to_scipy().toarray().tolist() == [[0, 0, 3], [4, 0, 0]]
    assert train.Y.to_scipy().toarray().tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("value", [-1, 0.5, 2])
def test_labels_of_an_npz_that_are_neither_0_nor_1_are_refused_as_by_the_estimator(tmp_path, value):
    sp.save_npz(tmp_path / "X.trn.npz", sp.csr_array(np.eye(2)))
    Y = sp.csr_array([[1, 0, 0], [0, 1, value]])
    sp.save_npz(tmp_path / "Y.trn.npz", Y)
    refused = rf"row 1: an indicator must hold 0 and 1, got {value:g} in column 2; "
    with pytest.raises(DataError, match=rf"Y\.trn\.npz: {refused}save Y != 0 to drop the values"):
        load_folder(tmp_path)
    with pytest.raises(DataError, match=f"Y: {refused}"):
        XMLClassifier().fit(sp.csr_array(np.eye(2)), Y)


def test_a_label_with_value_zero_is_no_label(tmp_path):
    put(tmp_path, trn_X_Xf__txt="3 2\n0:1\n1:1\n\n", trn_X_Y__txt="3 4\n0:1 2:0 3:2.5\n1:0\n2:1\n")
    train, _ = load_folder(tmp_path)
    assert train.Y.to_scipy().toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_a_label_that_occurs_twice_in_the_split_form_counts_once(tmp_path):
    put(tmp_path, trn_X_Xf__txt="0:1 1:1\n", trn_X_Y__txt="2:1 0:1 2:1\n")
    train, _ = load_folder(tmp_path)
    assert (train.Y.indices.tolist(), train.Y.data.tolist()) == ([0, 2], [1, 1])


def test_each_half_of_the_split_form_counts_as_its_option_says(tmp_path):
    put(tmp_path, trn_X_Xf__txt="1:1 2:1\n", trn_X_Y__txt="1:1\n")
    train, _ = load_folder(tmp_path, zero_based=False, n_labels=5)
    assert (train.X.indices.tolist(), train.Y.indices.tolist(), train.Y.n_cols) == ([0, 1], [1], 5)
    train, _ = load_folder(tmp_path, zero_based_labels=False)
    assert (train.X.indices.tolist(), train.Y.indices.tolist()) == ([1, 2], [0])


def test_a_filter_file_is_not_read_and_that_is_said(tmp_path):
    write_split(tmp_path / "set", TRAIN)
    put(tmp_path / "set", trn_filter_labels__txt="0 1\n")
    with pytest.warns(UserWarning, match=r"trn_filter_labels.txt: read only by evaluate --filter"):
        load_folder(tmp_path / "set")


@pytest.mark.parametrize("part", ["X", "Y"])
def test_the_split_form_refuses_what_it_could_not_give_back(tmp_path, part):
    empty = CSR(np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 2)
    full = csr([[1, 0], [0, 1]])
    with pytest.raises(DataError, match=f"X_{'Xf' if part == 'X' else 'Y'}.txt: must have entries, all finite, got 0"):
        write_split(tmp_path / "set", Dataset(*((empty, full) if part == "X" else (full, empty))))
    assert list(tmp_path.iterdir()) == []
