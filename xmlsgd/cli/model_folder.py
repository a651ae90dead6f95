"""The folder that `train` writes: the saved model, and its history, learning curve, report and vocabulary."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files.atomic import atomic_folder, parents_created
from ..data.files.manifest import (
    CURVE,
    HISTORY,
    MANIFEST,
    MAX_JSON_BYTES,
    REPORT,
    VOCABULARY,
    check_small,
    read_json_object,
)
from ..data.files.reading import COMPRESSIONS, open_regular
from ..data.files.temporary import sole_use, temporary_folder_beside
from ..errors import DataError, ModelFileError, warn
from .exit_codes import TrainingStopped, UsageError, exit_code_and_text
from .output_files import check_folder
from .results import as_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..estimators import Model
    from ..training.checkpoints import Checkpoint
    from ..training.history import EpochRecord, History
    from .sources import InputRows

OPTIONS = "read_by"  # key of the report: options of reading data, which later commands use again
NO_MODEL = b""  # the manifest of no model
CALL = "call"  # key of the report: checksum and runs of the call of `train --checkpoint` that trained the model


@dataclass(frozen=True)
class Target:
    """Where and how the model of a run is saved.

    out : its folder. title : of the learning curve. compact : save a model that can only predict. checkpoint : of the
    run. call : with a checkpoint, the checksum of the call, by which a repeated call recognizes the model as its own.
    replaces : the manifest of the one model that may be replaced, as it was when the run began; `NO_MODEL` for none.
    """

    out: str
    title: str
    compact: bool = False
    checkpoint: Checkpoint | None = None
    call: str = ""
    replaces: bytes = NO_MODEL


@contextmanager
def growing_history(out: str) -> Iterator[History]:
    """Yield a `History` that is written to `OUT.history.jsonl` during training.

    The model's folder, with the history, is written at the end; then this file is removed. It stays if the process is
    killed or fails.
    """
    from ..training.history import History

    path = Path(f"{Path(out)}.{HISTORY}")
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise UsageError(f"--out {out}: {path} is no regular file; remove it or choose another name")
    with parents_created(path):
        yield History(path)
    path.unlink(missing_ok=True)


def checkpoint_of(out: str, minutes: float | None, n_estimators: int) -> Checkpoint | None:
    """Check and return the checkpoint of a run, `OUT.checkpoint`; None without `minutes`."""
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
    """Return the folder to which the model of an interrupted run is saved.

    It is `out`, unless there is a model, which may be better, or the run can be resumed, which needs this name. Then it
    is the first free name of `OUT.interrupted`, `OUT.interrupted-2`, ...
    """
    if not (resumable or Path(out, MANIFEST).is_file()):
        return out
    beside = f"{Path(out)}.interrupted"
    numbered = (f"{beside}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([beside], numbered) if not os.path.lexists(name))


def save(model: Model, target: Target, result: dict[str, Any], names_of_uris: Mapping[str, str] | None) -> None:
    """Write the folder of a model; add to `result` the path of the learning curve, or the reason why there is none.

    If writing fails, write the folder among the temporary files, and raise `TrainingStopped` with its path.
    """
    try:
        with unchanged(target.out, target.replaces):
            _write(model, target, result, names_of_uris)
    except Exception as error:
        try:
            with ExitStack() as on_failure:
                parent = tempfile.mkdtemp(prefix="xmlsgd-model-")
                on_failure.callback(shutil.rmtree, parent, ignore_errors=True)
                spare = Path(parent, Path(target.out).name)
                _write(model, replace(target, out=str(spare)), result, names_of_uris)
                on_failure.pop_all()  # keep the folder
        except Exception:  # noqa: BLE001  report the first error instead
            raise error from None
        text = f"{exit_code_and_text(error)[1]}; the model is in {spare} instead"
        raise TrainingStopped(text) from error


def _write(model: Model, target: Target, result: dict[str, Any], names_of_uris: Mapping[str, str] | None) -> None:
    """Write the folder, which appears when it is complete."""
    with atomic_folder(target.out) as folder:
        model.save(folder, compact=target.compact)
        lines = [json.dumps(as_json(record)) + "\n" for record in model.history_]
        (folder / HISTORY).write_text("".join(lines))
        result["not_drawn"] = draw_curve(folder, model.history_, target.title)
        result["learning_curve"] = None if result["not_drawn"] else f"{target.out}/{CURVE}"
        write_json(str(folder / REPORT), result)
        save_names(folder, names_of_uris)
        check_folder(target.out)  # another process may have taken the name meanwhile


def manifest_of(folder: str) -> bytes:
    """Return the manifest of a saved model, which tells it from any other; `NO_MODEL` if there is none."""
    with suppress(OSError), open_regular(Path(folder, MANIFEST)) as stream:
        return stream.read(MAX_JSON_BYTES)
    return NO_MODEL


@contextmanager
def unchanged(folder: str, manifest: bytes) -> Iterator[None]:
    """Raise `ModelFileError` unless a folder holds the model with this manifest, or if another process is saving there.

    Otherwise a model would replace another that was trained, or has learned, at the same time. manifest : what
    `manifest_of` returned when the work began.
    """
    path = Path(os.path.realpath(folder))
    with parents_created(path), ExitStack() as stack:
        try:
            stack.enter_context(sole_use(path, f"{folder}: another process is saving a model there"))
        except DataError as error:
            raise ModelFileError(str(error)) from error
        if manifest_of(folder) != manifest:
            raise ModelFileError(f"{folder}: another process has changed the model meanwhile")
        yield


def save_without_history(model: Model, out: str, source: str, compact: bool = False) -> None:
    """Write a model with the vocabulary and the options of reading data of the folder `source`, but not its history."""
    options, names_of_uris = saved_options(source), saved_names(source)
    with atomic_folder(out) as folder:
        model.save(folder, compact=compact)
        save_names(folder, names_of_uris)
        if options is not None:
            write_json(str(folder / REPORT), {OPTIONS: options})


def draw_curve(folder: Path, records: list[EpochRecord], title: str) -> str | None:
    """Draw the learning curve; return None, or the reason if there is none."""
    from ..training.plots import plot_learning_curve

    if not records:
        return "not drawn, no epoch was finished"
    try:
        plot_learning_curve(records, folder / CURVE, title)
    except ImportError:
        return 'not drawn, matplotlib is missing: pip install "xmlsgd[plot]"'
    except Exception as error:  # noqa: BLE001  no error of the drawing may lose the model
        (folder / CURVE).unlink(missing_ok=True)
        return f"not drawn, {type(error).__name__}: {error}"
    return None


def speed(ends: list[EpochRecord], seconds_after: float = 0.0) -> dict[str, Any]:
    """Return the seconds of runs with these last records, plus `seconds_after`, and the rows per second."""
    rows, seconds = (sum(end.get(name, 0) for end in ends) for name in ("rows", "seconds"))
    return {"train_seconds": seconds + seconds_after, "rows_per_second": rows / max(seconds + seconds_after, 1e-9)}


def call_of(settings: Any, rows: InputRows) -> str:
    """Return a checksum of all that determines what a call trains: its settings, rows, labels and their names.

    If a process is killed after it has saved the model, but before it has removed the checkpoint and the history, a
    supervisor repeats the call. By the checksum the second call recognizes the model as its own, and succeeds.
    """
    from ..training.checkpoints import checksum_of_rows

    parts = [part for part in (rows.train, rows.test) if part is not None]
    data = [(part.X.shape, part.Y.shape, checksum_of_rows(part), list(part.label_names or ())) for part in parts]
    return hashlib.sha256(json.dumps(as_json([settings, data]), sort_keys=True).encode()).hexdigest()


def finished_call(out: str) -> dict[str, Any] | None:
    """Return the entry `CALL` of the report in a model's folder; None if it was trained without a checkpoint."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        call = report_in(out)[CALL]
        if isinstance(call["sha256"], str) and isinstance(call["runs"], list):
            return dict(call)
    return None


def clean_up(out: str, finished: dict[str, Any], checkpoint: Checkpoint) -> None:
    """Remove the files that the process which trained the model has left; a checkpoint of another run stays."""
    checkpoint.request.runs.extend(finished["runs"])
    replace(checkpoint, keep=False).done()
    if not checkpoint.exists:
        Path(f"{Path(out)}.{HISTORY}").unlink(missing_ok=True)
    with temporary_folder_beside(Path(out).absolute()):
        pass  # which removes those of processes that died


def report_in(folder: str) -> dict[str, Any]:
    """Return the report in a model's folder."""
    return read_json_object(Path(folder, REPORT), MAX_JSON_BYTES)


def saved_options(folder: str) -> dict[str, Any] | None:
    """Return the options by which the training data was read; None if the model's folder has no report with them."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return dict(report_in(folder)[OPTIONS])
    return None


def saved_names(folder: str) -> dict[str, str] | None:
    """Return the names of the vocabulary that `train --vocabulary` saved, by URI; None if there was none."""
    from ..data.vocabulary import read_vocabulary

    path = Path(folder, VOCABULARY)
    if not os.path.lexists(path):
        return None
    check_small(path, MAX_JSON_BYTES)
    with open_regular(path) as stream:
        if stream.read(6).startswith(tuple(magic for magic, _ in COMPRESSIONS)):  # 2 MB could fill 6 GB of memory
            raise ModelFileError(f"{path}: must be plain text, got a compressed file; unpack it")
    return read_vocabulary(path)


def save_names(folder: Path, names_of_uris: Mapping[str, str] | None) -> None:
    """Write names of a vocabulary into a folder, for `saved_names`; nothing for None."""
    from ..data.vocabulary import write_vocabulary

    if names_of_uris is not None:
        write_vocabulary(names_of_uris, folder / VOCABULARY)
