"""The command line in this process and in one of its own, and the files of the sample."""

from __future__ import annotations

import os
import subprocess
import sys

from xmlsgd.cli import main

from .paths import DATA, ROOT

ROWS, TEST_ROWS = str(DATA / "train.txt"), str(DATA / "test.txt")
TEXT, TEST_TEXT = str(DATA / "train_raw.txt"), str(DATA / "test_raw.txt")
N_TEST = 333
QUICK = ["--hidden", "32", "--epochs", "8", "--threads", "1", "--seed", "0", "--candidates", "0"]
GOOD_ROWS = ("train", "{place}/good.txt")
TINY = ["--hidden", "8", "--epochs", "1", "--threads", "1", "--seed", "0"]


def run(*words):
    """Run a command line in this process; fail on an exit code other than 0."""
    assert main([str(word) for word in words]) == 0


def in_a_process(*words, stdin=None, **options):
    """Run a command line in a process of its own."""
    command = [sys.executable, "-m", "xmlsgd", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment, check=False, timeout=300, **options
    )


def files_below(folder):
    """Return name and content of all files."""
    return {str(f.relative_to(folder)): f.read_bytes() if f.is_file() else None for f in folder.rglob("*")}


def complaint(capsys, place, *words):
    """Run a call that must fail and leave all files as they are; return its exit code and its one line."""
    before = files_below(place)
    capsys.readouterr()
    code = main([word.format(place=place) for word in words])
    out, err = capsys.readouterr()
    assert out == ""
    assert files_below(place) == before
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert err.startswith("xmlsgd: ")
    return code, err[len("xmlsgd: ") : -1].replace(f"{place}/", "")
