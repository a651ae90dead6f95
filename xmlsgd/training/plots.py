"""Plot the learning curve of a run, and the curves of several runs over time.

Files are written atomically. All functions raise `ImportError` without matplotlib (`pip install "xmlsgd[plot]"`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.files.atomic import atomic_file
from ..errors import DataError
from .history import EpochRecord, models_of, seconds_of_all_runs

MEASURES = ("P@1", "P@3", "P@5")
STYLES = ("-", "--", ":", "-.")  # tell more than ten methods apart, as there are ten colours


def plot_learning_curve(records: Sequence[EpochRecord], path: str | Path, title: str = "") -> Path:
    """Plot one or more epoch records (`History.records`) into an image file of its suffix's type; return its path."""
    return save_figure(lambda figure: draw(figure, records), path, title)


def plot_over_time(
    runs: Mapping[str, Sequence[Sequence[EpochRecord]]], path: str | Path, measure: str = "P@1", title: str = ""
) -> Path:
    """Plot a metric over time for several methods into one image file; return its path.

    `runs` holds the runs of each method, for example one per seed, as records with "seconds" and the metric. Runs of
    one method have the same colour. Raises `ValueError` if there is nothing to draw.
    """
    if not any(len(run) for of_method in runs.values() for run in of_method):
        raise ValueError("runs: must hold at least one record, got none")
    return save_figure(lambda figure: draw_over_time(figure, runs, measure), path, title)


def check_suffix(path: str | Path) -> None:
    """Raise `DataError` if matplotlib cannot write files of this type."""
    from matplotlib.figure import Figure

    known = sorted(Figure().canvas.get_supported_filetypes())
    if (suffix := Path(path).suffix[1:].lower()) and suffix not in known:
        raise DataError(f"{path}: must end in one of .{', .'.join(known)}, got .{suffix}")


def save_figure(draw_into: Callable[[Any], None], path: str | Path, title: str) -> Path:
    """Draw a matplotlib figure by `draw_into` and write it to a file of the type of the suffix; return its path."""
    # Not pyplot, which would choose a window system and keep every figure alive.
    from matplotlib.figure import Figure

    path = Path(path)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    draw_into(figure)
    figure.suptitle(title or None)
    with atomic_file(path) as stream:
        figure.savefig(stream, dpi=150, format=path.suffix[1:] or None)
    return path


def draw(figure: Any, records: Sequence[EpochRecord]) -> None:
    """Draw the loss per epoch and, if it was measured, the precision over time into a matplotlib figure."""
    timed = [{**record, "at": at} for at, record in zip(seconds_of_all_runs(records), records, strict=True)]
    measures = [name for name in MEASURES if any(name in record for record in records)]
    losses, *others = figure.subplots(1, 2 if measures else 1, squeeze=False)[0]
    for model in models_of(records):
        losses.plot([record["epoch"] + 1 for record in model], [record["loss"] for record in model], "o-", color="C3")
    losses.set(xlabel="epoch", ylabel="training loss a row")
    losses.xaxis.get_major_locator().set_params(integer=True)
    for precision in others:
        for i, name in enumerate(measures):
            for j, model in enumerate(models_of([record for record in timed if name in record])):
                measured = [(record["at"], record[name]) for record in model]
                precision.plot(*zip(*measured, strict=True), "o-", color=f"C{i}", label=None if j else name)
        precision.set(xlabel="seconds of training", ylabel="percent, by the network alone")
        precision.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(measures), frameon=False)
    for panel in (losses, *others):
        panel.grid(alpha=0.3)


def draw_over_time(figure: Any, runs: Mapping[str, Sequence[Sequence[EpochRecord]]], measure: str) -> None:
    """Draw a metric over time into a matplotlib figure, one line per run."""
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
