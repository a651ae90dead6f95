"""What a user says of checkpoints: where they lie, how often they are written, whether the last one stays."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...data.files import CHECKPOINT, read_unreplaced, scratch_beside
from ...data.files.compiled import LOGGER
from ...data.validation import is_number
from ...errors import DataError, ModelFileError, shorten
from .saved import identity_kept


@dataclass
class Request:
    """What a run is to end by when its next checkpoint is written, and whether one is under way that heeds it.

    runs : what tells the runs that have had the checkpoint here from others (`identity`).
    """

    error: BaseException | None = None
    heard: bool = False
    runs: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps what it has learned, and how often.

        kept = Checkpoint("run", minutes=5, keep=True)
        model.fit(X, Y, checkpoint=kept).save("model")  # after a kill the same call goes on
        kept.remove()                                   # now that the model is saved

    The same call: the same rows, labels, weights, sizes, loss, optimizer, rate, batch, epochs, and seed where one is
    given. Devices, threads and the algorithm may be others.

    Whoever has a copy of it (`replace`) ends the same run (`end_by`).

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
        return read_unreplaced(self.folder, CHECKPOINT.is_at) or bool(self.parts)

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
        parts = self.parts
        others = [entry.name for entry in self.folder.glob("[!.]*") if entry not in parts]
        if self.folder.is_file() or others:
            got = f"holds {others[0]}, which is no part of it" if others else "is a file"
            raise ModelFileError(f"{self.path}: {got}; the checkpoint of an ensemble needs a folder of its own")

    def done(self) -> None:
        """Remove what is kept, unless it is to stay or is another run's; where that fails, say so: all is learned."""
        if not self.keep:
            try:
                if any(identity_kept(part) not in (None, *self.request.runs) for part in (self.folder, *self.parts)):
                    raise ModelFileError(f"{self.path}: another run has written there meanwhile")
                self.remove()
            except (OSError, ModelFileError) as error:
                logging.getLogger(LOGGER).warning("the checkpoint cannot be removed: %s", error)

    def remove(self) -> None:
        """Remove what is kept, if anything is; of several runs all. `ModelFileError` where more lies with it."""
        for part in (self.folder, *self.parts):
            if CHECKPOINT.is_at(part):
                if reason := CHECKPOINT.in_the_way(part):
                    raise ModelFileError(f"{part}: {reason}")
                with scratch_beside(part) as scratch:  # in one step: half of one would be in the way
                    part.rename(scratch / part.name)
        with suppress(OSError):  # nothing, or something else is in there
            self.folder.rmdir()

    @property
    def parts(self) -> list[Path]:
        """Return the checkpoints of several runs."""
        numbered = (part for part in self.folder.glob("[0-9]*") if part.name.isdecimal())
        return [part for part in numbered if CHECKPOINT.is_at(part)]
