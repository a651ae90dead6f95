"""The command line in a process of its own, which a test may signal or kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from .listening import listen
from .paths import ROOT

HANG = 600  # seconds; far more than any of this takes, also on a busy machine


def start(place, *words):
    """Start a command line in a process of its own, with temporary files in a folder of their own."""
    (place / "temporary").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "xmlsgd", *map(str, words)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place / "temporary")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=listen,
    )


def end(process, number):
    """Send a signal; return the exit code and the lines on stderr."""
    process.send_signal(number)
    _, err = process.communicate(timeout=HANG)
    return process.returncode, err.decode().splitlines()


def wait_for(condition):
    """Wait until something has happened."""
    until = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < until, "it did not happen within ten minutes"
        time.sleep(0.02)


def n_lines(file):
    """Return the number of whole lines of a file, 0 without one."""
    return file.read_bytes().count(b"\n") if file.is_file() else 0
