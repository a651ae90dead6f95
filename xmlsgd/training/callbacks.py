"""Callbacks of the training loop: the base class, evaluation on validation rows and early stopping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from .history import EpochRecord
    from .kept_model import KeptModel
    from .messages import Report


@dataclass(frozen=True)
class ResumedRun:
    """What a callback learns when a run resumes from a checkpoint.

    Attributes
    ----------
    records : sequence of dict
        Records of the finished epochs.
    rows : int
        Rows trained so far.
    seconds : float
        Seconds of training so far.
    state : mapping
        What `Callback.state` of this callback returned; empty if the checkpoint holds nothing for it.
    """

    records: Sequence[EpochRecord]
    rows: int
    seconds: float
    state: Mapping[str, Any]


class Callback:
    """Base class of callbacks: override the methods for the events of interest.

    The training clock stands still during `start` and `epoch` and has stopped before `finish`. It runs during all other
    methods, so those must be quick.
    """

    def start(self, n_rows: int, epochs: int, center: NDArray[np.float32]) -> None:
        """Prepare for a run.

        Called once before the first span. A callback may be used in several runs, one after the other.

        Parameters
        ----------
        n_rows : int
            Rows of an epoch.
        epochs : int
            Epochs of the run.
        center : ndarray of shape (n_params,)
            The model, which the run changes in place.
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings that influence the run, by name; a run with other settings is refused on resume."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint: finite numbers, strings and arrays by name."""
        return {}

    def resume(self, run: ResumedRun) -> None:
        """Restore the state; called after `start` when the run resumes from a checkpoint."""

    def reads(self, report: Report) -> bool:
        """Return whether `span` will read the model; it is then copied from the GPU first."""
        return False

    def span(self, report: Report) -> None:
        """Observe a finished span."""

    def lost(self, reports: Sequence[Report]) -> None:
        """Observe that finished spans were lost with their worker; their rows will be trained again."""

    def epoch(self, record: EpochRecord, center: NDArray[np.float32]) -> bool:
        """Observe the end of an epoch.

        Parameters
        ----------
        record : dict
            The record of the epoch; may be extended in place.
        center : ndarray of shape (n_params,)
            The model.

        Returns
        -------
        bool
            True to stop training.
        """
        return False

    def finish(self, center: NDArray[np.float32]) -> None:
        """Observe the end of training; may replace the model in place."""


class Evaluation(Callback):
    """Evaluate the model after every epoch and add the result to the epoch record.

    Parameters
    ----------
    measure : callable
        Maps the model, float32 (n_params,), to metrics by name, e.g. ``{"P@1": 80.5}``.
    checksum : str, default=""
        That of the evaluated rows if they influence the run (early stopping), else "".
    """

    def __init__(self, measure: Callable[[NDArray[np.float32]], dict[str, float]], checksum: str = "") -> None:
        self.measure, self.checksum = measure, checksum

    def settings(self) -> dict[str, Any]:
        """Return the checksum of the evaluated rows if they influence the run."""
        return {"rows": self.checksum} if self.checksum else {}

    def epoch(self, record: EpochRecord, center: NDArray[np.float32]) -> bool:
        """Add the metrics to the record."""
        record.update(self.measure(center))
        return False


class EarlyStopping(Callback):
    """Stop when a metric no longer improves, then restore the best model.

    Parameters
    ----------
    metric : str
        Name of the metric in the epoch record; higher is better.
    patience : int
        Stop after this many epochs in a row without improvement.
    tol : float
        An improvement is a rise by more than `tol`.
    kept : KeptModel
        Where the best model is kept.
    """

    def __init__(self, metric: str, patience: int, tol: float, kept: KeptModel) -> None:
        self.metric, self.patience, self.tol, self.kept = metric, patience, tol, kept

    def start(self, n_rows: int, epochs: int, center: NDArray[np.float32]) -> None:
        """Forget the best model of an earlier run."""
        self.shape = center.shape
        self.best, self.best_epoch, self.waited = float("-inf"), -1, 0

    def settings(self) -> dict[str, Any]:
        """Return what decides when a run stops."""
        return {"metric": self.metric, "patience": self.patience, "tol": self.tol}

    def state(self) -> dict[str, Any]:
        """Return the best model, float32 (n_params,), its metric and epoch, and the epochs since then."""
        if self.best_epoch < 0:
            return {}
        model = np.empty(self.shape, np.float32)
        self.kept.restore(model)
        return {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited, "model": model}

    def resume(self, run: ResumedRun) -> None:
        """Restore the best model."""
        if state := run.state:
            self.best, self.best_epoch, self.waited = state["best"], state["best_epoch"], state["waited"]
            self.kept.keep(state["model"].reshape(self.shape))

    def epoch(self, record: EpochRecord, center: NDArray[np.float32]) -> bool:
        """Keep the model if it is the best so far; return True when patience is exhausted."""
        if record[self.metric] > self.best + self.tol:
            self.best, self.best_epoch, self.waited = record[self.metric], record["epoch"], 0
            self.kept.keep(center)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def finish(self, center: NDArray[np.float32]) -> None:
        """Restore the best model."""
        if self.waited:
            self.kept.restore(center)
