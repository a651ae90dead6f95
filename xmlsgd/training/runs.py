"""What a run leaves: the model with its records, in the hands of the error that ended the run where one did."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import WorkerDied
from .worker_log import summary

if TYPE_CHECKING:
    import numpy as np

    from .history import EpochRecord


@dataclass
class Run:
    """What `train` returns: the model float32 (n_params,), one record an epoch, and whether the loss diverged.

    `state` and `steps` are the optimizer's: with them a later run goes on (`Start`).
    """

    params: np.ndarray
    records: list[EpochRecord]
    state: np.ndarray
    steps: int
    diverged: bool = False

    @property
    def workers(self) -> list[EpochRecord]:
        """Return what each of several workers did and brings (`worker_log.summary`)."""
        return summary(self.records)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` is the model as it is then, with the finished epochs and the optimizer's state."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run,)


class WorkersLost(WorkerDied):
    """Workers died for good in the middle of a run; `run` is what was learned until then, as of `Interrupted`."""

    run: Run  # no argument: errors cross between processes as their arguments and attributes


def whole_epochs(n: int) -> str:
    """Return "1 whole epoch" or "2 whole epochs"."""
    return f"{n} whole epoch{'s' * (n != 1)}"


def raise_with(error: BaseException, run: Run) -> NoReturn:
    """Raise what ended a run, with what was learned until then as its `run`.

    Ctrl-C becomes `Interrupted`, `WorkerDied` becomes `WorkersLost`; any other error stays what it is.
    """
    if isinstance(error, KeyboardInterrupt):
        raise Interrupted(run) from error
    ending: Any = WorkersLost(error.what, error.traceback) if isinstance(error, WorkerDied) else error
    ending.run = run
    tell(ending, f"what was learned until then is kept, {whole_epochs(len(run.records))} of this run")
    if ending is error:
        raise ending
    raise ending from error


def run_of(error: BaseException) -> Run | None:
    """Return what was learned until an error ended a run, None where nothing was."""
    run = getattr(error, "run", None)
    return run if isinstance(run, Run) else None


def tell(error: BaseException, more: str) -> None:
    """Add to what an error that ended a run says: to the text of `WorkersLost`, as a note to others (from Python 3.11).

    Ctrl-C needs no words.
    """
    if isinstance(error, WorkersLost):
        error.what += f"; {more}"
    elif sys.version_info >= (3, 11) and not isinstance(error, KeyboardInterrupt):
        error.add_note(more)
