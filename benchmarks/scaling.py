"""The default estimator on more and more threads, by several workers, and on a GPU: which of its parts scale.

Each run is a process of its own (`stages`), confined to as many cores as it has threads. Kernels should be compiled
before: `python -m xmlsgd compile`. Results are written after each run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xmlsgd.errors import DataError
from xmlsgd.estimators.workers import check_devices

from .launch import THREAD_VARIABLES
from .plan import Plan
from .report import Table, publish

WORKERS = ("cuda:0", "cpu*2", "cpu*4")  # devices beside the CPU, which are given all threads
LEAST_SECONDS = 0.02  # of a part, in some run, to be listed
CORES_EACH = 2  # of processes that prepare themselves at the same time
ROOT = Path(__file__).resolve().parent.parent

Run = dict[str, Any]


class Setting(NamedTuple):
    """The devices and the threads of a run."""

    devices: str
    threads: int

    @property
    def title(self) -> str:
        """Return the name of its column."""
        return f"{self.threads}" if self.devices == "cpu" else f"{self.devices}, {self.threads}"


class Started:
    """A process that prepares itself and measures when it is told to."""

    def __init__(self, setting: Setting, folder: Path, out: Path) -> None:
        self.setting, self._out, self._errors = setting, out, out.with_suffix(".log")
        threads = str(setting.threads)
        command = [
            sys.executable, "-m", "benchmarks.stages", str(folder.absolute()), "--out", str(out.absolute()),
            "--threads", threads, "--cores", threads, "--devices", setting.devices,
        ]  # fmt: skip
        variables = os.environ | dict.fromkeys(THREAD_VARIABLES, threads)
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def wait(self) -> None:
        """Wait until it is ready to measure, or has failed."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def measure(self, timeout: float) -> Run:
        """Let it measure; return what it found, or its failure."""
        try:
            self._process.communicate(b"\n", timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            return {**self.setting._asdict(), "failure": f"stopped after {timeout:.0f} s"}
        if self._process.returncode:
            last = self._errors.read_text().strip().splitlines()[-1:]
            return {**self.setting._asdict(), "failure": f"exit code {self._process.returncode}: {' '.join(last)}"}
        found: Run = json.loads(self._out.read_text())
        return found

    def stop(self) -> None:
        """End it, if it runs."""
        self._process.kill()
        self._process.communicate()


def scaling(folder: Path, plan: Plan, counts: Sequence[int]) -> None:
    """Print and write the tables of one data set after each run, on these numbers of threads."""
    settings = [Setting("cpu", count) for count in counts]
    settings += [Setting(devices, max(counts)) for devices in WORKERS if has(devices)]
    work = plan.folder("scaling", folder.resolve())
    runs: list[Run] = []
    begun = time.perf_counter()
    at_once = max((os.cpu_count() or 1) // CORES_EACH, 1)
    for first in range(0, len(settings), at_once):
        some = settings[first : first + at_once]
        started = [Started(each, folder, work / f"{first + i}.json") for i, each in enumerate(some)]
        try:
            for process in started:
                process.wait()
            for process in started:
                runs.append(process.measure(plan.launcher.timeout))
                told = progress(process.setting, runs[-1])
                print(f"[{time.perf_counter() - begun:.0f} s] {folder.name}, {told}", flush=True)
                publish(f"scaling-{folder.name}", tables(folder.name, runs), runs, max(counts), plan.out, shown=False)
        finally:
            for process in started:
                process.stop()
    for table in tables(folder.name, runs):
        print(f"\n{table.markdown()}", flush=True)


def has(devices: str) -> bool:
    """Return whether this machine has such devices."""
    try:
        check_devices(devices)
    except (DataError, ImportError) as error:
        print(f"{devices} is left out: {error}", flush=True)
        return False
    return True


def progress(setting: Setting, run: Run) -> str:
    """Return a line about a run."""
    if "failure" in run:
        return f"{setting.title} threads: {run['failure']}"
    return f"{setting.title} threads: fit {run['fit_seconds']:.2f} s, prediction {run['predict_seconds']:.2f} s"


def tables(name: str, runs: Sequence[Run]) -> list[Table]:
    """Return the tables: whole runs, stages, kernels, and how long it takes to start threads."""
    done = [run for run in runs if "failure" not in run]
    columns = [Setting(run["devices"], run["threads"]).title for run in done]
    failed = [f"{Setting(run['devices'], run['threads']).title}: {run['failure']}" for run in runs if "failure" in run]
    layers = sorted({run["threading_layer"] for run in done})
    about = (
        f"Seconds. {'Numba launches threads by ' + ', '.join(layers) + '. ' if layers else ''}A run has as many cores "
        "as threads; rows and kernels are loaded before."
    )
    whole = [
        ["fit", *(f"{run['fit_seconds']:.2f}" for run in done)],
        ["times the first", *(f"{done[0]['fit_seconds'] / run['fit_seconds']:.2f}" for run in done)],
        ["processor", *(f"{run['processor_seconds']:.2f}" for run in done)],
        ["prediction", *(f"{run['predict_seconds']:.3f}" for run in done)],
        ["rows/s", *(f"{run['test_rows'] / run['predict_seconds']:,.0f}" for run in done)],
        *([f"P@{k}", *(f"{run['measures'][f'P@{k}']:.2f}" for run in done)] for k in (1, 3, 5)),
    ]
    notes = (
        "A name after a colon is a part of what is before it. Of the candidates those in parentheses are learned on a "
        "Python thread of their own, while the network is trained."
    )
    launches = [run["launch_seconds"] for run in done]
    pauses = sorted({pause for launch in launches for pause in launch}, key=float)
    started = [
        [f"after {1e3 * float(pause):g} ms", *(f"{1e6 * launch[pause]:.1f}" if launch else "" for launch in launches)]
        for pause in pauses
    ]
    return [
        Table(f"Threads and devices, {name}", ["", *columns], whole, [about, *failed]),
        Table("Stages of fit, seconds", ["", *columns], parts(done, "stages"), [notes]),
        Table("Kernels of fit, seconds", ["", *columns], parts(done, "kernels")),
        Table("Microseconds to launch a kernel without work", ["", *columns], started),
    ]


def parts(runs: Sequence[Run], kind: str) -> list[list[str]]:
    """Return a row for each part that took some time in a run, in the order of the first run."""
    found = [{_title(part): part for part in run[kind]} for run in runs]
    names = list(dict.fromkeys(name for each in found for name in each))
    if kind == "stages":
        names.sort(key=lambda name: name.strip("()"))
    longest = {name: max(each[name]["seconds"] for each in found if name in each) for name in names}
    return [
        [name, *(f"{each[name]['seconds']:.3f}" if name in each else "" for each in found)]
        for name in names
        if longest[name] >= LEAST_SECONDS
    ]


def _title(part: dict[str, Any]) -> str:
    """Return the name of a part, in parentheses where it ran beside the network."""
    name: str = part["name"]
    return name if part["thread"] == "main" else f"({name})"
