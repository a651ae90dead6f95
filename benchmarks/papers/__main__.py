"""Repeat the papers' experiments on simulated devices: `python -m benchmarks.papers --data FOLDER --out FOLDER`.

Tables are written as Markdown and JSON, curves as PNG. `--quick` takes minutes and shows that all works, no more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xmlsgd.data.csr import Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.estimators.defaults import input_scale
from xmlsgd.estimators.inference import Measure
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import get_optimizer
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.scenarios import SCENARIOS
from xmlsgd.training.executors.virtual_device import VirtualDevice, measure_device
from xmlsgd.training.job import Job
from xmlsgd.training.simulation import Experiment

from ..prepare import train_and_test, unit_rows
from ..report import RESULTS
from .adaptive import adaptive
from .beyond import beyond
from .costs import costs
from .crossbow import crossbow
from .hogbatch import hogbatch
from .merges import merges, rounds
from .omnivore import omnivore
from .study import Study

EXPERIMENTS = {
    "adaptive": adaptive, "hogbatch": hogbatch, "crossbow": crossbow, "omnivore": omnivore, "beyond": beyond,
    "costs": costs, "merges": merges, "rounds": rounds,
}  # fmt: skip
# One thread: so small steps do not feed two.
QUICK = {
    "rows": 3000,
    "test_rows": 300,
    "hidden": 32,
    "epochs": 3,
    "batch": 64,
    "seeds": 1,
    "rates": [3.0],
    "threads": 1,
}


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, help="which experiments (all)")
    parser.add_argument(
        "--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="of unequal devices (all)"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt and test.txt")
    parser.add_argument("--out", type=Path, default=RESULTS / "papers", help="where the tables go (%(default)s)")
    parser.add_argument("--rows", type=int, default=40_000, help="training rows at most (%(default)s)")
    parser.add_argument("--test-rows", type=int, default=2000, help="measured rows at most (%(default)s)")
    parser.add_argument("--hidden", type=int, default=128, help="hidden units (%(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the rows (%(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="rows of the largest batch (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method at its best rate (%(default)s)")
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="the grid (%(default)s)")
    parser.add_argument("--optimizer", default="sgd", help="of every worker (%(default)s)")
    parser.add_argument("--loss", default="softmax", help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of the arithmetic (%(default)s)")
    parser.add_argument("--bandwidth", type=float, default=20, help="GB a second of a merge (%(default)s)")
    parser.add_argument(
        "--costs", type=float, nargs=3, help="s an update, a row and a feature at speed 1 (this machine's)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes for all of these, minutes in all")
    return parser


def at_most(dataset: Dataset, most: int) -> Dataset:
    """Return at most `most` random rows, scaled to length one."""
    rows = np.sort(np.random.default_rng(0).permutation(dataset.n_rows)[:most])
    return Dataset(unit_rows(dataset.X.take(rows)), dataset.Y.take(rows))


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    args = command_line().parse_args(words)
    if args.quick:
        vars(args).update(QUICK)
    train, test = train_and_test(args.data)
    train, test = at_most(train, args.rows), at_most(test, args.test_rows)
    network = Network(
        train.n_features, train.n_labels, (args.hidden,), args.loss, input_scale=input_scale(train.X)
    )  # fmt: skip
    device, optimizer = CPU(args.threads), get_optimizer(args.optimizer)
    job, schedule = Job(train, network, optimizer), Schedule(args.epochs, "constant", 0.05)
    experiment = Experiment(job, schedule, device, Measure(test, network, device), bandwidth=1e9 * args.bandwidth)
    args.out.mkdir(parents=True, exist_ok=True)
    with device.start():
        base = VirtualDevice(*args.costs) if args.costs else measure_device(job, device)
        study = Study(
            experiment, base, args.batch, args.rates, args.seeds, args.threads, args.out, args.data.resolve().name,
            args.scenarios,
        )  # fmt: skip
        for name in args.only or EXPERIMENTS:
            EXPERIMENTS[name](study)
    return 0


if __name__ == "__main__":
    sys.exit(main())
