"""Two worker processes of one thread each against one: rows/s, P@1, merges, hops, memory; and with one of them slowed.

Beside the seconds of each run stand those that the simulated clock foretells, given the costs of the run's own steps.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats.store import open_store
from xmlsgd.devices.cpu import CPU
from xmlsgd.estimators.inference import Scorer
from xmlsgd.estimators.memory import WORKER_BYTES, step_bytes
from xmlsgd.metrics import precision_at_k
from xmlsgd.nn.network import Network
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.messages import Report

from .fidelity import fitted_fleet, predicted_seconds
from .hops import Timed
from .peers.runner import BATCH, HIDDEN
from .plan import RATE as LEARNING_RATE
from .plan import Plan
from .prepare import prepared_shape
from .report import Table, are_most, megabytes, publish

SLOW = 4.0  # how many times as long every step of the slowed worker takes
ALONE = "sequential"
DYNAMIC = ("hogwild", "hogbatch", "adaptive_hogbatch", "local_sgd", "adaptive", "auto")  # whoever is free gets rows
EVERY_UPDATE = ("synchronous", "omnivore")  # meet at every update: nothing overlaps
# What is wanted of all that overlaps: rows/s of two over those of one; the same with one of two slowed, where 1.25 is
# all there is; hops over steps; merges over all seconds.
RATE, SLOWED, HOPS, MERGING = 1.8, 0.9 * (1 + 1 / SLOW), 0.02, 0.05

Run = dict[str, Any]


@dataclass
class Watch(Callback):
    """Measures test P@1 and the memory of the workers at the end of every epoch; keeps all reports."""

    executor: Timed
    test: Dataset
    network: Network
    device: CPU
    memory: int = 0
    curve: list[tuple[float, float]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def span(self, report: Report) -> None:
        """Keep a report."""
        self.reports.append(report)

    def epoch(self, record: dict[str, Any], center: np.ndarray) -> bool:
        """Measure."""
        self.executor.pause()
        pool = self.executor.pool
        assert pool.folder is not None
        memory = sum(proportional_bytes(p.process.pid) for p in pool.processes.values())
        self.memory = max(self.memory, memory + proportional_bytes(os.getpid(), pool.folder.path))
        with self.device.start():
            labels, _ = Scorer(self.network, center, self.device).top_k(self.test.X, 1)
        self.curve.append((record["seconds"], 100 * float(precision_at_k(self.test.Y, labels, 1)[0])))
        return False


def proportional_bytes(pid: int, folder: Path | None = None) -> int:
    """Return the resident bytes of a process, those shared by n processes counted as an n-th (Linux's Pss).

    With a folder only those of files in it: what the coordinator has a share in of what the workers have mapped.
    """
    total, counts = 0, True
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, *others = line.split(maxsplit=5)
        if not first.endswith(":"):  # addresses, rights, offset, device, inode and perhaps a path: a mapping begins
            counts = folder is None or others[-1].startswith(f"{folder}/")
        elif counts and first == "Pss:":
            total += 1024 * int(others[0])
    return total


class SlowedCPU(CPU):
    """A CPU of one thread whose steps take `slow` times as long."""

    def __init__(self, slow: float) -> None:
        super().__init__(1)
        self.slow, self.begun = slow, 0.0

    def input_forward(self, *arguments: Any) -> np.ndarray:
        """Begin a step."""
        self.begun = time.perf_counter()
        return super().input_forward(*arguments)

    def input_step(self, *arguments: Any) -> None:
        """End a step, and wait."""
        super().input_step(*arguments)
        time.sleep((self.slow - 1) * (time.perf_counter() - self.begun))


def run(name: str, n: int, slow: float, rows: Dataset, test: Dataset, epochs: int) -> Run:
    """Train with `n` workers, the last of them slowed; return what was measured."""
    network = Network(rows.n_features, rows.n_labels, (HIDDEN,))
    executor = Timed([partial(CPU, 1)] * (n - 1) + [partial(SlowedCPU, slow)])
    watch = Watch(executor, test, network, CPU(2))
    job = Job(rows, network)
    done = train(job, get_algorithm(name, BATCH, LEARNING_RATE), executor, Schedule(epochs), callbacks=[watch])
    seconds = done.records[-1]["seconds"]
    foretold = predicted_seconds(
        get_algorithm(name, BATCH, LEARNING_RATE), fitted_fleet(watch.reports), job, epochs,
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
        **executor.summary(),
        "curve": watch.curve,
        "table_bytes": executor.shared.params.nbytes + executor.shared.states.nbytes + executor.shared.touched.nbytes,
        "workers_memory_bytes": watch.memory,
        "failures": executor.pool.failures,
    }


def workers(prepared: Path, plan: Plan) -> None:
    """Measure the algorithms in turn, `rounds` times, beside one worker, and write the table of one data set.

    Where the plan reuses runs, those of other algorithms stay as the table has them.
    """
    rows, test = open_store(prepared / "train"), test_rows(prepared)
    names = list(plan.algorithms) or [name for name in algorithm_names() if name != ALONE]
    runs = [run for run in earlier(plan.out / f"workers-{prepared.name}.json", plan) if run["algorithm"] not in names]
    for _ in range(plan.rounds):
        alone = run(ALONE, 1, 1.0, rows, test, plan.epochs)
        runs.append(alone)
        for name in names:
            made = (run(name, 2, slow, rows, test, plan.epochs) for slow in (1.0, SLOW))
            runs += [{**each, "speed": each["rows_per_second"] / alone["rows_per_second"]} for each in made]
    found = {"runs": runs, "shape": prepared_shape(prepared), "epochs": plan.epochs}
    publish(f"workers-{prepared.name}", table(prepared.name, runs), found, 2, plan.out)


def earlier(path: Path, plan: Plan) -> list[Run]:
    """Return the runs of an earlier table of as many epochs, if they are to be used again."""
    if not plan.reuse or not path.exists():
        return []
    found = json.loads(path.read_text())["result"]
    return list(found["runs"]) if found["epochs"] == plan.epochs else []


def test_rows(prepared: Path) -> Dataset:
    """Return the prepared test rows."""
    X, Y = (CSR.from_scipy(sp.load_npz(prepared / f"{part}.tst.npz")) for part in "XY")
    return Dataset(X, Y)


COLUMNS = (
    "algorithm", "rows/s", f"rows/s, one slowed {SLOW:g}x", "P@1", "s to its P@1", "merging %", "hop ms", "hop %", "s",
    "predicted s", "MB", "bound MB", "misses",
)  # fmt: skip


def table(data: str, runs: list[Run]) -> Table:
    """Return the table: medians over rounds, rates as multiples of those of one worker in the same round."""
    one = [r for r in runs if r["algorithm"] == ALONE]
    target = statistics.median(r["curve"][-1][1] for r in one)
    names = sorted({r["algorithm"] for r in runs} - {ALONE})
    lines = [row(one, [], target), *(row(*both(runs, name), target) for name in names)]
    rates = (
        f"Rates are multiples of {median(one, 'rows_per_second'):,.0f} rows/s of one worker of one thread, which "
        f"reaches P@1 {target:.1f}. With one of two at a quarter of its speed there is {1 + 1 / SLOW:g}; to whoever is "
        f"free give: {', '.join(DYNAMIC)}."
    )
    wanted = (
        f"Wanted: rows/s {RATE} and, of those who give to whoever is free, {SLOWED:.3f} with one slowed; hops, which "
        f"ask for work, get it and report, at most {100 * HOPS:.0f} % of the steps; merges at most {100 * MERGING:.0f} "
        f"% of the time. Of {' and '.join(EVERY_UPDATE)}, which meet at every update, none of these: their "
        "messages are of one batch."
    )
    clock = f"The simulated clock is wrong by {100 * worst_error(runs):.0f} % at most, with one slowed or not."
    precision = (
        "P@1 is told, not wanted: who averages replicas makes fewer updates an epoch than one worker, and is behind "
        "it at first."
    )
    memory = (
        f"MB: of all workers together, what they share counted once; the bound is one table and, for each worker, "
        f"{WORKER_BYTES / 1e6:.0f} MB and the arrays of its largest step (eight batches of adaptive_hogbatch)."
    )
    notes = [rates, wanted, clock, precision, memory]
    return Table(f"Two workers against one on {data}", COLUMNS, lines, notes)


def both(runs: list[Run], name: str) -> tuple[list[Run], list[Run]]:
    """Return the runs of an algorithm on equal workers, and with one of them slowed."""
    own = [r for r in runs if r["algorithm"] == name]
    return [r for r in own if r["slowdown"] == 1], [r for r in own if r["slowdown"] != 1]


def median(runs: list[Run], value: str) -> float:
    """Return the median of a value."""
    return statistics.median(r[value] for r in runs)


def row(own: list[Run], slowed: list[Run], target: float) -> list[str]:
    """Return the line of an algorithm; `slowed` is empty for one worker."""
    return [
        own[0]["algorithm"],
        f"{median(own, 'speed'):.2f}" if slowed else "1.00",
        f"{median(slowed, 'speed'):.2f}" if slowed else "",
        f"{statistics.median(r['curve'][-1][1] for r in own):.2f}",
        reached(own, target),
        f"{100 * median(own, 'merge_share'):.1f}",
        f"{1000 * median(own, 'hop_seconds'):.2f}",
        f"{100 * median(own, 'hop_share'):.1f}",
        *(f"{median(own, value):.1f}" for value in ("seconds", "predicted_seconds")),
        megabytes(median(own, "workers_memory_bytes")),
        megabytes(bound(own)),
        ", ".join(misses(own, slowed)) if slowed else "",
    ]


def bound(own: list[Run]) -> float:
    """Return the bytes that all workers of an algorithm may take: a table and, for each, a process and its steps."""
    n_workers = own[0]["workers"]
    rows = get_algorithm(own[0]["algorithm"], BATCH, LEARNING_RATE).most_rows(n_workers)
    return median(own, "table_bytes") + n_workers * (WORKER_BYTES + step_bytes(Network(1, 1, (HIDDEN,)), rows, 1))


def misses(own: list[Run], slowed: list[Run]) -> list[str]:
    """Return which of what is wanted an algorithm misses."""
    name = own[0]["algorithm"]
    overlaps = name not in EVERY_UPDATE
    found = {
        "rate": overlaps and median(own, "speed") < RATE,
        "slowed": name in DYNAMIC and median(slowed, "speed") < SLOWED,
        "hops": overlaps and median(own, "hop_share") > HOPS,
        "merging": overlaps and median(own, "merge_share") > MERGING,
        "memory": median(own, "workers_memory_bytes") > bound(own),
    }
    return [what for what, missed in found.items() if missed]


def worst_error(runs: list[Run]) -> float:
    """Return the largest relative error of predicted seconds."""
    return max(abs(run["predicted_seconds"] / run["seconds"] - 1) for run in runs)


def reached(runs: list[Run], target: float) -> str:
    """Return the median seconds in which runs reach P@1 `target`, between epochs by interpolation."""
    seconds = []
    for run in runs:
        points = [(0.0, 0.0), *run["curve"]]
        for (t0, p0), (t1, p1) in itertools.pairwise(points):
            if p1 >= target:
                seconds.append(t0 + (t1 - t0) * (target - p0) / max(p1 - p0, 1e-9))
                break
    return f"{statistics.median(seconds):.1f}" if are_most(seconds, runs) else "-"
