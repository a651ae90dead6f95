"""Files and folders of every form give the same rows; parts that contradict each other are refused."""

from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from shared.data_sets import FORMS, TEST, TRAIN, csr, equal, example, put
from xmlsgd.data import formats
from xmlsgd.data.csr import Dataset
from xmlsgd.data.formats import npz
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.formats.store import write_store
from xmlsgd.data.loading import convert, load_file, load_folder, load_test
from xmlsgd.errors import DataError


@st.composite
def datasets(draw):
    """Draw what text can hold: at least one feature and one label, no subnormals."""
    n, F, L = draw(st.integers(1, 8)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    values = st.just(0.0) | st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
    X = draw(npst.arrays(np.float32, (n, F), elements=values))
    Y = draw(npst.arrays(np.bool_, (n, L))).astype(np.float32)
    X[0, 0] = Y[-1, -1] = 1
    return Dataset(csr(X), csr(Y))


@settings(max_examples=25, deadline=None)
@given(dataset=datasets(), form=st.sampled_from(FORMS))
def test_every_form_gives_back_the_data_set(tmp_path_factory, dataset, form):
    folder = tmp_path_factory.mktemp("sets")
    write_libsvm(dataset, folder / "train.txt")
    convert(folder, folder / "other", form)
    train, test = load_folder(folder / "other")
    assert equal(train, dataset)
    assert test is None


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("start", ["", "eurlex_"])
def test_text_files_of_both_names_may_be_packed(tmp_path, start, suffix):
    write_libsvm(TRAIN, tmp_path / f"{start}train.txt{suffix}")
    write_libsvm(TEST, tmp_path / f"{start}test.txt{suffix}")
    with gzip.open(tmp_path / "labels.txt.gz", "wt") as file:
        file.write("\n".join(TRAIN.label_names))
    train, test = load_folder(tmp_path)
    assert equal(train, TRAIN)
    assert equal(test, TEST)


def test_real_data_keep_their_shape_and_names(real_data):
    train, test = load_folder(real_data("bibtex"))
    assert (train.X.shape, train.Y.shape) == ((4880, 1836), (4880, 159))
    assert (test.X.shape, test.Y.shape) == ((2515, 1836), (2515, 159))
    assert list(train.label_names[:2]) == list(test.label_names[:2]) == ["TAG_2005", "TAG_2006"]


def test_parts_without_a_header_get_the_larger_shape_of_both(tmp_path):
    put(tmp_path, train__txt="0 4:1\n", test__txt="7 2:1\n")
    train, test = load_folder(tmp_path)
    assert (train.n_features, train.n_labels) == (test.n_features, test.n_labels) == (5, 8)


@pytest.mark.parametrize(
    ("train", "test"), [("1 9 8\n0 4:1\n", "7 2:1\n"), ("0 4:1\n", "\ufeff# two files\n#\n1 9 8\n7 2:1\n")]
)
def test_a_header_of_one_part_shapes_both(tmp_path, train, test):
    parts = load_folder(put(tmp_path, train__txt=train, test__txt=test))
    assert {(part.n_features, part.n_labels) for part in parts} == {(9, 8)}


@pytest.mark.parametrize("header", ["", "1 5\n"])  # of rows and features
def test_names_shape_parts_that_do_not_say_how_many_labels_there_are(tmp_path, header):
    put(tmp_path, train__txt=f"{header}0 4:1\n", test__txt="1 2:1\n", labels__txt="a\nb\nc\n")
    train, test = load_folder(tmp_path)
    assert (train.n_labels, test.n_labels) == (3, 3)
    assert test.label_names == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train": "1 9 8\n0 4:1\n", "test": "1 9 7\n0 4:1\n"}, "test.txt: must have the 8 labels of train.txt, got 7"),
        (
            {"train": "1 9 8\n0 4:1\n", "test": "1 5 8\n0 4:1\n"},
            "test.txt: must have the 9 features of train.txt, got 5",
        ),
        ({"train": "1 9 8\n0 4:1\n", "test": "0 9:1\n"}, "test.txt: must have the 9 features of train.txt, got 10"),
        ({"train": "8 4:1\n", "test": "1 9 8\n0 4:1\n"}, "train.txt: must have the 8 labels of test.txt, got 9"),
        (
            {"train": "1 9 2\n0 4:1\n", "labels": "a\nb\nc\n"},
            "labels.txt: must have a line for each of the 2 labels of train.txt, got 3",
        ),
        (
            {"train": "3 4:1\n", "labels": "a\nb\nc\n"},
            "labels.txt: must have a line for each of the 4 labels of train.txt, got 3",
        ),
    ],
)
def test_parts_that_contradict_each_other_are_refused(tmp_path, files, message):
    put(tmp_path, **{f"{name}__txt": text for name, text in files.items()})
    with pytest.raises(DataError) as caught:
        load_folder(tmp_path)
    assert message in str(caught.value)


def test_an_unknown_option_is_refused_with_those_that_there_are(tmp_path):
    put(tmp_path, train__txt="1 1:1\n", trn_X_Xf__txt="1:1\n", trn_X_Y__txt="1:1\n")
    message = r"option must be one of zero_based, .*, n_threads, got 'one_based'; did you mean 'zero_based'\?"
    for path in (tmp_path / "train.txt", tmp_path / "trn_X_Y.txt"):
        with pytest.raises(DataError, match=message):
            load_file(path, one_based=True)


def test_stores_of_one_folder_must_have_one_shape(tmp_path):
    write_store(TRAIN, tmp_path / "train")
    write_store(example(F=29), tmp_path / "test")
    with pytest.raises(DataError, match="test: must have the 30 features of train, got 29"):
        load_folder(tmp_path)


def test_a_store_or_a_file_is_a_train_part(tmp_path):
    write_store(TRAIN, tmp_path / "set")
    write_libsvm(TRAIN, tmp_path / "rows.svm")
    train, none = load_folder(tmp_path / "set")
    assert equal(train, TRAIN)
    assert none is None
    assert load_folder(tmp_path / "rows.svm")[0].n_rows == 40


def test_stores_go_before_text_and_text_before_pairs(tmp_path):
    put(tmp_path, train__txt="0 4:1\n", trn_X_Xf__txt="1 1\n0:1\n", trn_X_Y__txt="1 1\n0:1\n")
    assert load_folder(tmp_path)[0].n_features == 5
    write_store(TRAIN, tmp_path / "train")
    assert load_folder(tmp_path)[0].n_features == 30


@pytest.mark.parametrize("form", FORMS)
def test_the_test_part_of_a_folder_may_be_alone(tmp_path, form):
    write_store(TRAIN, tmp_path / "both" / "train")
    write_store(TEST, tmp_path / "both" / "test")
    convert(tmp_path / "both", tmp_path / "set", form)
    expected = load_test(tmp_path / "set")
    assert equal(expected, TEST)
    for entry in list((tmp_path / "set").iterdir()):
        if "train" in entry.name or "trn" in entry.name:
            entry.rename(tmp_path / entry.name)
    assert equal(load_test(tmp_path / "set"), expected)
    with pytest.raises(DataError, match="set: must hold stores"):
        load_folder(tmp_path / "set")


def test_all_rows_are_the_test_part_of_what_has_none(tmp_path):
    write_libsvm(TRAIN, tmp_path / "train.txt")
    for path in (tmp_path, tmp_path / "train.txt"):
        assert load_test(path).n_rows == TRAIN.n_rows


def test_a_folder_of_nothing_known_is_told_what_would_do(tmp_path):
    with pytest.raises(DataError, match=r"must hold stores .*train.txt .*X.trn.npz.*; got an empty folder"):
        load_folder(tmp_path)
    put(tmp_path, notes__md="", test__txt="0 0:1\n")
    with pytest.raises(DataError, match=r"must hold .*train.txt .*; got notes.md, test.txt"):
        load_folder(tmp_path)


@pytest.mark.parametrize("names", [("a_train.txt", "b_train.txt"), ("train.txt", "train.txt.gz")])
def test_two_train_files_are_one_too_many(tmp_path, names):
    for name in names:
        write_libsvm(TRAIN, tmp_path / name)
    with pytest.raises(DataError, match=f"must hold one train file, got {names[0]}, {names[1]}"):
        load_folder(tmp_path)


def test_what_is_not_there_or_not_a_set_of_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(
        DataError, match="must be a file or a store, got a folder; load_folder loads its train and test"
    ):
        load_file(tmp_path)
    (tmp_path / "other.npz").write_bytes(b"")
    with pytest.raises(DataError, match=r"other.npz: an npz file must be one of X.trn.npz, Y.trn.npz"):
        load_file(tmp_path / "other.npz")


def test_options_of_text_are_refused_where_there_is_none_to_read(tmp_path):
    write_store(TRAIN, tmp_path / "set")
    npz.FORMAT.write(tmp_path / "npz", TRAIN, None, single=False)
    for path in (tmp_path / "set", tmp_path / "npz" / "X.trn.npz"):
        with pytest.raises(DataError, match=f"{path.name}: zero_based is for text files only"):
            load_file(path, zero_based=False)
        assert load_file(path, zero_based=True, duplicates="error", n_threads=2).n_rows == 40


def test_names_of_labels_are_composed_and_have_no_spaces_at_their_ends(tmp_path):
    put(tmp_path / "set", train__txt="2 2 2\n0 0:1\n1 1:1\n", labels__txt="a\u0308 \n pear\n")
    train, _ = load_folder(tmp_path / "set")
    assert train.label_names == ["\u00e4", "pear"]


def test_equal_label_names_are_refused_with_their_lines(tmp_path):
    put(tmp_path / "set", train__txt="2 2 2\n0 0:1\n1 1:1\n", labels__txt="pear\npear\n")
    with pytest.raises(DataError, match=r"labels.txt: label names must differ, got 'pear' on lines 1 and 2"):
        load_folder(tmp_path / "set")
    with pytest.raises(DataError, match="label names must differ"):
        write_store(Dataset(TRAIN.X, TRAIN.Y, ["pear"] * TRAIN.n_labels), tmp_path / "store")


TOY = """
import numpy as np
import scipy.sparse as sp
from ..csr import CSR, Dataset
from .base import Format, FileRows

class Toy(Format):
    files = "train.toy and test.toy"

    def recognizes(self, path):
        return path.suffix == ".toy"

    def find(self, folder):
        return {part: folder / f"{part}.toy" for part in ("train", "test") if (folder / f"{part}.toy").exists()}

    def read(self, path, options):
        features, labels = ([int(n) for n in line.split()] for line in path.read_text().splitlines())
        return FileRows(Dataset(*(one_hot(rows) for rows in (features, labels))), path, (False, False))

    def write(self, path, train, test, single):
        path.write_text(" ".join(map(str, train.X.indices)) + "\\n" + " ".join(map(str, train.Y.indices)))

def one_hot(columns):
    n = len(columns)
    return CSR.from_scipy(sp.csr_array((np.ones(n), columns, np.arange(n + 1))))

FORMAT = Toy()
"""


@pytest.fixture
def toy_format(tmp_path, monkeypatch):
    """Add a module to the folder of formats, as a contributor would, and return the folder it lies in."""
    folder = tmp_path / "formats"
    folder.mkdir()
    (folder / "toy.py").write_text(TOY)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(folder)])
    yield folder
    sys.modules.pop(f"{formats.__name__}.toy", None)
    vars(formats).pop("toy", None)


def test_a_format_is_added_by_one_module(tmp_path, toy_format):
    put(tmp_path / "set", train__toy="0 1 2\n1 0 1", test__toy="2\n0")
    train, test = load_folder(tmp_path / "set")
    assert (train.X.shape, test.Y.indices.tolist()) == ((3, 3), [0])
    convert(tmp_path / "set" / "train.toy", tmp_path / "store")
    convert(tmp_path / "store", tmp_path / "again.toy", "toy")
    assert equal(load_file(tmp_path / "again.toy"), load_file(tmp_path / "set" / "train.toy"))
    with pytest.raises(DataError, match=r"must hold .*train.toy and test.toy; got an empty folder"):
        (tmp_path / "empty").mkdir() or load_folder(tmp_path / "empty")
