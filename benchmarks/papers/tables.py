"""Every table of docs/papers.md: `python -m benchmarks.papers.tables --data FOLDER --seeds 5`; hours of one processor.

FOLDER has the data sets as folders of these names, each with train.txt and test.txt. The rows in the shape of a tenth
of Amazon-670K are made.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..amazon import PARTS, made
from ..report import RESULTS
from . import __main__ as experiments

ARTWORKS, DELICIOUS, TENTH = "tate-subjects-leaf", "delicious", "amazon-670k-tenth"
# By data set and experiment, what each run has of the command line of the experiments.
TABLES = (
    (ARTWORKS, "adaptive", "--scenarios S2 --rows 47175 --hidden 64 --epochs 4 --rates 3 10 30"),
    (ARTWORKS, "adaptive", "--scenarios S3 --rows 16000 --hidden 64 --epochs 8 --rates 10 30 100"),
    (DELICIOUS, "adaptive", "--scenarios S2 --rows 12000 --epochs 6 --batch 64 --rates 3 10"),
    (ARTWORKS, "hogbatch", "--rows 47175 --epochs 3 --batch 32 --rates 1 3 10"),
    (ARTWORKS, "crossbow", "--rows 6000 --epochs 4 --batch 64 --rates 1 3"),
    (DELICIOUS, "omnivore", "--rows 12000 --epochs 4 --batch 64 --rates 1 3"),
    (ARTWORKS, "omnivore", "--rows 6000 --epochs 4 --batch 64 --rates 1 3"),
    (DELICIOUS, "beyond", "--scenarios S1 S2 S3 S4 --rows 12000 --epochs 6 --batch 64 --rates 3 10"),
    (DELICIOUS, "beyond", "--scenarios S5 S6 S7 S8 --rows 12000 --epochs 6 --batch 64 --rates 3 10"),
    (ARTWORKS, "beyond", "--scenarios S1 --rows 6000 --epochs 8 --batch 64 --rates 1 3 10"),
    (DELICIOUS, "merges", "--scenarios S1 S2 S3 --rows 12000 --epochs 6 --batch 64 --rates 3 10"),
    (ARTWORKS, "merges", "--scenarios S1 --rows 6000 --epochs 8 --batch 64 --rates 1 3 10"),
    (ARTWORKS, "rounds", "--scenarios S1 --rows 6000 --epochs 8 --batch 64 --rates 3 6"),
    (DELICIOUS, "rounds", "--scenarios S1 S3 --rows 12000 --epochs 6 --batch 64 --rates 5 10"),
    (TENTH, "costs", "--rows 12000 --epochs 2 --batch 64 --rates 1"),
)
# Seconds of an update, a row and a feature at speed 1: of one thread of a processor with bfloat16, by data and width.
COSTS = {
    (ARTWORKS, 32): "1.14e-3 0 6.4e-7",
    (ARTWORKS, 64): "1.33e-3 0 1.07e-6",
    (DELICIOUS, 32): "1.48e-4 0 8.6e-8",
    (TENTH, 32): "6e-3 0 1.3e-6",
}
OF_ALL = "--test-rows 10000 --hidden 32 --threads 1"  # unless a table has others


def main(words: Sequence[str] | None = None) -> None:
    """Run all tables, or those of one experiment."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.tables", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=experiments.EXPERIMENTS, help="which experiments (all)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each method at its best rate (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS / "papers", help="where the tables go (%(default)s)")
    parser.add_argument("--work", type=Path, default=Path(".benchmarks"), help="intermediate files (%(default)s)")
    given = parser.parse_args(words)
    for data, experiment, settings in TABLES:
        if given.only and experiment not in given.only:
            continue
        folder = made(given.work / "data" / data, PARTS[data]) if data in PARTS else given.data / data
        where = ["--data", str(folder), "--out", str(given.out), "--only", experiment, "--seeds", str(given.seeds)]
        words = [*where, *OF_ALL.split(), *settings.split()]
        costs = COSTS[data, experiments.command_line().parse_args(words).hidden]
        experiments.main([*words, "--costs", *costs.split()])


if __name__ == "__main__":
    main()
