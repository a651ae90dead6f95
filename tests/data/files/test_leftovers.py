"""What is done with the temporary folders that a killed process left behind, and with others of such a name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from xmlsgd.data.files.atomic import atomic_file, atomic_folder
from xmlsgd.data.files.temporary import (
    MODE,
    SUFFIX,
    create_locked,
    lock_folder,
    remove_locked,
    sole_use,
    temporary_folder,
    temporary_folder_beside,
)

fcntl = pytest.importorskip("fcntl")

LEFT = ".model.deadbeef.partial"


def names(folder):
    """Return the relative paths of all that is in a folder."""
    return sorted(str(entry.relative_to(folder)) for entry in folder.rglob("*"))


def make_tree(folder, mode=MODE):
    """Make a folder as a killed writer leaves it: with half of what it wrote."""
    folder.mkdir(mode, parents=True)
    (folder / "model").mkdir()
    (folder / "model" / "file").write_text("text")
    return folder


def write(path):
    """Write a folder."""
    with atomic_folder(path) as folder:
        (folder / "new").touch()


def scratch(path):
    """Make a scratch folder beside a path."""
    with temporary_folder_beside(path):
        pass


TOUCH = pytest.mark.parametrize("touch", [write, scratch])


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
@pytest.mark.parametrize("whose", ["another user's", "open to others", "private", "a file", "a pipe"])
def test_what_this_user_cannot_have_made_is_left_alone(tmp_path, monkeypatch, touch, whose):
    left = tmp_path / LEFT
    if whose == "a file":
        left.write_text("text")
    elif whose == "a pipe":
        os.mkfifo(left)
    else:
        make_tree(left, {"open to others": 0o755, "private": 0o700}.get(whose, MODE))
    before = names(tmp_path)
    if whose == "another user's":
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    touch(tmp_path / "model")
    assert [name for name in names(tmp_path) if not name.startswith("model")] == before
    assert not (tmp_path / "model" / "file").exists()


def test_a_leftover_is_removed_without_what_its_links_lead_to(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    left = make_tree(tmp_path / LEFT)
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


@pytest.mark.parametrize("n", [1, 2])
def test_what_takes_the_name_of_a_leftover_while_it_is_removed_is_left_alone(tmp_path, monkeypatch, n):
    left, own, looks, lstat = make_tree(tmp_path / LEFT), make_tree(tmp_path / "own"), [], os.lstat

    def swap_after_the_look(path, **options):
        state = lstat(path, **options)
        if Path(path) == left:
            looks.append(path)
            if len(looks) == n:
                left.rename(tmp_path / "moved")
                own.rename(left)
        return state

    monkeypatch.setattr(os, "lstat", swap_after_the_look)
    scratch(tmp_path / "model")
    assert names(left) == ["model", "model/file"]
    assert names(tmp_path / "moved") == []


def test_a_folder_is_written_where_it_was_made_though_its_name_leads_elsewhere_by_now(tmp_path):
    private = make_tree(tmp_path / "private")
    with atomic_folder(tmp_path / "model") as folder:
        (named,) = tmp_path.glob(".model.*")
        named.rename(tmp_path / "moved")
        named.symlink_to(private)
        with atomic_folder(folder / "part") as part, atomic_file(part / "file") as stream:
            stream.write(b"new")
        (folder / "file").write_text("new")
    assert names(private) == ["model", "model/file"]
    assert (private / "model" / "file").read_text() == "text"
    assert names(tmp_path / "model") == ["file", "part", "part/file"]
    assert names(tmp_path / "moved") == []


def interrupt_once(monkeypatch, module, name):
    """Let Ctrl-C come right after the first call of a function of the system."""
    call, interrupted = getattr(module, name), []

    def interrupting(*given, **options):
        found = call(*given, **options)
        if not interrupted:
            interrupted.append(given)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(module, name, interrupting)
    return interrupted


@pytest.mark.parametrize(
    ("module", "name"), [(os, "unlink"), (os, "rmdir"), (Path, "mkdir"), (os, "listdir"), (fcntl, "flock")]
)
def test_ctrl_c_while_a_folder_is_made_or_removed_is_raised_when_it_is_gone(tmp_path, monkeypatch, module, name):
    def write_half():
        with temporary_folder_beside(tmp_path / "model") as folder:
            if name in ("unlink", "rmdir"):
                (folder / "half").mkdir()
                (folder / "half" / "file").touch()

    interrupted = interrupt_once(monkeypatch, module, name)
    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert interrupted
    assert names(tmp_path) == []


def test_ctrl_c_while_a_name_is_reserved_leaves_it_to_another_process_that_has_it(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    reserved, lock = create_locked(lambda: tmp_path / f".model.00000000{SUFFIX}", tmp_path)
    monkeypatch.setattr(Path, "mkdir", interrupt)
    with pytest.raises(KeyboardInterrupt), sole_use(tmp_path / "model", "in use"):
        pass
    assert reserved.is_dir()
    remove_locked(reserved, lock)
    assert names(tmp_path) == []


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
