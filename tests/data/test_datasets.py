"""Data sets by path or by name, conversion of every form into every other, and cheap imports."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import pytest

from shared.data_sets import FORMS, TEST, TRAIN, equal
from shared.paths import DATA, ROOT
from xmlsgd.data import datasets, public
from xmlsgd.data.csr import Dataset
from xmlsgd.data.formats import base
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.formats.store import open_store, write_store
from xmlsgd.data.loading import convert, load_file, load_folder
from xmlsgd.data.parser import blocks as parser
from xmlsgd.data.synthetic import make_xmc
from xmlsgd.errors import DataError

NAMELESS = Dataset(TRAIN.X, TRAIN.Y)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a folder of each form with TRAIN and TEST."""
    root = tmp_path_factory.mktemp("forms")
    write_store(TRAIN, root / "first" / "train")
    write_store(TEST, root / "first" / "test")
    for form in FORMS:
        convert(root / "first", root / form, form)
    return {form: root / form for form in FORMS}


@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("source", FORMS)
def test_a_folder_of_every_form_becomes_one_of_every_other(tmp_path, folders, source, target):
    convert(folders[source], tmp_path / "set", target)
    train, test = load_folder(tmp_path / "set")
    assert equal(train, TRAIN)
    assert equal(test, TEST)
    assert [entry.name for entry in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize("name", ["set", "set.txt", "set.svm.gz", "set.libsvm.bz2", "set.txt.xz"])
@pytest.mark.parametrize("source", ["rows.txt", "store", "npz/X.trn.npz", "split/trn_X_Y.txt"])
def test_a_single_set_of_rows_becomes_what_the_name_of_the_target_says(tmp_path, folders, source, name):
    write_libsvm(NAMELESS, tmp_path / "rows.txt")
    write_store(NAMELESS, tmp_path / "store")
    sources = {"rows.txt": tmp_path, "store": tmp_path}
    convert(sources.get(source, folders["npz"].parent) / source, tmp_path / "out" / name)
    assert base.is_store(tmp_path / "out" / name) == (name == "set")
    assert equal(load_file(tmp_path / "out" / name), NAMELESS)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [name]


@pytest.mark.parametrize("form", ["npz", "split"])
def test_a_single_set_of_rows_is_the_train_part_of_a_pair(tmp_path, form):
    write_store(TRAIN, tmp_path / "store")
    convert(tmp_path / "store", tmp_path / "set", form)
    train, test = load_folder(tmp_path / "set")
    assert equal(train, TRAIN)
    assert test is None


def test_conversion_reads_text_as_its_options_say(tmp_path):
    (tmp_path / "rows.txt").write_text("1 1:1 3:2\n")
    convert(tmp_path / "rows.txt", tmp_path / "set", zero_based=False, zero_based_labels=False)
    opened = open_store(tmp_path / "set")
    assert (opened.X.indices.tolist(), opened.Y.indices.tolist()) == ([0, 2], [0])


def test_an_earlier_text_file_or_store_is_replaced_and_nothing_else(tmp_path):
    write_libsvm(TRAIN, tmp_path / "rows.txt")
    for _ in range(2):
        convert(tmp_path / "rows.txt", tmp_path / "set")
        convert(tmp_path / "set", tmp_path / "rows.txt")
    assert equal(load_file(tmp_path / "rows.txt"), NAMELESS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("")
    for form in ("store", "npz", "split"):
        with pytest.raises(FileExistsError, match="mine: exists and is not a store"):
            convert(tmp_path / "rows.txt", tmp_path / "mine", form)
    assert (tmp_path / "mine" / "thesis").exists()


def test_bad_text_in_the_middle_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(parser, "BLOCK_BYTES", 64)
    (tmp_path / "rows.txt").write_text("0 0:1\n" * 500 + "0 0:x\n")
    for form in FORMS:
        with pytest.raises(DataError, match=r"rows.txt:501: feature value must be a number, got 'x'"):
            convert(tmp_path / "rows.txt", tmp_path / "set", form)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.txt"]


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_failure_of_the_writer_leaves_nothing(tmp_path, monkeypatch, form):
    def failing(*_):
        raise OSError("the disk is full")

    write_store(TRAIN, tmp_path / "train")
    monkeypatch.setattr("xmlsgd.data.text.write_label_names", failing)
    with pytest.raises(OSError, match="the disk is full"):
        convert(tmp_path, tmp_path / "out" / "set", form)
    assert [entry.name for entry in tmp_path.iterdir()] == ["train"]


def test_what_a_killed_conversion_left_goes_away_with_the_next(tmp_path):
    write_store(TRAIN, tmp_path / "store")
    left = tmp_path / ".set.0123abcd.partial"
    left.mkdir(0o1700)
    (left / "half").touch()
    convert(tmp_path / "store", tmp_path / "set", "npz")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["set", "store"]


def test_an_unknown_form_or_source_is_refused(tmp_path):
    write_store(TRAIN, tmp_path / "store")
    with pytest.raises(DataError, match="format must be one of libsvm, npz, split, store, got 'hdf5'"):
        convert(tmp_path / "store", tmp_path / "set", "hdf5")
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        convert(tmp_path / "nowhere", tmp_path / "set")


def test_conversion_of_text_into_a_store_needs_memory_for_a_few_blocks_only(tmp_path, monkeypatch):
    dataset = make_xmc(4000, 1000, 500, nnz_per_row=100, labels_per_row=5)
    write_libsvm(dataset, tmp_path / "rows.txt")
    convert(tmp_path / "rows.txt", tmp_path / "warm", n_threads=1)  # what is imported and compiled once
    monkeypatch.setattr(parser, "BLOCK_BYTES", 1 << 14)
    tracemalloc.start()
    try:
        convert(tmp_path / "rows.txt", tmp_path / "set", n_threads=1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < (dataset.X.nnz * 8 + dataset.Y.nnz * 4) / 4
    assert equal(open_store(tmp_path / "set"), dataset)


class TestLoadDataset:
    """A path goes before a name."""

    def test_a_path_is_loaded_whatever_its_form(self, folders):
        for folder in folders.values():
            train, test = datasets.load_dataset(folder)
            assert equal(train, TRAIN)
            assert equal(test, TEST)
        train, test = datasets.load_dataset(str(folders["npz"] / "X.trn.npz"))
        assert train.n_rows == 40
        assert test is None

    def test_the_sample_of_the_package_is_loaded_with_its_names(self):
        train, test = datasets.load_dataset(DATA)
        assert (train.n_features, train.n_labels) == (test.n_features, test.n_labels)
        assert len(train.label_names) == train.n_labels

    def test_options_reach_the_reader_of_text(self, tmp_path):
        (tmp_path / "train.txt").write_text("0 1:1\n")
        train, _ = datasets.load_dataset(tmp_path, zero_based=False, n_features=7)
        assert (train.X.indices.tolist(), train.n_features) == ([0], 7)

    def test_a_public_set_is_known_by_its_name_in_any_case(self, monkeypatch):
        asked = []

        def load_public(*args, **options):
            asked.append((args, options))
            return TRAIN, TEST

        monkeypatch.setattr(public, "load_public", load_public)
        assert datasets.load_dataset("eurlex-4k", data_home="there", zero_based=False) == (TRAIN, TEST)
        assert asked == [(("eurlex-4k", "there"), {"zero_based": False})]

    def test_a_folder_goes_before_a_data_set_of_the_same_name(self, tmp_path, monkeypatch):
        write_store(TRAIN, tmp_path / "bibtex")
        monkeypatch.chdir(tmp_path)
        assert equal(datasets.load_dataset("bibtex")[0], TRAIN)

    def test_what_is_neither_path_nor_name_is_told_the_names(self):
        with pytest.raises(DataError) as caught:
            datasets.load_dataset("eurlex")
        message = str(caught.value)
        assert message.startswith("eurlex: no such path, and no data set of this name; known are Bibtex, ")
        assert "Eurlex-4K" in message


def test_importing_the_loader_of_data_sets_is_cheap():
    code = "import sys, xmlsgd.data.datasets; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"numba", "scipy", "sklearn", "tqdm"}.isdisjoint(result.stdout.split())


def test_loading_a_store_loads_no_numba(tmp_path):
    write_store(TRAIN, tmp_path / "rows")
    call = f"load_file({str(tmp_path / 'rows')!r})"
    code = f"import sys; from xmlsgd.data.loading import load_file; {call}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"numba", "scipy"}.isdisjoint(result.stdout.split())


def test_a_target_that_looks_like_a_single_npz_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"out.npz: npz data are a folder of X and Y; name a folder"):
        convert(DATA / "train.txt", tmp_path / "out.npz")
    assert not list(tmp_path.iterdir())
