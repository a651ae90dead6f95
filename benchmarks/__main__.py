"""Measure xmlsgd and its peers side by side: `python -m benchmarks all --data FOLDER`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from xmlsgd.algorithms import algorithm_names

from .ablation import ablation
from .accuracy import accuracy
from .amazon import amazon
from .environments import DEFAULT_ROOT, PEERS, install_all
from .frontier import frontier
from .launch import Launcher
from .memory import memory
from .parsing import parsing
from .plan import Plan
from .prediction import prediction
from .prepare import prepare
from .ranks import ranks_table
from .report import RESULTS, publish
from .samplers.comparison import samplers
from .scaling import scaling
from .throughput import VARIANTS, throughput
from .workers import ALONE, workers

# Those of `all`, in order: what reads the runs of another comes after it.
TABLES = {
    "throughput": throughput,
    "accuracy": accuracy,
    "prediction": prediction,
    "memory": memory,
    "workers": workers,
}
# What `all` leaves out.
OTHERS = {"samplers": samplers}
NAMES = [name for name in algorithm_names() if name != ALONE]
WHAT = ("all", *TABLES, *OTHERS, "frontier", "ablation", "parsing", "amazon", "scaling", "install")


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="folders with train.txt and test.txt")
    parser.add_argument("--envs", type=Path, default=DEFAULT_ROOT, help="environments of the peers (%(default)s)")
    parser.add_argument("--work", type=Path, default=Path(".benchmarks"), help="intermediate files (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the tables go (benchmarks/results)")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="of everybody (2); several of scaling")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds a run of a peer may take (%(default)g)")
    parser.add_argument("--rounds", type=int, default=3, help="of throughput and parsing (%(default)s)")
    parser.add_argument("--steps", type=int, default=128, help="of training in a round (%(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="of workers, samplers (%(default)s)")
    parser.add_argument("--algorithms", nargs="+", default=[], choices=NAMES, metavar="NAME", help="of workers (all)")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, help="of PyTorch, for throughput (all)")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PEER[:SETTING]", help="of whole runs")
    parser.add_argument("--parameters", type=json.loads, default={}, help="of XMLClassifier, as JSON")
    parser.add_argument("--reuse", action="store_true", help="take whole runs, and those of workers, of earlier calls")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each method, of which the mean is told (1)")
    parser.add_argument("--torch-index", help="pip index of PyTorch's CPU wheels, for install")
    return parser


def main() -> int:
    """Measure what the command line asks for; return 1 where a peer could not be installed."""
    parser = command_line()
    args = parser.parse_args()
    if args.what == "install":
        return 0 if len(install_all(args.envs, list(PEERS), args.torch_index)) == len(PEERS) else 1
    if not args.data and args.what != "amazon":  # which makes its own
        parser.error("--data: name at least one folder")
    if len(args.threads) > 1 and args.what != "scaling":
        parser.error("--threads: only scaling takes several numbers")
    plan = Plan(
        Launcher(args.envs, args.threads[0], args.timeout), args.work, args.out, args.rounds, args.steps,
        tuple(args.variants) if args.variants else None, tuple(args.peers), args.parameters, args.reuse, args.epochs,
        tuple(args.algorithms), args.seeds,
    )  # fmt: skip
    if args.what == "amazon":
        amazon(plan)
    if args.what == "frontier":
        runs = {folder.name: frontier(folder, plan) for folder in (prepare(source, args.work) for source in args.data)}
        publish("frontier", ranks_table(runs), runs, plan.threads, plan.out)
    if args.what == "ablation":
        ablation([prepare(source, args.work) for source in args.data], plan)
    if args.what == "scaling":
        for source in args.data:
            scaling(source, plan, args.threads)
        return 0
    for source in args.data:
        tables = TABLES if args.what == "all" else {**TABLES, **OTHERS}
        for name in tables if args.what == "all" else {args.what} & tables.keys():
            tables[name](prepare(source, args.work), plan)
        if args.what in ("all", "parsing"):
            parsing(source, plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
