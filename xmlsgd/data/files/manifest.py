"""Folders with a manifest, the list of their files with sizes and checksums: saved models, checkpoints, stores.

The manifest, `MANIFEST.json`, is written last. It shows whether a file was altered or damaged. `verified.json` holds
size and time of change of each file whose checksum was compared; it is compared again only if these differ. This does
not protect against somebody who can write to the folder.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import ModelFileError, shorten
from .atomic import atomic_file, read_consistently
from .reading import is_there, open_regular, sha256_of
from .system_errors import is_system_error
from .temporary import SUFFIX as TEMPORARY_SUFFIX

MANIFEST = "MANIFEST.json"
# Files that `xmlsgd train` adds to a model.
HISTORY, CURVE, REPORT, VOCABULARY = "history.jsonl", "learning_curve.png", "train.json", "vocabulary.tsv"
VERIFIED = "verified.json"
VECTORIZER_FILE = "vectorizer.json"  # of a store of texts
MAX_MANIFEST_BYTES = 1 << 20  # of `MANIFEST` and of `VERIFIED`; enough for thousands of files
VERSION = 1
MAX_JSON_BYTES = 1 << 28  # enough for a history of a million epochs
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)  # also of names that no file can have
SUFFIXES = (".npy", ".json", ".txt")


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder with a manifest.

    format : its name in the manifest. description : the name of its main JSON file. noun : its name in errors.
    beside : further files that it may hold, which the manifest does not list. if_missing : what to do if a main file is
    missing; "" if its readers say so.
    """

    format: str
    description: str
    noun: str
    beside: tuple[str, ...] = ()
    if_missing: str = ""

    def exists_at(self, path: Path) -> bool:
        """Return whether a folder has the main files of this kind, or a manifest of it; the files may be damaged."""
        return (path / MANIFEST).is_file() and ((path / self.description).is_file() or self._foreign(path) is not None)

    def obstacle_at(self, path: Path) -> str:
        """Return why `path` must not be replaced by a new folder of this kind, for an error message; "" if it may be.

        It may be replaced if there is nothing, an empty folder, or a folder of this kind without files of the user.
        """
        if not is_there(path) or (path.is_dir() and not any(path.iterdir())):
            return ""
        others = read_consistently(path, self._foreign)
        if others is None:
            return f"exists and is not a {self.noun}; choose another name or remove it"
        if others:
            return f"holds {others[0]}, which is no part of the {self.noun}; move it or choose another name"
        return ""

    def check_replaceable(self, path: Path) -> None:
        """Raise `FileExistsError` if `path` must not be replaced by a new folder of this kind."""
        if reason := self.obstacle_at(path):
            raise FileExistsError(f"{path}: {reason}")

    def _foreign(self, folder: Path) -> list[str] | None:
        """Return the names in a folder of this kind that do not belong to it; None if the folder is of another kind."""
        try:
            with open_regular(folder / MANIFEST) as stream:
                manifest = json.loads(stream.read(MAX_MANIFEST_BYTES))
            known = {MANIFEST, VERIFIED, *self.beside, *manifest["files"]}
            ours = manifest["format"] == self.format
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            if is_system_error(error):
                raise
            return None
        if not ours:
            return None
        entries = [entry for entry in sorted(folder.iterdir()) if not _is_temporary(entry)]
        return [entry.name for entry in entries if entry.name not in known or not entry.is_file()]


MODEL = FolderKind(
    "xmlsgd-model", "model.json", "saved model",
    beside=(HISTORY, CURVE, REPORT, VOCABULARY), if_missing="pass the folder of a saved model",
)  # fmt: skip
CHECKPOINT = FolderKind("xmlsgd-checkpoint", "run.json", "checkpoint")
STORE = FolderKind("xmlsgd-store", "store.json", "store", beside=(VECTORIZER_FILE,))


def _is_temporary(entry: Path) -> bool:
    """Return whether an entry has the name of a temporary file or folder of this package."""
    return entry.name.startswith(".") and entry.name.endswith(TEMPORARY_SUFFIX)


class ListedFiles(NamedTuple):
    """The files that a manifest lists; all of them exist and have the listed sizes.

    sha256 : listed checksums by name. states : their sizes and times of change. verified : sizes and times of change
    when the files were verified; empty if the manifest has changed since.
    """

    sha256: dict[str, Any]
    states: dict[str, dict[str, int]]
    verified: dict[str, Any]

    @property
    def all_verified(self) -> bool:
        """Return whether no file has changed since all of them were verified."""
        return self.verified == self.states


def write_manifest(folder: Path, kind: FolderKind) -> None:
    """Write the manifest of a complete folder, and record that its files are verified."""
    files = {f.name: {"bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in sorted(folder.iterdir())}
    manifest = {"format": kind.format, "version": VERSION, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    save_verified(folder, {name: file_state(folder / name) for name in (*files, MANIFEST)})


def listed_files(path: Path, kind: FolderKind) -> ListedFiles:
    """Return the files that a folder's manifest lists; raise `ModelFileError` if one is missing or has another size."""
    if not path.exists():
        earlier = path.parent.glob(f"{glob.escape(path.name)}.old-*")  # by a killed `atomic_folder`
        newest = max(earlier, key=lambda folder: folder.stat().st_mtime_ns, default=None)
        hint = f"; the earlier one is {newest}, move it back" if newest else ""
        raise ModelFileError(f"{path}: no such folder{hint}")
    manifest = read_folder_json(path / MANIFEST, kind)
    if manifest.get("format") != kind.format or manifest.get("version") != VERSION:
        if manifest.get("format") == CHECKPOINT.format and kind is MODEL:
            raise ModelFileError(f"{path}: is a checkpoint, no saved model; repeat the call that wrote it")
        got = shorten((manifest.get("format"), manifest.get("version")))
        raise ModelFileError(f"{path}: format must be {kind.format} version {VERSION}, got {got}")
    files = manifest.get("files")
    if not isinstance(files, dict) or kind.description not in files:
        raise ModelFileError(f"{path / MANIFEST}: must list the files of the {kind.noun}, got {shorten(files)}")
    verified, states = verified_states(path), {MANIFEST: file_state(path / MANIFEST)}
    if verified.get(MANIFEST) != states[MANIFEST]:
        verified = {}
    for name, entry in files.items():
        _check_file(path / name, name, entry)
        states[name] = file_state(path / name)
    return ListedFiles({name: entry.get("sha256") for name, entry in files.items()}, states, verified)


def compare_checksums(path: Path, files: ListedFiles) -> None:
    """Raise `ModelFileError` for a file whose checksum differs from the manifest; verified files are not read."""
    for name, sha256 in files.sha256.items():
        if files.verified.get(name) != files.states[name] and sha256_of(path / name) != sha256:
            raise ModelFileError(
                f"{path / name}: its checksum differs from the manifest; the file was altered or damaged"
            )


def read_folder_json(file: Path, kind: FolderKind) -> dict[str, Any]:
    """Return the JSON object in a file of a folder of this kind."""
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        reason = f"it is a file, a {kind.noun} is a folder" if file.parent.is_file() else f"{file.name} is missing"
        hint = f"; {kind.if_missing}" if kind.if_missing else ""
        raise ModelFileError(f"{file.parent}: is not a {kind.noun}: {reason}{hint}") from error
    return read_json_object(file, MAX_JSON_BYTES)


def check_regular(file: Path) -> os.stat_result:
    """Return the state of a file; raise `ModelFileError` for none, a folder, or a link, which may lead elsewhere."""
    try:
        state = file.lstat()
        if stat.S_ISREG(state.st_mode):
            return state
    except ValueError:  # a name with a NUL character
        pass
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
    raise ModelFileError(f"{file}: is missing or no regular file; copy the whole folder again")


def check_small(file: Path, most: int) -> None:
    """Raise `ModelFileError` unless a file is a regular one of at most `most` bytes."""
    if (size := check_regular(file).st_size) > most:
        raise ModelFileError(f"{file}: must be at most {most} bytes, got {size}")


def read_json_object(file: Path, most: int) -> dict[str, Any]:
    """Return the JSON object in a file of at most `most` bytes; raise `ModelFileError` for anything else."""
    check_small(file, most)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if is_system_error(error):
            raise
        raise ModelFileError(f"{file}: must be a JSON object, got {shorten(str(error), 100)}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{file}: must be a JSON object, got {shorten(value)}")
    return value


def _check_file(file: Path, name: str, entry: Any) -> None:
    """Raise `ModelFileError` unless `file` is a regular file in the folder with the listed size."""
    if name != Path(name).name or file.suffix not in SUFFIXES or not isinstance(entry, dict):
        got = f"may name only {', '.join(SUFFIXES)} files, got {shorten(name)}"
        raise ModelFileError(f"{file.parent / MANIFEST}: {got}")
    if (size := check_regular(file).st_size) != entry.get("bytes"):
        raise ModelFileError(f"{file}: must have {shorten(entry.get('bytes'))} bytes, got {size}")


def file_state(path: str | os.PathLike[str]) -> dict[str, int]:
    """Return the size of a file in bytes and its time of change in nanoseconds, which show whether it has changed."""
    state = os.stat(path)
    return {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns}


def verified_states(folder: Path) -> dict[str, Any]:
    """Return the states in which a folder's files were verified, by name; empty without a valid `verified.json`.

    Files that changed after `verified.json` was written, or at the same time, are left out.
    """
    try:
        with open_regular(folder / VERIFIED) as stream:
            at = os.fstat(stream.fileno()).st_mtime_ns
            saved = json.loads(stream.read(MAX_MANIFEST_BYTES))
        return {name: state for name, state in saved.items() if state["mtime_ns"] < at}
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return {}


def save_verified(folder: Path, states: Mapping[str, Mapping[str, int]]) -> None:
    """Record that files were verified; states : as they were before. Raises `OSError` if that fails."""
    with atomic_file(folder / VERIFIED) as stream:
        stream.write(json.dumps(states, indent=1).encode() + b"\n")


def update_verified(folder: Path, states: Mapping[str, Mapping[str, int]]) -> None:
    """Record what a reader has verified, unless it is recorded already or the folder cannot be written.

    Nothing is written through a link, which may lead out of the folder, or into a pipe, which may have no reader.
    """
    with suppress(OSError):
        file = folder / VERIFIED
        ours = not os.path.lexists(file) or (file.is_file() and not file.is_symlink())
        if ours and states != verified_states(folder):
            save_verified(folder, states)
