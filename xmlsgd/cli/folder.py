"""The folder that `train` leaves: the saved model, and beside its files how it came about."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import CURVE, HISTORY, MANIFEST, REPORT, parents_made
from ..training.history import History
from .results import plain

if TYPE_CHECKING:
    from argparse import Namespace

    from ..training.checkpoints import Checkpoint
    from ..training.history import EpochRecord


@contextmanager
def growing_history(out: str) -> Iterator[History]:
    """Give a `History` that writes its lines to `OUT.history.jsonl`, since the folder itself comes at the end.

    The file goes when the folder is there, whose lines say the same, and where no epoch was finished. It stays behind
    where the process is killed or the folder cannot be written.
    """
    path = Path(f"{Path(out)}.{HISTORY}")
    history = History(path)
    with parents_made(path):
        try:
            yield history
        except BaseException:
            if not history.records:
                path.unlink(missing_ok=True)
            raise
    path.unlink(missing_ok=True)


def checkpoint_of(args: Namespace) -> Checkpoint | None:
    """Return the checkpoint of a run, `OUT.checkpoint`, which is in order; None where none is asked for."""
    from ..training.checkpoints import Checkpoint, read_saved

    path, minutes = f"{Path(args.out)}.checkpoint", getattr(args, "checkpoint", None)
    if minutes is None:
        if Checkpoint(path).exists:
            text = f"{path} has what a run had learned that was cut short"
            warnings.warn(f"{text}; with --checkpoint the same call goes on from there", stacklevel=2)
        return None
    checkpoint = Checkpoint(path, minutes, keep=True)
    if args.n_estimators > 1:
        checkpoint.check_parts()
    else:
        read_saved(checkpoint, verify=False)
    return checkpoint


def name_of_interrupted(out: str, goes_on: bool = False) -> str:
    """Return where the model of an interrupted run goes: `out`, unless that has a model, which might be the better.

    Then, and where the run is to go on, which needs `out`, `OUT.interrupted`, or with a number the first such name that
    is free.
    """
    if not (goes_on or Path(out, MANIFEST).is_file()):
        return out
    beside = f"{Path(out)}.interrupted"
    numbered = (f"{beside}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([beside], numbered) if not os.path.lexists(name))


def write_history(folder: Path, records: list[EpochRecord]) -> None:
    """Write a JSON line for each epoch."""
    (folder / HISTORY).write_text("".join(json.dumps(plain(record)) + "\n" for record in records))


def draw_curve(folder: Path, records: list[EpochRecord], title: str) -> str | None:
    """Draw the learning curve; return why there is none, None where there is one."""
    from ..training.plots import plot_learning_curve

    if not records:
        return "not drawn, no epoch was finished"
    try:
        plot_learning_curve(records, folder / CURVE, title)
    except ImportError:
        return 'not drawn, matplotlib is missing: pip install "xmlsgd[plot]"'
    except Exception as error:  # noqa: BLE001 (whatever it is, what was learned must not be lost for its picture)
        (folder / CURVE).unlink(missing_ok=True)
        return f"not drawn, {type(error).__name__}: {error}"
    return None


def training_of(folder: str, ends: list[EpochRecord]) -> dict[str, Any]:
    """Return "train_seconds" and "rows_per_second" of a model's last runs, by its report or else by `ends`.

    Those are the last record of the model, or of each classifier of an ensemble.
    """
    try:
        report = json.loads((Path(folder) / REPORT).read_text(encoding="utf-8"))
        return {name: report[name] for name in ("train_seconds", "rows_per_second")}
    except (OSError, ValueError, TypeError, LookupError, RecursionError):  # saved by the estimator, or altered
        return speed_of(ends)


def speed_of(ends: list[EpochRecord], behind: float = 0.0) -> dict[str, Any]:
    """Return the seconds of the runs that end with these records, `behind` more, and the rows trained on a second."""
    rows, seconds = (sum(end.get(name, 0) for end in ends) for name in ("rows", "seconds"))
    return {"train_seconds": seconds + behind, "rows_per_second": rows / max(seconds + behind, 1e-9)}
