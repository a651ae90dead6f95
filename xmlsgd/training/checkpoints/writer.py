"""Write the checkpoints of a run, when they are due and no worker is in the middle of a span."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from ...algorithms.base import Algorithm
from ...data.files.atomic import check_not_within, parents_created
from ...data.files.folders import write_folder
from ...data.files.manifest import CHECKPOINT
from ...data.files.temporary import sole_use, temporary_folder_beside
from ...errors import LOGGER, DataError, ModelFileError
from ...nn.parameters import is_finite
from ...nn.schedules import Schedule
from ..callbacks import Callback
from ..executors.base import Executor, Learned
from ..history import History
from ..job import Job
from ..progress import TrainingPosition, TrainingProgress
from .checkpoint import Checkpoint
from .identity import VERSION, differences, identity
from .reader import REAL, SavedRun, callback_names, read_checkpoint, read_identity


@contextmanager
def reserved(checkpoint: Checkpoint) -> Iterator[None]:
    """Keep other runs from using a checkpoint; raise `DataError` while another run uses it."""
    text = "another run uses this checkpoint; wait until it has ended, or choose another folder"
    with parents_created(checkpoint.folder), sole_use(checkpoint.folder, f"{checkpoint.path}: {text}"):
        yield


class CheckpointWriter:
    """Writes the checkpoints of a run; `saved` is the run to resume, if any.

    The constructor changes nothing on the disk if it raises: `DataError` if there is a checkpoint of another run,
    `ModelFileError` if the checkpoint is damaged, `OSError` if none can be written.
    """

    def __init__(
        self, checkpoint: Checkpoint, job: Job, algorithm: Algorithm, schedule: Schedule, callbacks: Sequence[Callback]
    ) -> None:
        self.checkpoint, self._request, self._seed = checkpoint, checkpoint.request, job.seed
        self._run, self._last_error = identity(job, algorithm, schedule, callbacks), ""
        self._request.runs.append(self._run)
        saved = read_checkpoint(checkpoint)
        used_up = bool(saved and saved.position.ended and _continues(job, saved))
        self.saved = None if used_up else saved
        if self.saved:
            if changes := differences(self.saved.run, self._run):
                text = f"{checkpoint.path}: is the checkpoint of another run: {changes}"
                of_version_alone = self.saved.run | {VERSION: self._run[VERSION]} == self._run
                same = "that version of xmlsgd" if of_version_alone else "the same settings"
                raise DataError(f"{text}; resume with {same}, or remove {checkpoint.path}")
            self.saved.check(job, schedule)
        self._check_writable()
        if used_up:
            checkpoint.remove()
        self._time, self._rows = time.monotonic(), self.saved.position.rows if self.saved else 0

    def _check_writable(self) -> None:
        """Raise `OSError` if no checkpoint can be written."""
        folder = self.checkpoint.folder
        check_not_within(folder)
        with parents_created(folder), temporary_folder_beside(folder):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()  # fails for a mount point, which cannot be replaced

    def attach(
        self, executor: Executor, progress: TrainingProgress, history: History, callbacks: Sequence[Callback]
    ) -> None:
        """Set what the checkpoints are made of; if a run is resumed, resume its callbacks and log a message."""
        self._executor, self._history, self._callbacks = executor, history, callbacks
        if self.saved:
            self.saved.resume(callbacks)
            total = progress.n_rows * progress.schedule.epochs
            text = f"resuming from {self.checkpoint.path}: {progress.rows:,} of {total:,} rows are done"
            LOGGER.warning(text)
            self.saved = None  # unmap its files, which would otherwise stay on the disk when they are replaced

    @property
    def ends(self) -> bool:
        """Whether the run is to end with the next checkpoint."""
        return self._request.error is not None

    def due(self) -> bool:
        """Return whether the next checkpoint is due."""
        return self.ends or time.monotonic() - self._time >= 60 * self.checkpoint.minutes

    def write(self, position: TrainingPosition, of_snapshot: bool = False) -> None:
        """Write a checkpoint, unless nothing was trained since the last one or the run diverges.

        If writing fails, log an error and continue: the last checkpoint is intact, and another will be written. If the
        run was asked to end (`Checkpoint.end_by`), raise that error at last.

        of_snapshot : whether to write the model from which trials begin, instead of that of the trial.
        """
        ending = self._take_request()  # first: writing may take longer than the sender of a signal waits
        with self._executor.paused():
            learned = self._executor.snapshot() if of_snapshot else self._executor.learned()
            if (position.rows != self._rows or position.ended) and is_finite(learned.params):
                try:
                    self._write(position, learned)
                    self._last_error = ""
                except (OSError, ModelFileError) as error:
                    if str(error) != self._last_error:
                        LOGGER.error("no checkpoint was written: %s", error)
                    self._last_error = str(error)
            self._time, self._rows = time.monotonic(), position.rows
        if ending is not None:
            raise ending

    @contextmanager
    def accepting_requests(self) -> Iterator[None]:
        """Let `Checkpoint.end_by` end the run in this context."""
        self._request.accepted = True
        try:
            yield
        finally:
            self._request.accepted, ending = False, self._take_request()
        if ending is not None:  # requested after the last checkpoint
            raise ending

    def _take_request(self) -> BaseException | None:
        """Return the error of a request to end the run, or None, and clear the request."""
        ending, self._request.error = self._request.error, None
        return ending

    def _write(self, position: TrainingPosition, learned: Learned) -> None:
        if not is_finite(learned.state):
            raise ModelFileError(f"{self.checkpoint.path}: the optimizer state is not finite")
        arrays, callbacks = {"params": learned.params, "state": learned.state}, {}
        for name, callback in zip(callback_names(self._callbacks), self._callbacks, strict=True):
            values = callback.state()
            callbacks[name] = _json_values(name, values)
            arrays |= {f"{name}-{key}": value for key, value in values.items() if isinstance(value, np.ndarray)}
        description = {
            "run": self._run, "seed": self._seed, "position": asdict(position), "updates": learned.updates,
            "records": self._history.records, "callbacks": callbacks,
        }  # fmt: skip
        if read_identity(self.checkpoint.folder) not in (None, self._run):
            raise ModelFileError(f"{self.checkpoint.path}: another run has written a checkpoint there in the meantime")
        write_folder(self.checkpoint.folder, description, arrays, kind=CHECKPOINT)


def _continues(job: Job, saved: SavedRun) -> bool:
    """Return whether a job starts where the saved run has ended."""
    return bool(job.start and saved.records and job.start.epochs == saved.records[-1].get("epoch", -1) + 1)


def _json_values(callback: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a callback's state but for arrays; raise `DataError` for values that cannot be saved."""
    values = {key: value.item() if isinstance(value, np.generic) else value for key, value in state.items()}
    arrays = [values.pop(key) for key in list(values) if isinstance(values[key], np.ndarray)]
    try:
        json.dumps(values, allow_nan=False)
        if wrong := [array.dtype for array in arrays if array.dtype.kind not in REAL]:
            raise TypeError(f"an array of {wrong[0]}")
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("an array with NaN or infinity")
    except (TypeError, ValueError) as error:
        raise DataError(f"{callback}.state: must be finite numbers, strings and arrays by name, got {error}") from error
    return values
