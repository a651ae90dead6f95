"""What simulating costs: an epoch on four simulated devices against one worker, and against four in turn.

All three do an epoch of the same rows in the same batches, on the same device of this machine. The four in turn also
make the same merges.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.data import open_store
from xmlsgd.data.csr import Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.nn.network import Network
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.base import Executor
from xmlsgd.training.executors.scenarios import scenario
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train

from .peers.runner import BATCH, HIDDEN
from .plan import RATE, Plan
from .prepare import prepared_shape
from .report import Table, publish

ROWS = 24_000  # of an epoch, at most
ALONE = "sequential"
BOUND = 1.3
BASE = VirtualDevice(1e-3, 1e-5)  # durations decide who gets which rows, not how long that is computed
COLUMNS = ("algorithm", "simulated s", "over one worker", "four in turn s", "simulated over these", f"at most {BOUND}")


@dataclass(frozen=True)
class Timed:
    """The wall seconds of an epoch on simulated devices and on as many workers in turn."""

    algorithm: str
    simulated: float
    in_turn: float


def simulation(prepared: Path, plan: Plan) -> None:
    """Time all algorithms in turn, `rounds` times, and write the table of one data set."""
    rows, device = first_rows(open_store(prepared / "train"), ROWS), CPU(plan.threads)
    names = [name for name in algorithm_names() if name not in (ALONE, "auto")]
    alone, runs = list[float](), list[Timed]()
    with device.start():
        for name in algorithm_names():  # loads the kernels
            timed(name, first_rows(rows, 4 * BATCH), device)
        for _ in range(plan.rounds):
            alone.append(seconds_of(ALONE, rows, Serial([device])))
            runs += [timed(name, rows, device) for name in names]
    found = {
        "shape": prepared_shape(prepared),
        "one_worker": alone,
        "runs": [run.__dict__ for run in runs],
    }
    done = table(prepared.name, rows.n_rows, alone, runs)
    publish(f"simulation-{prepared.name}", done, found, plan.threads, plan.out)


def first_rows(rows: Dataset, n: int) -> Dataset:
    """Return the first `n` rows, all where there are fewer."""
    n = min(n, rows.n_rows)
    return Dataset(rows.X.span(0, n), rows.Y.span(0, n))


def timed(name: str, rows: Dataset, device: CPU) -> Timed:
    """Time an algorithm on S2, and on as many workers in turn."""
    fleet = scenario("S2", BASE, rows.n_rows, 0.0, BATCH)
    return Timed(
        name, seconds_of(name, rows, Simulated(device, fleet)), seconds_of(name, rows, Serial([device] * len(fleet)))
    )


def seconds_of(name: str, rows: Dataset, executor: Executor) -> float:
    """Return the wall seconds of an epoch."""
    network, start = Network(rows.n_features, rows.n_labels, (HIDDEN,)), time.perf_counter()
    train(Job(rows, network), get_algorithm(name, BATCH, RATE), executor, Schedule(1))
    return time.perf_counter() - start


def table(data: str, n_rows: int, alone: list[float], runs: list[Timed]) -> Table:
    """Return medians over rounds."""
    one = statistics.median(alone)
    lines = []
    for name in dict.fromkeys(run.algorithm for run in runs):
        simulated, in_turn = (
            statistics.median(getattr(run, what) for run in runs if run.algorithm == name)
            for what in ("simulated", "in_turn")
        )
        cost = simulated / in_turn
        lines.append([name, *(f"{value:.2f}" for value in (simulated, simulated / one, in_turn, cost))])
        lines[-1].append("met" if cost <= BOUND else "missed")
    note = (
        f"One worker takes {one:.2f} s for {n_rows:,} rows, {HIDDEN} hidden units, batches of {BATCH}. The target is "
        f"on the last ratio: a simulated run may take {BOUND} times as long as the same arithmetic, steps and merges, "
        "done by four workers in turn. What the merges of four add to the steps of one is no cost of simulating."
    )
    return Table(f"Wall seconds of an epoch on four simulated devices, {data}", COLUMNS, lines, [note])
