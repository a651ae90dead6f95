"""What each method reaches, and at which cost: whole runs of ours and of every peer on one data set."""

from __future__ import annotations

from pathlib import Path

from .compilation import first_run_seconds
from .plan import Plan
from .prepare import prepared_shape
from .report import Table, megabytes, per_second, publish
from .runs import Run, notes, title, whole_runs

MEASURES = tuple(f"{name}@{k}" for name in ("P", "nDCG", "PSP") for k in (1, 3, 5) if (name, k) != ("nDCG", 1))
COSTS = ("train s", "top-5 rows/s", "peak MB", "model MB")


def accuracy(prepared: Path, plan: Plan) -> None:
    """Run everybody, print and write the table of one data set."""
    compiling = first_run_seconds(plan.threads)
    runs = whole_runs(prepared, plan)
    result = {"shape": prepared_shape(prepared), "first_run_compile_seconds": compiling, "runs": runs}
    publish(f"accuracy-{prepared.name}", table(prepared.name, runs, compiling), result, plan.threads, plan.out)


def table(name: str, runs: list[Run], compiling: float) -> Table:
    """Return the table, best P@1 first."""
    found = sorted((run for run in runs if "failure" not in run), key=lambda run: -run["measures"]["P@1"])
    said = [
        f"xmlsgd's kernels were compiled before; on a machine's first run this takes {compiling:.0f} s, once.",
        "nDCG@1 is P@1.",
        *notes(runs),
    ]
    rows = [row(run, _costs(run)) for run in found]
    return Table(f"Accuracy and cost on {name}", ["method", *MEASURES, *COSTS], rows, said)


def row(run: Run, costs: list[str]) -> list[str]:
    """Return a row of a table: the method, `MEASURES` in percent, then its costs."""
    return [title(run), *(f"{run['measures'][measure]:.2f}" for measure in MEASURES), *costs]


def _costs(run: Run) -> list[str]:
    return [
        f"{run['train_seconds']:,.1f}",
        per_second(run["test_rows"] / run["predict_seconds"]),
        megabytes(run["peak_memory_bytes"]),
        megabytes(run["model_bytes"]),
    ]
