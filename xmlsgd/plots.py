"""The learning curve of a run: loss by epoch, precision by training time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import whole_file
from .history import seconds_of_all_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .history import Record

MEASURES = ("P@1", "P@3", "P@5")


def plot_learning_curve(records: Sequence[Record], path: str | Path, title: str = "") -> Path:
    """Draw `records` (`History.records`) into an image file of the type of its suffix; return its path.

    The file appears whole or not at all. Raises `ImportError` without matplotlib (`pip install "xmlsgd[plot]"`), and
    `ValueError` without a record.
    """
    # No pyplot: it would choose a window system and keep every figure for the rest of the process.
    from matplotlib.figure import Figure

    if not records:
        raise ValueError("records: must hold at least one epoch, got none")
    path = Path(path)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    draw(figure, records)
    figure.suptitle(title or None)
    with whole_file(path) as stream:
        figure.savefig(stream, dpi=150, format=path.suffix[1:] or None)
    return path


def draw(figure: Any, records: Sequence[Record]) -> None:
    """Draw loss by epoch and, where it was measured, precision by seconds of all runs into a matplotlib figure."""
    timed = list(zip(seconds_of_all_runs(records), records, strict=True))
    measures = [name for name in MEASURES if any(name in record for record in records)]
    losses, *others = figure.subplots(1, 2 if measures else 1, squeeze=False)[0]
    losses.plot([record["epoch"] + 1 for record in records], [record["loss"] for record in records], "o-", color="C3")
    losses.set(xlabel="epoch", ylabel="training loss a row")
    losses.xaxis.get_major_locator().set_params(integer=True)
    for precision in others:
        for name in measures:
            measured = [(at, record[name]) for at, record in timed if name in record]
            precision.plot(*zip(*measured, strict=True), "o-", label=name)
        precision.set(xlabel="seconds of training", ylabel="percent")
        precision.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(measures), frameon=False)
    for panel in (losses, *others):
        panel.grid(alpha=0.3)
