"""`python -m benchmarks.gpu` runs from end to end where there is no GPU, on tiny sizes; its figures say nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np
import pytest

from benchmarks.gpu import checks
from benchmarks.gpu.__main__ import chosen, command_line, main
from benchmarks.gpu.changes import changed, kernel_stamps, summary
from benchmarks.gpu.parts import PARTS, measured
from benchmarks.gpu.tables import markdown
from benchmarks.gpu.target import Target
from benchmarks.gpu.traffic import traffic
from shared.needs import NEEDS_COMPILER, missing_gpu
from xmlsgd.devices.cuda.kernels import kernel_source
from xmlsgd.errors import DataError


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("*s = velocity;", "*s = -velocity;", ["biases_update", "rows_update", "input_update"]),
        (
            "#define TILE 128",
            "#define TILE 64",
            ["rows_update", "input_forward", "input_update", "positives", "positive_weights"],
        ),
        ("drop(float *A, i64 n,", "drop(float *A, i64 size,", ["drop"]),
        ("// Write four", "// Write 4", []),
    ],
)
def test_kernels_that_use_what_was_changed_are_named(old, new, names):
    source = kernel_source(tensor_cores=True, hopper=True)
    stamps, result = kernel_stamps(source), {"gpu": {"kernels": kernel_stamps(source.replace(old, new))}}
    assert source.count("__global__") == len(stamps)
    assert changed(result, stamps) == names


def test_results_of_gpus_are_compared_with_the_kernels_of_today(tmp_path):
    stamps = kernel_stamps(kernel_source(tensor_cores=True, hopper=True))
    assert summary(tmp_path) == [f"none of the {len(stamps)} kernels has run on a GPU"]
    (tmp_path / "gpu-a.json").write_text(json.dumps({"gpu": {"gpu": "A", "kernels": stamps}}))
    (tmp_path / "gpu-b.json").write_text(json.dumps({"gpu": {"gpu": "B", "kernels": {**stamps, "pack": "0"}}}))
    assert summary(tmp_path) == [
        "A: changed since they ran there: no kernel",
        f"B: changed since they ran there: 1 of {len(stamps)} kernels: pack",
    ]


@pytest.fixture
def measure(monkeypatch, capsys):
    """Run `python -m benchmarks.gpu` with these options; return its exit status and the lines of its errors."""

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["benchmarks.gpu", *options])
        status = main()
        return status, capsys.readouterr().err.splitlines()

    return run


@pytest.mark.slow
@NEEDS_COMPILER
def test_every_part_is_measured_and_written(measure, tmp_path):
    earlier = {"gpu": {"kernels": {**kernel_stamps(kernel_source(tensor_cores=True, hopper=True)), "drop": "0"}}}
    (tmp_path / "gpu-shim.json").write_text(json.dumps(earlier))
    assert measure("--shim", "--tests", "--out", str(tmp_path)) == (0, [])
    found = json.loads((tmp_path / "gpu-shim.json").read_text())
    assert found["left_out"] == []
    assert found["changed"] == ["drop"]
    assert found["correctness"]["failures"] == []
    assert PARTS.keys() <= found.keys()
    assert all(0 < one["memory_share"] < 1.3 for one in found["steps"])
    assert all(one["seconds"] > 0 for step in found["kernels"] for one in step["kernels"].values())
    assert found["tests"]["skipped"] > 100 or found["tests"]["passed"] > 100
    assert {"column_sums", "input_update", "gemm logits"} <= found["kernels"][0]["kernels"].keys()
    assert {file.name for file in tmp_path.iterdir()} == {"gpu-shim.json", "gpu-shim.md"}
    text = (tmp_path / "gpu-shim.md").read_text()
    for title in (
        "Tests that need a GPU",
        "compute-sanitizer",
        "Ceilings",
        "Largest error",
        "Training steps",
        "Kernels",
        "Time to P@1",
        "Learners",
        "The CPU beside",
    ):
        assert f"## {title}" in text


def test_without_a_gpu_it_says_so_in_one_line_and_fails(measure, tmp_path):
    if missing_gpu():
        status, (line,) = measure("--out", str(tmp_path))
        assert status == 1
        assert line.startswith("nothing is measured: device 'cuda:0': ")
        assert not list(tmp_path.iterdir())


@NEEDS_COMPILER
def test_parts_are_chosen_by_name_and_stand_beside_those_that_are_known(measure, tmp_path, monkeypatch):
    def measured_here(name, seconds, rows, shim, folder):
        if name == "correctness":
            return {"errors": {"float32 bce": 1e-6}, "failures": []}, ""
        *_, last = PARTS[name][1](Target(shim), rows)
        return json.loads(json.dumps(last)), ""

    monkeypatch.setattr("benchmarks.gpu.__main__.measured", measured_here)
    assert "tests" not in chosen(command_line().parse_args([]))
    assert chosen(command_line().parse_args(["--tests", "--parts", "mixed,steps"])) == ["tests", "steps", "mixed"]
    with pytest.raises(DataError, match=r"^--parts: 'all' is none of gpu, tests, ceilings"):
        chosen(command_line().parse_args(["--parts", "all"]))
    for part in ("ceilings", "correctness"):
        status, _ = measure("--shim", "--parts", part, "--out", str(tmp_path))
        assert status == int(part == "ceilings"), "nothing is right that was not compared"
    assert {"ceilings", "correctness"} <= json.loads((tmp_path / "gpu-shim.json").read_text()).keys()


@NEEDS_COMPILER
def test_parts_for_which_no_time_is_left_are_named(measure, tmp_path):
    status, lines = measure("--shim", "--seconds", "0", "--parts", "ceilings", "--out", str(tmp_path))
    assert status == 1
    assert lines == ["correctness was not measured", "ceilings: 0 s were left"]


@pytest.mark.parametrize(
    ("ending", "seconds", "reason"),
    [
        ("import time; time.sleep(1000)", 2, "stopped after 2 s"),
        ("raise ValueError('lost')", 300, "ValueError: lost"),
        ("import os; os.abort()", 300, "exit code -6"),
    ],
)
def test_what_a_part_has_found_survives_its_end(tmp_path, monkeypatch, ending, seconds, reason):
    """The package of benchmarks is replaced by one whose part finds something, and then ends."""
    folder = tmp_path / "benchmarks" / "gpu"
    folder.mkdir(parents=True)
    found = "import sys; open(sys.argv[2], 'w').write('[1]'); "
    (folder / "parts.py").write_text(found + ending)
    monkeypatch.setattr("benchmarks.gpu.parts.ROOT", tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    out = tmp_path / "out"
    out.mkdir()
    assert measured("steps", seconds, 10, True, out) == ([1], reason)
    assert not list(out.iterdir())


def test_the_bytes_of_chunks_are_those_of_their_labels():
    """Of E, whose rows have all labels, those of the chunk; weights are the chunk's own."""
    E, W = np.zeros((4, 64), np.uint16), np.zeros((16, 8), np.float32)
    counted = traffic("product_weights", {"E": E, "stride": 64, "W": W, "C": 16}, 0)
    assert counted == E.nbytes / 4 + 2 * W.nbytes


def test_outcomes_of_tests_are_counted_as_they_come(monkeypatch):
    lines = [
        "tests/test_a.py::test_one[a b-cuda] ",
        "[gw1] [  0%] PASSED tests/test_a.py::test_one[a b-cuda] ",
        "[gw0] [100%] FAILED tests/test_a.py::test_two",
        "E   it is lost",
        "end",
    ]
    monkeypatch.setattr(checks, "_lines", lambda command: iter(lines))
    *_, last = checks.tests(Target(shim=True))
    assert last == {
        "passed": 1, "failed": 1, "error": 0, "skipped": 0, "failures": ["tests/test_a.py::test_two"],
        "reasons": ["it is lost"], "last": "end",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("timeout") is None, reason="needs timeout")
def test_the_sanitizer_is_in_the_process_group_that_ends_with_its_part(tmp_path, monkeypatch):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!{sys.executable}\nimport os\nprint('========= SUMMARY', os.getpgrp())\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    *_, last = checks.sanitizer(Target(shim=False))
    assert last == dict.fromkeys(("memcheck", "racecheck"), f"SUMMARY {os.getpgrp()}")


def test_results_of_a_gpu_are_held_against_what_was_wanted():
    shape = {"name": "Amazon-670K", "hidden": 128, "batch": 1024, "labels": 670_091}
    ours = {
        "shape": shape, "loss": "softmax", "optimizer": "sgd", "steps_per_second": 400.0,
        "rows_per_second": 409_600.0, "host_seconds": 1e-3, "memory_share": 1.1,
    }  # fmt: skip
    peers = [
        {
            "shape": "Amazon-670K",
            "hidden": 128,
            "batch": 1024,
            "loss": "softmax",
            "mode": mode,
            "steps_per_second": rate,
        }
        for mode, rate in (("eager", 100.0), ("compiled", 250.0))
    ]
    facts = {"gpu": "A", "sources": "0", "kernels": {}}
    machine = {"date": "2026-11-21", "commit": "0", "threads": 1, "command": "-"}
    failed = {**ours, "shape": {**shape, "hidden": 512}, "failure": "too large"}
    text = markdown({"gpu": facts, "machine": machine, "left_out": [], "steps": [ours, failed], "torch": peers})
    for row in (
        "| 128 | steps/s | 550 | 400.00 | missed |", "| 128 | times PyTorch compiled | 1.7 | 1.60 | missed |",
        "| 128 | times PyTorch eager | 3.5 | 4.00 | met |", "| 128 | epoch s | 1.2 | 1.20 | met |",
        "| 128 | memory | 1.3 | 1.10 | met |",
    ):  # fmt: skip
        assert row in text
    assert "100.0 (4.00x) | 250.0 (1.60x) |" in text
    assert "softmax: too large" in text
