"""`python -m benchmarks.gpu` runs from end to end where there is no GPU, on tiny sizes; its figures say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from shim import NEEDS_COMPILER
from test_devices import missing_gpu

ROOT = Path(__file__).parents[1]


def measure(*options):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )


@NEEDS_COMPILER
def test_every_part_is_measured_and_written(tmp_path):
    done = measure("--shim", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu-shim.json").read_text())
    assert found["left_out"] == []
    assert found["correctness"]["failures"] == []
    assert {"ceilings", "steps", "kernels", "to_accuracy", "learners", "mixed"} <= found.keys()
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
