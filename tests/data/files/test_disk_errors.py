"""Errors of disk and machine are raised as they are: a sound file is not called damaged."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import scipy.sparse as sp

from xmlsgd import DataError, load_file
from xmlsgd.data.document_formats import first_lines
from xmlsgd.data.files import manifest
from xmlsgd.data.files.atomic import atomic_folder
from xmlsgd.data.files.folders import read_folder, write_folder
from xmlsgd.data.files.system_errors import is_system_error


def raise_error(*given, **named):
    raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a model."""
    write_folder(tmp_path / "model", {"version": 1}, {})
    return tmp_path / "model"


def test_a_manifest_that_the_disk_does_not_give_is_not_called_damaged(folder, monkeypatch):
    monkeypatch.setattr(Path, "read_text", raise_error)
    with pytest.raises(OSError, match="Input/output error"):
        read_folder(folder)


def test_a_file_whose_state_the_disk_does_not_give_is_not_called_missing(folder, monkeypatch):
    monkeypatch.setattr(Path, "lstat", raise_error)
    with pytest.raises(OSError, match="Input/output error"):
        read_folder(folder)


def test_an_earlier_model_that_cannot_be_read_is_not_called_something_else(folder, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(manifest, "open_regular", raise_error)
        with pytest.raises(OSError, match="Input/output error"):
            write_folder(folder, {"version": 2}, {})
    assert read_folder(folder).description == {"version": 1}


def test_a_text_that_cannot_be_read_is_not_called_another_format(tmp_path, monkeypatch):
    (tmp_path / "texts.txt").write_text("a\tred apple\n")
    monkeypatch.setattr("xmlsgd.data.document_formats.open_text", raise_error)
    with pytest.raises(OSError, match="Input/output error"):
        first_lines(tmp_path / "texts.txt")


def test_matrices_that_the_disk_does_not_give_are_not_called_another_format(tmp_path, monkeypatch):
    for name in ("X.trn.npz", "Y.trn.npz"):
        sp.save_npz(tmp_path / name, sp.eye_array(3, format="csr"))
    monkeypatch.setattr("scipy.sparse.load_npz", raise_error)
    with pytest.raises(OSError, match=r"Input/output error: '.*X.trn.npz'$"):
        load_file(tmp_path / "X.trn.npz")


def test_a_temporary_folder_is_not_used_without_the_lock_that_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", raise_error)
    with pytest.raises(OSError, match=r"Input/output error: '.*model'$"), atomic_folder(tmp_path / "model"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "of_system"),
    [(OSError(errno.EMFILE, ""), True), (OSError(errno.ENOENT, ""), False), (DataError("damaged"), False)],
)
def test_only_numbers_of_the_machine_are_of_the_system(error, of_system):
    assert is_system_error(error) == of_system
