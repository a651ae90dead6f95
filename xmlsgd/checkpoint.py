"""Checkpoints: what a run has learned so far, in a folder, from which the same run goes on after a kill or a power cut.

One is written between two steps, while nobody is in the middle of one, and takes its name when it is whole and on the
disk. With one worker a run that goes on does the same steps with the same numbers as one that was never cut short: with
one thread it ends with the same bits. Several workers begin again from the shared model, and what an algorithm has
found out about them (speeds, sizes of batches, trials), the hash tables of a sampler too, is made anew.
"""

from __future__ import annotations

import hashlib
import logging
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DataError, ModelFileError, shorten
from .files import CHECKPOINT, looks_like, scratch_beside
from .files.compiled import LOGGER
from .history import Record, SoFar
from .kinds import check_kinds, is_number
from .learner import Start
from .model_arrays import ModelArrays
from .model_files import check_replaceable, read_model, write_model
from .network import state_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .algorithms.base import Algorithm
    from .executors.base import Executor
    from .history import Monitor
    from .learner import Job
    from .router import Span
    from .schedules import Schedule


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps what it has learned, and how often.

    path : of a folder that is nothing but the checkpoint, or, of several classifiers, one for each. every : seconds, at
    least, from one to the next; 0 for one whenever it can be. keep : whether it stays when an estimator has learned
    all, until `remove`.
    """

    path: str | Path
    every: float = 600.0
    keep: bool = False

    def __post_init__(self) -> None:
        """Raise `DataError` for an interval that is none."""
        if not (is_number(self.every) and 0 <= self.every < float("inf")):
            raise DataError(f"every: must be seconds, 0 or more, got {shorten(self.every)}")

    @property
    def exists(self) -> bool:
        """Return whether something is kept; it may be damaged."""
        return looks_like(CHECKPOINT, Path(self.path)) or bool(self._parts())

    def part(self, number: int) -> Checkpoint:
        """Return the checkpoint of one of several runs, from 0, in a folder of this one."""
        return replace(self, path=Path(self.path) / str(number), keep=True)

    def read(self, verify: bool = True) -> Saved | None:
        """Return what is kept, None where nothing is; `ModelFileError` where it is damaged or no checkpoint."""
        path = Path(self.path)
        check_replaceable(path, CHECKPOINT)
        if not looks_like(CHECKPOINT, path):
            return None
        try:
            files = read_model(path, verify, CHECKPOINT)
            return Saved.of(files.description, ModelArrays(files.arrays, path))
        except ModelFileError as error:
            raise ModelFileError(f"{error}; remove the checkpoint to begin anew") from error

    def remove(self) -> None:
        """Remove what is kept, if anything is; of several runs all."""
        path, parts = Path(self.path), self._parts()
        for part in (path, *parts):
            if looks_like(CHECKPOINT, part):
                with scratch_beside(part) as scratch:  # in one step: half of one would be in the way
                    part.rename(scratch / part.name)
        if parts:
            with suppress(OSError):  # something else is in there
                path.rmdir()

    def _parts(self) -> list[Path]:
        """Return the checkpoints of several runs."""
        return [part for part in Path(self.path).glob("[0-9]*") if looks_like(CHECKPOINT, part)]


@dataclass(frozen=True)
class Place:
    """Where in its rows a run is; the defaults are those of its beginning.

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


@dataclass(frozen=True, eq=False)
class Saved:
    """What a checkpoint holds.

    run : what tells one run from another, by name (`identity`). seed : of the run. steps : that the optimizer's state
    has seen. records : of the finished epochs. monitors : what these keep, by their names (`names_of`). arrays :
    "params" and "state", float32, and those of monitors.
    """

    run: dict[str, str]
    seed: int
    place: Place
    steps: int
    records: list[Record]
    monitors: dict[str, dict[str, Any]]
    arrays: ModelArrays

    @classmethod
    def of(cls, description: dict[str, Any], arrays: ModelArrays) -> Saved:
        """Return what the files of a checkpoint say."""
        kinds = {"run": dict, "seed": int, "steps": int, "records": list, "monitors": dict}
        for name, kind in kinds.items():
            if not isinstance(description.get(name), kind):
                raise ModelFileError(f"{arrays.path}: {name} must be {kind.__name__}, got {description.get(name)}")
        try:
            place = Place(**description["place"])
            place = replace(place, returned=tuple((int(start), int(stop)) for start, stop in place.returned))
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(f"{arrays.path}: place must be one in a run, got {error!r}") from error
        return cls(**{name: description[name] for name in kinds}, place=place, arrays=arrays)

    def start(self, job: Job) -> Start:
        """Return where the run goes on, in the arrays that `job` begins with, if it has any."""
        sizes = {"params": job.network.layout.size, "state": state_layout(job.network.layout, job.optimizer).size}
        params, state = (self.arrays.finite(name, size) for name, size in sizes.items())
        if job.start is None:
            return Start(np.array(params), np.array(state), self.steps)
        job.start.params[:], job.start.state[:] = params, state
        return replace(job.start, steps=self.steps)

    def tell(self, watching: Sequence[Monitor]) -> None:
        """Let monitors that have been started go on."""
        for name, monitor in zip(names_of(watching), watching, strict=True):
            kept = {**self.monitors.get(name, {}), **self.arrays.part(f"{name}-").arrays}
            monitor.resume(SoFar(self.records, self.place.rows, self.place.seconds, kept))


class Keeper:
    """Writes the checkpoints of a run when they are due.

    saved : what the same run has left in another process, None for nothing. Raises `DataError` where another run has
    left it.
    """

    def __init__(self, checkpoint: Checkpoint, job: Job, algorithm: Algorithm, schedule: Schedule) -> None:
        self.checkpoint, self._seed = checkpoint, job.seed
        self._run = identity(job, algorithm, schedule)
        self.saved, self._last = checkpoint.read(), time.monotonic()
        if self.saved is not None:
            self._check_same(self.saved.run)

    def due(self) -> bool:
        """Return whether it is time for the next."""
        return time.monotonic() - self._last >= self.checkpoint.every

    def write(self, place: Place, executor: Executor, records: Sequence[Record], watching: Sequence[Monitor]) -> None:
        """Write one; where that fails, say so and go on: the earlier one is as it was, and there will be another."""
        params, state, steps = executor.learned()
        arrays, monitors = {"params": params, "state": state}, {}
        for name, monitor in zip(names_of(watching), watching, strict=True):
            kept = monitor.kept()
            monitors[name] = {key: value for key, value in kept.items() if not isinstance(value, np.ndarray)}
            arrays |= {f"{name}-{key}": value for key, value in kept.items() if isinstance(value, np.ndarray)}
        told = {"run": self._run, "seed": self._seed, "place": asdict(place), "steps": steps, "records": records}
        try:
            write_model(self.checkpoint.path, {**told, "monitors": monitors}, arrays, kind=CHECKPOINT)
        except (OSError, ModelFileError) as error:
            again = f"the run goes on, and tries again in {self.checkpoint.every:g} s"
            logging.getLogger(LOGGER).warning("no checkpoint was written: %s; %s", error, again)
        self._last = time.monotonic()

    def _check_same(self, run: dict[str, str]) -> None:
        """Raise `DataError` unless the checkpoint is of this run."""
        names = [name for name in {**run, **self._run} if run.get(name) != self._run.get(name)]
        if names:
            told = "; ".join(f"{name} was {run.get(name)}, is {self._run.get(name)}" for name in names)
            path = self.checkpoint.path
            raise DataError(f"{path}: is the checkpoint of another run: {told}; go on as it was, or remove {path}")


def identity(job: Job, algorithm: Algorithm, schedule: Schedule) -> dict[str, str]:
    """Return what tells a run from another one, by name; not who works, which may change."""
    parts: dict[str, Any] = {
        "network": job.network,
        "optimizer": job.optimizer,
        "sampler": job.sampler,
        "schedule": schedule,
    }
    found = {part: type(of).__name__ for part, of in parts.items()}
    for part, of in parts.items():
        found |= {f"{part}.{field.name}": repr(getattr(of, field.name)) for field in fields(of)}
    found |= {"batch": repr(algorithm.batch), "rate": repr(algorithm.rate), "seed": repr(job.seed)}
    found["epochs before"] = repr(job.start.epochs if job.start else 0)
    return found | {"rows": repr(job.dataset.n_rows), "data": fingerprint(job)}


def fingerprint(job: Job) -> str:
    """Return the SHA-256 of rows, labels and weights: one pass over them."""
    digest = hashlib.sha256()
    X, Y = job.dataset.X, job.dataset.Y
    weight = [] if job.sample_weight is None else [job.sample_weight]
    for array in (X.indptr, X.indices, X.data, Y.indptr, Y.indices, Y.data, *weight):
        digest.update(np.ascontiguousarray(array).view(np.uint8))
    return digest.hexdigest()


def names_of(watching: Sequence[Monitor]) -> list[str]:
    """Return a name for each monitor, that of its class, with a number where it is not the first such."""
    classes = [type(monitor).__name__ for monitor in watching]
    return [name + (f"{n}" if (n := classes[:i].count(name)) else "") for i, name in enumerate(classes)]
