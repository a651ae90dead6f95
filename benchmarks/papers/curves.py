"""Plot the curves of several runs over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xmlsgd.training.history import EpochRecord
from xmlsgd.training.plots import save_figure

STYLES = ("-", "--", ":", "-.")  # for more than ten methods, the number of colours


def plot_over_time(
    runs: Mapping[str, Sequence[Sequence[EpochRecord]]], path: str | Path, measure: str = "P@1", title: str = ""
) -> Path:
    """Plot a metric over time for several methods into one image file; return its path.

    `runs` has the runs of each method, such as those of several seeds: records with "seconds" and the metric. Runs of
    a method share a colour.
    """
    if not any(len(run) for of_method in runs.values() for run in of_method):
        raise ValueError("runs: must hold at least one record, got none")
    return save_figure(lambda figure: draw_over_time(figure, runs, measure), path, title)


def draw_over_time(figure: Any, runs: Mapping[str, Sequence[Sequence[EpochRecord]]], measure: str) -> None:
    """Draw a metric by seconds, a line per run, into a matplotlib figure."""
    panel = figure.subplots()
    for i, (method, of_method) in enumerate(runs.items()):
        for j, run in enumerate(of_method):
            measured = [record for record in run if measure in record]
            seconds, values = [r["seconds"] for r in measured], [r[measure] for r in measured]
            style = {"marker": ".", "lw": 1, "color": f"C{i % 10}", "ls": STYLES[i // 10 % 4]}
            panel.plot(seconds, values, label=None if j else method, **style)
    panel.set(xlabel="seconds", ylabel=measure)
    panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    panel.grid(alpha=0.3)
