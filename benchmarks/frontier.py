"""Accuracy against training time, model size and prediction time: several of our settings beside the peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from xmlsgd.training.plots import save_figure

from .accuracy import MEASURES, row
from .plan import Plan
from .prepare import prepared_shape
from .report import Table, megabytes, publish
from .runs import Run, notes, title, whole_runs

METHODS = (
    "ours:fast", "ours", "ours:network", "ours:accurate", "pecos", "pecos:man", "napkinxc", "omikuji", "omikuji:bonsai",
)  # fmt: skip
MARKERS = "os^Dv*Px"

# The axes of the panels: what a run costs.
COSTS: dict[str, Callable[[Run], float]] = {
    "seconds of training": lambda run: float(run["train_seconds"]),
    "model, MB": lambda run: run["model_bytes"] / 1e6,
    "prediction, ms a row": lambda run: 1e3 * run["predict_seconds"] / run["test_rows"],
}


def frontier(prepared: Path, plan: Plan) -> list[Run]:
    """Run everybody and return the runs; print and write the table of one data set, and its plot with matplotlib."""
    runs = whole_runs(prepared, replace(plan, peers=plan.peers or METHODS))
    result = {"shape": prepared_shape(prepared), "runs": runs}
    publish(f"frontier-{prepared.name}", table(prepared.name, runs), result, plan.threads, plan.out)
    found = [run for run in runs if "failure" not in run]
    try:
        save_figure(lambda figure: draw(figure, found), plan.out / f"frontier-{prepared.name}.png", prepared.name)
    except ImportError:
        print('No plot: matplotlib is missing; pip install "xmlsgd[plot]"', flush=True)
    return runs


def table(name: str, runs: list[Run]) -> Table:
    """Return the table, fastest training first."""
    found = sorted((run for run in runs if "failure" not in run), key=lambda run: float(run["train_seconds"]))
    columns = ["method", *MEASURES, "train s", "ms a row", "model MB", "peak MB"]
    return Table(f"Accuracy against cost on {name}", columns, [row(run, _costs(run)) for run in found], notes(runs))


def draw(figure: Any, runs: list[Run]) -> None:
    """Draw P@1 by each cost into a matplotlib figure: a colour a method, a marker a setting, a line the best."""
    from matplotlib.ticker import LogLocator, NullFormatter

    peers = list(dict.fromkeys(run["peer"] for run in runs))
    panels = figure.subplots(1, len(COSTS), sharey=True)
    for panel, (name, cost) in zip(panels, COSTS.items(), strict=True):
        points = [(cost(run), run["measures"]["P@1"]) for run in runs]
        panel.plot(*zip(*undominated(points), strict=True), ls=":", color="grey", drawstyle="steps-post", zorder=0)
        seen: dict[str, int] = {}
        for run, point in zip(runs, points, strict=True):
            nth = seen[run["peer"]] = seen.get(run["peer"], -1) + 1
            color = f"C{peers.index(run['peer']) % 10}"
            panel.plot(*point, MARKERS[nth % len(MARKERS)], color=color, label=title(run))
        panel.set(xlabel=name, xscale="log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.3, which="both")
    panels[0].set(ylabel="P@1")
    panels[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def undominated(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (cost, accuracy) for which none is as cheap and better, cheapest first."""
    best: list[tuple[float, float]] = []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or accuracy > best[-1][1]:
            best.append((cost, accuracy))
    return best


def _costs(run: Run) -> list[str]:
    seconds, size, milliseconds = (cost(run) for cost in COSTS.values())
    return [f"{seconds:,.1f}", f"{milliseconds:.3f}", f"{size:,.0f}", megabytes(run["peak_memory_bytes"])]
