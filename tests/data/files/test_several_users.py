"""Two users of one group write, read and replace the same names: neither touches what the other one left or uses."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import stat
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from xmlsgd.data.files import atomic
from xmlsgd.data.files.atomic import atomic_folder
from xmlsgd.data.files.folders import read_folder, write_folder
from xmlsgd.data.files.manifest import MODEL
from xmlsgd.data.files.temporary import MODE, SUFFIX, create_locked, sole_use, temporary_folder_beside
from xmlsgd.data.formats.store import open_store, write_store
from xmlsgd.data.synthetic import make_xmc
from xmlsgd.errors import DataError
from xmlsgd.training.executors import shared_files

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or os.geteuid() != 0, reason="only root can act as two users of a group"
)

GROUP, ONE, OTHER = 54321, 54322, 54323  # no user of this machine
LEFT = ".model.deadbeef.partial"


@pytest.fixture
def shared():
    """Yield a folder in which all users of the group may write."""
    folder = Path(tempfile.mkdtemp())
    use(folder / "model")  # imports all that is used: the other users may not read this Python's modules
    shutil.rmtree(folder / "model")
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2770)
    yield folder
    shutil.rmtree(folder)


def fork_as(user, action, killed=False):
    """Return the number of a process of a user that runs an action; killed : whether the process is killed after it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(GROUP, GROUP, GROUP)
            os.setresuid(user, user, user)
            os.umask(0o002)
            action()
            code = 0
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:  # noqa: BLE001  the process ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def act_as(user, action, killed=False):
    """Run an action in a process of a user, as `fork_as` does, and wait for its end."""
    child = fork_as(user, action, killed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (-signal.SIGKILL if killed else 0)


def owned_by(folder, user):
    """Return all files of a user in a folder, by inode: name, times, and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        if state.st_uid == user:
            content = path.read_bytes() if stat.S_ISREG(state.st_mode) else None
            found[state.st_ino] = str(path), state.st_mode, state.st_mtime_ns, content
    return found


def leave_half(path):
    """Leave what a writer leaves that is killed while it replaces a folder."""
    folder, _ = create_locked(lambda: path.with_name(LEFT), path)
    write_folder(folder / path.name, {"of": path.name}, {"params": np.ones(3)})


def use(path):
    """Do all that cleans up beside a path, or reads it."""
    assert not MODEL.obstacle_at(path)
    assert not MODEL.exists_at(path)
    with temporary_folder_beside(path):
        pass
    with sole_use(path, "in use"):
        pass
    with pytest.raises(OSError, match="nothing yet"), atomic_folder(path):
        raise OSError("nothing yet")
    write_folder(path, {"of": "other"}, {"params": np.zeros(3)})
    assert read_folder(path).description == {"of": "other"}
    shutil.rmtree(path)
    write_store(make_xmc(3, 3, 3, nnz_per_row=1, labels_per_row=1), path)
    assert open_store(path).n_rows == 3


def test_what_a_killed_process_of_one_user_left_is_not_touched_by_another(shared):
    path = shared / "model"
    act_as(ONE, lambda: leave_half(path), killed=True)
    before = owned_by(shared, ONE)
    assert len(before) > 3
    act_as(OTHER, lambda: use(path))
    assert owned_by(shared, ONE) == before


def test_a_killed_process_of_another_user_keeps_this_one_out_until_what_it_left_is_removed(shared):
    path, left = shared / "model", shared / f".model.00000000{SUFFIX}"

    def enter():
        with sole_use(path, "in use"):
            os.kill(os.getpid(), signal.SIGKILL)

    def enter_after():
        with pytest.raises(DataError, match=f"^in use; if it has died, remove {left}$"), sole_use(path, "in use"):
            pass
        left.rename(left.with_name("moved"))
        with sole_use(path, "in use"):
            pass

    act_as(ONE, enter, killed=True)
    act_as(OTHER, enter_after)


def test_another_user_who_renames_all_the_time_has_nothing_removed_or_overwritten(shared):
    path, own = shared / "model", {"open": 0o755, "private": 0o700}

    def make_own():
        for name, mode in own.items():
            (shared / name / "model").mkdir(parents=True)
            (shared / name / "model" / "params.npy").write_text("precious")
            (shared / name).chmod(mode)

    def rename():
        for turn in itertools.count():
            for name in own:
                with suppress(OSError):
                    atomic._exchange(shared / LEFT, shared / name)
            for name in os.listdir(shared):
                if name.startswith(".model.") and name != LEFT:
                    with suppress(OSError):
                        (shared / name).rename(shared / f"moved{turn}")
                        (shared / name).symlink_to(shared / "open")

    def work():
        for _ in range(100):
            with suppress(OSError):  # something of that name is there
                (shared / LEFT).mkdir(MODE)
            with suppress(OSError), atomic_folder(path) as folder:  # what is to be renamed has another name by now
                (folder / "params.npy").write_text("new")

    act_as(ONE, make_own)
    files = [os.open(shared / name / "model" / "params.npy", os.O_RDONLY) for name in own]
    hostile = fork_as(OTHER, rename)
    try:
        act_as(ONE, work)
    finally:
        os.kill(hostile, signal.SIGKILL)
        os.waitpid(hostile, 0)
    assert [(os.pread(file, 9, 0), os.fstat(file).st_nlink) for file in files] == [(b"precious", 1)] * 2


def test_its_own_user_cleans_up_beside_what_another_wrote(shared):
    path = shared / "model"
    act_as(ONE, lambda: leave_half(path), killed=True)
    act_as(OTHER, lambda: use(path))
    before = owned_by(shared, OTHER)
    act_as(ONE, lambda: MODEL.exists_at(path.with_name("elsewhere")))
    act_as(ONE, lambda: temporary_folder_beside(path).__enter__())
    assert owned_by(shared, OTHER) == before
    assert not (shared / LEFT).exists()


def test_one_user_reads_the_model_of_another_while_that_one_replaces_it(shared):
    path = shared / "model"
    act_as(ONE, lambda: write_folder(path, {"of": "one"}, {"params": np.ones(3)}))
    act_as(ONE, lambda: leave_half(path), killed=True)
    before = owned_by(shared, ONE)

    def read():
        assert read_folder(path).description == {"of": "one"}

    act_as(OTHER, read)
    assert owned_by(shared, ONE) == before


def test_folders_of_runs_are_not_touched_by_another_user(shared, monkeypatch):
    monkeypatch.setattr(shared_files, "MEMORY", shared)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))

    def leave_run():
        Path(shared_files.RunFolder(10).path, "params").write_text("text")

    act_as(ONE, leave_run, killed=True)
    (left,) = shared.iterdir()
    before = owned_by(shared, ONE)
    looks_alike = shared / left.name.replace(str(ONE), str(OTHER))  # the name that the other user's folder would have
    act_as(ONE, lambda: shutil.copytree(left, looks_alike))
    act_as(OTHER, lambda: shared_files.RunFolder(10).close())
    assert before.items() <= owned_by(shared, ONE).items()
    assert (looks_alike / "params").read_text() == "text"
    act_as(ONE, lambda: shared_files.RunFolder(10).close())
    assert not left.exists()
