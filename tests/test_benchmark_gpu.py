"""`python -m benchmarks.gpu` runs from end to end where there is no GPU, on tiny sizes; its figures say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shim import NEEDS_COMPILER
from test_devices import missing_gpu

from benchmarks.gpu.changes import changed, kernel_stamps, summary
from xmlsgd.devices.cuda_runtime import SOURCE

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("*s = velocity;", "*s = -velocity;", ["input_update", "biases_update", "rows_update"]),
        ("#define TILE 128", "#define TILE 64", ["input_forward", "input_update"]),
        ("drop(float *A, i64 n,", "drop(float *A, i64 size,", ["drop"]),
        ("// Write four", "// Write 4", []),
    ],
)
def test_kernels_that_use_what_was_changed_are_named(old, new, names):
    source = SOURCE.read_text()
    stamps, result = kernel_stamps(source), {"gpu": {"kernels": kernel_stamps(source.replace(old, new))}}
    assert source.count("__global__") == len(stamps)
    assert changed(result, stamps) == names


def test_results_of_gpus_are_compared_with_the_kernels_of_today(tmp_path):
    stamps = kernel_stamps(SOURCE.read_text())
    assert summary(tmp_path) == [f"none of the {len(stamps)} kernels has run on a GPU"]
    (tmp_path / "gpu-a.json").write_text(json.dumps({"gpu": {"gpu": "A", "kernels": stamps}}))
    (tmp_path / "gpu-b.json").write_text(json.dumps({"gpu": {"gpu": "B", "kernels": {**stamps, "pack": "0"}}}))
    assert summary(tmp_path) == [
        "A: changed since they ran there: no kernel",
        f"B: changed since they ran there: 1 of {len(stamps)} kernels: pack",
    ]


def measure(*options):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )


@NEEDS_COMPILER
def test_every_part_is_measured_and_written(tmp_path):
    earlier = {"gpu": {"kernels": {**kernel_stamps(SOURCE.read_text()), "drop": "0"}}}
    (tmp_path / "gpu-shim.json").write_text(json.dumps(earlier))
    done = measure("--shim", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu-shim.json").read_text())
    assert found["left_out"] == []
    assert found["changed"] == ["drop"]
    assert found["correctness"]["failures"] == []
    assert {"ceilings", "steps", "kernels", "to_accuracy", "learners", "mixed"} <= found.keys()
    assert all(0 < one["memory_share"] < 1.3 for one in found["steps"])
    assert {"negatives", "input_update", "gemm logits"} <= found["kernels"][0]["kernels"].keys()
    text = (tmp_path / "gpu-shim.md").read_text()
    for title in (
        "Ceilings",
        "Largest error",
        "Training steps",
        "Kernels",
        "Time to P@1",
        "Learners",
        "The CPU beside",
    ):
        assert f"## {title}" in text


def test_without_a_gpu_it_says_so_in_one_line_and_fails(tmp_path):
    if missing_gpu():
        done = measure("--out", str(tmp_path))
        assert done.returncode == 1
        assert done.stderr.startswith("no GPU to measure: device 'cuda:0': ")
        assert len(done.stderr.splitlines()) == 1
        assert not list(tmp_path.iterdir())


def test_parts_that_do_not_fit_into_the_time_are_named(tmp_path):
    done = measure("--shim", "--seconds", "1", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "correctness was not measured" in done.stderr
    assert "ceilings: needs 25 s, 1 s were left" in done.stderr
