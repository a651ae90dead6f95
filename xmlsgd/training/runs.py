"""The result of a run: the model and its records; attached to the error if one ended the run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import WorkerDied
from .worker_log import summary

if TYPE_CHECKING:
    import numpy as np

    from .history import EpochRecord


@dataclass
class Run:
    """The result of `train`.

    Attributes
    ----------
    params : ndarray of shape (n_params,), float32
        The model.
    records : list of dict
        One record per epoch.
    state : ndarray, float32
        The optimizer state, for a later run (`Start`).
    steps : int
        Updates that the optimizer state has seen.
    diverged : bool, default=False
        Whether the loss diverged; `params` is then the last good model.
    """

    params: np.ndarray
    records: list[EpochRecord]
    state: np.ndarray
    steps: int
    diverged: bool = False

    @property
    def workers(self) -> list[EpochRecord]:
        """Summary of each of several workers (`worker_log.summary`)."""
        return summary(self.records)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` is the result so far."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run,)


class WorkersLost(WorkerDied):
    """All workers died during a run; `run` is the result so far."""

    run: Run  # not an argument, so that the error pickles


def whole_epochs(n: int) -> str:
    """Return "1 whole epoch" or "2 whole epochs"."""
    return f"{n} whole epoch{'s' * (n != 1)}"


def raise_with(error: BaseException, run: Run) -> NoReturn:
    """Raise the error that ended a run, with the result so far as its `run`.

    `KeyboardInterrupt` becomes `Interrupted` and `WorkerDied` becomes `WorkersLost`.
    """
    if isinstance(error, KeyboardInterrupt):
        raise Interrupted(run) from error
    ending: Any = WorkersLost(error.what, error.traceback) if isinstance(error, WorkerDied) else error
    ending.run = run
    add_hint(ending, f"what was learned until then is kept, {whole_epochs(len(run.records))} of this run")
    if ending is error:
        raise ending
    raise ending from error


def run_of(error: BaseException) -> Run | None:
    """Return the result attached to the error that ended a run, or None."""
    run = getattr(error, "run", None)
    return run if isinstance(run, Run) else None


def add_hint(error: BaseException, hint: str) -> None:
    """Add a hint to an error that ended a run: to the text of `WorkersLost`, else as a note (from Python 3.11).

    `KeyboardInterrupt` needs none.
    """
    if isinstance(error, WorkersLost):
        error.what += f"; {hint}"
    elif sys.version_info >= (3, 11) and not isinstance(error, KeyboardInterrupt):
        error.add_note(hint)
