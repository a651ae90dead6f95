"""What is written appears whole or not at all, whoever is killed, writes or reads at the same time."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from shared.paths import ROOT
from shared.processes import HANG
from xmlsgd import ModelFileError
from xmlsgd.data.files import atomic
from xmlsgd.data.files.atomic import atomic_file, atomic_folder, read_consistently
from xmlsgd.data.files.folders import read_folder, write_folder
from xmlsgd.data.files.temporary import temporary_folder

# Writes folders of three files that hold the same number, one after the other, until it is killed.
WRITER = """
import itertools, os, sys
from pathlib import Path
from xmlsgd.data.files.atomic import atomic_folder
print("ready", flush=True)
for turn in itertools.count():
    with atomic_folder(Path(sys.argv[1])) as folder:
        for name in "abc":
            (folder / name).write_text(f"{os.getpid()} {turn}")
"""


def write(path, text, **options):
    """Write a folder of three files with one text."""
    with atomic_folder(path, **options) as folder:
        for name in "abc":
            (folder / name).write_text(text)


def write_one(path, text):
    """Write a file."""
    with atomic_file(path) as stream:
        stream.write(text.encode())


def content(path):
    """Return the one text of all files of a folder."""
    (text,) = {(path / name).read_text() for name in "abc"}
    return text


@pytest.mark.parametrize("other", [(), ("a/b/other",)])
def test_folders_above_are_made_and_where_writing_fails_the_empty_ones_go_again(tmp_path, other):
    def fail():
        with atomic_folder(tmp_path / "a" / "b" / "c" / "new"):
            for name in other:
                (tmp_path / name).write_text("text")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == (["a", "a/b", *other] if other else [])
    write(tmp_path / "a" / "b" / "c" / "new", "text")
    assert content(tmp_path / "a" / "b" / "c" / "new") == "text"


def start_writer(path):
    """Return a process that writes `path` until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def stop(process):
    """Kill a process as a power cut would, and wait for its end."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_an_earlier_folder_is_replaced_by_two_renames_where_names_cannot_be_exchanged(tmp_path, monkeypatch):
    def refuse(one, other):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(atomic, "_exchange", refuse)
    for text in ("first", "second"):
        write(tmp_path / "model", text)
    assert content(tmp_path / "model") == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_cannot_be_renamed_as_in_a_container_is_replaced(tmp_path, monkeypatch):
    def refuse(one, other):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def rename(path, target):
        if path == model:
            refuse(path, target)
        return os.rename(path, target)

    model, os_rename = tmp_path / "model", os.rename
    write(model, "first")
    monkeypatch.setattr(atomic, "_exchange", refuse)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(os, "rename", lambda a, b: refuse(a, b) if Path(a) == model else os_rename(a, b))
    write(model, "second")
    assert content(model) == "second"
    assert list(tmp_path.iterdir()) == [model]


@pytest.mark.parametrize("killed", [False, True])
def test_where_names_cannot_be_exchanged_and_the_second_rename_does_not_come_the_earlier_model_is_there(
    tmp_path, monkeypatch, killed
):
    class Killed(BaseException):
        """Ends the process."""

    def refuse(one, other):
        raise OSError(errno.EINVAL, "Invalid argument")

    def fail(path, target):
        if Path(target) == model and path.parent != tmp_path and not model.exists():
            raise Killed if killed else OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    model, rename = tmp_path / "model", Path.rename
    write_folder(model, {"version": 1}, {})
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "_exchange", refuse)
        patch.setattr(Path, "rename", fail)
        with pytest.raises(Killed if killed else OSError):
            write_folder(model, {"version": 2}, {})
    if killed:
        (earlier,) = tmp_path.iterdir()
        with pytest.raises(ModelFileError, match=rf"no such folder; the earlier one is {earlier}, move it back$"):
            read_folder(model)
        earlier.rename(model)
    assert read_folder(model).description == {"version": 1}
    assert list(tmp_path.iterdir()) == [model]


def test_of_several_earlier_folders_the_newest_is_named(tmp_path):
    for name, written in (("model.old-ff", 1), ("model.old-aa", 3), ("model.old-cc", 2)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (written, written))
    with pytest.raises(ModelFileError, match=r"the earlier one is .*model\.old-aa, move it back$"):
        read_folder(tmp_path / "model")


@pytest.mark.parametrize("write_new", [write_one, write])
def test_a_name_that_cannot_be_replaced_is_told_and_no_temporary_one(tmp_path, monkeypatch, write_new):
    """As in a shared folder with the sticky bit, where another user has the name."""

    def refuse(path, target):
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path), None, str(target))

    monkeypatch.setattr(Path, "rename", refuse)
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError) as caught:
        write_new(tmp_path / "model", "text")
    assert str(caught.value) == f"[Errno {errno.EPERM}] Operation not permitted: '{tmp_path / 'model'}'"
    assert list(tmp_path.iterdir()) == []


def test_names_are_exchanged_in_one_step_on_linux(tmp_path):
    if sys.platform != "linux":
        pytest.skip("renameat2 is a call of Linux")
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    atomic._exchange(tmp_path / "a", tmp_path / "b")
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["b"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.slow
def test_a_kill_at_any_time_leaves_a_whole_folder_and_the_next_writer_cleans_up(tmp_path):
    path, rng = tmp_path / "model", random.Random(0)
    write(path, "first")
    for _ in range(40):
        process = start_writer(path)
        time.sleep(rng.uniform(0, 0.03))
        stop(process)
        assert content(path)  # the name was never lost, not even for a moment
    write(path, "last")
    assert content(path) == "last"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_two_writers_and_a_reader_meet_no_error(tmp_path):
    path, errors = tmp_path / "model", []
    write(path, "first")

    def guarded(work):
        try:
            work()
        except OSError as error:
            errors.append(error)

    def write_often(name):
        for turn in range(40):
            write(path, f"{name} {turn}")

    writers = [threading.Thread(target=guarded, args=(lambda n=n: write_often(n),)) for n in range(2)]
    for writer in writers:
        writer.start()
    guarded(lambda: [read_consistently(path, content) for _ in range(40)])
    for writer in writers:
        writer.join()
    assert errors == []
    assert content(path).endswith(" 39")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_two_processes_write_one_name_and_neither_removes_what_the_other_writes(tmp_path):
    path = tmp_path / "model"
    processes = [start_writer(path) for _ in range(2)]
    try:
        deadline, seen = time.monotonic() + HANG, set()
        while len(seen) < 2 and time.monotonic() < deadline:
            if path.exists():
                seen.add(read_consistently(path, content).split()[0])
        for _ in range(100):
            read_consistently(path, content)
        assert all(process.poll() is None for process in processes)
    finally:
        for process in processes:
            stop(process)
    assert seen == {str(process.pid) for process in processes}


@pytest.mark.parametrize("wrong", [ZeroDivisionError(), OSError(errno.EIO, "Input/output error")])
def test_an_error_leaves_the_earlier_one_and_nothing_else(tmp_path, wrong):
    def write_file(*words):
        with atomic_file(tmp_path / "file") as stream:
            for word in words:
                stream.write(word() if callable(word) else word)

    def write_folder():
        with atomic_folder(tmp_path / "folder") as folder:
            (folder / "a").touch()
            fail()

    def fail():
        raise wrong

    write(tmp_path / "folder", "first")
    write_file(b"first")
    with pytest.raises(type(wrong)):
        write_folder()
    with pytest.raises(type(wrong)):
        write_file(b"second", fail)
    assert content(tmp_path / "folder") == "first"
    assert (tmp_path / "file").read_bytes() == b"first"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def test_whoever_reads_a_file_that_is_replaced_reads_the_earlier_one_to_its_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    with path.open("rb") as reader:
        with atomic_file(path) as stream:
            stream.write(b"later")
        assert reader.read() == b"earlier"
    assert path.read_bytes() == b"later"


def test_hidden_folders_of_other_names_are_left_alone(tmp_path):
    others = [".model.partial", ".model.0123abcd.partial.txt", ".model.chapter1.partial", ".models.0123abcd.partial"]
    for name in others:
        (tmp_path / name).mkdir()
    write(tmp_path / "model", "first")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([*others, "model"])


def test_names_with_the_signs_of_patterns_are_names(tmp_path):
    (tmp_path / ".a.0123abcd.partial").mkdir()
    write(tmp_path / "[ab]*", "first")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".a.0123abcd.partial", "[ab]*"]


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path):
    write(tmp_path / "disk" / "model", "first")
    (tmp_path / "model").symlink_to(tmp_path / "disk" / "model")
    write(tmp_path / "model", "second")
    assert (tmp_path / "model").is_symlink()
    assert content(tmp_path / "disk" / "model") == "second"


def test_a_new_folder_takes_no_place_that_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "first", replace=False)
    with pytest.raises(OSError, match="empty"):
        write(tmp_path / "empty", "second", replace=False)
    assert content(tmp_path / "empty") == "first"


@pytest.mark.parametrize("place", [".", "..", "../.."])
def test_the_folder_where_the_process_stands_is_not_replaced(tmp_path, monkeypatch, place):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    with pytest.raises(FileExistsError, match="is the current folder and cannot be replaced; name a folder in it"):
        write(Path(place), "first")


def test_a_device_is_written_in_place():
    with atomic_file(os.devnull) as stream:
        stream.write(b"nothing")
    assert not Path(os.devnull).is_file()


def test_a_disk_without_locks_is_written_and_never_swept(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / ".model.0123abcd.partial").mkdir(0o1700)
    write(tmp_path / "model", "first")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".model.0123abcd.partial", "model"]


def test_what_is_replaced_while_it_is_read_is_read_again(tmp_path):
    path, seen = tmp_path / "model", []
    write(path, "0")

    def read(folder):
        first = (folder / "a").read_text()
        if len(seen) < 3:
            seen.append(first)
            write(path, str(len(seen)))
        return first, (folder / "b").read_text()

    assert read_consistently(path, read) == ("3", "3")
    assert seen == ["0", "1", "2"]


def test_a_folder_for_temporary_files_is_the_users_own_and_takes_those_of_dead_processes_along(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / ".xmlsgd.0123abcd.partial"
    left.mkdir(0o1700)
    with temporary_folder() as folder:
        assert not left.exists()
        assert list(tmp_path.iterdir()) == [folder]
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.iterdir())


def test_a_pipe_without_a_name_is_written(tmp_path):
    reader, writer = os.pipe()
    with atomic_file(f"/proc/self/fd/{writer}") as stream:
        stream.write(b"all of it")
    os.close(writer)
    with open(reader, "rb") as stream:
        assert stream.read() == b"all of it"
