"""The result of a run: the model and its records; attached to the error if one ended the run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from .history import EpochRecord
from .worker_log import summary


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
    n_undone : int, default=0
        Number of records after the best epoch, whose model early stopping has restored.
    """

    params: np.ndarray
    records: list[EpochRecord]
    state: np.ndarray
    steps: int
    diverged: bool = False
    n_undone: int = 0

    @property
    def workers(self) -> list[EpochRecord]:
        """Summary of each of several workers (`worker_log.summary`)."""
        return summary(self.records)


def attach_run(error: Any, run: Run) -> None:
    """Attach the result so far to the error that ended a run."""
    error.run = run


def run_of(error: BaseException) -> Run | None:
    """Return the result attached to the error that ended a run, or None."""
    run = getattr(error, "run", None)
    return run if isinstance(run, Run) else None


def add_hint(error: BaseException, hint: str) -> None:
    """Add a note to an error that ended a run (from Python 3.11); `KeyboardInterrupt` needs none."""
    if sys.version_info >= (3, 11) and not isinstance(error, KeyboardInterrupt):
        error.add_note(hint)
