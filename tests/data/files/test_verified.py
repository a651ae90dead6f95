"""Notes of files that were checked: believed while these are as they were, never an error, never outside the folder."""

from __future__ import annotations

import os

import pytest

from xmlsgd.data.files import manifest
from xmlsgd.data.files.manifest import VERIFIED, file_state, save_verified, update_verified, verified_states


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a file of long ago, in which nothing is noted."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_text("a")
    os.utime(tmp_path / "set" / "a", ns=(1, 1))
    return tmp_path / "set"


def states(folder):
    return {"a": file_state(folder / "a")}


def test_what_was_noted_is_read_back(folder):
    assert verified_states(folder) == {}
    save_verified(folder, states(folder))
    assert verified_states(folder) == {"a": {"bytes": 1, "mtime_ns": 1}}
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(("late", "known"), [(-1, True), (0, False), (1, False)])
def test_a_state_as_late_as_the_note_is_none(folder, late, known):
    os.utime(folder / "a", ns=(10**9 + late,) * 2)
    save_verified(folder, states(folder))
    os.utime(folder / VERIFIED, ns=(10**9,) * 2)
    assert ("a" in verified_states(folder)) is known


SILENT = ("", "[]", "3", "null", '{"a": 3}', '{"a": {}}', '{"a": {"mtime_ns": "1"}}', "[" * 10**5)


@pytest.mark.parametrize("text", SILENT)
def test_a_note_that_says_nothing_is_none_and_is_written_again(folder, text):
    (folder / VERIFIED).write_text(text)
    assert verified_states(folder) == {}
    update_verified(folder, states(folder))
    assert verified_states(folder) == states(folder)


def test_a_pipe_or_a_folder_in_the_place_of_the_note_is_none_and_is_not_waited_for(folder):
    os.mkfifo(folder / VERIFIED)
    assert verified_states(folder) == {}
    update_verified(folder, states(folder))
    (folder / VERIFIED).unlink()
    (folder / VERIFIED).mkdir()
    assert verified_states(folder) == {}
    update_verified(folder, states(folder))


def test_what_is_noted_is_not_written_again(folder):
    update_verified(folder, states(folder))
    before = os.stat(folder / VERIFIED)
    update_verified(folder, states(folder))
    after = os.stat(folder / VERIFIED)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)  # reading it may change st_atime


def test_no_reader_notes_anything_through_a_link(folder, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (folder / VERIFIED).symlink_to(tmp_path / "mine")
    update_verified(folder, states(folder))
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_folder_that_is_reached_through_a_link_has_its_note_in_itself(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    update_verified(tmp_path / "link", states(tmp_path / "link"))
    assert (folder / VERIFIED).is_file()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "link", folder]
    assert verified_states(tmp_path / "link") == states(folder)


def test_a_reader_that_may_not_write_notes_nothing(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(manifest, "atomic_file", refuse)
    update_verified(folder, states(folder))
    assert verified_states(folder) == {}
