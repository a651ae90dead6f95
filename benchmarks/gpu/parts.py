"""The parts of the measurement, each in a process of its own: `python -m benchmarks.gpu.parts NAME FILE`.

An error on a GPU ends all work of its process, and one that hangs cannot be interrupted from inside: neither may cost
the other parts. A part yields what it has so far, which is in FILE at once and survives its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import checks, fleet, steps
from .ceilings import ceilings
from .correctness import correctness
from .target import ROOT, Target

Part = Callable[[Target, int], Iterator[Any]]

# By name, in the order in which they count: seconds that each takes at most, and what it does, given --rows. A fresh
# machine compiles the kernels of the GPU in the first part, those of the CPU in "mixed".
PARTS: dict[str, tuple[float, Part]] = {
    "gpu": (120, lambda target, _: iter([target.facts()])),
    "tests": (200, lambda target, _: checks.tests(target)),
    "ceilings": (30, lambda target, _: ceilings(target)),
    "correctness": (60, lambda target, _: correctness(target)),
    "steps": (120, lambda target, _: steps.steps(target)),
    "kernels": (40, lambda target, _: steps.kernels(target)),
    "torch": (140, lambda target, _: checks.torch_steps(target)),
    "to_accuracy": (90, fleet.to_accuracy),
    "learners": (30, lambda target, _: fleet.learners(target)),
    "mixed": (180, lambda target, _: fleet.mixed(target)),
    "sanitizer": (180, lambda target, _: checks.sanitizer(target)),
}


def measured(name: str, seconds: float, rows: int, shim: bool, folder: Path) -> tuple[Any, str]:
    """Return what a part has found within `seconds`, None for nothing, and what went wrong, if something did."""
    file = folder / f"part-{name}.json"
    command = [sys.executable, "-m", "benchmarks.gpu.parts", name, str(file), "--rows", str(rows)]
    log, failed = folder / f"part-{name}.txt", ""
    with log.open("w") as out:
        process = subprocess.Popen(
            command + ["--shim"] * shim, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            failed = f"stopped after {seconds:.0f} s"
        finally:
            checks.end(process)
    if process.returncode and not failed:
        failed = (log.read_text(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    result = json.loads(file.read_text()) if file.exists() else None
    for used in (file, log):
        used.unlink(missing_ok=True)
    return result, failed


def main() -> None:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.parts", description=__doc__)
    parser.add_argument("name", choices=PARTS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--shim", action="store_true")
    args = parser.parse_args()
    for result in PARTS[args.name][1](Target(args.shim), args.rows):
        written = args.file.with_suffix(".new")
        written.write_text(json.dumps(result))
        written.replace(args.file)


if __name__ == "__main__":
    main()
