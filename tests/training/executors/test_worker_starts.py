"""Worker processes that die at their start, cannot be started, or are left alone; what they inherit and load."""

from __future__ import annotations

import errno
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shared import light, toy
from shared.light import Early
from shared.marked_runs import N_ROWS, marks_of
from shared.paths import ROOT, TESTS
from xmlsgd.errors import DataError, WorkerDied
from xmlsgd.estimators.workers import executor_of, workers_of
from xmlsgd.training.executors.processes import Processes

HANG = 600  # seconds; far more than any of this takes


def script(code, streams="", **options):
    """Start a script in an interpreter of its own that finds the package and the tests."""
    paths = os.pathsep.join([str(ROOT), str(TESTS)])
    return subprocess.Popen(
        ["bash", "-c", f'exec "$0" -c "$1" {streams}', sys.executable, code],
        env={**os.environ, "PYTHONPATH": paths}, **options,
    )  # fmt: skip


def test_workers_that_die_at_their_start_are_replaced(tmp_path):
    executor = Processes([partial(Early, tmp_path, "ab")] * 2)
    np.testing.assert_array_equal(marks_of(executor), 1)
    assert [failure.partition(": ")[2] for failure in executor.pool.failures] == ["killed by SIGKILL"] * 2


def test_a_run_whose_workers_die_at_every_start_ends_in_one_line(tmp_path):
    executor = Processes([partial(Early, tmp_path, "abc")], restarts=1)
    with pytest.raises(WorkerDied, match=r"^worker 0 did not start: killed by SIGKILL$"):
        marks_of(executor)
    assert len(executor.pool.failures) == 2
    assert not executor.pool.processes
    assert not executor.pool.folder.path.exists()


def test_a_run_goes_on_with_fewer_workers_where_no_process_can_be_started_any_more(tmp_path, monkeypatch):
    order = toy.epoch_order(N_ROWS, 0, 0)
    executor = Processes([partial(light.Fatal, tmp_path, [int(order[35])])] * 2)
    begin = executor._begin

    def begin_and_forbid(step):
        monkeypatch.setattr(subprocess, "Popen", forbidden)
        begin(step)

    monkeypatch.setattr(executor, "_begin", begin_and_forbid)
    with pytest.warns(UserWarning, match="is lost: killed by SIGKILL"):
        marks = marks_of(executor)
    assert marks.min() == 1
    assert len(executor.workers) == 1
    assert executor.pool.failures[1].endswith("did not start: Resource temporarily unavailable")


def forbidden(*given, **options):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_a_worker_for_which_there_is_no_process_is_told_of_in_one_line(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", forbidden)
    executor = Processes([light.Marking])
    with pytest.raises(WorkerDied, match=r"^worker 0 did not start: Resource temporarily unavailable$"):
        marks_of(executor)
    assert not executor.pool.folder.path.exists()


def test_a_worker_that_can_start_no_thread_says_so_to_its_coordinator_alone(tmp_path, monkeypatch, capfd):
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\n"
        "def refused(self):\n"
        '    raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = refused\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(WorkerDied, match="RuntimeError: can't start new thread"):
        marks_of(Processes([light.Marking], restarts=0))
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["", "/nowhere/python"])
def test_an_interpreter_that_cannot_be_started_is_named(monkeypatch, name):
    monkeypatch.setattr(sys, "executable", name)
    reason = f"{name}: No such file or directory" if name else "sys.executable names no Python"
    with pytest.raises(WorkerDied, match=f"^worker 0 did not start: {reason}$"):
        marks_of(Processes([light.Marking]))


def test_what_does_not_pickle_is_refused_before_a_process_is_started(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", forbidden)
    with pytest.raises(
        DataError, match=r"^device, sampler and optimizer of worker processes must pickle, got .*lambda"
    ):
        marks_of(Processes([lambda: light.Marking()]))


def test_a_device_of_a_script_or_a_notebook_is_said_to_belong_in_a_file():
    """Without a guard of `__main__`: workers do not run the script again."""
    code = """
from shared import light
from shared.marked_runs import marks_of
from xmlsgd.errors import WorkerDied
from xmlsgd.training.executors.processes import Processes
class Mine(light.Marking):
    pass
try:
    marks_of(Processes([Mine]))
except WorkerDied as death:
    print(str(death).splitlines()[-1])
"""
    with script(code, stdout=subprocess.PIPE, text=True) as process:
        told, _ = process.communicate(timeout=HANG)
    assert told.startswith("xmlsgd.errors.DataError: ")
    assert "'Mine'" in told
    assert told.endswith("; worker processes do not import scripts and notebooks; put the class in a module\n")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "act", "forked"),
    [
        (signal.SIGKILL, "os.kill(os.getpid(), signal.SIGKILL)", True),
        (signal.SIGKILL, "os.kill(os.getpid(), signal.SIGKILL)", False),
        (signal.SIGTERM, "os.killpg(0, signal.SIGTERM)", False),
        (signal.SIGHUP, "os.killpg(0, signal.SIGHUP)", False),
    ],
    ids=["killed, a child lives", "killed", "the job is ended", "the terminal is gone"],
)
def test_no_worker_outlives_its_coordinator_nor_do_files_unless_a_forked_child_holds_its_pipes(number, act, forked):
    code = f"""
import os, signal, sys
from shared import light
from shared.listening import listen
from shared.marked_runs import marks_of
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.processes import Processes
executor = Processes([light.Marking] * 2)
class Killing(Callback):
    def span(self, report):
        if {forked} and not os.fork():
            sys.stdin.read()
            os._exit(0)
        print(executor.pool.folder.path)
        print(*[process.process.pid for process in executor.pool.processes.values()], flush=True)
        listen()
        {act}
marks_of(executor, [Killing()])
"""
    with script(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(workers) == 2
        for pid in workers:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            ended, _, _ = select.select([descriptor], [], [], HANG)
            os.close(descriptor)
            assert ended
        process.stdin.close()
    assert process.returncode == -number
    assert folder.is_absolute()
    assert folder.exists() is forked
    shutil.rmtree(folder, ignore_errors=True)


def test_what_workers_say_goes_nowhere_where_the_streams_are_closed(tmp_path):
    code = f"""
from pathlib import Path
from shared.light import Loud
from shared.marked_runs import marks_of
from xmlsgd.training.executors.processes import Processes
marks = marks_of(Processes([Loud] * 2))
Path({str(tmp_path / "marks")!r}).write_text(f"{{marks.min()}} {{marks.max()}}")
"""
    script(code, "<&- >&- 2>&-").wait(HANG)
    assert (tmp_path / "marks").read_text() == "1.0 1.0"


def test_a_worker_on_the_cpu_loads_no_scikit_learn():
    executor = executor_of(workers_of("cpu*2", 2), light.Marking(), "float32")
    assert isinstance(executor, Processes)
    maker, _ = executor.pool.makers
    code = f"""
import pickle, sys, xmlsgd.training.executors.worker_process
assert pickle.loads({pickle.dumps(maker)!r})().n_threads == 1
assert "sklearn" not in sys.modules
"""
    assert script(code).wait(HANG) == 0
