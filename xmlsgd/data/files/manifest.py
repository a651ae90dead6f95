"""Manifests: the files of a folder with their sizes and checksums, which tell that one was altered or damaged.

`MANIFEST.json` is written last. A file whose checksum was compared is noted in `checked.json`, and its checksum is
compared again only once its size or time of change differs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ModelFileError, shorten
from .checked import file_state, save_verified, verified_states
from .folders import CHECKPOINT, MANIFEST, MODEL, FolderKind
from .reading import sha256_of

if TYPE_CHECKING:
    pass

VERSION = 1
MAX_JSON_BYTES = 1 << 28  # a history of a million epochs
SUFFIXES = (".npy", ".json", ".txt")


class ListedFiles(NamedTuple):
    """The files that a manifest lists, all of them there with the sizes that it says.

    sha256 : their checksums by name, as listed. states : their sizes and times of change. noted : those in which files
    were when they were verified, empty where the manifest has changed since.
    """

    sha256: dict[str, Any]
    states: dict[str, dict[str, int]]
    noted: dict[str, Any]


def write_manifest(folder: Path, kind: FolderKind) -> None:
    """Write the manifest of a complete folder, and note that its files are verified."""
    files = {f.name: {"bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in sorted(folder.iterdir())}
    manifest = {"format": kind.format, "version": VERSION, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    save_verified(folder, {name: file_state(folder / name) for name in (*files, MANIFEST)})


def listed_files(path: Path, kind: FolderKind) -> ListedFiles:
    """Return the files that a folder's manifest lists; `ModelFileError` where one is missing or has another size."""
    if not path.exists():
        raise ModelFileError(f"{path}: no such folder")
    manifest = read_part(path / MANIFEST, kind)
    if manifest.get("format") != kind.format or manifest.get("version") != VERSION:
        if manifest.get("format") == CHECKPOINT.format and kind is MODEL:
            raise ModelFileError(f"{path}: is a checkpoint, no saved model; the call that wrote it goes on from it")
        got = shorten((manifest.get("format"), manifest.get("version")))
        raise ModelFileError(f"{path}: format must be {kind.format} version {VERSION}, got {got}")
    files = manifest.get("files")
    if not isinstance(files, dict) or kind.description not in files:
        raise ModelFileError(f"{path / MANIFEST}: must list the files of the {kind.noun}, got {shorten(files)}")
    noted, states = verified_states(path), {MANIFEST: file_state(path / MANIFEST)}
    if noted.get(MANIFEST) != states[MANIFEST]:
        noted = {}
    for name, entry in files.items():
        _check_file(path / name, name, entry)
        states[name] = file_state(path / name)
    return ListedFiles({name: entry.get("sha256") for name, entry in files.items()}, states, noted)


def compare_checksums(path: Path, files: ListedFiles, noted: dict[str, Any]) -> None:
    """Raise `ModelFileError` for a file whose checksum is not that of the manifest; files as `noted` are not read."""
    for name, sha256 in files.sha256.items():
        if noted.get(name) != files.states[name] and sha256_of(path / name) != sha256:
            raise ModelFileError(
                f"{path / name}: its checksum differs from the manifest; the file was altered or damaged"
            )


def read_part(file: Path, kind: FolderKind) -> dict[str, Any]:
    """Return the JSON object of a file of the folder."""
    if not os.path.lexists(file):
        reason = f"it is a file, a {kind.noun} is a folder" if file.parent.is_file() else f"{file.name} is missing"
        raise ModelFileError(f"{file.parent}: is not a {kind.noun}: {reason}")
    return read_object(file, MAX_JSON_BYTES)


def check_regular(file: Path) -> None:
    """Raise `ModelFileError` for a link, which may lead out of the folder, and for what is no file."""
    if file.is_symlink() or not file.is_file():
        raise ModelFileError(f"{file}: is missing or no regular file; copy the whole folder again")


def read_object(file: Path, most: int) -> dict[str, Any]:
    """Return the JSON object in a file of at most `most` bytes; raise `ModelFileError` for anything else."""
    check_regular(file)
    if file.stat().st_size > most:
        raise ModelFileError(f"{file}: must be at most {most} bytes, got {file.stat().st_size}")
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file}: must be a JSON object, got {shorten(str(error), 100)}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{file}: must be a JSON object, got {shorten(value)}")
    return value


def _check_file(file: Path, name: str, entry: Any) -> None:
    """Raise unless `file` is a regular file in the folder with the promised size."""
    if name != Path(name).name or file.suffix not in SUFFIXES or not isinstance(entry, dict):
        got = f"may name only {', '.join(SUFFIXES)} files, got {shorten(name)}"
        raise ModelFileError(f"{file.parent / MANIFEST}: {got}")
    check_regular(file)
    if file.stat().st_size != entry.get("bytes"):
        raise ModelFileError(f"{file}: must have {shorten(entry.get('bytes'))} bytes, got {file.stat().st_size}")
