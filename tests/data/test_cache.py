"""Text is parsed once, and again when it or the reading of it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shared.data_sets import TEST, TRAIN, equal, put
from xmlsgd.data.conversion import convert
from xmlsgd.data.formats import libsvm as store_cache
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.formats.store import open_store
from xmlsgd.data.loading import load_file, load_folder
from xmlsgd.errors import DataError


class TestCache:
    """Text is parsed once, and again when it or the reading of it has changed."""

    @pytest.fixture
    def parses(self, monkeypatch):
        """Count the parses."""
        seen = []

        def counted(path, store, options, convert=store_cache.text_to_store):
            seen.append(path)
            return convert(path, store, options)

        monkeypatch.setattr(store_cache, "text_to_store", counted)
        return seen

    @pytest.fixture
    def file(self, tmp_path):
        write_libsvm(TRAIN, tmp_path / "rows.txt")
        return tmp_path / "rows.txt"

    def test_the_second_load_opens_the_store(self, tmp_path, file, parses):
        first, second = (load_file(file, cache=tmp_path / "stores") for _ in range(2))
        assert equal(first, second)
        assert equal(first, load_file(file, cache=False))
        assert isinstance(second.X.data.base, np.memmap)
        assert len(parses) == 1

    def test_options_that_change_nothing_share_a_store(self, tmp_path, file, parses):
        load_file(file, cache=tmp_path / "stores")
        load_file(file, cache=tmp_path / "stores", header="auto", zero_based=True, n_features=None, n_threads=1)
        assert len(parses) == 1

    def test_options_that_change_the_rows_have_a_store_of_their_own(self, tmp_path, parses):
        put(tmp_path, rows__txt="1 1:1\n")
        for options in ({}, {"zero_based": False}, {}, {"zero_based": False}):
            rows = load_file(tmp_path / "rows.txt", cache=tmp_path / "stores", **options)
            assert rows.X.indices.tolist() == [0 if options else 1]
        assert len(parses) == 2

    def test_rows_to_predict_labels_for_are_taken_from_the_store_of_training(self, tmp_path, parses):
        put(tmp_path, rows__txt="1 1:1\n")
        for required in (True, False):
            assert load_file(tmp_path / "rows.txt", cache=tmp_path / "stores", labels_required=required).Y.nnz == 1
        assert len(parses) == len(list((tmp_path / "stores").iterdir())) == 1

    def test_a_changed_file_is_parsed_again_and_leaves_one_store(self, tmp_path, file, parses):
        load_file(file, cache=tmp_path / "stores")
        write_libsvm(TEST, file)
        assert load_file(file, cache=tmp_path / "stores").n_rows == 15
        os.utime(file, ns=(1, 1))
        assert load_file(file, cache=tmp_path / "stores").n_rows == 15
        assert len(parses) == 3
        assert len(list((tmp_path / "stores").iterdir())) == 1

    @pytest.mark.parametrize("name", ["X_data.npy", "store.json"])
    def test_a_damaged_store_costs_no_more_than_a_parse(self, tmp_path, file, name):
        load_file(file, cache=tmp_path / "stores")
        next((tmp_path / "stores").rglob(name)).unlink()
        assert load_file(file, cache=tmp_path / "stores").n_rows == 40

    def test_without_a_place_to_write_the_text_is_parsed(self, tmp_path, file, parses):
        (tmp_path / "no folder").write_text("")
        assert equal(load_file(file, cache=tmp_path / "no folder"), load_file(file, cache=False))
        assert len(parses) == 1

    def test_bad_text_leaves_no_store(self, tmp_path):
        put(tmp_path, rows__txt="0 0:1\n0 0:x\n")
        with pytest.raises(DataError, match=r"rows.txt:2: "):
            load_file(tmp_path / "rows.txt", cache=tmp_path / "stores")
        assert not (tmp_path / "stores").exists()

    def test_big_files_go_to_the_home_by_default_and_small_ones_nowhere(self, tmp_path, file, monkeypatch):
        monkeypatch.setattr(Path, "expanduser", lambda path: tmp_path / "home" / path.relative_to("~"))
        load_file(file)
        assert not (tmp_path / "home").exists()
        monkeypatch.setattr(store_cache, "MIN_BYTES", file.stat().st_size)
        load_file(file)
        (store,) = (tmp_path / "home" / ".cache" / "xmlsgd" / "stores").iterdir()
        assert open_store(store, check=True).n_rows == 40

    def test_parts_of_a_folder_agree_on_their_shape_from_stores_too(self, tmp_path, parses):
        put(tmp_path / "set", train__txt="0 4:1\n", test__txt="7 2:1\n")
        for _ in range(2):
            train, test = load_folder(tmp_path / "set", cache=tmp_path / "stores")
            assert (train.n_features, train.n_labels) == (test.n_features, test.n_labels) == (5, 8)
        assert len(parses) == 2


def test_cached_rows_without_labels_are_refused_where_labels_are_needed(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(" 0:1 2:0.5\n1:2\n")
    for _ in range(2):
        dataset = load_file(path, cache=tmp_path / "cache", labels_required=False)
        assert (dataset.X.shape, dataset.Y.shape) == ((2, 3), (2, 0))
    with pytest.raises(DataError, match="must have at least one label"):
        load_file(path, cache=tmp_path / "cache")


@pytest.mark.parametrize("form", ["store", "npz", "split"])
def test_other_forms_than_text_take_the_option_that_lets_rows_do_without_labels(tmp_path, form):
    write_libsvm(TRAIN, tmp_path / "train.txt")
    convert(tmp_path, tmp_path / "other", form)
    train, _ = load_folder(tmp_path / "other", labels_required=False)
    assert equal(train, load_folder(tmp_path / "other")[0])
