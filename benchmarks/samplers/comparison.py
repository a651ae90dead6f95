"""Samplers of the output layer: what the network alone learns in equal epochs, and in which time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.errors import DataError
from xmlsgd.estimators.defaults import auto_rounding
from xmlsgd.estimators.inference import Scorer
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.samplers import ALL_LABELS, Batch, Sampler
from xmlsgd.nn.samplers.uniform import UniformNegatives
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

from ..peers.runner import BATCH, HIDDEN
from ..plan import RATE, Plan
from ..prepare import prepared_shape
from ..report import Table, publish
from ..runs import measures
from .hard import HardNegatives
from .lsh import LSH

NEGATIVES = 1024
SAMPLERS: dict[str, Sampler] = {
    "all labels": ALL_LABELS,
    "true labels of the batch alone": UniformNegatives(0),
    f"{NEGATIVES} drawn evenly": UniformNegatives(NEGATIVES),
    f"{NEGATIVES // 2} hard ones by clusters, {NEGATIVES // 2} evenly": HardNegatives(NEGATIVES),
    f"{NEGATIVES} hard ones by clusters": HardNegatives(NEGATIVES, hard=1.0),
    "LSH, SimHash 9 x 50, 32 a row": LSH(),
    "LSH, SimHash 9 x 50, 32 a row, most frequent": LSH(frequent=True),
    "LSH, DWTA 4 x 50, 32 a row": LSH("dwta", hashes=4),
    "LSH, DWTA 4 x 50, 32 a row, most frequent": LSH("dwta", hashes=4, frequent=True),
}


@dataclass(frozen=True, eq=False)
class Counted(Sampler):
    """A sampler whose labels are counted in `sizes`, one entry a batch."""

    inner: Sampler
    sizes: list[int]

    def begin(self, Y: CSR, seed: int) -> Sampler:
        """Begin the inner one."""
        return Counted(self.inner.begin(Y, seed), self.sizes)

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Count what the inner one draws."""
        drawn = self.inner.draw(batch)
        self.sizes.append(batch.Y.n_cols if drawn is None else len(drawn))
        return drawn


def samplers(prepared: Path, plan: Plan) -> None:
    """Train with every sampler; print and write the table of one data set."""
    X, Y, X_test = (CSR.from_scipy(sp.load_npz(prepared / f"{name}.npz")) for name in ("X.trn", "Y.trn", "X.tst"))
    rows, device = Dataset(X, Y), CPU(plan.threads)
    most = max(getattr(sampler, "negatives", 0) for sampler in SAMPLERS.values())
    if rows.n_labels <= most:  # all samplers would train all labels
        raise DataError(f"{prepared.name}: must have more than {most} labels, the negatives, got {rows.n_labels}")
    found: dict[str, dict[str, Any]] = {}
    train_with(UniformNegatives(1), Dataset(X.span(0, 1000), Y.span(0, 1000)), device, 1)  # loads the kernels
    for name, sampler in SAMPLERS.items():
        params, seconds, size = train_with(sampler, rows, device, plan.epochs)
        labels, _ = Scorer(network_of(rows), params, device).top_k(X_test, 5)
        found[name] = {"train_seconds": seconds, "labels_per_batch": size, "measures": measures(prepared, labels)}
        print(f"{name}: P@1 {found[name]['measures']['P@1']:.2f} in {seconds:.1f} s", flush=True)
    result = {"shape": prepared_shape(prepared), "epochs": plan.epochs, "samplers": found}
    publish(f"samplers-{prepared.name}", table(prepared.name, found, plan.epochs), result, plan.threads, plan.out)


def train_with(
    sampler: Sampler, rows: Dataset, device: CPU, epochs: int, hidden: int = HIDDEN, batch: int = BATCH,
    rate: float = RATE,
) -> tuple[np.ndarray, float, float]:  # fmt: skip
    """Return the model of a run, its seconds and the mean number of labels a batch."""
    sizes: list[int] = []
    with device.start():
        start = time.perf_counter()
        job = Job(rows, network_of(rows, hidden), sampler=Counted(sampler, sizes))
        run = train(job, Sequential(batch, rate), Serial([device]), Schedule(epochs))
        return run.params, time.perf_counter() - start, float(np.mean(sizes))


def network_of(rows: Dataset, hidden: int = HIDDEN) -> Network:
    """Return the network that all samplers train, by gradients rounded as the classifier would."""
    rounding = auto_rounding(rows.n_labels, "bce", Adam(), ["cpu"])
    return Network(rows.n_features, rows.n_labels, (hidden,), gradient_rounding=rounding)


def table(name: str, found: dict[str, dict[str, Any]], epochs: int) -> Table:
    """Return the table, in the order of `SAMPLERS`."""
    names = [f"{measure}@{k}" for measure in ("P", "PSP") for k in (1, 3, 5)]
    rows = [
        [
            sampler,
            *(f"{run['measures'][measure]:.2f}" for measure in names),
            f"{run['train_seconds']:.1f}",
            f"{run['labels_per_batch']:,.0f}",
        ]
        for sampler, run in found.items()
    ]
    title = f"Samplers on {name}: the network alone, {HIDDEN} hidden units, {epochs} epochs"
    return Table(title, ["labels of a batch, besides its true ones", *names, "train s", "labels a batch"], rows)
