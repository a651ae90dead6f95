"""What a checkpoint holds: read by the run that goes on, which believes nothing of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.files import CHECKPOINT, read_unreplaced
from ...data.files.json_files import read_object
from ...data.files.model_arrays import ModelArrays
from ...data.files.model_files import MAX_JSON_BYTES, check_replaceable, read_model
from ...data.validation import check_kinds, is_number
from ...errors import ModelFileError, shorten
from ...nn.network import state_layout
from ..callbacks import ResumedRun
from ..history import EpochRecord
from ..learner import Start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...nn.schedules import Schedule
    from ..callbacks import Callback
    from ..learner import Job
    from ..router import Span
    from .checkpoint import Checkpoint

REAL = "biuf"  # kinds of numbers
ANEW = "; remove the checkpoint to begin anew"


@dataclass(frozen=True)
class TrainingPosition:
    """Training position: where to continue a run; the defaults are its start.

    epoch : the one under way, of this run, from 0. at, returned : as the `Router` has them. loss : the sum over the
    rows of the epoch so far. rows, seconds : trained on and taken in all. ended : whether nothing is left to train.
    """

    epoch: int = 0
    at: int = 0
    returned: tuple[Span, ...] = ()
    loss: float = 0.0
    rows: int = 0
    seconds: float = 0.0
    ended: bool = False

    def __post_init__(self) -> None:
        """Raise `DataError` for fields of the wrong kind."""
        check_kinds(self)

    @property
    def done(self) -> int:
        """Return the rows of the epoch that are done."""
        return self.at - sum(stop - start for start, stop in self.returned)

    def is_of(self, epochs: int, n_rows: int) -> bool:
        """Return whether there is such a position in a run of `epochs` times `n_rows` rows."""
        ends = [0, *(end for span in sorted(self.returned) for end in span), self.at, n_rows]
        whole = sorted(ends) == ends and all(start < stop for start, stop in self.returned)
        in_time = 0 <= self.epoch <= epochs and (self.ended or self.epoch < epochs) and 0 <= self.seconds < np.inf
        return whole and in_time and 0 <= self.rows <= epochs * n_rows


@dataclass(frozen=True, eq=False)
class Saved:
    """What a checkpoint holds.

    run : what tells one run from another (`identity`). seed : of the run. steps : that the optimizer's state has seen.
    records : of the finished epochs. callbacks : their states, by their names (`names_of`). arrays : "params" and
    "state", float32, and those of callbacks.
    """

    run: dict[str, str]
    seed: int
    position: TrainingPosition
    steps: int
    records: list[EpochRecord]
    callbacks: dict[str, dict[str, Any]]
    arrays: ModelArrays

    @classmethod
    def of(cls, description: dict[str, Any], arrays: ModelArrays) -> Saved:
        """Return what the files of a checkpoint say."""
        kinds = {"run": dict, "seed": int, "steps": int, "records": list, "callbacks": dict}
        for name, kind in kinds.items():
            if type(description.get(name)) is not kind:
                got = shorten(description.get(name))
                raise ModelFileError(f"{arrays.path}: {name} must be {kind.__name__}, got {got}")
        try:
            position = dict(description["position"])
            position["returned"] = tuple((int(start), int(stop)) for start, stop in position["returned"])
            return cls(
                **{name: description[name] for name in kinds}, position=TrainingPosition(**position), arrays=arrays
            )
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(f"{arrays.path}: position must be one in a run, got {error!r}") from error

    def start(self, job: Job) -> Start:
        """Return where the run goes on, in the arrays that `job` begins with, if it has any."""
        sizes = {"params": job.network.layout.size, "state": state_layout(job.network.layout, job.optimizer).size}
        params, state = (self.arrays.finite(name, size) for name, size in sizes.items())
        if job.start is None:
            return Start(np.array(params), np.array(state), self.steps)
        job.start.params[:], job.start.state[:] = params, state
        return replace(job.start, steps=self.steps)

    def tell(self, watching: Sequence[Callback]) -> None:
        """Let callbacks that have been started go on."""
        for name, callback in zip(names_of(watching), watching, strict=True):
            arrays = self.arrays.part(f"{name}-").arrays
            try:
                if not all(array.dtype.kind in REAL and np.isfinite(array).all() for array in arrays.values()):
                    raise ValueError("numbers that are not finite")
                state = {**self.callbacks.get(name, {}), **arrays}
                callback.resume(ResumedRun(self.records, self.position.rows, self.position.seconds, state))
            except (LookupError, TypeError, ValueError) as error:
                raise ModelFileError(f"{self.arrays.path}: {name} cannot go on from it, got {error!r}{ANEW}") from error

    def check(self, job: Job, schedule: Schedule) -> None:
        """Raise `ModelFileError` where this cannot be of such a run."""
        losses = [record.get("loss") if isinstance(record, dict) else None for record in self.records]
        told = all(is_number(loss) and np.isfinite(loss) for loss in losses)
        fits = self.position.is_of(schedule.epochs, job.dataset.n_rows) and len(self.records) == self.position.epoch
        if not (told and fits and 0 <= self.steps < 1 << 62):
            got = shorten(self.position, 100)
            raise ModelFileError(f"{self.arrays.path}: must tell of a position in the run, got {got}{ANEW}")


def read_saved(checkpoint: Checkpoint, verify: bool = True) -> Saved | None:
    """Return what is kept, None where nothing is; `ModelFileError` where it is damaged or no checkpoint of one run."""
    path = checkpoint.folder
    if checkpoint.parts and not CHECKPOINT.is_at(path):
        raise ModelFileError(f"{path}: is the checkpoint of an ensemble; go on with that, or remove {path}")

    def read(folder: Path) -> Saved | None:
        check_replaceable(folder, CHECKPOINT)
        if not CHECKPOINT.is_at(folder):
            return None
        try:
            files = read_model(folder, verify, CHECKPOINT)
            return Saved.of(files.description, ModelArrays(files.arrays, folder))
        except ModelFileError as error:
            raise ModelFileError(f"{error}{ANEW}") from error

    return read_unreplaced(path, read)


def identity_kept(folder: Path) -> Any:
    """Return what tells the run of what is kept from another, None where nothing is, or nothing that says so."""

    def read(folder: Path) -> Any:
        return read_object(folder / CHECKPOINT.description, MAX_JSON_BYTES).get("run")

    try:
        return read_unreplaced(folder, read)
    except (OSError, ModelFileError):
        return None


def names_of(watching: Sequence[Callback]) -> list[str]:
    """Return a name for each callback, that of its class, with a number where it is not the first such."""
    classes = [type(callback).__name__ for callback in watching]
    return [name + (f"{n}" if (n := classes[:i].count(name)) else "") for i, name in enumerate(classes)]
