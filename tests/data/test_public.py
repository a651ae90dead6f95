"""Public data sets: downloaded once, from the first source that has them, and then loaded from the disk."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from shared.archives import zipped
from xmlsgd.data import public
from xmlsgd.data.files.temporary import sole_use
from xmlsgd.errors import DataError

TRAIN = "2 3 4\n0,1 0:1.0 2:0.5\n3 1:2.0\n"
TEST = "1 3 4\n2 0:1.0\n"


@pytest.fixture
def toy(server, monkeypatch):
    """Put a data set into the table that the local server has."""
    server.content = zipped({"Toy/toy_train.txt": TRAIN, "Toy/toy_test.txt": TEST})
    dataset = public.PublicDataset("Toy-4", (2, 1, 3, 4), (server.url,))
    monkeypatch.setitem(public.PUBLIC, "toy-4", dataset)
    return dataset


def test_the_table_names_each_data_set_once_with_a_source_and_a_shape():
    assert len(public.PUBLIC) == len(public.LINES)
    for dataset in public.PUBLIC.values():
        assert dataset.urls
        assert len(dataset.shape) == 4
        assert min(dataset.shape) > 0
    addresses = [url for dataset in public.PUBLIC.values() for url in dataset.urls]
    assert len(set(addresses)) == len(addresses)


def test_a_public_data_set_is_downloaded_once_and_then_loaded_from_the_disk(server, toy, tmp_path, capsys):
    for _ in range(2):
        train, test = public.load_public("TOY-4", tmp_path)
        assert (train.X.shape, train.Y.shape) == ((2, 3), (2, 4))
        assert (test.X.shape, test.Y.shape) == ((1, 3), (1, 4))
        np.testing.assert_array_equal(train.Y.indices, [0, 1, 3])
    assert len(server.log) == 1
    digest = hashlib.sha256(server.content).hexdigest()
    assert f"Toy-4: SHA-256 {digest}, not verified" in capsys.readouterr().err
    assert not (tmp_path / "Toy-4.zip").exists()


def test_an_archive_that_was_saved_by_hand_needs_no_network(server, toy, tmp_path):
    (tmp_path / "Toy-4.zip").write_bytes(server.content)
    train, _ = public.load_public("toy-4", tmp_path)
    assert train.n_rows == 2
    assert server.log == []
    assert (tmp_path / "Toy-4.zip").exists()


def test_a_second_process_gets_an_error_and_downloads_nothing(server, toy, tmp_path):
    installing = pytest.raises(DataError, match="Toy-4: another process is installing it; call again")
    with sole_use(tmp_path / "Toy-4", "in use"), installing:
        public.load_public("toy-4", tmp_path)
    assert server.log == []
    assert public.load_public("toy-4", tmp_path)[0].n_rows == 2


def test_the_second_source_is_taken_where_the_first_fails(server, toy, tmp_path, monkeypatch):
    both = public.PublicDataset("Toy-4", (2, 1, 3, 4), (server.url + "-gone", server.url))
    monkeypatch.setitem(public.PUBLIC, "toy-4", both)
    server.faults.append("404")
    train, _ = public.load_public("toy-4", tmp_path)
    assert train.n_rows == 2
    assert server.log == [404, 200]


def test_options_of_the_reader_reach_it(server, toy, tmp_path):
    server.content = zipped({"toy_train.txt": TRAIN.replace("2:0.5", "0:0.5"), "toy_test.txt": TEST})
    with pytest.raises(DataError, match=r"toy_train\.txt:2: "):
        public.load_public("toy-4", tmp_path)
    train, _ = public.load_public("toy-4", tmp_path, duplicates="sum")
    np.testing.assert_array_equal(train.X.data, [1.5, 2.0])


def test_a_public_data_set_without_a_test_part_is_an_error(server, toy, tmp_path):
    server.content = zipped({"toy_train.txt": TRAIN})
    with pytest.raises(DataError, match="must have a test split"):
        public.load_public("toy-4", tmp_path)


def test_without_a_source_one_line_says_what_was_tried_and_what_to_do(server, toy, tmp_path):
    server.faults.append("404")
    with pytest.raises(public.DownloadError) as caught:
        public.load_public("toy-4", tmp_path)
    text = str(caught.value)
    assert "\n" not in text
    assert f"{server.url}: the server answered 404" in text
    assert f"download it by hand from {public.REPOSITORY} and save it as {tmp_path / 'Toy-4.zip'}" in text


def test_a_downloaded_archive_that_is_damaged_is_not_kept(server, toy, tmp_path):
    server.content = server.content[:-30]
    with pytest.raises(DataError, match="not a readable zip archive"):
        public.load_public("toy-4", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_shape_than_the_table_says_is_a_warning(server, toy, tmp_path, monkeypatch):
    """A table of data sets with two columns swapped."""
    other = public.PublicDataset("Toy-4", (2, 1, 5, 4), toy.urls)
    monkeypatch.setitem(public.PUBLIC, "toy-4", other)
    with pytest.warns(UserWarning, match=r"Toy-4: .* must be \(2, 1, 5, 4\), got \(2, 1, 3, 4\)"):
        public.load_public("toy-4", tmp_path)


def test_without_a_home_an_error_says_what_to_set(monkeypatch):
    monkeypatch.setenv("HOME", "~")  # as for a user whom the system does not know
    with pytest.raises(DataError, match=r"data_home: the home folder of ~/.* is unknown; set HOME or pass data_home="):
        public.load_public("bibtex")


def test_an_unknown_name_lists_the_known_ones():
    known = r"name: must be one of Bibtex, .*, got 'eurlex-4'; did you mean 'Eurlex-4K'\?$"
    with pytest.raises(DataError, match=known):
        public.load_public("eurlex-4")


def test_a_data_set_of_one_file_is_cut_by_the_first_column_of_its_split_files(server, toy, tmp_path):
    lines = [f"{row} {row % 3}:{row}.5" for row in range(4)]
    server.content = zipped(
        {
            "Toy/Toy_data.txt": "4 3 4\n" + "\n".join(lines),
            "Toy/toy_trSplit.txt": "1 4\n3 2\n",
            "Toy/toy_tstSplit.txt": "2 3\n",
        }
    )
    train, test = public.load_public("toy-4", tmp_path)
    np.testing.assert_array_equal(train.Y.indices, [0, 2])
    np.testing.assert_array_equal(test.Y.indices, [1])
    next(tmp_path.rglob("toy_tstSplit.txt")).write_text("5 3\n")
    with pytest.raises(DataError, match=r"toy_tstSplit.txt: rows must be in \[1, 4\], got 5 to 5"):
        public.load_public("toy-4", tmp_path)
