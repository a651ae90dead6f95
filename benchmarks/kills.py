"""Kills of workers and of coordinators in many short runs: rows lost and doubled, P@1, and the bits of resumed runs.

Workers are killed by `kill -9` in the middle of a step, and by the coordinator when a worker has got rows, has
reported, is about to be merged or has joined; which, a seed decides. `count_rows` counts how often each row is in the
model after an epoch. An algorithm that shares the model in place may count the rows of a lost step once more, and no
others; all others count each row once. `precision` compares a small model's P@1 with that of runs without kills.
Workers are forked (`forked_workers`), which spares each of them a second of imports.

Coordinators, with a checkpoint whenever one can be written, are killed at random times and called again until the run
ends. Of one worker, parameters and optimizer state must be those of a run without kills, bit for bit; of several, each
row must be in the model once, also where workers share it in place: what they wrote is lost with the coordinator. No
process may be left, nor a file.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xmlsgd import Scorer, precision_at_k
from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.algorithms.base import Algorithm
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.checkpoints import Checkpoint
from xmlsgd.training.executors import shared_files
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.merging import BROADCAST, Comm, MergeRule, ParameterSlice
from xmlsgd.training.messages import Report, Sharing

from .forked_workers import forked_workers
from .killed_devices import Killed, Marking
from .report import Table, publish

OPTIONS = {"crossbow": "/sync_every=2", "easgd": "/sync_every=2", "omnivore": "/groups=2"}  # that merge within an epoch
ALGORITHMS = [name + OPTIONS.get(name, "") for name in algorithm_names()] + ["hogwild/copies=true"]
OPTIMIZERS = {"Adam": (Adam(), 0.02), "SGD": (SGD(), 0.5)}
N_ROWS, BATCH, WORKERS = 200, 10, 2
EPOCHS, N_LABELS, SEEDS = 4, 8, 200  # of accuracy; one in 200 runs is ten points below all others
Found = dict[str, dict[str, Any]]  # counts of an algorithm and an optimizer, by name
WANTED = 2000, 500  # kills of workers, and of coordinators
TEMPORARY, SHARED = "temporary", "shared"  # folders for temporary files and in place of shared memory
ORPHANED = 30  # seconds in which the workers of a killed coordinator end
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of Linux
IN_STEPS, FROM_OUTSIDE, CHANCE = 4, 6, 0.3  # kills of a run at most, and of a chance that there is one


def rows_of_their_own() -> Dataset:
    """Return rows with one feature each, their own, and the one label."""
    ones, every = np.ones(N_ROWS, np.float32), np.arange(N_ROWS + 1, dtype=np.int64)
    return Dataset(
        CSR(every, np.arange(N_ROWS, dtype=np.int32), ones, N_ROWS), CSR(every, np.zeros(N_ROWS, np.int32), ones, 1)
    )


def learnable_rows() -> Dataset:
    """Return rows of one label, one of its two features, and three features that say nothing."""
    rng, n_features = np.random.default_rng(0), 2 * N_LABELS + 12
    labels = rng.integers(N_LABELS, size=N_ROWS).astype(np.int32)
    own = 2 * labels + rng.integers(2, size=N_ROWS)
    noise = np.array([np.sort(rng.choice(12, 3, replace=False)) for _ in labels]) + 2 * N_LABELS
    values = np.tile(np.float32([1, 0.5, 0.5, 0.5]), N_ROWS)
    indices = np.column_stack([own, noise]).astype(np.int32).ravel()
    X = CSR(np.arange(N_ROWS + 1, dtype=np.int64) * 4, indices, values, n_features)
    return Dataset(X, CSR(np.arange(N_ROWS + 1, dtype=np.int64), labels, np.ones(N_ROWS, np.float32), N_LABELS))


def add_marks(params: ParameterSlice) -> None:
    """Add the marks of the replicas to the center, in which rows that were not trained have none."""
    if params.name == "W0":
        assert params.touched is not None
        for replica, touched in zip(params.replicas.values(), params.touched, strict=True):
            params.center[touched] += replica[touched]
    params.broadcast()


class Marks:
    """What an algorithm merges with, its rule replaced by the sum of marks."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def merge(self, rule: MergeRule, members: Collection[int]) -> None:
        """Add marks, where the algorithm does not give out the center."""
        self._comm.merge(rule if rule is BROADCAST else MergeRule(add_marks), members)


class Kills:
    """Kills workers of an executor when an algorithm is told something, and counts the rows of lost steps."""

    def __init__(self, executor: Processes, random_of: random.Random, left: int) -> None:
        self.executor, self.random_of, self.left = executor, random_of, left
        self.given, self.lost_rows = Counter[int](), 0

    def maybe(self, w: int) -> None:
        """Kill the process of a worker, by chance."""
        process = self.executor.pool.processes.get(w)
        if self.left and process is not None and not process.has_ended and self.random_of.random() < CHANCE:
            self.left -= 1
            process.process.kill()
            if self.random_of.random() < 0.5:  # else it may still write
                process.process.wait()


def with_kills(algorithm: Algorithm, kills: Kills, counting: bool) -> Algorithm:
    """Return the algorithm with kills wherever it is told of its workers; counting : whether merges add marks."""
    kind: Any = type(algorithm)

    class Killing(kind):
        def submitted(self, w: int, rows: int, now: float) -> None:
            super().submitted(w, rows, now)
            kills.given[w] = rows
            kills.maybe(w)

        def finished(self, report: Report) -> None:
            super().finished(report)
            kills.given[report.worker] = 0
            kills.maybe(report.worker)

        def worker_left(self, w: int) -> None:
            super().worker_left(w)
            kills.lost_rows += kills.given.pop(w, 0)

        def worker_joined(self, w: int) -> None:
            super().worker_joined(w)
            kills.maybe(w)

        def merge(self, comm: Comm, members: Collection[int]) -> None:
            kills.maybe(min(members))
            super().merge(Marks(comm) if counting else comm, members)

        def overlap(self, comm: Comm, busy: Collection[int]) -> None:
            super().overlap(Marks(comm) if counting else comm, busy)

        def end_epoch(self, comm: Comm) -> None:
            super().end_epoch(Marks(comm) if counting else comm)

    killing: Algorithm = Killing(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
    return killing


def trained(text: str, optimizer: str, seed: int, counting: bool, fatal: bool = True) -> tuple[np.ndarray, int, Kills]:
    """Train by an algorithm while its workers are killed; return the parameters, how many were, and the kills."""
    random_of = random.Random(f"{text} {optimizer} {seed} {counting}")
    data = rows_of_their_own() if counting else learnable_rows()
    rule, rate = OPTIMIZERS[optimizer]
    epochs = 1 if counting else EPOCHS
    n_workers = 1 if text == "sequential" else WORKERS
    with tempfile.TemporaryDirectory() as folder:
        rows = random_of.sample(range(N_ROWS), IN_STEPS if fatal else 0)
        executor = Processes([partial(Marking if counting else Killed, Path(folder), rows)] * n_workers, restarts=99)
        kills = Kills(executor, random_of, FROM_OUTSIDE if fatal else 0)
        algorithm = with_kills(get_algorithm(text, BATCH, rate), kills, counting)
        job = Job(data, network_of(data, counting), rule, seed=seed)
        run = train(job, algorithm, executor, Schedule(epochs, "constant", 0))
    return run.params, sum(failure.endswith(": killed by SIGKILL") for failure in executor.pool.failures), kills


def network_of(data: Dataset, counting: bool) -> Network:
    """Return a network of one unit whose weights begin at 0, so that they count, or one that learns the rows."""
    if counting:
        return Network(data.n_features, data.n_labels, (1,), input_scale=0.0)
    return Network(data.n_features, data.n_labels, (16,), "softmax")


def count_rows(text: str, optimizer: str, seed: int) -> Counter[str]:
    """Return the kills of a run, and the rows that are in the model too rarely or too often."""
    params, n_kills, kills = trained(text, optimizer, seed, counting=True)
    data = rows_of_their_own()
    marks = np.round(network_of(data, True).layout.views(params)["W0"][:, 0]).astype(int)
    in_place = get_algorithm(text, BATCH, 0.1).sharing is Sharing.IN_PLACE
    more = int(np.maximum(marks - 1, 0).sum())
    allowed = kills.lost_rows if in_place else 0
    return Counter({
        "runs": 1, "kills": n_kills, "rows": N_ROWS, "rows lost: wrong": int((marks == 0).sum()),
        "rows of lost steps": kills.lost_rows, "rows counted again": more,
        "rows counted again beyond these, or by replicas: wrong": max(more - allowed, 0),
    })  # fmt: skip


def precision(params: np.ndarray) -> float:
    """Return P@1 of the rows that were trained, in percent."""
    data = learnable_rows()
    labels, _ = Scorer(network_of(data, False), params, Reference()).top_k(data.X, 1)
    return round(100 * float(precision_at_k(data.Y, labels, 1)[0]), 2)


def add(counts: dict[str, Any], more: dict[str, Any]) -> None:
    """Add counts and lists of one run to those of others."""
    for key, found in more.items():
        counts[key] = counts[key] + found if key in counts else found


def kill_workers(found: Found, wanted: int, until: float, seeds: int) -> None:
    """Add counts for each algorithm and optimizer: a run of each by turns, until so many workers were killed.

    seeds : runs without kills whose P@1 those with kills are compared with; 0 to count rows alone.
    """
    pairs = {f"workers: {text}, {optimizer}": (text, optimizer) for text in ALGORITHMS for optimizer in OPTIMIZERS}
    warnings.simplefilter("ignore", UserWarning)  # of lost workers
    for name, pair in pairs.items():
        without = [precision(trained(*pair, seed, counting=False, fatal=False)[0]) for seed in range(seeds)]
        found[name] = {"runs": 0, "P@1 without kills": without, "P@1 with kills": []}
    while (before := total(found, "workers")) < wanted and time.monotonic() < until:
        for name, pair in pairs.items():
            counts, seed = found[name], found[name]["runs"]
            add(counts, count_rows(*pair, seed))
            if seeds:
                params, n_kills, _ = trained(*pair, seed, counting=False)
                add(counts, {"kills": n_kills, "runs": 1, "P@1 with kills": [precision(params)]})
        if total(found, "workers") == before:
            raise RuntimeError("no worker was killed")
    for name in pairs if seeds else ():
        reached, known = np.array(found[name]["P@1 with kills"]), found[name]["P@1 without kills"]
        found[name]["P@1 below the range"] = int((reached < min(known)).sum())
        # The seeds do not reach the ends of their distribution: a range more is allowed.
        found[name]["P@1 too low: wrong"] = int((reached < 2 * min(known) - max(known) - 1).sum())


def total(found: Found, kind: str, what: str = "kills") -> int:
    """Return the kills of workers or of coordinators."""
    return sum(counts.get(what, 0) for name, counts in found.items() if name.startswith(kind))


def model_of_one(optimizer: str, seed: int, place: Path) -> bytes:
    """Train with one worker, with a checkpoint at each step; return the model's bytes."""
    data, (rule, rate) = learnable_rows(), OPTIMIZERS[optimizer]
    job, schedule = Job(data, network_of(data, False), rule, seed=seed), Schedule(2)
    run = train(job, Sequential(BATCH, rate), Serial([Reference()]), schedule, (), Checkpoint(place, 0))
    return run.params.tobytes() + run.state.tobytes() + str(run.updates).encode()


def marks_of_several(text: str, seed: int, place: Path) -> bytes:
    """Train an epoch with several workers and checkpoints; return how often each row is in the model, a byte each."""
    data, (rule, rate) = rows_of_their_own(), OPTIMIZERS["SGD"]
    executor = Processes([partial(Marking, place.parent, ())] * WORKERS)
    algorithm = with_kills(get_algorithm(text, BATCH, rate), Kills(executor, random.Random(0), 0), True)
    job = Job(data, network_of(data, True), rule, seed=seed)
    with forked_workers():
        run = train(job, algorithm, executor, Schedule(1, "constant", 0), (), Checkpoint(place, 0))
    return np.round(network_of(data, True).layout.views(run.params)["W0"][:, 0]).astype(np.uint8).tobytes()


def in_a_fork(run: Callable[[Path], bytes], place: Path, seconds: float) -> int:
    """Run in a copy of this process, killed after so many seconds; return its exit code, or minus the signal."""
    child = os.fork()
    if not child:
        code = 1
        try:
            tempfile.tempdir, shared_files.MEMORY = str(place / TEMPORARY), place / SHARED
            done = run(place / "checkpoint")
            (place / "model").write_bytes(done)
            code = 0
        finally:
            os._exit(code)
    until = time.monotonic() + seconds
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(ended[1])


def orphans_left() -> int:
    """Wait until the workers of a killed coordinator have ended, which come to this process; return those that stay."""
    until = time.monotonic() + ORPHANED
    while time.monotonic() < until:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.001)
        except ChildProcessError:
            return 0
    return 1


def kill_coordinators(found: Found, wanted: int, until: float) -> None:
    """Kill runs of one worker and of several at random times, and call them again until they end."""
    runs: dict[str, Callable[[Path], bytes]] = {name: partial(model_of_one, name, 0) for name in OPTIMIZERS}
    runs |= {text: partial(marks_of_several, text, 0) for text in ALGORITHMS if text != "sequential"}
    for name, run in runs.items():
        counts = found.setdefault(f"coordinators: {name}", {"kills": 0, "runs": 0})
        random_of = random.Random(name)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            for kind in (TEMPORARY, SHARED):
                (place / kind).mkdir()
            # Also imports what a run needs.
            expected = run(place / "first") if name in OPTIMIZERS else bytes([1] * N_ROWS)
            started = time.monotonic()
            in_a_fork(run, place, math.inf)
            usual = time.monotonic() - started
            Checkpoint(place / "checkpoint").remove()
            while counts["kills"] < wanted / len(runs) and time.monotonic() < until:
                while (code := in_a_fork(run, place, random_of.uniform(0, usual))) == -signal.SIGKILL:
                    add(counts, {"kills": 1, "processes left: wrong": orphans_left()})
                same = code == 0 and (place / "model").read_bytes() == expected
                add(counts, {"runs": 1, "exit code above 0: wrong": int(code != 0), "other bits: wrong": int(not same)})
                Checkpoint(place / "checkpoint").remove()
                left = sum(len(list((place / kind).iterdir())) for kind in (TEMPORARY, SHARED))
                add(counts, {"files left: wrong": left})


def wrong(results: Found) -> list[str]:
    """Return what went wrong."""
    return [
        f"{name}: {what}" for name, counts in results.items() for what, n in counts.items() if "wrong" in what and n
    ]


def table(results: Found, notes: list[str]) -> Table:
    """Return the counts as a table."""
    rows = []
    for name, counts in results.items():
        if name.startswith("workers"):
            spans = [
                f"{np.mean(known):.1f}, {min(known):.1f} to {max(known):.1f}" if known else ""
                for known in (counts["P@1 without kills"], counts["P@1 with kills"])
            ]
            rows.append([
                name.removeprefix("workers: "), str(counts["runs"]), str(counts["kills"]),
                str(counts["rows lost: wrong"]),
                f"{counts['rows counted again']} of {counts['rows of lost steps']}", *spans,
                str(counts.get("P@1 below the range", "")),
            ])  # fmt: skip
    columns = ("algorithm, optimizer", "runs", "kills", "rows lost", "counted again, of rows of lost steps",
               "P@1 without kills: mean, range", "with kills", "runs below")  # fmt: skip
    return Table("Kills of workers", columns, rows, notes)


def run(seconds: float, out: Path, short: bool = False) -> list[str]:
    """Kill as many as `WANTED` within about so many seconds, publish the counts, and return what went wrong.

    short : one run of each algorithm that counts rows, and two coordinators, however long that takes.
    """
    found, until = Found(), math.inf if short else time.monotonic() + seconds
    workers, coordinators = (1, 2) if short else WANTED
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    with forked_workers():
        kill_workers(found, workers, until, 0 if short else SEEDS)
    kill_coordinators(found, coordinators, until)
    counted = (
        f"{total(found, 'workers'):,} kills of workers; {total(found, 'coordinators'):,} of coordinators, whose "
        f"{total(found, 'coordinators', 'runs'):,} runs ended (no failure in n trials bounds the rate by 3/n, with "
        f"95 % confidence). Gone wrong: {'; '.join(wrong(found)) or 'nothing'}."
    )
    legend = (
        "Counted again: rows that are in the model more than once, and rows of the steps that were lost with workers, "
        f"the bound where workers share the model in place. P@1 without kills: that of {SEEDS} seeds. Half of the runs "
        "count rows, half P@1."
    )
    publish("kills", table(found, [counted, legend]), found, 1, out)
    return wrong(found)
