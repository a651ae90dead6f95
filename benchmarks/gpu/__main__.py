"""Measure a GPU: `python -m benchmarks.gpu`. Writes `gpu-NAME.json` and `.md` after every part.

A part that would not fit into the remaining seconds is noted as left out; a part that is measured again replaces its
earlier result from the same sources. `--tests` runs the tests that need a GPU first. `--shim` runs everything at tiny
sizes on the CPU, to test this program; those figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from xmlsgd.devices.cuda.availability import check_gpu
from xmlsgd.errors import DataError

from ..machine import describe
from ..report import RESULTS, without_folders
from .changes import changed
from .parts import PARTS, measured
from .tables import markdown

LEAST = 10.0  # seconds that must be left for a part to begin
SHIM_SLOWER = 10  # times the seconds on the CPU, which may have other things to do
FIRST = "gpu"  # the part that names the GPU, and with it the files


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the tables go (benchmarks/results)")
    parser.add_argument("--seconds", type=float, default=460, help="in all (%(default)g)")
    parser.add_argument("--rows", type=int, default=120_000, help="of the synthetic Amazon-670K (%(default)s)")
    parser.add_argument("--tests", action="store_true", help="run the tests that need a GPU first")
    parser.add_argument("--parts", default="", help=f"only these, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--shim", action="store_true", help="tiny sizes on the CPU")
    return parser


def chosen(args: argparse.Namespace) -> list[str]:
    """Return the names of the parts to measure; raise `DataError` for one that does not exist."""
    names = [name for name in args.parts.split(",") if name]
    if unknown := [name for name in names if name not in PARTS]:
        raise DataError(f"--parts: {unknown[0]!r} is none of {', '.join(PARTS)}")
    parts = names or [name for name in PARTS if name != "tests"]
    return [name for name in PARTS if name in (*parts, *(["tests"] if args.tests else [])) and name != FIRST]


def main() -> int:
    """Measure and write; return 1 without a GPU or where results are wrong."""
    args = command_line().parse_args()
    begun, slow = time.monotonic(), SHIM_SLOWER if args.shim else 1
    try:
        names = chosen(args)
        if not args.shim:
            check_gpu(0)
    except DataError as error:
        print(f"nothing is measured: {error}", file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    facts, failed = measured(FIRST, slow * PARTS[FIRST][0], args.rows, args.shim, args.out)
    if facts is None:
        print(f"nothing is measured: the GPU does not answer: {failed}", file=sys.stderr)
        return 1
    name = "gpu-" + ("shim" if args.shim else re.sub(r"[^a-z0-9]+", "-", facts["gpu"].lower()).strip("-"))
    result: dict[str, Any] = {"machine": describe(1), "gpu": facts, "left_out": []}
    file = args.out / f"{name}.json"
    if file.exists():
        earlier = json.loads(file.read_text())
        result["changed"] = changed(earlier, facts["kernels"])
        if earlier["gpu"].get("sources") == facts["sources"]:
            result = {**earlier, **result}
    for part in names:
        seconds, left = slow * PARTS[part][0], slow * args.seconds - (time.monotonic() - begun)
        if left < min(LEAST, seconds):
            result["left_out"].append(f"{part}: {max(left, 0):.0f} s were left")
            continue
        started = time.monotonic()
        found, failed = measured(part, min(seconds, left), args.rows, args.shim, args.out)
        if failed:
            result["left_out"].append(f"{part}: {failed}")
        if found is not None:
            result[part] = found
        print(f"{part}: {time.monotonic() - started:.1f} s {failed}", flush=True)
        file.write_text(without_folders(json.dumps(result, indent=1)))
        file.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))
    wrong = list(result.get("correctness", {}).get("failures", ["correctness was not measured"]))
    if "tests" in names:
        ran = result.get("tests", {"passed": 0, "failed": 0, "error": 0})
        wrong += [] if args.shim or ran["passed"] else ["no test has run on the GPU"]
        wrong += [f"{ran['failed'] + ran['error']} tests failed"] if ran["failed"] + ran["error"] else []
    for line in (*wrong, *result["left_out"]):
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
