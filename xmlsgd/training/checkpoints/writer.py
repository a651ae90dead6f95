"""Who writes the checkpoints of a run, when they are due and nobody is in the middle of a step."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.files import CHECKPOINT, check_not_within, parents_made, scratch_beside
from ...data.files.compiled import LOGGER
from ...data.files.model_files import write_model
from ...errors import DataError, ModelFileError
from ...nn.parameters import is_finite
from .identity import differences, identity
from .saved import REAL, Saved, TrainingPosition, identity_kept, names_of, read_saved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...algorithms.base import Algorithm
    from ...nn.schedules import Schedule
    from ..callbacks import Callback
    from ..executors.base import Executor
    from ..history import History
    from ..learner import Job
    from ..progress import TrainingProgress
    from .checkpoint import Checkpoint


class Writer:
    """Writes the checkpoints of a run when they are due; `saved` is what the same run left in another process."""

    def __init__(
        self, checkpoint: Checkpoint, job: Job, algorithm: Algorithm, schedule: Schedule, callbacks: Sequence[Callback]
    ) -> None:
        """Raise `DataError` where another run's is kept, and `OSError` where none can be written."""
        self.checkpoint, self._seed, self._path = checkpoint, job.seed, checkpoint.folder
        self._run, self._failed = identity(job, algorithm, schedule, callbacks), ""
        checkpoint.request.runs.append(self._run)
        self.saved = read_saved(checkpoint)
        if self.saved and self.saved.position.ended and _begins_behind(job, self.saved):
            self.saved = None
            checkpoint.remove()  # it is used up
        if self.saved:
            if told := differences(self.saved.run, self._run):
                text = f"{checkpoint.path}: is the checkpoint of another run: {told}"
                raise DataError(f"{text}; go on as it was, or remove {checkpoint.path}")
            self.saved.check(job, schedule)
        self._check_writeable()
        self._last, self._rows = time.monotonic(), self.saved.position.rows if self.saved else 0

    def _check_writeable(self) -> None:
        """Raise `OSError` now for a place that can take no checkpoint."""
        check_not_within(self._path)
        with parents_made(self._path), scratch_beside(self._path):
            if self._path.is_dir() and not any(self._path.iterdir()):
                self._path.rmdir()  # what is mounted there cannot be replaced

    def follow(
        self, executor: Executor, progress: TrainingProgress, history: History, watching: Sequence[Callback]
    ) -> None:
        """Write of these from now on; of a run that goes on let the callbacks go on, and say so."""
        self._executor, self._progress, self._history, self._watching = executor, progress, history, watching
        if self.saved:
            self.saved.tell(watching)
            total = progress.n_rows * progress.schedule.epochs
            text = f"going on from {self.checkpoint.path}: {progress.rows:,} of {total:,} rows are done"
            logging.getLogger(LOGGER).warning(text)
            self.saved = None  # its files are mapped, which would keep them on the disk

    @property
    def ends(self) -> bool:
        """Return whether the run is to end by the next one."""
        return self.checkpoint.request.error is not None

    def due(self) -> bool:
        """Return whether it is time for the next."""
        return self.ends or time.monotonic() - self._last >= 60 * self.checkpoint.minutes

    def write(self, position: TrainingPosition) -> None:
        """Write one, unless nothing was trained since the last, or the run diverges; raise what it is to end by.

        Where that fails, say so and go on: the earlier one is as it was, and there will be another.
        """
        ending = self._taken()  # writing may take longer than whoever asked would wait for its beginning
        with self._progress.paused(self._executor):
            if (position.rows != self._rows or position.ended) and is_finite(self._executor.center):
                try:
                    self._write(position)
                    self._failed = ""
                except (OSError, ModelFileError) as error:
                    if str(error) != self._failed:
                        logging.getLogger(LOGGER).warning("no checkpoint was written: %s", error)
                    self._failed = str(error)
            self._last, self._rows = time.monotonic(), position.rows
        if ending is not None:
            raise ending

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Let the run be ended by `Checkpoint.end_by` meanwhile."""
        self.checkpoint.request.heard = True
        try:
            yield
        finally:
            self.checkpoint.request.heard, ending = False, self._taken()
        if ending is not None:  # it came behind the last one
            raise ending

    def _taken(self) -> BaseException | None:
        """Return what the run is to end by, which is asked for no longer."""
        ending, self.checkpoint.request.error = self.checkpoint.request.error, None
        return ending

    def _write(self, position: TrainingPosition) -> None:
        params, state, steps = self._executor.learned()
        if not is_finite(state):
            raise ModelFileError(f"{self.checkpoint.path}: the state of the optimizer is not finite")
        arrays, callbacks = {"params": params, "state": state}, {}
        for name, callback in zip(names_of(self._watching), self._watching, strict=True):
            kept = callback.state()
            callbacks[name] = _numbers(name, kept)
            arrays |= {f"{name}-{key}": value for key, value in kept.items() if isinstance(value, np.ndarray)}
        told = {"run": self._run, "seed": self._seed, "position": asdict(position), "steps": steps}
        told |= {"records": self._history.records, "callbacks": callbacks}
        if identity_kept(self._path) not in (None, self._run):
            raise ModelFileError(f"{self.checkpoint.path}: another run has written there meanwhile")
        write_model(self._path, told, arrays, kind=CHECKPOINT)


def _begins_behind(job: Job, saved: Saved) -> bool:
    """Return whether a run begins where another has ended."""
    return bool(job.start and saved.records and job.start.epochs == saved.records[-1].get("epoch", -1) + 1)


def _numbers(callback: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return what of a callback's state is no array, as JSON knows it; `DataError` for what it does not know."""
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in state.items()}
    arrays = [plain.pop(key) for key in list(plain) if isinstance(plain[key], np.ndarray)]
    try:
        json.dumps(plain, allow_nan=False)
        if strange := [array.dtype for array in arrays if array.dtype.kind not in REAL]:
            raise TypeError(f"an array of {strange[0]}")
    except (TypeError, ValueError) as error:
        raise DataError(f"{callback}.state: must be finite numbers, texts and arrays by name, got {error}") from error
    return plain
