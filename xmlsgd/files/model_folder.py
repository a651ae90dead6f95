"""What tells the folder of a saved model from others, and what is lost where a new one takes its name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .checked import CHECKED
from .reading import open_regular
from .scratch import END
from .whole import read_unreplaced

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST, DESCRIPTION = "MANIFEST.json", "model.json"  # by which a saved model is known
MODEL_FORMAT = "xmlsgd-model"
HISTORY, CURVE, REPORT = "history.jsonl", "learning_curve.png", "train.json"  # which `xmlsgd train` adds
MAX_MANIFEST_BYTES = 1 << 20  # of thousands of files


def is_model(folder: Path) -> bool:
    """Say whether `folder` looks like a saved model; it may be damaged."""
    return (folder / MANIFEST).is_file() and (folder / DESCRIPTION).is_file()


def in_the_way(path: Path) -> str:
    """Return why no new model may take the name `path`, as the end of an error's line; "" where one may.

    It may where there is nothing, an empty folder, or a saved model alone: what a user has put beside it would be gone.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return ""
    others = read_unreplaced(path, _others)
    if others is None:
        return "exists and is not a saved model; choose another name or remove it"
    if others:
        return f"holds {others[0]}, which is no part of the saved model; move it or choose another name"
    return ""


def _others(folder: Path) -> list[str] | None:
    """Return the names in a saved model's folder of which we know nothing; None where it is no saved model."""
    try:
        with open_regular(folder / MANIFEST) as stream:
            manifest = json.loads(stream.read(MAX_MANIFEST_BYTES))
        known = {MANIFEST, CHECKED, HISTORY, CURVE, REPORT, *manifest["files"]}
        ours = manifest["format"] == MODEL_FORMAT
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    names = sorted(entry.name for entry in folder.iterdir())
    return [name for name in names if name not in known and not name.endswith(END)] if ours else None
