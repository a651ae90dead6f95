"""The folder that `train` leaves: the saved model and, beside its files, the history, the curve and the report."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files.atomic import atomic_folder, parents_created
from ..data.files.manifest import CURVE, HISTORY, MANIFEST, REPORT
from ..data.files.temporary import temporary_folder_beside
from ..errors import warn
from .exit_codes import TrainingStopped, UsageError, exit_code_and_text
from .models import READ_BY, report_in, save_names
from .output_files import check_folder
from .results import as_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..estimators import XMLClassifier, XMLEnsemble
    from ..training.checkpoints import Checkpoint
    from ..training.history import EpochRecord, History
    from .sources import InputRows

CALL = "call"  # in the report: the checksum of the call of `train --checkpoint` that has made a model, and its runs


@contextmanager
def growing_history(out: str) -> Iterator[History]:
    """Yield a `History` that is written to `OUT.history.jsonl` during training, as the folder is written at the end.

    The file is removed when the folder has been written. It stays if the process is killed or fails.
    """
    from ..training.history import History

    path = Path(f"{Path(out)}.{HISTORY}")
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise UsageError(f"--out {out}: {path} is no regular file; remove it or choose another name")
    with parents_created(path):
        yield History(path)
    path.unlink(missing_ok=True)


def checkpoint_of(out: str, minutes: float | None, n_estimators: int) -> Checkpoint | None:
    """Return the checkpoint of a run, `OUT.checkpoint`, after a check of what it holds; None without `minutes`."""
    from ..training.checkpoints import Checkpoint, read_checkpoint

    path = f"{Path(out)}.checkpoint"
    if minutes is None:
        if Checkpoint(path).exists:
            text = f"{path}: found a checkpoint of an interrupted run"
            warn(f"{text}; pass --checkpoint to resume")
        return None
    checkpoint = Checkpoint(path, minutes, keep=True)
    if n_estimators > 1:
        checkpoint.check_parts()
    else:
        read_checkpoint(checkpoint, verify=False)
    return checkpoint


def name_of_interrupted(out: str, resumable: bool = False) -> str:
    """Return where the model of an interrupted run is saved: `out`, unless that has a model, which may be better.

    Then, and where the run can be resumed, which needs `out`, it is `OUT.interrupted`, or with a number the first such
    name that is free.
    """
    if not (resumable or Path(out, MANIFEST).is_file()):
        return out
    beside = f"{Path(out)}.interrupted"
    numbered = (f"{beside}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([beside], numbered) if not os.path.lexists(name))


def save(
    model: XMLClassifier | XMLEnsemble, out: str, result: dict[str, Any], title: str, compact: bool,
    names_of_uris: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write the folder of a model; add to `result` where the learning curve is, or why there is none.

    Where that fails, write it among the temporary files and raise `TrainingStopped`, which says where.
    """
    try:
        _write(model, out, result, title, compact, names_of_uris)
    except Exception as error:
        spare = Path(tempfile.mkdtemp(prefix="xmlsgd-model-"))
        try:
            _write(model, str(spare / Path(out).name), result, title, compact, names_of_uris)
        except Exception:  # noqa: BLE001  the first error counts
            shutil.rmtree(spare, ignore_errors=True)
            raise error from None
        text = f"{exit_code_and_text(error)[1]}; the model is in {spare / Path(out).name} instead"
        raise TrainingStopped(text) from error


def _write(
    model: XMLClassifier | XMLEnsemble, out: str, result: dict[str, Any], title: str, compact: bool,
    names_of_uris: Mapping[str, str] | None,
) -> None:  # fmt: skip
    """Write the folder as a whole."""
    with atomic_folder(out) as folder:
        model.save(folder, compact=compact)
        lines = [json.dumps(as_json(record)) + "\n" for record in model.history_]
        (folder / HISTORY).write_text("".join(lines))
        result["not_drawn"] = draw_curve(folder, model.history_, title)
        result["learning_curve"] = None if result["not_drawn"] else f"{out}/{CURVE}"
        write_json(str(folder / REPORT), result)
        save_names(folder, names_of_uris)
        check_folder(out)  # another process may have taken the name meanwhile


def save_without_history(
    model: XMLClassifier | XMLEnsemble, out: str, read_by: Mapping[str, Any] | None,
    names_of_uris: Mapping[str, str] | None, compact: bool = False,
) -> None:  # fmt: skip
    """Write a model and what commands remember of its data, without the history and report of its training."""
    with atomic_folder(out) as folder:
        model.save(folder, compact=compact)
        save_names(folder, names_of_uris)
        if read_by is not None:
            write_json(str(folder / REPORT), {READ_BY: read_by})


def draw_curve(folder: Path, records: list[EpochRecord], title: str) -> str | None:
    """Draw the learning curve; return why there is none, None where there is one."""
    from ..training.plots import plot_learning_curve

    if not records:
        return "not drawn, no epoch was finished"
    try:
        plot_learning_curve(records, folder / CURVE, title)
    except ImportError:
        return 'not drawn, matplotlib is missing: pip install "xmlsgd[plot]"'
    except Exception as error:  # noqa: BLE001 (whatever it is, the model must not be lost for its picture)
        (folder / CURVE).unlink(missing_ok=True)
        return f"not drawn, {type(error).__name__}: {error}"
    return None


def training_speed(folder: str, ends: list[EpochRecord]) -> dict[str, Any]:
    """Return "train_seconds" and "rows_per_second" of a saved model, from its report or else from `ends`.

    Those are the last record of the model, or of each classifier of an ensemble.
    """
    with suppress(OSError, ValueError, TypeError, LookupError, RecursionError):  # saved by the estimator, or altered
        report = report_in(folder)
        return {name: report[name] for name in ("train_seconds", "rows_per_second")}
    return speed(ends)


def speed(ends: list[EpochRecord], seconds_after: float = 0.0) -> dict[str, Any]:
    """Return the seconds of runs with these last records, plus what came after them, and the rows per second."""
    rows, seconds = (sum(end.get(name, 0) for end in ends) for name in ("rows", "seconds"))
    return {"train_seconds": seconds + seconds_after, "rows_per_second": rows / max(seconds + seconds_after, 1e-9)}


def call_of(settings: Any, rows: InputRows) -> str:
    """Return a checksum of all that decides what a call trains: its settings, rows, labels and their names.

    A supervisor repeats a call where the process was killed when the model was in place, but the checkpoint and the
    history beside it were not removed yet. By the checksum the call recognizes its model, and succeeds.
    """
    from ..training.checkpoints import checksum_of_rows

    parts = [part for part in (rows.train, rows.test) if part is not None]
    data = [(part.X.shape, part.Y.shape, checksum_of_rows(part), list(part.label_names or ())) for part in parts]
    return hashlib.sha256(json.dumps(as_json([settings, data]), sort_keys=True).encode()).hexdigest()


def finished_call(out: str) -> dict[str, Any] | None:
    """Return what the report in a model's folder says of the call, None where no call with a checkpoint made it."""
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
        call = report_in(out)[CALL]
        if isinstance(call["sha256"], str) and isinstance(call["runs"], list):
            return dict(call)
    return None


def clean_up(out: str, finished: dict[str, Any], checkpoint: Checkpoint) -> None:
    """Remove what the process that made the model has left beside it; a checkpoint of another run stays."""
    checkpoint.request.runs.extend(finished["runs"])
    replace(checkpoint, keep=False).done()
    if not checkpoint.exists:
        Path(f"{Path(out)}.{HISTORY}").unlink(missing_ok=True)
    with temporary_folder_beside(Path(out).absolute()):
        pass  # which removes those of processes that died
