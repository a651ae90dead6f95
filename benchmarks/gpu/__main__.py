"""Measure a GPU: `python -m benchmarks.gpu`. Writes `gpu-NAME.json` and `.md`, after every part what there is so far.

A part that would not fit into the seconds that are left is noted as left out. `--shim` runs a tiny form of everything
on the CPU, to test this program; its figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xmlsgd.devices.cuda_gpus import check_gpu
from xmlsgd.errors import DataError

from ..machine import describe
from ..report import RESULTS, without_folders
from . import fleet, steps
from .ceilings import ceilings
from .changes import changed
from .correctness import correctness
from .place import ROOT, Place
from .tables import markdown

Part = tuple[str, float, Callable[[], Any]]  # name, seconds it may take, what it does


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the tables go (benchmarks/results)")
    parser.add_argument("--seconds", type=float, default=450, help="in all (%(default)g)")
    parser.add_argument("--rows", type=int, default=120_000, help="of the synthetic Amazon-670K (%(default)s)")
    parser.add_argument("--shim", action="store_true", help="tiny sizes on the CPU")
    return parser


def parts(place: Place, rows: int) -> list[Part]:
    """Return the parts in the order in which they count."""
    return [
        ("ceilings", 25, lambda: ceilings(place)),
        ("correctness", 60, lambda: correctness(place)),
        ("steps", 75, lambda: steps.steps(place)),
        ("kernels", 40, lambda: steps.kernels(place)),
        ("torch", 150, lambda: torch_steps(place)),
        ("to_accuracy", 100, lambda: fleet.to_accuracy(place, rows)),
        ("learners", 40, lambda: fleet.learners(place)),
        ("mixed", 60, lambda: fleet.mixed(place)),
    ]


def torch_steps(place: Place) -> list[dict[str, Any]]:
    """Return PyTorch's results from a process of its own: two sets of CUDA libraries in one process may clash."""
    command = [sys.executable, "-m", "benchmarks.gpu.torch_steps", "eager", "compiled"]
    if place.shim:
        return []
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
        text, failed = done.stdout, done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        text, failed = (error.stdout or b"").decode(), "stopped after 150 s"
    results: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return results + ([{"failure": failed.strip().splitlines()[-1]}] if failed.strip() else [])


def main() -> int:
    """Measure and write; return 1 without a GPU or where results are wrong."""
    args = command_line().parse_args()
    if not args.shim:
        try:
            check_gpu(0)
        except DataError as error:
            print(f"no GPU to measure: {error}", file=sys.stderr)
            return 1
    begun, place = time.monotonic(), Place(args.shim)
    facts = place.facts()
    name = "gpu-" + ("shim" if args.shim else re.sub(r"[^a-z0-9]+", "-", facts["gpu"].lower()).strip("-"))
    result: dict[str, Any] = {"machine": describe(1), "gpu": facts, "left_out": []}
    args.out.mkdir(parents=True, exist_ok=True)
    earlier = args.out / f"{name}.json"
    if earlier.exists():
        result["changed"] = changed(json.loads(earlier.read_text()), facts["kernels"])
    for part, budget, work in parts(place, args.rows):
        left = args.seconds - (time.monotonic() - begun)
        if budget > left:
            result["left_out"].append(f"{part}: needs {budget:g} s, {left:.0f} s were left")
            continue
        started = time.monotonic()
        try:
            result[part] = work()
        except Exception as error:  # noqa: BLE001  one part must not cost the others
            result["left_out"].append(f"{part}: {type(error).__name__}: {error}")
        print(f"{part}: {time.monotonic() - started:.1f} s", flush=True)
        (args.out / f"{name}.json").write_text(without_folders(json.dumps(result, indent=1)))
        (args.out / f"{name}.md").write_text(markdown(result))
    print(markdown(result))
    wrong = result.get("correctness", {}).get("failures", ["correctness was not measured"])
    for line in (*wrong, *result["left_out"]):
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
