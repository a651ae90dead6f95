"""The benchmark of more and more threads: runs of stages, failures, and the tables."""

from __future__ import annotations

import json
import threading

import pytest

from benchmarks import scaling
from benchmarks.__main__ import main
from benchmarks.launch import Launcher
from benchmarks.plan import Plan
from benchmarks.stages import Stages
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.synthetic import make_xmc, split_rows

RUN = {
    "threads": 1,
    "devices": "cpu",
    "threading_layer": "none",
    "fit_seconds": 6.0,
    "processor_seconds": 6.0,
    "predict_seconds": 0.5,
    "test_rows": 1000,
    "measures": {"P@1": 77.0, "P@3": 60.0, "P@5": 50.0},
    "launch_seconds": {"0": 1e-6},
    "stages": [
        {"thread": "main", "name": "network", "seconds": 3.0, "calls": 1},
        {"thread": "main", "name": "candidates", "seconds": 2.0, "calls": 1},
        {"thread": "main", "name": "thresholds", "seconds": 0.001, "calls": 1},
    ],
    "kernels": [{"thread": "main", "name": "solve", "seconds": 2.0, "calls": 30}],
}
BESIDE = {
    **RUN,
    "threads": 4,
    "threading_layer": "omp",
    "fit_seconds": 2.0,
    "stages": [
        {"thread": "main", "name": "network", "seconds": 1.5, "calls": 1},
        {"thread": "candidates", "name": "candidates", "seconds": 0.75, "calls": 1},
    ],
}
FAILED = {"devices": "cuda:0", "threads": 4, "failure": "exit code 1: no GPU"}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    # With more than 1,000 features a network trains for few epochs.
    for name, part in zip(("train", "test"), split_rows(make_xmc(300, 1100, 30), 0.25), strict=True):
        write_libsvm(part, folder / f"{name}.txt")
    return folder


def test_tables_name_what_ran_beside_the_network_and_leave_out_what_took_no_time():
    whole, stages, kernels, launches = scaling.tables("toy", [RUN, {**BESIDE, "devices": "cpu*2"}, FAILED])
    assert whole.columns == ["", "1", "cpu*2, 4"]
    assert whole.rows[:2] == [["fit", "6.00", "2.00"], ["times the first", "1.00", "3.00"]]
    assert whole.notes[1] == "cuda:0, 4: exit code 1: no GPU"
    assert stages.rows == [["candidates", "2.000", ""], ["(candidates)", "", "0.750"], ["network", "3.000", "1.500"]]
    assert kernels.rows == [["solve", "2.000", "2.000"]]
    assert launches.rows == [["after 0 ms", "1.0", "1.0"]]


def test_calls_are_counted_by_the_python_thread_that_makes_them():
    stages = Stages()
    call = stages.timed(lambda x: x + 1, "more")
    assert call(1) == 2
    beside = threading.Thread(target=call, args=(1,), name="candidates")
    beside.start()
    beside.join()
    assert {(part["thread"], part["calls"]) for part in stages.told()} == {("main", 1), ("candidates", 1)}


def test_a_run_is_measured_in_a_process_of_its_own_and_written(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "WORKERS", ())
    given = ["scaling", "--data", str(data), "--threads", "1", "--work", str(tmp_path), "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["benchmarks", *given])
    assert main() == 0
    (run,) = json.loads((tmp_path / "scaling-toy.json").read_text())["result"]
    assert run["cores"] == 1
    spent = {part["name"]: part for part in run["stages"]}
    assert 0 < spent["network: steps"]["seconds"] < spent["network"]["seconds"] < run["fit_seconds"]
    assert {"candidates: linear classifiers", "stacking"} <= spent.keys()
    assert {"solve", "vote"} <= {part["name"] for part in run["kernels"]}
    assert "toy, 1 threads: fit" in capsys.readouterr().out
    assert "## Stages of fit" in (tmp_path / "scaling-toy.md").read_text()


@pytest.mark.parametrize(
    ("script", "timeout", "failure"),
    [
        ("echo ready; exec sleep 300", 0.01, "stopped after 0 s"),
        ("echo no such folder >&2; exit 1", 300, "exit code 1: no such"),
    ],
)
def test_what_fails_and_what_takes_too_long_is_told(script, timeout, failure, tmp_path, monkeypatch):
    (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr(scaling, "WORKERS", ())
    scaling.scaling(tmp_path / "toy", Plan(Launcher(timeout=timeout), tmp_path, tmp_path), [1])
    (run,) = json.loads((tmp_path / "scaling-toy.json").read_text())["result"]
    assert run["failure"].startswith(failure)


def test_only_scaling_takes_several_numbers_of_threads(data, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "accuracy", "--data", str(data), "--threads", "1", "2"])
    with pytest.raises(SystemExit):
        main()
    assert "only scaling takes several numbers" in capsys.readouterr().err
