"""Prediction by the models of the whole runs: of all test rows, and of one row at a time on one thread.

The five best labels, and for xmlsgd also 20 and 100.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .peers.runner import MORE_K, K
from .plan import Plan
from .prepare import prepared_shape
from .report import Table, per_second, publish
from .runs import Run, notes, title, whole_runs


def prediction(prepared: Path, plan: Plan) -> None:
    """Print and write the table of one data set; runs that exist are reused, others are made."""
    runs = whole_runs(prepared, replace(plan, reuse=True))
    result = {"shape": prepared_shape(prepared), "runs": runs}
    publish(f"prediction-{prepared.name}", table(prepared.name, runs), result, plan.threads, plan.out)


def rate(run: Run, k: int = K) -> float:
    """Return rows a second, the median pass; with other k the only one."""
    return float(run["test_rows"] / (run["predict_seconds"] if k == K else run["predict_seconds_by_k"][str(k)]))


def table(name: str, runs: list[Run]) -> Table:
    """Return the table, fastest first."""
    found = sorted((run for run in runs if "failure" not in run), key=rate, reverse=True)
    best = max((rate(run) for run in found if run["peer"] != "ours"), default=None)
    rows = [
        [
            title(run),
            per_second(rate(run)),
            f"{rate(run) / best:.2f}" if best else "",
            *(per_second(rate(run, k)) if str(k) in run.get("predict_seconds_by_k", {}) else "" for k in MORE_K),
            f"{run['measures']['P@1']:.2f}",
            str(len(run["predict_passes"])),
            milliseconds(run, "single_row_seconds"),
            milliseconds(run, "single_row_seconds_90"),
        ]
        for run in found
    ]
    more = [f"rows/s, top {k}" for k in MORE_K]
    columns = ["method", "rows/s", "times the fastest peer", *more, "P@1", "passes", "ms a single row"]
    columns.append("of 90 %, at most")
    return Table(f"Top 5 of the test rows of {name}, as a batch and one by one", columns, rows, notes(runs))


def milliseconds(run: Run, name: str) -> str:
    """Return seconds that a run measured as milliseconds, nothing for a run made before they were."""
    return f"{1e3 * run[name]:.3f}" if name in run else ""
