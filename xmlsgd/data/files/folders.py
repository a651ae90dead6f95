"""Recognize folders of saved models and checkpoints, and what a new one would overwrite."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .atomic import read_consistently
from .checked import CHECKED
from .reading import open_regular
from .temporary import END, restore

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "MANIFEST.json"
HISTORY, CURVE, REPORT = "history.jsonl", "learning_curve.png", "train.json"  # which `xmlsgd train` adds
MAX_MANIFEST_BYTES = 1 << 20  # of thousands of files


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder with a manifest.

    format : its format in the manifest. description : the name of its main JSON file. noun : its name in errors.
    beside : further files that it may hold although the manifest does not name them.
    """

    format: str
    description: str
    noun: str
    beside: tuple[str, ...] = ()

    def exists_at(self, path: Path) -> bool:
        """Return whether a folder has the main files of this kind, or its manifest; they may be damaged."""
        restore(path)
        return (path / MANIFEST).is_file() and ((path / self.description).is_file() or self._others(path) is not None)

    def obstacle_at(self, path: Path) -> str:
        """Return why `path` must not be replaced by a new folder of this kind, for an error message; "" where it may.

        It may be replaced where there is nothing, an empty folder, or a folder of this kind without files of the user.
        """
        restore(path)
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return ""
        others = read_consistently(path, self._others)
        if others is None:
            return f"exists and is not a {self.noun}; choose another name or remove it"
        if others:
            return f"holds {others[0]}, which is no part of the {self.noun}; move it or choose another name"
        return ""

    def _others(self, folder: Path) -> list[str] | None:
        """Return the names in a folder that do not belong to this kind; None where the folder is not of this kind."""
        try:
            with open_regular(folder / MANIFEST) as stream:
                manifest = json.loads(stream.read(MAX_MANIFEST_BYTES))
            known = {MANIFEST, CHECKED, *self.beside, *manifest["files"]}
            ours = manifest["format"] == self.format
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        if not ours:
            return None
        entries = sorted(folder.iterdir())
        return [
            entry.name for entry in entries if not (_is_scratch(entry) or (entry.name in known and entry.is_file()))
        ]


MODEL = FolderKind("xmlsgd-model", "model.json", "saved model", (HISTORY, CURVE, REPORT))
CHECKPOINT = FolderKind("xmlsgd-checkpoint", "run.json", "checkpoint")
STORE = FolderKind("xmlsgd-store", "store.json", "store")


def _is_scratch(entry: Path) -> bool:
    """Return whether an entry has the name of a temporary file or folder of this package."""
    return entry.name.startswith(".") and entry.name.endswith(END)
