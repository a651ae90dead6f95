"""The folder that `train` leaves: the saved model, and beside its files how it came about."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .results import plain

if TYPE_CHECKING:
    from ..history import Record

HISTORY, CURVE, REPORT = "history.jsonl", "learning_curve.png", "train.json"
NO_MATPLOTLIB = 'not drawn, matplotlib is missing: pip install "xmlsgd[plot]"'


@contextmanager
def whole_folder(out: str) -> Iterator[Path]:
    """Give a name beside `out` to write a model folder under; rename it when all is written.

    An earlier folder steps aside first, since a rename needs an empty target, and comes back if the rename fails.
    """
    path = Path(os.path.realpath(out))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside, aside = (path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}{end}") for end in ("", "-old"))
    try:
        yield beside
        if path.exists():
            path.rename(aside)
        try:
            beside.rename(path)
        except OSError:
            if aside.exists():
                aside.rename(path)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_history(folder: Path, records: list[Record]) -> None:
    """Write a JSON line for each epoch."""
    (folder / HISTORY).write_text("".join(json.dumps(plain(record)) + "\n" for record in records))


def draw_curve(folder: Path, records: list[Record], title: str) -> bool:
    """Draw the learning curve; return whether there is one: not without matplotlib, and not of nothing."""
    from ..plots import plot_learning_curve

    try:
        plot_learning_curve(records, folder / CURVE, title)
    except ImportError:
        return False
    return True


def read_report(folder: str) -> dict[str, Any]:
    """Return what `train` told of its run; empty for a model that was saved otherwise."""
    try:
        report = json.loads((Path(folder) / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}
