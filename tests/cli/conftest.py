"""Models trained by the command line: on the sample, and on a few rows."""

from __future__ import annotations

import io
import shutil
import signal
import sys
from types import SimpleNamespace

import pytest

from shared.command_line import QUICK, ROWS, TEST_ROWS, TEST_TEXT, TEXT, TINY, run
from shared.listening import listen
from xmlsgd.cli import main

GOOD = "4 6 3\n0,1 0:1 2:0.5\n2 1:1\n0 3:1 4:0.25\n1 5:1\n"
GOOD_TEXT = "open,read\tread a file\nclose\tclose a file\nopen\tread the file\nclose\tclose the open file\n"


@pytest.fixture(autouse=True)
def compiling_untold(monkeypatch):
    """Suppress the message about compiling: whether it comes depends on the kernel cache."""
    monkeypatch.setattr("xmlsgd.data.files.numba_cache.tell_of_compiling", lambda *_: None)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Draw no learning curve and compile nothing ahead of a run, which take half the time of a small one.

    The models below are trained with both, before this.
    """
    monkeypatch.setattr("xmlsgd.training.plots.plot_learning_curve", lambda records, path, title: path.touch())
    monkeypatch.setattr("xmlsgd.cli.training_runs.compile_kernels", lambda *_, **__: None)


@pytest.fixture
def give(monkeypatch, capsys):
    """Return a function that runs a command line with bytes as standard input: its exit code, stdout and stderr."""

    def run(content, *words):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def listening():
    """Use Python's own signal handlers."""
    before = listen()
    yield
    for number, plan in before.items():
        signal.signal(number, plan)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder with `rows` and `text`, models of the sample in both forms, and the JSON of their training."""
    folder = tmp_path_factory.mktemp("models")
    run("train", ROWS, "--test", TEST_ROWS, "--out", folder / "rows", "--json", folder / "rows.json", *QUICK)
    words = ("--analyzer", "word", *QUICK)
    run("train", TEXT, "--test", TEST_TEXT, "--out", folder / "text", "--json", folder / "text.json", *words)
    return folder


@pytest.fixture(scope="session")
def small_models(tmp_path_factory):
    """A folder with good files and a model of rows and one of text."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "good.txt").write_text(GOOD)
    (folder / "text.txt").write_text(GOOD_TEXT)
    (folder / "unlabelled.txt").write_text("read a file\nclose it: done\n3 files are closed\n")
    assert main(["train", str(folder / "good.txt"), "--out", str(folder / "rows"), "--quiet", *TINY]) == 0
    assert main(["train", str(folder / "text.txt"), "--out", str(folder / "words"), "--quiet", *TINY]) == 0
    assert main(["convert", str(folder / "good.txt"), str(folder / "store"), "--quiet"]) == 0
    (folder / "pair").mkdir()
    for part in ("train", "test"):
        (folder / "pair" / f"{part}.txt").write_text(GOOD)
    (folder / "rows" / "good.txt").write_text(GOOD)
    return folder


@pytest.fixture
def place(small_models, tmp_path):
    """A folder for each test with copies of the good files and models."""
    folder = tmp_path / "place"
    shutil.copytree(small_models, folder)
    (folder / "link.txt").symlink_to(folder / "good.txt")
    return folder
