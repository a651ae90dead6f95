"""What is done with the temporary folders that a killed process left behind, and with others of such a name."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

from xmlsgd import load_dataset
from xmlsgd.data.files.atomic import atomic_folder, read_consistently
from xmlsgd.data.files.manifest import MODEL
from xmlsgd.data.files.temporary import lock_folder, temporary_folder, temporary_folder_beside

pytest.importorskip("fcntl")

LEFT = ".model.deadbeef.partial"


def names(folder):
    """Return the relative paths of all that is in a folder."""
    return sorted(str(entry.relative_to(folder)) for entry in folder.rglob("*"))


def make_tree(folder, mode=0o700):
    """Make a folder as a killed writer leaves it: what it set aside, and half of what it wrote."""
    folder.mkdir(mode, parents=True)
    for name in ("old", "model"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("text")
    return folder


def write(path):
    """Write a folder."""
    with atomic_folder(path) as folder:
        (folder / "new").touch()


def scratch(path):
    """Make a scratch folder beside a path."""
    with temporary_folder_beside(path):
        pass


def read(path):
    """Read a folder that may be missing."""
    read_consistently(path, lambda folder: folder.exists())


TOUCH = pytest.mark.parametrize("touch", [write, scratch, read, MODEL.exists_at, MODEL.obstacle_at])


@TOUCH
def test_a_link_of_the_name_of_a_leftover_is_not_followed(tmp_path, touch):
    strangers = make_tree(tmp_path / "home" / "stranger")
    before = names(strangers)
    (tmp_path / LEFT).symlink_to(strangers)
    touch(tmp_path / "model")
    assert names(strangers) == before
    assert (tmp_path / LEFT).is_symlink()
    assert not (tmp_path / "model" / "file").exists()


@TOUCH
@pytest.mark.parametrize("whose", ["another user's", "open to others", "a file", "a pipe"])
def test_what_this_user_cannot_have_made_is_left_alone(tmp_path, monkeypatch, touch, whose):
    left = tmp_path / LEFT
    if whose == "a file":
        left.write_text("text")
    elif whose == "a pipe":
        os.mkfifo(left)
    else:
        make_tree(left, 0o755 if whose == "open to others" else 0o700)
    before = names(tmp_path)
    if whose == "another user's":
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    touch(tmp_path / "model")
    assert [name for name in names(tmp_path) if not name.startswith("model")] == before
    assert not (tmp_path / "model" / "file").exists()


@pytest.mark.parametrize("touch", [read, MODEL.exists_at, MODEL.obstacle_at])
def test_every_reader_restores_what_a_killed_writer_had_set_aside(tmp_path, touch):
    make_tree(tmp_path / LEFT)
    touch(tmp_path / "model")
    assert names(tmp_path) == ["model", "model/file"]


def test_a_data_set_that_a_killed_writer_had_set_aside_is_restored(tmp_path):
    make_tree(tmp_path / LEFT)
    (tmp_path / LEFT / "old" / "train.txt").write_text("1 2 3\n0 1:1\n")
    train, _ = load_dataset(tmp_path / "model")
    assert train.n_rows == 1


def test_what_was_set_aside_is_restored_where_a_link_to_the_folder_leads(tmp_path):
    (tmp_path / "disk").mkdir()
    make_tree(tmp_path / "disk" / LEFT)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "model")
    read(tmp_path / "link")
    assert (tmp_path / "link" / "file").read_text() == "text"


def test_what_cannot_be_restored_is_kept(tmp_path, monkeypatch):
    def refuse(*given, **options):
        raise PermissionError(13, "Permission denied")

    make_tree(tmp_path / LEFT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        read(tmp_path / "model")
    assert (tmp_path / LEFT / "old" / "file").exists()
    read(tmp_path / "model")
    assert names(tmp_path) == ["model", "model/file"]


def test_a_leftover_is_removed_without_what_its_links_lead_to(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    left = make_tree(tmp_path / LEFT)
    shutil.rmtree(left / "old")
    (left / "link").symlink_to(tmp_path / "kept")
    (left / "model" / "link").symlink_to(tmp_path / "kept" / "file")
    write(tmp_path / "model")
    assert names(tmp_path) == ["kept", "kept/file", "model", "model/new"]


def test_a_folder_that_takes_the_name_of_a_temporary_one_is_not_removed_with_it(tmp_path):
    with temporary_folder_beside(tmp_path / "model") as folder:
        (folder / "half").touch()
        folder.rename(tmp_path / "moved")
        make_tree(folder)
        before = names(folder)
    assert names(folder) == before
    assert names(tmp_path / "moved") == []


def test_leftovers_of_others_in_a_shared_folder_for_temporary_files_are_left_alone(tmp_path, monkeypatch):
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    strangers = make_tree(tmp_path / "home" / "stranger")
    (tmp_path / ".xmlsgd.0123abcd.partial").symlink_to(strangers)
    make_tree(tmp_path / ".xmlsgd.89abcdef.partial", 0o777)
    before = names(tmp_path)
    with temporary_folder():
        pass
    assert names(tmp_path) == before


def test_only_a_folder_of_this_user_is_locked(tmp_path, monkeypatch):
    own = make_tree(tmp_path / "own")
    (tmp_path / "link").symlink_to(own)
    with pytest.raises(OSError, match="link"):
        lock_folder(tmp_path / "link")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(PermissionError, match="is not a temporary folder of this user"):
        lock_folder(own)
