"""Saved models and checkpoints, with their manifest.

Each is a directory of a small JSON file and plain arrays; nothing in it is code and nothing is unpickled.
It is written beside its final name and renamed, so that a crash or a full disk never leaves half of one under it.
`checked.json` notes the sizes and times of change of files whose checksums were compared, which need not be again.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ModelFileError, shorten
from . import (
    CHECKPOINT,
    MANIFEST,
    MODEL,
    SYSTEM_ERRORS,
    FolderKind,
    atomic_folder,
    file_state,
    save_verified,
    sha256_of,
    verified_states,
)

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
MAX_JSON_BYTES = 1 << 28  # a history of a million epochs


def write_model(
    path: str | Path,
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    write_more: Callable[[Path], None] | None = None,
    kind: FolderKind = MODEL,
) -> None:
    """Write a model directory: `model.json` with `description`, one `.npy` an array, `MANIFEST.json` with checksums.

    `write_more` adds JSON files of its own to the folder that it is given. An earlier folder of this kind at `path` is
    replaced; anything else there, or beside it in its folder, is a `ModelFileError`. A full disk is an `OSError` that
    names `path`.
    """
    path = Path(path)
    try:
        described = json.dumps(description, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{path}: parameters and history must be finite numbers or texts, got: {error}") from error
    check_replaceable(path, kind)
    try:
        with atomic_folder(path) as folder:
            for name, array in arrays.items():
                _write_array(folder / f"{name}.npy", array)
            (folder / kind.description).write_text(described, encoding="utf-8")
            if write_more:
                write_more(folder)
            files = {f.name: {"bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in sorted(folder.iterdir())}
            manifest = {"format": kind.format, "version": VERSION, "files": files}
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
            save_verified(folder, {name: file_state(folder / name) for name in (*files, MANIFEST)})
            check_replaceable(path, kind)  # writing may have taken minutes
    except (FileExistsError, NotADirectoryError) as error:
        raise ModelFileError(str(error)) from error


def check_replaceable(path: Path, kind: FolderKind) -> None:
    """Raise `ModelFileError` where a folder of this kind at `path` would replace more than an earlier one."""
    if reason := kind.obstacle_at(path):
        raise ModelFileError(f"{path}: {reason}")


class ModelFiles(NamedTuple):
    """The content of a model's folder: its description, and its arrays as read-only memory maps.

    states : sizes and times of change of the files. noted : whether these are as they were when all were verified.
    """

    description: dict[str, Any]
    arrays: dict[str, np.ndarray]
    states: dict[str, dict[str, int]]
    noted: bool


def read_model(path: str | Path, verify: bool = True, kind: FolderKind = MODEL) -> ModelFiles:
    """Read a model's folder.

    Raises `ModelFileError` where a file is missing, has another size or checksum, or is no plain array. Checksums are
    compared with `verify`, where the file is not as it was when that was done before.
    """
    path = Path(path)
    if not path.exists():
        raise ModelFileError(f"{path}: no such folder")
    manifest = _read_json(path / MANIFEST, kind)
    if manifest.get("format") != kind.format or manifest.get("version") != VERSION:
        if manifest.get("format") == CHECKPOINT.format and kind is MODEL:
            raise ModelFileError(f"{path}: is a checkpoint, no saved model; the call that wrote it goes on from it")
        got = shorten((manifest.get("format"), manifest.get("version")))
        raise ModelFileError(f"{path}: format must be {kind.format} version {VERSION}, got {got}")
    files = manifest.get("files")
    if not isinstance(files, dict) or kind.description not in files:
        raise ModelFileError(f"{path / MANIFEST}: must list the files of the {kind.noun}, got {shorten(files)}")
    known, arrays, states = verified_states(path), {}, {MANIFEST: file_state(path / MANIFEST)}
    if known.get(MANIFEST) != states[MANIFEST]:
        known = {}
    for name, entry in files.items():
        file = path / name
        _check_file(file, name, entry)
        states[name] = file_state(file)
        if verify and known.get(name) != states[name] and sha256_of(file) != entry.get("sha256"):
            raise ModelFileError(f"{file}: its checksum differs from the manifest; the file was altered or damaged")
        if file.suffix == ".npy":
            arrays[file.stem] = _map_array(file)
    return ModelFiles(_read_json(path / kind.description, kind), arrays, states, known == states)


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


def _write_array(file: Path, array: np.ndarray) -> None:
    """Write an array as `numpy.save` does, which would not say that the disk is full."""
    array = np.ascontiguousarray(array)
    with file.open("xb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.reshape(-1).view(np.uint8).data)


def _map_array(file: Path) -> np.ndarray:
    """Map an array, read-only; raise where the file holds none, one of objects, or one that `save` would not write."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a header that only an old NumPy wrote
            return np.load(file, mmap_mode="r", allow_pickle=False)
    except MemoryError:
        raise
    except Exception as error:  # NumPy gives the header to Python's own parser, which may raise anything
        if isinstance(error, OSError) and error.errno in SYSTEM_ERRORS:
            raise  # the machine's fault, not the file's
        raise ModelFileError(f"{file}: must be a plain array, got {shorten(str(error), 100)}") from error


def _check_file(file: Path, name: str, entry: Any) -> None:
    """Raise unless `file` is a regular file in the model's folder with the promised size."""
    if name != Path(name).name or file.suffix not in (".npy", ".json") or not isinstance(entry, dict):
        raise ModelFileError(f"{file.parent / MANIFEST}: may name only .npy and .json files, got {shorten(name)}")
    check_regular(file)
    if file.stat().st_size != entry.get("bytes"):
        raise ModelFileError(f"{file}: must have {shorten(entry.get('bytes'))} bytes, got {file.stat().st_size}")


def _read_json(file: Path, kind: FolderKind) -> dict[str, Any]:
    """Return the JSON object of a file of the folder."""
    if not os.path.lexists(file):
        reason = f"it is a file, a {kind.noun} is a folder" if file.parent.is_file() else f"{file.name} is missing"
        raise ModelFileError(f"{file.parent}: is not a {kind.noun}: {reason}")
    return read_object(file, MAX_JSON_BYTES)
