"""Checkpoints: what a run has learned so far, in a folder, from which the same run goes on after a kill or a power cut.

One is written between two steps, while nobody is in the middle of one, and takes its name when it is whole and on the
disk. With one worker a run that goes on does the same steps with the same numbers as one that was never cut short: with
one thread it ends with the same bits. Several workers begin again from the shared model, and what an algorithm has
found out about them (speeds, sizes of batches, trials), the hash tables of a sampler too, is made anew.
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DataError, ModelFileError, shorten
from .files import CHECKPOINT, check_not_within, looks_like, parents_made, read_unreplaced, scratch_beside
from .files.compiled import LOGGER
from .history import Record, SoFar
from .identity import differences, identity
from .kinds import check_kinds, is_number
from .learner import Start
from .model_arrays import ModelArrays
from .model_files import check_replaceable, read_model, write_model
from .network import state_layout
from .params import is_finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .algorithms.base import Algorithm
    from .course import Course
    from .executors.base import Executor
    from .history import History, Monitor
    from .learner import Job
    from .router import Span
    from .schedules import Schedule


REAL = "biuf"  # kinds of numbers
ANEW = "; remove the checkpoint to begin anew"


@dataclass
class Request:
    """What a run is to end by when its next checkpoint is written, and whether one is under way that heeds it."""

    error: BaseException | None = None
    heard: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps what it has learned, and how often.

        kept = Checkpoint("run", minutes=5, keep=True)
        model.fit(X, Y, checkpoint=kept).save("model")  # after a kill the same call goes on
        kept.remove()                                   # now that the model is saved

    The same call: the same rows, labels, weights, sizes, loss, optimizer, rate, batch, epochs, and seed where one is
    given. Devices, threads and the algorithm may be others.

    path : of a folder that is nothing but the checkpoint, or, of several classifiers, one for each. It is as large as
    the model and the state of its optimizer, with Adam three times the model, and twice that while it is written.
    minutes : from one to the next, at least; 0 for one after every step. keep : whether it stays when `fit` is done,
    until `remove`; else `fit` removes it. `train` always leaves it.
    """

    path: str | os.PathLike[str]
    minutes: float = 10.0
    keep: bool = False
    folder: Path = field(init=False, repr=False)  # where `path` led when this was made
    request: Request = field(default_factory=Request, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise `DataError` for a path, an interval or a flag that is none."""
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise DataError(f"checkpoint: must be a path or a Checkpoint, got {shorten(self.path)}")
        if not (is_number(self.minutes) and 0 <= self.minutes < float("inf")):
            raise DataError(f"minutes: must be 0 or more, got {shorten(self.minutes)}")
        if not isinstance(self.keep, bool):
            raise DataError(f"keep: must be True or False, got {shorten(self.keep)}")
        object.__setattr__(self, "folder", Path(os.path.realpath(os.fsdecode(self.path))))

    @property
    def exists(self) -> bool:
        """Return whether something is kept; it may be damaged."""
        return read_unreplaced(self.folder, lambda folder: looks_like(CHECKPOINT, folder)) or bool(self._parts())

    def end_by(self, error: BaseException) -> bool:
        """Let the run write one as soon as it can be, and end by `error`; return whether one is under way that will."""
        if self.request.heard:
            self.request.error = error
        return self.request.heard

    def part(self, number: int) -> Checkpoint:
        """Return the checkpoint of one of several runs, from 0, in a folder of this one, which removes them all."""
        return replace(self, path=self.folder / str(number), keep=True)

    def check_parts(self) -> None:
        """Raise `ModelFileError` where something else than the checkpoints of several runs is."""
        others = [entry.name for entry in self.folder.glob("[!.]*") if entry not in self._parts()]
        if self.folder.is_file() or others:
            got = f"holds {others[0]}, which is no part of it" if others else "is a file"
            raise ModelFileError(f"{self.path}: {got}; the checkpoint of an ensemble needs a folder of its own")

    def done(self) -> None:
        """Remove what is kept, unless it is to stay; where that fails, say so: all is learned."""
        if not self.keep:
            try:
                self.remove()
            except OSError as error:
                logging.getLogger(LOGGER).warning("the checkpoint cannot be removed: %s", error)

    def remove(self) -> None:
        """Remove what is kept, if anything is; of several runs all."""
        parts = self._parts()
        for part in (self.folder, *parts):
            if looks_like(CHECKPOINT, part):
                with scratch_beside(part) as scratch:  # in one step: half of one would be in the way
                    part.rename(scratch / part.name)
        if parts:
            with suppress(OSError):  # something else is in there
                self.folder.rmdir()

    def _parts(self) -> list[Path]:
        """Return the checkpoints of several runs."""
        numbered = (part for part in self.folder.glob("[0-9]*") if part.name.isdecimal())
        return [part for part in numbered if looks_like(CHECKPOINT, part)]


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

    def is_of(self, epochs: int, n_rows: int) -> bool:
        """Return whether there is such a place in a run of `epochs` times `n_rows` rows."""
        ends = [0, *(end for span in sorted(self.returned) for end in span), self.at, n_rows]
        whole = sorted(ends) == ends and all(start < stop for start, stop in self.returned)
        return whole and 0 <= self.epoch <= epochs and (self.ended or self.epoch < epochs) and self.rows >= 0


@dataclass(frozen=True, eq=False)
class Saved:
    """What a checkpoint holds.

    run : what tells one run from another (`identity`). seed : of the run. steps : that the optimizer's state has seen.
    records : of the finished epochs. monitors : their states, by their names (`names_of`). arrays : "params" and
    "state", float32, and those of monitors.
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
                got = shorten(description.get(name))
                raise ModelFileError(f"{arrays.path}: {name} must be {kind.__name__}, got {got}")
        try:
            place = dict(description["place"])
            place["returned"] = tuple((int(start), int(stop)) for start, stop in place["returned"])
            return cls(**{name: description[name] for name in kinds}, place=Place(**place), arrays=arrays)
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(f"{arrays.path}: place must be one in a run, got {error!r}") from error

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
            arrays = self.arrays.part(f"{name}-").arrays
            try:
                if not all(array.dtype.kind in REAL and np.isfinite(array).all() for array in arrays.values()):
                    raise ValueError("numbers that are not finite")
                state = {**self.monitors.get(name, {}), **arrays}
                monitor.resume(SoFar(self.records, self.place.rows, self.place.seconds, state))
            except (LookupError, TypeError, ValueError) as error:
                raise ModelFileError(f"{self.arrays.path}: {name} cannot go on from it, got {error!r}{ANEW}") from error

    def check(self, job: Job, schedule: Schedule) -> None:
        """Raise `ModelFileError` where this cannot be of such a run."""
        told = all(isinstance(record, dict) and is_number(record.get("loss")) for record in self.records)
        fits = self.place.is_of(schedule.epochs, job.dataset.n_rows) and len(self.records) == self.place.epoch
        if not (told and fits and 0 <= self.steps < 1 << 62):
            got = shorten(self.place, 100)
            raise ModelFileError(f"{self.arrays.path}: must tell of a place in the run, got {got}{ANEW}")


def read_saved(checkpoint: Checkpoint, verify: bool = True) -> Saved | None:
    """Return what is kept, None where nothing is; `ModelFileError` where it is damaged or no checkpoint of one run."""
    path = checkpoint.folder
    if checkpoint._parts() and not looks_like(CHECKPOINT, path):
        raise ModelFileError(f"{path}: is the checkpoint of an ensemble; go on with that, or remove {path}")

    def read(folder: Path) -> Saved | None:
        check_replaceable(folder, CHECKPOINT)
        if not looks_like(CHECKPOINT, folder):
            return None
        files = read_model(folder, verify, CHECKPOINT)
        return Saved.of(files.description, ModelArrays(files.arrays, folder))

    try:
        return read_unreplaced(path, read)
    except ModelFileError as error:
        raise ModelFileError(f"{error}{ANEW if looks_like(CHECKPOINT, path) else ''}") from error


class Writer:
    """Writes the checkpoints of a run when they are due; `saved` is what the same run left in another process."""

    def __init__(
        self, checkpoint: Checkpoint, job: Job, algorithm: Algorithm, schedule: Schedule, monitors: Sequence[Monitor]
    ) -> None:
        """Raise `DataError` where another run's is kept, and `OSError` where none can be written."""
        self.checkpoint, self._seed, self._path = checkpoint, job.seed, checkpoint.folder
        self._run = identity(job, algorithm, schedule, monitors)
        self.saved = read_saved(checkpoint)
        if self.saved and self.saved.place.ended and _begins_behind(job, self.saved):
            self.saved = None  # it is used up
        if self.saved:
            if told := differences(self.saved.run, self._run):
                text = f"{checkpoint.path}: is the checkpoint of another run: {told}"
                raise DataError(f"{text}; go on as it was, or remove {checkpoint.path}")
            self.saved.check(job, schedule)
        self._check_writeable()
        self._last, self._rows = time.monotonic(), self.saved.place.rows if self.saved else 0

    def _check_writeable(self) -> None:
        """Raise `OSError` now for a place that can take no checkpoint."""
        check_not_within(self._path)
        with parents_made(self._path), scratch_beside(self._path):
            if self._path.is_dir() and not any(self._path.iterdir()):
                self._path.rmdir()  # what is mounted there cannot be replaced

    def follow(self, executor: Executor, course: Course, history: History, watching: Sequence[Monitor]) -> None:
        """Write of these from now on; of a run that goes on let the monitors go on, and say so."""
        self._executor, self._course, self._history, self._watching = executor, course, history, watching
        if self.saved:
            self.saved.tell(watching)
            total = course.n_rows * course.schedule.epochs
            text = f"going on from {self.checkpoint.path}: {course.rows:,} of {total:,} rows are done"
            logging.getLogger(LOGGER).warning(text)
            self.saved = None  # its files are mapped, which would keep them on the disk

    @property
    def ends(self) -> bool:
        """Return whether the run is to end by the next one."""
        return self.checkpoint.request.error is not None

    def due(self) -> bool:
        """Return whether it is time for the next."""
        return self.ends or time.monotonic() - self._last >= 60 * self.checkpoint.minutes

    def write(self, place: Place) -> None:
        """Write one, unless nothing was trained since the last, or the run diverges; raise what it is to end by.

        Where that fails, say so and go on: the earlier one is as it was, and there will be another.
        """
        with self._course.standing_still(self._executor):
            if (place.rows != self._rows or place.ended) and is_finite(self._executor.center):
                try:
                    self._write(place)
                except (OSError, ModelFileError) as error:
                    again = f"the run goes on, and tries again in {self.checkpoint.minutes:g} minutes"
                    logging.getLogger(LOGGER).warning("no checkpoint was written: %s; %s", error, again)
            self._last, self._rows = time.monotonic(), place.rows
        if (ending := self.checkpoint.request.error) is not None:
            raise ending

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Let the run be ended by `Checkpoint.end_by` meanwhile."""
        self.checkpoint.request.heard = True
        try:
            yield
        finally:
            self.checkpoint.request.heard, self.checkpoint.request.error = False, None

    def _write(self, place: Place) -> None:
        params, state, steps = self._executor.learned()
        arrays, monitors = {"params": params, "state": state}, {}
        for name, monitor in zip(names_of(self._watching), self._watching, strict=True):
            kept = monitor.state()
            monitors[name] = _numbers(name, kept)
            arrays |= {f"{name}-{key}": value for key, value in kept.items() if isinstance(value, np.ndarray)}
        told = {"run": self._run, "seed": self._seed, "place": asdict(place), "steps": steps}
        told |= {"records": self._history.records, "monitors": monitors}
        before = read_saved(self.checkpoint, verify=False)
        if before and before.run != self._run:
            raise ModelFileError(f"{self.checkpoint.path}: another run has written there meanwhile")
        write_model(self._path, told, arrays, kind=CHECKPOINT)


def _begins_behind(job: Job, saved: Saved) -> bool:
    """Return whether a run begins where another has ended."""
    return bool(job.start and saved.records and job.start.epochs == saved.records[-1].get("epoch", -1) + 1)


def names_of(watching: Sequence[Monitor]) -> list[str]:
    """Return a name for each monitor, that of its class, with a number where it is not the first such."""
    classes = [type(monitor).__name__ for monitor in watching]
    return [name + (f"{n}" if (n := classes[:i].count(name)) else "") for i, name in enumerate(classes)]


def _numbers(monitor: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return what of a monitor's state is no array, as JSON knows it; `DataError` for what it does not know."""
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in state.items()}
    arrays = [plain.pop(key) for key in list(plain) if isinstance(plain[key], np.ndarray)]
    try:
        json.dumps(plain, allow_nan=False)
        if strange := [array.dtype for array in arrays if array.dtype.kind not in REAL]:
            raise TypeError(f"an array of {strange[0]}")
    except (TypeError, ValueError) as error:
        raise DataError(f"{monitor}.state: must be finite numbers, texts and arrays by name, got {error}") from error
    return plain
