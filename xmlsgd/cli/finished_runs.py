"""Recognize the model that a call of `train --checkpoint` has made, so that the call succeeds when it is repeated.

A supervisor repeats the call where the process was killed when the model was in place, but the checkpoint and the
history beside it were not removed yet.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files.manifest import HISTORY, REPORT
from ..data.files.temporary import temporary_folder_beside
from .results import plain

if TYPE_CHECKING:
    from ..training.checkpoints import Checkpoint
    from .sources import Rows

CALL = "call"  # in the report


def call_of(settings: Any, rows: Rows) -> str:
    """Return a checksum of all that decides what a call trains: its settings, rows, labels and their names."""
    from ..training.checkpoints import checksum_of_rows

    parts = [part for part in (rows.train, rows.test) if part is not None]
    data = [(part.X.shape, part.Y.shape, checksum_of_rows(part), list(part.label_names or ())) for part in parts]
    return hashlib.sha256(json.dumps(plain([settings, data]), sort_keys=True).encode()).hexdigest()


def report_of_call(call: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the report of a finished run says of its call and of the checkpoints that it wrote."""
    return {CALL: {"sha256": call, "runs": checkpoint.request.runs}}


def report_in(out: str) -> Any:
    """Return the report in a model's folder."""
    return json.loads(Path(out, REPORT).read_text(encoding="utf-8"))


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
