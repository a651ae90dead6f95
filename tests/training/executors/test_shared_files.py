"""Files that worker processes share: the folder of a run, and the data that workers map."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shared.light import Light
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors import processes, shared_files
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.shared_files import ArrayFile, MappedJob, RunFolder
from xmlsgd.training.loop import train


@pytest.fixture
def memory(monkeypatch, tmp_path):
    """A folder in place of shared memory, in which runs outside the test remove nothing."""
    monkeypatch.setattr(shared_files, "MEMORY", tmp_path)
    return tmp_path


def test_the_folder_of_a_killed_run_is_removed_by_the_next(memory):
    code = f"""
import os, pathlib
from xmlsgd.training.executors import shared_files
shared_files.MEMORY = pathlib.Path({str(memory)!r})
print(shared_files.RunFolder(9).path, flush=True)
os._exit(9)
"""
    path = Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
    assert path.is_dir()
    living = RunFolder(10)
    assert not path.exists()
    RunFolder(10).close()
    assert living.path.is_dir(), "a folder in use stays"
    living.close()


def test_abandoned_folders_are_removed_before_free_space_is_measured(memory, monkeypatch):
    abandoned = RunFolder(10)
    os.close(abandoned._lock)  # as the system does when a process is killed
    (abandoned.path / "parameters").write_bytes(bytes(10))
    still_there = []

    def room(root):
        still_there.append(abandoned.path.exists())
        return 1 << 40

    monkeypatch.setattr(shared_files, "_free_bytes", room)
    RunFolder(10).close()
    assert still_there == [False, False]


@pytest.mark.parametrize("whose", ["a link", "open to others"])
def test_folders_of_others_that_look_abandoned_are_left_alone(monkeypatch, tmp_path, whose):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shared_files, "MEMORY", tmp_path / "memory")
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


def test_a_run_folder_that_does_not_fit_in_memory_is_on_the_disk_or_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    room = {shared_files.MEMORY: 100, tmp_path: 2000}
    monkeypatch.setattr(shared_files, "_free_bytes", room.__getitem__)
    with pytest.warns(UserWarning, match="0.0 MB, and 64 for other programs, do not fit into /dev/shm"):
        folder = RunFolder(1000)
    assert folder.path.parent == tmp_path
    folder.close()
    folder.close()
    with pytest.raises(OSError, match=r"the workers share 10\.0 MB, but only 0\.0 MB are free"):
        RunFolder(10_000_000)
    assert not list(tmp_path.iterdir())


def test_workers_need_no_room_for_data_that_is_in_files_already(job, monkeypatch, tmp_path):
    asked = []

    class Asked(RunFolder):
        def __init__(self, n_bytes):
            asked.append(n_bytes)
            super().__init__(n_bytes)

    monkeypatch.setattr(processes, "RunFolder", Asked)
    X, Y = job.dataset.X, job.dataset.Y
    for name in shared_files.PARTS:
        np.save(tmp_path / name, getattr(X, name))
    indptr, indices, data = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in shared_files.PARTS)
    in_files = Dataset(CSR(indptr, indices, data, X.n_cols), Y)
    for rows in (job.dataset, in_files):
        train(replace(job, dataset=rows), Synchronous(2, 0.1), Processes([Light]), Schedule(1))
    assert asked[0] - asked[1] == X.indptr.nbytes + X.indices.nbytes + X.data.nbytes


@pytest.mark.parametrize(
    "made", [lambda: Processes([Light] * 2), lambda: Serial([Reference()])], ids=["processes", "serial"]
)
def test_a_missing_temporary_folder_is_named_in_one_line_and_nothing_is_left(job, monkeypatch, tmp_path, made):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    executor = made()
    with pytest.raises(FileNotFoundError, match=r"cannot be made .* set TMPDIR to another folder: .*gone'$") as error:
        train(job, Synchronous(2, 0.1), executor, Schedule(5))
    assert "\n" not in str(error.value)
    if isinstance(executor, Processes):
        assert not executor.pool.processes
        assert executor.pool.folder is None


def test_a_full_temporary_folder_ends_a_run_in_one_line_and_nothing_is_left(job, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: open("/dev/full", "w+b"))  # noqa: SIM115
    executor = Processes([Light])
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '.*'$"):
        train(job, Synchronous(2, 0.1), executor, Schedule(5))
    assert not executor.pool.processes
    assert not executor.pool.folder.path.exists()


def test_a_full_disk_is_reported_with_the_name_of_the_data_file():
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '/dev/full'$"):
        ArrayFile.of(np.zeros(100_000), Path("/dev/full"))


def test_a_folder_on_a_file_system_without_locks_is_left_alone_by_the_next_run(monkeypatch):
    def unsupported(*arguments):
        raise OSError(errno.EOPNOTSUPP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folder = RunFolder(10)
    RunFolder(10).close()
    assert folder.path.exists()
    folder.close()
    assert not folder.path.exists()


@pytest.mark.parametrize("change", ["removed", "replaced", "changed in memory"])
def test_data_that_differ_from_their_file_are_written_to_a_new_one(tmp_path, change):
    np.arange(20, dtype=np.float32).tofile(tmp_path / "values")
    array = np.memmap(tmp_path / "values", np.float32, "c" if change == "changed in memory" else "r")
    if change == "removed":
        (tmp_path / "values").unlink()
    elif change == "replaced":
        np.zeros(20, np.float32).tofile(tmp_path / "other")
        (tmp_path / "other").replace(tmp_path / "values")
    else:
        array[3] = 77
    part = ArrayFile.of(array, tmp_path / "copy")
    np.testing.assert_array_equal(part.open(), array)


def test_a_worker_refuses_a_data_file_that_was_removed_or_replaced(tmp_path):
    np.arange(20, dtype=np.float32).tofile(tmp_path / "values")
    part = ArrayFile.of(np.memmap(tmp_path / "values", np.float32, "r"), tmp_path / "copy")
    (tmp_path / "values").rename(tmp_path / "older")
    with pytest.raises(DataError, match="values: must not change during training, but was removed or replaced"):
        part.open()
    np.zeros(20, np.float32).tofile(tmp_path / "values")
    with pytest.raises(DataError, match="removed or replaced"):
        part.open()


def test_data_in_files_are_not_copied(job, tmp_path):
    file = np.memmap(tmp_path / "values", np.float32, "w+", shape=(20,))
    file[:] = np.arange(20)
    part = ArrayFile.of(file[4:9], tmp_path / "copy")
    assert part.path == str(tmp_path / "values")
    assert not (tmp_path / "copy").exists()
    np.testing.assert_array_equal(part.open(), np.arange(4, 9))
    odd = tmp_path / os.fsdecode(b"caf\xe9")  # no UTF-8, as the names of other mapped files may be
    np.zeros(1).tofile(odd)
    named = np.memmap(odd, float, "r")
    assert ArrayFile.of(named, tmp_path / "copy").path == str(odd)
    assert ArrayFile.of(file, tmp_path / "copy").path == part.path
    plain = ArrayFile.of(np.arange(5)[::2], tmp_path / "copy")
    np.testing.assert_array_equal(plain.open(), [0, 2, 4])
    mapped = MappedJob.of(job, tmp_path).open()
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(mapped.dataset.X, name), getattr(job.dataset.X, name))
        np.testing.assert_array_equal(getattr(mapped.dataset.Y, name), getattr(job.dataset.Y, name))
