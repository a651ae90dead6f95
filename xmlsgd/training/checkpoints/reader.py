"""Read checkpoints. Their contents are not trusted: everything is checked before a run resumes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.files.atomic import read_consistently
from ...data.files.folders import FolderArrays, read_folder
from ...data.files.manifest import CHECKPOINT, MAX_JSON_BYTES, read_json_object
from ...data.validation import is_number
from ...errors import ModelFileError, shorten
from ...nn.network import state_layout
from ..callbacks import Callback, ResumedRun
from ..job import Job, Start
from ..progress import TrainingPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...nn.schedules import Schedule
    from ..history import EpochRecord
    from .checkpoint import Checkpoint

REAL = "biuf"  # dtype kinds of real numbers
ADVICE = "; remove the checkpoint to start over"
TYPES = {"run": dict, "seed": int, "updates": int, "records": list, "callbacks": dict}


@dataclass(frozen=True, eq=False)
class SavedRun:
    """The contents of a checkpoint.

    run : the identity of the run (`identity`). seed : its seed. updates : that the optimizer state has seen.
    records : epoch records so far. callbacks : states of the callbacks by name (`callback_names`), without arrays.
    arrays : "params" and "state", float32, and the arrays of callbacks, "name-key".
    """

    run: dict[str, str]
    seed: int
    position: TrainingPosition
    updates: int
    records: list[EpochRecord]
    callbacks: dict[str, dict[str, Any]]
    arrays: FolderArrays

    @classmethod
    def of(cls, description: dict[str, Any], arrays: FolderArrays) -> SavedRun:
        """Return the contents, given the description and the arrays in the files; check the types."""
        for name, kind in TYPES.items():
            if type(description.get(name)) is not kind:
                got = shorten(description.get(name))
                raise ModelFileError(f"{arrays.path}: {name} must be {kind.__name__}, got {got}")
        try:
            fields = dict(description["position"])
            fields["returned"] = tuple((int(start), int(stop)) for start, stop in fields["returned"])
            position = TrainingPosition(**fields)
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(f"{arrays.path}: position must be a training position, got {error!r}") from error
        return cls(**{name: description[name] for name in TYPES}, position=position, arrays=arrays)

    def start(self, job: Job) -> Start:
        """Return the point to resume from, in the arrays of `job.start` if there are any."""
        sizes = {"params": job.network.layout.size, "state": state_layout(job.network.layout, job.optimizer).size}
        params, state = (self.arrays.finite(name, size) for name, size in sizes.items())
        if job.start is None:
            return Start(np.array(params), np.array(state), self.updates)
        job.start.params[:], job.start.state[:] = params, state
        return replace(job.start, updates=self.updates, origin=None)

    def resume(self, callbacks: Sequence[Callback]) -> None:
        """Resume callbacks that have been started."""
        for name, callback in zip(callback_names(callbacks), callbacks, strict=True):
            arrays = self.arrays.part(f"{name}-").arrays
            try:
                if not all(array.dtype.kind in REAL and np.isfinite(array).all() for array in arrays.values()):
                    raise ValueError("numbers that are not finite")
                state = {**self.callbacks.get(name, {}), **arrays}
                callback.resume(ResumedRun(self.records, self.position.rows, self.position.seconds, state))
            except (LookupError, TypeError, ValueError) as error:
                text = f"{self.arrays.path}: {name} cannot resume from it, got {error!r}{ADVICE}"
                raise ModelFileError(text) from error

    def check(self, job: Job, schedule: Schedule) -> None:
        """Raise `ModelFileError` if the contents do not fit the run."""
        losses = [record.get("loss") if isinstance(record, dict) else None for record in self.records]
        records_fit = all(is_number(loss) and np.isfinite(loss) for loss in losses)
        records_fit = records_fit and len(self.records) == self.position.epoch
        position_fits = self.position.fits(schedule.epochs, job.dataset.n_rows)
        if not (records_fit and position_fits and 0 <= self.updates < 1 << 62):
            got = shorten(self.position, 100)
            raise ModelFileError(f"{self.arrays.path}: must hold a position of the run, got {got}{ADVICE}")


def read_checkpoint(checkpoint: Checkpoint, verify: bool = True) -> SavedRun | None:
    """Return the contents of a checkpoint, or None if there is none; `ModelFileError` if it is damaged."""
    path = checkpoint.folder
    if checkpoint.parts and not CHECKPOINT.exists_at(path):
        raise ModelFileError(f"{path}: is the checkpoint of an ensemble; resume the ensemble, or remove {path}")

    def read(folder: Path) -> SavedRun | None:
        if reason := CHECKPOINT.obstacle_at(folder):
            raise ModelFileError(f"{folder}: {reason}")
        if not CHECKPOINT.exists_at(folder):
            return None
        try:
            files = read_folder(folder, verify, CHECKPOINT)
            return SavedRun.of(files.description, FolderArrays(files.arrays, folder))
        except ModelFileError as error:
            raise ModelFileError(f"{error}{ADVICE}") from error

    return read_consistently(path, read)


def read_identity(folder: Path) -> Any:
    """Return the identity of the run whose checkpoint is in `folder`, None if it is missing or unreadable."""
    try:
        found = read_consistently(folder, lambda at: read_json_object(at / CHECKPOINT.description, MAX_JSON_BYTES))
        return found.get("run")
    except (OSError, ModelFileError):
        return None


def callback_names(callbacks: Sequence[Callback]) -> list[str]:
    """Return a name for each callback: that of its class, numbered from the second one on."""
    classes = [type(callback).__name__ for callback in callbacks]
    return [name + (f"{n}" if (n := classes[:i].count(name)) else "") for i, name in enumerate(classes)]
