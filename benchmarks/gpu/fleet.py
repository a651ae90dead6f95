"""Several learners on a GPU, a GPU beside the CPU, and the time to an accuracy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from xmlsgd.algorithms.adaptive_hogbatch import AdaptiveHogbatch
from xmlsgd.algorithms.base import Algorithm
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import Dataset
from xmlsgd.data.synthetic import make_xmc
from xmlsgd.devices import get_device
from xmlsgd.estimators.inference import Measure
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Evaluation
from xmlsgd.training.executors.base import Executor
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

from ..amazon import AMAZON_670K
from .target import Target

LEARNERS = (1, 2, 4, 8)
CPU_THREADS = 8


def learners(target: Target) -> Iterator[list[dict[str, Any]]]:
    """Yield rows a second of 1 to 8 learners on one GPU where a step alone does not fill it."""
    n_rows, L = (64, 60) if target.shim else (20_000, 20_000)
    data = make_xmc(n_rows, 2 * L, L, nnz_per_row=20, labels_per_row=4)
    network, batch, results = Network(2 * L, L, (64,)), 16 if target.shim else 64, []
    for n in LEARNERS[: 2 if target.shim else None]:
        devices = [target.device() for _ in range(n)]
        executor = Threads(devices) if n > 1 else Serial(devices)
        algorithm = LocalSGD(batch, 1e-3) if n > 1 else Sequential(batch, 1e-3)
        results.append({"learners": n, **_run(Job(data, network, SGD()), algorithm, executor, epochs=1)})
        yield results


def mixed(target: Target) -> Iterator[list[dict[str, Any]]]:
    """Yield what the CPU adds to a GPU under Hogbatch, with fixed and with adaptive sizes; the GPU alone first.

    On a GPU the workers are processes, and a GPU's steps travel as differences.
    """
    n_rows, L = (64, 60) if target.shim else (60_000, 30_000)
    data = make_xmc(n_rows, 2 * L, L, nnz_per_row=30, labels_per_row=4)
    network, batch = Network(2 * L, L, (128,)), 16 if target.shim else 512
    both = ("cuda:0", "cpu")
    sizes, threads = (batch, max(batch // 16, 1)), (1, 1 if target.shim else CPU_THREADS)
    algorithms: dict[str, tuple[Algorithm, tuple[str, ...]]] = {
        "GPU alone": (Sequential(batch, 1e-3), both[:1]),
        "Hogbatch": (Hogbatch(batch, 1e-3, sizes=sizes, threads=threads), both),
        "Adaptive Hogbatch": (AdaptiveHogbatch(batch, 1e-3, threads=threads), both),
    }
    results = []
    for name, (algorithm, names) in algorithms.items():
        executor: Executor
        if target.shim or len(names) == 1:
            executor = Serial([target.device() if kind != "cpu" else get_device("cpu")(1, "auto") for kind in names])
        else:
            makers = [partial(get_device(kind), CPU_THREADS, "auto") for kind in names]
            executor = Processes(makers, [1, CPU_THREADS], shares_memory=[False, True])
        results.append({"algorithm": name, **_run(Job(data, network, SGD()), algorithm, executor, epochs=2)})
        yield results


def to_accuracy(target: Target, rows: int, hidden: int = 128) -> Iterator[dict[str, Any]]:
    """Yield P@1 and seconds after each epoch on synthetic rows of the shape of Amazon-670K; SGD's rows a second first.

    These are for comparing whole training with the steps of `steps`; the first epoch, which uploads data, is left out.
    """
    shape = {**AMAZON_670K, "n_rows": rows}
    if target.shim:
        shape |= {"n_rows": 120, "n_features": 200, "n_labels": 60, "nnz_per_row": 8, "labels_per_row": 2}
    begun = time.perf_counter()
    data = make_xmc(**shape)  # type: ignore[arg-type]
    made = time.perf_counter() - begun
    held = max(min(10_000, shape["n_rows"] // 10), 1)
    order = np.arange(shape["n_rows"])
    parts = [Dataset(data.X.take(part), data.Y.take(part)) for part in (order[held:], order[:held])]
    network = Network(data.n_features, data.n_labels, (hidden if not target.shim else 16,), "softmax")
    device = target.device()
    measure = Evaluation(Measure(parts[1], network, device))
    algorithm = Sequential(16 if target.shim else 1024, 6e-3)
    result = {"seconds_of_making": made, "rows": len(order) - held, "records": []}
    records = _run(Job(parts[0], network, SGD()), algorithm, Serial([target.device()]), 3)["records"]
    seconds = records[-1]["seconds"] - records[0]["seconds"]
    result["sgd_rows_per_second"] = (len(records) - 1) * parts[0].n_rows / max(seconds, 1e-9)
    yield result
    run = _run(Job(parts[0], network), algorithm, Serial([device]), 2 if target.shim else 5, [measure])
    yield {**result, **run}


def _run(job: Job, algorithm: Algorithm, executor: Executor, epochs: int, callbacks: Any = ()) -> dict[str, Any]:
    """Return rows a second, the records, and what each worker did."""
    run = train(job, algorithm, executor, Schedule(epochs), callbacks=callbacks)
    seconds = run.records[-1]["seconds"]
    return {
        "seconds": seconds,
        "rows_per_second": epochs * job.dataset.n_rows / max(seconds, 1e-9),
        "records": [{key: value for key, value in record.items() if key != "workers"} for record in run.records],
        "workers": run.workers,
    }
