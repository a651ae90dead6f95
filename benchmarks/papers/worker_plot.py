"""Plot the statistics of the workers of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmlsgd.training.history import EpochRecord
from xmlsgd.training.plots import save_figure


def plot_workers(records: Sequence[EpochRecord], path: str | Path, names: Sequence[str] = (), title: str = "") -> Path:
    """Plot batch sizes by epoch and utilisation of the workers of a run into an image file; return its path.

    `records` are those of a run of several workers; `names` are their names in order (default: numbers).
    """
    if not any("workers" in record for record in records):
        raise ValueError("records: must be those of a run of several workers, got none with workers")
    return save_figure(lambda figure: draw_workers(figure, records, names), path, title)


def draw_workers(figure: Any, records: Sequence[EpochRecord], names: Sequence[str]) -> None:
    """Draw batch sizes by epoch, if recorded, and the utilisation into a matplotlib figure."""
    told = [record for record in records if "workers" in record]
    workers = sorted({entry["worker"] for record in told for entry in record["workers"]})
    name = {w: names[w] if w < len(names) else f"worker {w}" for w in workers}
    sizes, shares = figure.subplots(1, 2)
    for w in workers:
        trace = [(r["epoch"] + 1, e["batch"]) for r in told for e in r["workers"] if e["worker"] == w and "batch" in e]
        sizes.plot([epoch for epoch, _ in trace], [size for _, size in trace], "o-", label=name[w])
    busy = [sum(e["busy"] for r in told for e in r["workers"] if e["worker"] == w) for w in workers]
    shares.bar(
        [name[w] for w in workers], [100 * b / told[-1]["seconds"] for b in busy], color=[f"C{w % 10}" for w in workers]
    )
    sizes.set(xlabel="epoch", ylabel="rows a batch", ylim=(0, None))
    sizes.xaxis.get_major_locator().set_params(integer=True)
    shares.set(ylabel="percent of the time at work", ylim=(0, 105))
    sizes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
    for panel in (sizes, shares):
        panel.grid(alpha=0.3)
