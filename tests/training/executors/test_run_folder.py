"""The folder of a run: in memory while there is room, removed whoever was killed, or an error of one line."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from shared.every_executor import cpu
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors import run_folder
from xmlsgd.training.executors.mapped import ArrayFile
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.run_folder import RunFolder
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.loop import train


def test_the_folder_of_a_killed_run_is_removed_by_the_next():
    folder = "from xmlsgd.training.executors.run_folder import RunFolder"
    code = f"import os; {folder}; print(RunFolder(9).path, flush=True); os._exit(9)"
    path = Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
    assert path.is_dir()
    living = RunFolder(10)
    assert not path.exists()
    RunFolder(10).close()
    assert living.path.is_dir(), "a folder in use stays"
    living.close()


def test_what_lies_abandoned_in_memory_is_removed_before_its_room_is_measured(monkeypatch):
    abandoned = RunFolder(10)
    os.close(abandoned._lock)  # as the system does when a process is killed
    (abandoned.path / "table").write_bytes(bytes(10))
    still_there = []

    def room(root):
        still_there.append(abandoned.path.exists())
        return 1 << 40

    monkeypatch.setattr(run_folder, "_room", room)
    RunFolder(10).close()
    assert still_there == [False, False]


@pytest.mark.parametrize("whose", ["a link", "open to others"])
def test_folders_of_others_that_look_abandoned_are_left_alone(monkeypatch, tmp_path, whose):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run_folder, "MEMORY", tmp_path / "memory")
    strangers = tmp_path / "stranger"
    strangers.mkdir()
    (strangers / "file").touch()
    left = tmp_path / f"xmlsgd-run-{os.getuid()}-abcdefgh"
    if whose == "a link":
        left.symlink_to(strangers)
    else:
        strangers.rename(left)
    RunFolder(10).close()
    assert (left / "file").is_file()


def test_a_run_folder_without_room_in_memory_lies_on_the_disk_and_without_any_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    room = {run_folder.MEMORY: 100, tmp_path: 2000}
    monkeypatch.setattr(run_folder, "_room", room.__getitem__)
    with pytest.warns(UserWarning, match="0.0 MB, and 64 for others, do not fit into /dev/shm"):
        folder = RunFolder(1000)
    assert folder.path.parent == tmp_path
    folder.close()
    folder.close()
    with pytest.raises(OSError, match=r"10\.0 MB are needed for what the workers share"):
        RunFolder(10_000_000)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("made", [lambda: Processes([cpu] * 2), lambda: Serial([cpu()])], ids=["processes", "serial"])
def test_a_temporary_folder_that_is_gone_is_named_in_one_line_and_nothing_is_left(job, monkeypatch, tmp_path, made):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    executor = made()
    with pytest.raises(FileNotFoundError, match=r"cannot be made .* TMPDIR names another folder: .*gone'$") as error:
        train(job, Synchronous(2, 0.1), executor, Schedule(5))
    assert "\n" not in str(error.value)
    if isinstance(executor, Processes):
        assert not executor.team.processes
        assert executor.team.folder is None


def test_a_temporary_folder_that_is_full_ends_a_run_in_one_line_and_nothing_is_left(job, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: open("/dev/full", "w+b"))  # noqa: SIM115
    executor = Processes([cpu])
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '.*'$"):
        train(job, Synchronous(2, 0.1), executor, Schedule(5))
    assert not executor.team.processes
    assert not executor.team.folder.path.exists()


def test_data_that_find_no_room_beside_the_model_name_their_file():
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '/dev/full'$"):
        ArrayFile.of(np.zeros(100_000), Path("/dev/full"))


def test_a_folder_on_a_disk_without_locks_is_one_without_a_lock(monkeypatch):
    def unsupported(*arguments):
        raise OSError(errno.EOPNOTSUPP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folder = RunFolder(10)
    assert folder._lock is None
    folder.close()
    assert not folder.path.exists()
