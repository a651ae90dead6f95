"""An error of a disk that is full, or of a limit, names the file that was asked for, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.paths import ROOT
from xmlsgd.data.files.atomic import atomic_file, atomic_folder
from xmlsgd.data.files.system_errors import DISK_FULL
from xmlsgd.data.files.temporary import temporary_folder_beside


@pytest.mark.parametrize("code", DISK_FULL)
def test_a_full_disk_is_told_with_the_path(tmp_path, code):
    for make in (atomic_file, atomic_folder, temporary_folder_beside):
        with pytest.raises(OSError, match=r"No space|quota|too large") as caught, make(tmp_path / "set"):
            raise OSError(code, os.strerror(code))
        assert caught.value.filename == str(tmp_path / "set")


def test_where_nothing_can_be_made_the_name_that_was_asked_for_is_told(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic_file(tmp_path / "nowhere" / "file"):
        pass
    assert caught.value.filename == str(tmp_path / "nowhere" / "file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_device_is_named():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), atomic_file("/dev/full") as stream:
        stream.write(b"more")


def test_a_full_disk_is_told_by_the_name_that_was_asked_for(tmp_path):
    target = tmp_path / "m"
    for name in (None, "scratch"):
        with pytest.raises(OSError, match="No space left") as full, temporary_folder_beside(target) as scratch:
            raise OSError(errno.ENOSPC, "No space left on device", str(scratch / "m") if name else None)
        assert full.value.filename == str(target)
    with pytest.raises(OSError, match="No space left") as full, temporary_folder_beside(target):
        raise OSError(errno.ENOSPC, "No space left on device", "elsewhere")
    assert full.value.filename == "elsewhere"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of open files on this system")
def test_where_no_file_can_be_opened_any_more_the_next_writer_removes_the_scratch_folder(tmp_path):
    resource, held = pytest.importorskip("resource"), []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number.name) for number in Path("/proc/self/fd").iterdir())

    def write_and_hold_files():
        with temporary_folder_beside(tmp_path / "m") as scratch:
            (scratch / "deeper").mkdir()
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, limits[1]))
            while True:
                held.append(os.open(scratch / "deeper" / "file", os.O_CREAT))

    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            write_and_hold_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in held:
            os.close(number)
    assert caught.value.filename == str(tmp_path / "m")
    with temporary_folder_beside(tmp_path / "m"):
        pass
    assert list(tmp_path.iterdir()) == []


# Writes more than files may have, by a relative name as a command line does; prints what each error names.
LARGE = """
import os, resource, sys
from pathlib import Path
from xmlsgd.training.executors.shared_files import RunFolder
from xmlsgd.data.files.atomic import atomic_file, atomic_folder
from xmlsgd.data.files.temporary import temporary_folder, temporary_folder_beside
from xmlsgd.training.shared_parameters import SharedShape, SharedParameters
def nested():
    with temporary_folder_beside(Path("target")) as scratch, atomic_folder(scratch / "train") as folder:
        (folder / "X").write_bytes(bytes(5000))
def temporary():
    with temporary_folder() as folder, atomic_file(folder / "rows") as stream:
        stream.write(bytes(5000))
def shared():
    folder = RunFolder(100)
    try:
        with folder.naming():
            SharedParameters.create(folder.path / "parameters", SharedShape(5000, 0, 0, 0, 0))
    finally:
        folder.close()
os.chdir(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in nested, temporary, shared:
    try:
        write()
    except OSError as error:
        print(error.filename)
"""


def test_a_limit_of_the_size_of_files_is_told_by_a_name_that_stays(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    told = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert told.stdout.splitlines() == ["target", str(temporary), "/dev/shm"]
    assert list(tmp_path.rglob("*")) == [temporary]
