"""Updates that are lost when processes write one model without locks: `python -m benchmarks.conflicts --data FOLDER`.

A process reads a weight, adds its update and writes the sum; what another has written in between is lost. With the
gradients of `ConstantGradients` the exact sum of all updates is known, and what is missing from it was lost. All of it
is the work of the real kernels: rows, batches, order and times are those of training.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.loading import load_folder
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.base import Executor
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.job import Job, Start
from xmlsgd.training.loop import train

from .constant_gradients import ConstantGradients
from .report import RESULTS, Table, publish

RATE = 2.0**-12  # a power of two: sums of up to 2^24 updates are exact
BIAS = 1024.0  # of every label at the start: sigmoids are 1, whatever is learned
PARTS = {"W1": "output weights", "b1": "output biases", "W0": "input weights", "b0": "input biases"}


def lost_updates(data: Dataset, hidden: int, batch: int, executor: Executor) -> dict[str, tuple[float, float]]:
    """Train an epoch in place; return, for each tensor, the updates of its elements by single rows, and those lost."""
    n = data.n_rows - data.n_rows % batch
    rows = np.arange(n)
    X, Y = data.X.take(rows), data.Y.take(rows)
    X = CSR(X.indptr, X.indices, np.ones_like(X.data), X.n_cols)
    network = Network(X.n_cols, Y.n_cols, (hidden,), "bce")
    params = np.zeros(network.layout.size, np.float32)
    network.layout.views(params)["b1"][:] = BIAS
    start = Start(params, np.zeros(0, np.float32))
    weights = np.full(n, batch, np.float32)  # gradients are sums over the rows of a batch, not means
    job = Job(Dataset(X, Y), network, SGD(), sample_weight=weights, start=start)
    run = train(job, Hogwild(batch, RATE), executor, Schedule(1, "constant", 0))
    found = network.layout.views(run.params)
    found["b1"] = found["b1"] - BIAS
    by_feature, by_label = (np.bincount(part.indices, minlength=part.n_cols) for part in (X, Y))
    expected = {"W1": (n - by_label)[:, None], "b1": n - by_label, "W0": by_feature[:, None], "b0": np.array(n)}
    lost = {}
    for name in PARTS:
        made = np.broadcast_to(expected[name], found[name].shape).astype(float)
        lost[name] = float(made.sum()), float((made + found[name] / RATE).sum())
    return lost


def table(results: Mapping[str, Sequence[Mapping[str, tuple[float, float]]]]) -> Table:
    """Return the shares of lost updates of several rounds, by data set and batch."""
    rows = []
    for name, rounds in results.items():
        shares = {part: [100 * found[part][1] / found[part][0] for found in rounds] for part in PARTS}
        rows.append([name, *(f"{median(each):.4f} [{min(each):.4f}, {max(each):.4f}]" for each in shares.values())])
    note = "Median and range of the rounds. Processes that run at the same time lose most; other programs make it less."
    return Table("Updates lost without locks, % of all", ("data, rows of a batch", *PARTS.values()), rows, [note])


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conflicts", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders with train.txt")
    parser.add_argument("--rows", type=int, default=3000, help="rows at most (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--hidden", type=int, default=32, help="hidden units (%(default)s)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 128], help="rows of an update (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes (benchmarks/results)")
    given = parser.parse_args(words)
    results: dict[str, list[dict[str, tuple[float, float]]]] = {}
    for folder in given.data:
        data, _ = load_folder(folder)
        rows = np.arange(min(given.rows, data.n_rows))
        data = Dataset(data.X.take(rows), data.Y.take(rows))
        for batch in given.batches:
            name = f"{folder.resolve().name}, {batch}"
            results[name] = []
            for _ in range(given.rounds):
                executor = Processes([partial(ConstantGradients, 1)] * given.workers)
                results[name].append(lost_updates(data, given.hidden, batch, executor))
            print(name, results[name][-1], flush=True)
    publish("conflicts", table(results), results, given.workers, given.out)


if __name__ == "__main__":
    main()
