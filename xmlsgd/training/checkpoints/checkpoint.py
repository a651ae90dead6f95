"""The checkpoint of a run, as users configure it: its folder, how often it is written, and whether it is kept."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...data.files.atomic import move_folder, read_consistently
from ...data.files.manifest import CHECKPOINT
from ...data.files.temporary import temporary_folder_beside
from ...data.validation import check_fields, ranged
from ...errors import LOGGER, DataError, ModelFileError, shorten
from .reader import read_identity


@dataclass
class EndRequest:
    """A request to end the run with its next checkpoint.

    error : the exception that the run raises then; None if there is no request. accepted : whether a run is in progress
    that accepts requests. runs : identities of the runs of this process that have used the checkpoint.
    """

    error: BaseException | None = None
    accepted: bool = False
    runs: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run saves its state, so that it can be resumed.

    The same call resumes the run: the same rows, labels, weights, layer sizes, loss, optimizer, learning rate, batch
    size, epochs and, if given, seed, with the same version of the package. Devices, threads and algorithm may change.

    Parameters
    ----------
    path : path-like
        Folder of the checkpoint; an ensemble has a subfolder for each classifier. It takes as much space as the model
        and the optimizer state (with Adam, three times the model), and twice that while it is written.
    minutes : float, default=10.0
        Minimum time between checkpoints; 0 to write one after every span.
    keep : bool, default=False
        Whether to keep the checkpoint after `fit`, until `remove` is called. `train` always keeps it.

    Notes
    -----
    Copies by `dataclasses.replace` share the request to end the run (`end_by`).

    Examples
    --------
    After a kill the same call resumes::

        checkpoint = Checkpoint("run", minutes=5, keep=True)
        model.fit(X, Y, checkpoint=checkpoint).save("model")
        checkpoint.remove()  # the model is saved
    """

    path: str | os.PathLike[str]
    minutes: float = ranged(10.0, "finite and at least 0", lambda value: 0 <= value < math.inf)
    keep: bool = False
    folder: Path = field(init=False, repr=False)  # the real path at the time of creation
    request: EndRequest = field(default_factory=EndRequest, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise `DataError` for invalid parameters."""
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise DataError(f"checkpoint: must be a path or a Checkpoint, got {shorten(self.path)}")
        object.__setattr__(self, "folder", Path(os.path.realpath(os.fsdecode(self.path))))
        check_fields(self)

    @property
    def exists(self) -> bool:
        """Whether a checkpoint has been written; it may be damaged."""
        return read_consistently(self.folder, CHECKPOINT.exists_at) or bool(self.parts)

    def end_by(self, error: BaseException) -> bool:
        """Ask the run to write one more checkpoint and raise `error`; return False if no run accepts the request."""
        if self.request.accepted:
            self.request.error = error
        return self.request.accepted

    def part(self, number: int) -> Checkpoint:
        """Return the checkpoint of classifier `number` of an ensemble, in a subfolder."""
        return replace(self, path=self.folder / str(number), keep=True)

    def check_parts(self) -> None:
        """Raise `ModelFileError` if the folder holds anything but the checkpoints of an ensemble."""
        parts = self.parts
        others = [entry.name for entry in self.folder.glob("[!.]*") if entry not in parts]
        if self.folder.is_file() or others:
            got = f"holds {others[0]}, which is no part of it" if others else "is a file"
            raise ModelFileError(f"{self.path}: {got}; the checkpoint of an ensemble needs a folder of its own")

    def done(self) -> None:
        """Remove the checkpoint unless it is to be kept or belongs to another run; log an error instead of raising."""
        if not self.keep:
            try:
                if any(read_identity(part) not in (None, *self.request.runs) for part in (self.folder, *self.parts)):
                    raise ModelFileError(f"{self.path}: another run has written a checkpoint there in the meantime")
                self.remove()
            except (OSError, ModelFileError) as error:
                LOGGER.warning("the checkpoint cannot be removed: %s", error)

    def remove(self) -> None:
        """Remove the checkpoint, including its parts; raise `ModelFileError` if it holds files of others."""
        for part in (self.folder, *self.parts):
            if CHECKPOINT.exists_at(part):
                if reason := CHECKPOINT.obstacle_at(part):
                    raise ModelFileError(f"{part}: {reason}")
                with temporary_folder_beside(part) as scratch:  # atomically: half a checkpoint could not be resumed
                    move_folder(part, scratch / part.name)
        with suppress(OSError):  # does not exist, or holds something else
            self.folder.rmdir()

    @property
    def parts(self) -> list[Path]:
        """The checkpoints of the classifiers of an ensemble."""
        numbered = (part for part in self.folder.glob("[0-9]*") if part.name.isdecimal())
        return [part for part in numbered if CHECKPOINT.exists_at(part)]
