"""All data sets in one table: accuracy of each method on each, and mean ranks, to show who gains and who loses."""

from __future__ import annotations

import statistics
from typing import Any

from .report import Table
from .runs import SEEDS, Run, notes, title

RANKED = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")
REFERENCE = "pecos"  # whose training time is 1


def ranks_table(found: dict[str, list[Run]]) -> Table:
    """Return the table of the runs of each data set, best mean rank of P@1 first.

    A method without a run on a data set has no rank there, and its means are those of the others.
    """
    complete = {name: [run for run in runs if "failure" not in run] for name, runs in found.items()}
    methods = list(dict.fromkeys(title(run) for runs in complete.values() for run in runs))
    columns = ["method", *(f"{name}: P@1/3/5" for name in complete)]
    columns += [*(f"rank of {measure}" for measure in RANKED), "train time / PECOS"]
    ranks = {measure: _mean_ranks(complete, measure) for measure in RANKED}
    rows = []
    for method in sorted(methods, key=lambda method: ranks["P@1"][method]):
        runs = {name: next((run for run in runs if title(run) == method), None) for name, runs in complete.items()}
        times = [each for name, run in runs.items() if run and (each := _relative_time(run, complete[name]))]
        placed = [f"{ranks[measure][method]:.1f}" for measure in RANKED]
        time = f"{statistics.geometric_mean(times):.2f}" if times else "-"
        rows.append([method, *map(_accuracy, runs.values()), *placed, time])
    lines = [f"{name}: {note}" for name, runs in found.items() for note in notes(runs)]
    return Table("All data sets", columns, rows, ["Ranks from 1, the best, means over data sets.", *lines])


def _mean_ranks(found: dict[str, list[Run]], measure: str) -> dict[str, float]:
    """Return the mean rank of each method over the data sets; equal values share the better rank."""
    ranks: dict[str, list[int]] = {}
    for runs in found.values():
        for run in runs:
            better = sum(other["measures"][measure] > run["measures"][measure] for other in runs)
            ranks.setdefault(title(run), []).append(1 + better)
    return {method: statistics.fmean(each) for method, each in ranks.items()}


def _relative_time(run: Run, runs: list[Run]) -> float | None:
    """Return the training time over that of the reference on the same data set, None where that has not run."""
    reference: Any = next((each for each in runs if title(each) == REFERENCE), None)
    return run["train_seconds"] / reference["train_seconds"] if reference else None


def _accuracy(run: Run | None) -> str:
    """Return P@1/3/5, with the spread of P@1 over the seeds, half of its range."""
    if run is None:
        return "-"
    text = "/".join(f"{run['measures'][measure]:.1f}" for measure in RANKED[:3])
    return f"{text} ±{(max(run[SEEDS]) - min(run[SEEDS])) / 2:.1f}" if SEEDS in run else text
