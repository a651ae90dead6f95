"""Two worker processes of one thread each against one: rows/s, P@1, merges, memory; and with one of the two slowed.

Beside the seconds of each run stand those that the simulated clock foretells, given the costs of the run's own steps.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.csr import CSR, Dataset
from xmlsgd.datasets import open_store
from xmlsgd.devices.cpu import CPU
from xmlsgd.engine import train
from xmlsgd.estimators.scoring import Scorer
from xmlsgd.executors.processes import Processes
from xmlsgd.history import Monitor
from xmlsgd.metrics import precision_at_k
from xmlsgd.network import Network
from xmlsgd.records import Report

from .fidelity import fitted_fleet, predicted_seconds
from .plan import BATCH, HIDDEN, RATE, Plan
from .prepare import prepared_shape
from .report import Table, megabytes, publish

SLOW = 4.0  # how many times as long every step of the slowed worker takes
ALLOWANCE = 150_000_000  # bytes a worker: an interpreter with Numba and its kernels
ALONE = "sequential"
DYNAMIC = ("hogwild", "hogbatch", "adaptive_hogbatch", "local_sgd", "adaptive", "auto")  # whoever is free gets rows


@dataclass
class Watch(Monitor):
    """Measures test P@1 and the memory of all processes at the end of every epoch; keeps all reports."""

    executor: Processes
    test: Dataset
    network: Network
    device: CPU
    memory: int = 0
    curve: list[tuple[float, float]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def step(self, report: Report) -> None:
        """Keep a report."""
        self.reports.append(report)

    def epoch(self, record: dict[str, Any], center: np.ndarray) -> bool:
        """Measure."""
        pids = [os.getpid(), *(p.process.pid for p in self.executor.team.processes.values())]
        self.memory = max(self.memory, sum(proportional_bytes(pid) for pid in pids[1:]))
        with self.device.start():
            labels, _ = Scorer(self.network, center, self.device).top_k(self.test.X, 1)
        self.curve.append((record["seconds"], 100 * float(precision_at_k(self.test.Y, labels, 1)[0])))
        return False


def proportional_bytes(pid: int) -> int:
    """Return the resident bytes of a process, those shared by n processes counted as an n-th (Linux's Pss)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("Pss:")))


def run(name: str, n: int, slow: float, rows: Dataset, test: Dataset, epochs: int) -> dict[str, Any]:
    """Train with `n` workers, the last of them slowed; return what was measured."""
    network = Network(rows.n_features, rows.n_labels, (HIDDEN,))
    executor = Processes([partial(CPU, 1)] * n, slowdown=[1.0] * (n - 1) + [slow])
    watch = Watch(executor, test, network, CPU(2))
    done = train(rows, network, get_algorithm(name, BATCH, RATE), executor, epochs=epochs, monitors=[watch])
    seconds = done.records[-1]["seconds"]
    foretold = predicted_seconds(
        get_algorithm(name, BATCH, RATE), fitted_fleet(watch.reports), rows, network, epochs=epochs,
        bandwidth=executor.merge_bytes / executor.merge_seconds if executor.merge_bytes else math.inf,
    )  # fmt: skip
    return {
        "algorithm": name,
        "workers": n,
        "slowdown": slow,
        "seconds": seconds,
        "predicted_seconds": foretold,
        "rows_per_second": epochs * rows.n_rows / seconds,
        "merge_share": executor.merge_seconds / seconds,
        "curve": watch.curve,
        "table_bytes": executor.table.params.nbytes + executor.table.states.nbytes + executor.table.touched.nbytes,
        "workers_memory_bytes": watch.memory,
        "failures": executor.failures,
    }


def workers(prepared: Path, plan: Plan) -> None:
    """Measure all algorithms in turn, `rounds` times, and write the table of one data set."""
    rows, test = open_store(prepared / "train"), test_rows(prepared)
    names = [name for name in algorithm_names() if name != ALONE]
    runs: list[dict[str, Any]] = []
    for _ in range(plan.rounds):
        runs.append(run(ALONE, 1, 1.0, rows, test, plan.epochs))
        for name in names:
            runs += [run(name, 2, slow, rows, test, plan.epochs) for slow in (1.0, SLOW)]
    found = {"runs": runs, "shape": prepared_shape(prepared), "epochs": plan.epochs}
    publish(f"workers-{prepared.name}", table(prepared.name, runs, names), found, 2, plan.out)


def test_rows(prepared: Path) -> Dataset:
    """Return the prepared test rows."""
    X, Y = (CSR.from_scipy(sp.load_npz(prepared / f"{part}.tst.npz")) for part in "XY")
    return Dataset(X, Y)


def table(data: str, runs: list[dict[str, Any]], names: list[str]) -> Table:
    """Return the table: medians over rounds, rates as multiples of those of one worker in the same round."""

    def of(name: str, slow: float, value: str) -> float:
        return statistics.median(r[value] for r in runs if r["algorithm"] == name and r["slowdown"] == slow)

    alone = of(ALONE, 1.0, "rows_per_second")
    target = statistics.median(r["curve"][-1][1] for r in runs if r["algorithm"] == ALONE)
    lines = []
    for name in [ALONE, *names]:
        own = [r for r in runs if r["algorithm"] == name and r["slowdown"] == 1.0]
        line = [name, f"{of(name, 1.0, 'rows_per_second') / alone:.2f}"]
        line += ["" if name == ALONE else f"{of(name, SLOW, 'rows_per_second') / alone:.2f}"]
        line += [f"{statistics.median(r['curve'][-1][1] for r in own):.2f}", reached(own, target)]
        line += [f"{100 * of(name, 1.0, 'merge_share'):.1f}"]
        line += [f"{of(name, 1.0, value):.1f}" for value in ("seconds", "predicted_seconds")]
        bound = of(name, 1.0, "table_bytes") + (1 if name == ALONE else 2) * ALLOWANCE
        line += [megabytes(of(name, 1.0, "workers_memory_bytes")), megabytes(bound)]
        lines.append(line)
    columns = ["algorithm", "rows/s", f"rows/s, one slowed {SLOW:g}x", "P@1", f"s to P@1 {target:.1f}", "merging %"]
    columns += ["s", "predicted s", "MB", "bound MB"]
    notes = [
        f"Rates are multiples of {alone:,.0f} rows/s of one worker of one thread.",
        f"With one of two at a quarter of its speed there is 1.25; to whoever is free give: {', '.join(DYNAMIC)}.",
        f"The simulated clock is wrong by {100 * worst_error(runs):.0f} % at most, with one slowed or not.",
        "MB: of all workers together, what they share counted once; the bound is one table and 150 MB a worker.",
    ]
    return Table(f"Two workers against one on {data}", columns, lines, notes)


def worst_error(runs: list[dict[str, Any]]) -> float:
    """Return the largest relative error of predicted seconds."""
    return max(abs(run["predicted_seconds"] / run["seconds"] - 1) for run in runs)


def reached(runs: list[dict[str, Any]], target: float) -> str:
    """Return the median seconds in which runs reach P@1 `target`, between epochs by interpolation."""
    seconds = []
    for run in runs:
        points = [(0.0, 0.0), *run["curve"]]
        for (t0, p0), (t1, p1) in itertools.pairwise(points):
            if p1 >= target:
                seconds.append(t0 + (t1 - t0) * (target - p0) / max(p1 - p0, 1e-9))
                break
    return f"{statistics.median(seconds):.1f}" if 2 * len(seconds) > len(runs) else "-"
