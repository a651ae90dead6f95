"""Other programs on a GPU: the tests that need one, PyTorch on the same shapes, NVIDIA's sanitizer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .target import ROOT, Target

_OUTCOME = re.compile(r"^\[gw\d+\] \[ *\d+%\] (?P<outcome>PASSED|FAILED|ERROR|SKIPPED) (?P<test>tests/\S.*)")
PROCESSES = 6  # of tests, on one GPU
_REASON = re.compile(r"^E   +(?P<reason>\S.*)$")
FAILURES = 40  # that are named
SANITIZER_SECONDS = 80  # for each of its tools
TESTS = ROOT / "tests" / "devices"


def tests(target: Target) -> Iterator[dict[str, Any]]:
    """Yield how many tests that need a GPU have passed, failed and been left out so far; who failed, and why."""
    # Units first; fits of whole models, which compile for the CPU too, last.
    files = [
        *sorted(TESTS.glob("test_*.py")),
        *sorted((TESTS / "gpu").glob("test_*.py"), key=lambda f: "estimator" in f.name),
    ]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-v", "--tb=short", "-p", "no:cacheprovider"]
    processes = 1 if target.shim else PROCESSES  # without a GPU all are skipped
    command += ["-n", str(processes), "--dist", "worksteal"]
    # A warning, as of a newer CuPy, is no reason to leave out all tests.
    command += ["--continue-on-collection-errors", "-o", "addopts=", "-W", "default", *map(str, files)]
    found: dict[str, Any] = {"passed": 0, "failed": 0, "error": 0, "skipped": 0, "failures": [], "reasons": []}
    for line in _lines(command):
        outcome, reason = _OUTCOME.match(line), _REASON.match(line)
        if outcome:
            found[outcome["outcome"].lower()] += 1
            if outcome["outcome"] in ("FAILED", "ERROR"):
                found["failures"] = [*found["failures"], outcome["test"]][:FAILURES]
        elif reason:
            found["reasons"] = [*found["reasons"], reason["reason"][:200]][:FAILURES]
        else:
            found["last"] = line.strip()[:300]
            continue
        yield found
    yield found


def torch_steps(target: Target) -> Iterator[list[dict[str, Any]]]:
    """Yield PyTorch's results so far, from a process of its own: two sets of CUDA libraries in one may clash."""
    results: list[dict[str, Any]] = []
    if target.shim:
        yield results
        return
    last = ""
    for line in _lines([sys.executable, "-m", "benchmarks.gpu.torch_steps", "eager", "compiled"]):
        if line.startswith("{"):
            results.append(json.loads(line))
            yield results
        elif line.strip():
            last = line.strip()
    if not results:
        raise RuntimeError(last)


def sanitizer(target: Target) -> Iterator[dict[str, str]]:
    """Yield what compute-sanitizer says of memory and of races in the smallest steps; why not where it cannot run."""
    found: dict[str, str] = {}
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for check in ("memcheck", "racecheck"):
        if target.shim or shutil.which(tool) is None:
            found[check] = "there is no compute-sanitizer"
        else:
            # In the foreground: in a group of its own, the tool would outlive this part (`end`).
            limit = ["timeout", "--foreground", "-k", "1", str(SANITIZER_SECONDS)]
            command = [*limit, tool, "--tool", check, sys.executable, "-m", "benchmarks.gpu.correctness"]
            lines = [line for line in _lines(command) if line.startswith("=========") and "SUMMARY" in line]
            found[check] = lines[-1].strip("= \n")[:300] if lines else f"nothing within {SANITIZER_SECONDS} s"
        yield found


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a group, and the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _lines(command: list[str]) -> Iterator[str]:
    """Yield the lines that a program writes, as it writes them."""
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield from process.stdout
        finally:
            process.kill()
