"""Exit codes and the one line of an error, whatever ends the command: bad input, signals, closed pipes, full disks."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from shared.paths import ROOT
from xmlsgd.cli.exit_codes import exit_code_and_text, run_guarded
from xmlsgd.errors import DataError, DivergenceError, MemoryEstimateError, ModelFileError, WorkerDied

FAILURE = "Traceback (most recent call last):\n  File ...\nMemoryError: no room\n"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DataError("a.txt:3: bad"), 2, "a.txt:3: bad"),
        (ModelFileError("m: bad"), 2, "m: bad"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.txt"), 2, "a.txt: No such file or directory"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "a"), 2, "a: Is a directory"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), 2, "a: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device", "a"), 1, "a: No space left on device"),
        (OSError(errno.EFBIG, "File too large", "a"), 1, "a: File too large; see ulimit -f"),
        (OSError(errno.EMFILE, "Too many", "a"), 1, "a: Too many; let a process open more files, by ulimit -n"),
        (OSError(errno.EIO, "Input/output error"), 1, "Input/output error"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "Cannot allocate memory; see ulimit -v"),
        (
            RuntimeError("can't start new thread"),
            1,
            "can't start new thread; pass a smaller --threads, or see ulimit -u",
        ),
        (ImportError("no such name"), 1, "internal error: ImportError: no such name; --traceback shows where"),
        (OSError("no source could be reached"), 1, "no source could be reached"),
        (DivergenceError("loss"), 1, "loss"),
        (WorkerDied("worker 3"), 1, "worker 3"),
        (WorkerDied("worker 3 failed", FAILURE), 1, "worker 3 failed: MemoryError: no room; --traceback shows where"),
        (MemoryEstimateError("needs 3 GB"), 1, "needs 3 GB"),
        (MemoryError(), 1, "out of memory: an allocation failed; use fewer --hidden-layer-sizes or rows"),
        (TypeError("oops"), 1, "internal error: TypeError: oops; --traceback shows where"),
    ],
)
def test_bad_input_is_2_and_a_failed_run_is_1(error, code, text):
    assert exit_code_and_text(error) == (code, text)


def test_a_limit_of_addresses_in_which_libraries_would_crash_is_one_line():
    resource = pytest.importorskip("resource")

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (550 << 20, 550 << 20))

    told = subprocess.run(
        [sys.executable, "-m", "xmlsgd", "info"], cwd=ROOT, preexec_fn=limit, capture_output=True, text=True
    )
    text = "xmlsgd: a process needs 1,024 MB of virtual memory at least, got 550 MB; see ulimit -v\n"
    assert (told.returncode, told.stderr) == (1, text)


def failing(error):
    """Return a function that raises."""

    def run():
        raise error

    return run


def test_ctrl_c_is_130(capsys):
    assert run_guarded(failing(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "xmlsgd: interrupted\n"


@pytest.mark.usefixtures("listening")
def test_sigterm_and_sighup_raise_like_ctrl_c_and_say_so(capsys):
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        assert run_guarded(lambda: os.kill(os.getpid(), number)) == code  # noqa: B023 (called at once)
        assert capsys.readouterr().err == f"xmlsgd: ended by {number.name}\n"
        assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_guarded(lambda: os.kill(os.getpid(), signal.SIGHUP)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_closed_reader_ends_without_a_message(capsys):
    assert run_guarded(failing(BrokenPipeError())) == 141
    assert capsys.readouterr().err == ""


def test_an_error_of_several_lines_becomes_one(capsys):
    assert run_guarded(failing(DataError("a\nb\r\n  c\ud800"))) == 2
    assert capsys.readouterr().err == "xmlsgd: a b c\\ud800\n"


def test_a_warning_is_one_line(capsys):
    assert run_guarded(lambda: warnings.warn("shape\ndiffers", stacklevel=1)) == 0
    assert capsys.readouterr().err == "xmlsgd: warning: shape differs\n"


def test_a_traceback_is_shown_on_request(capsys):
    assert run_guarded(failing(TypeError("oops")), traceback=True) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.endswith("xmlsgd: internal error: TypeError: oops; --traceback shows where\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("words", "code"), [("info", 0), ("evaluate nowhere nothing", 2)])
def test_a_command_runs_where_the_standard_streams_are_closed(words, code, tmp_path):
    assert shell(f"$X {words} <&- >&- 2>&-", tmp_path) == (code, "")


def test_output_that_cannot_be_flushed_is_a_failed_run(capsys, monkeypatch):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert run_guarded(lambda: None) == 1
    assert capsys.readouterr().err == "xmlsgd: standard output: No space left on device\n"


def shell(command, place):
    """Run a shell command line with `$X` as the command under test; return its exit code and stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "X": f"{sys.executable} -m xmlsgd"}
    result = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return result.returncode, result.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_process_ends_with_the_code_and_one_line(place):
    assert shell("$X evaluate none good.txt", place) == (2, "xmlsgd: none: no such folder\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_closed_pipe_ends_quietly(place):
    (place / "many.txt").write_text("0 1:1\n" * 200_000)
    code, err = shell("$X predict rows many.txt --threads 1 | head -1 >first; exit ${PIPESTATUS[0]}", place)
    assert (code, err) == (141, "")
    assert (place / "first").read_text().count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_failed_run(place):
    code, err = shell("$X predict rows good.txt --threads 1 --out /dev/full", place)
    assert (code, err) == (1, "xmlsgd: /dev/full: No space left on device\n")
