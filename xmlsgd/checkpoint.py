"""Models on disk: a snapshot to step back to during a run, and the saved model with its manifest.

A saved model is a directory of a small JSON file and plain arrays; nothing in it is code and nothing is unpickled.
It is written beside its final name and renamed, so that a crash or a full disk never leaves half a model under it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ModelFileError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT, VERSION = "xmlsgd-model", 1


class Snapshot:
    """One model kept in a temporary file, not in memory: the last good one, or the best."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="xmlsgd-")  # noqa: SIM115 (lives as long as the snapshot)
        self.kept = False

    def keep(self, flat: np.ndarray) -> None:
        """Save a copy of `flat`."""
        self._file.seek(0)
        flat.tofile(self._file)
        self._file.flush()
        self.kept = True

    def restore(self, flat: np.ndarray) -> None:
        """Write the saved copy back into `flat`."""
        self._file.seek(0)
        flat[:] = np.fromfile(self._file, np.float32, flat.size)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


def write_model(
    path: str | Path,
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    write_more: Callable[[Path], None] | None = None,
) -> None:
    """Write a model directory: `model.json` with `description`, one `.npy` an array, `MANIFEST.json` with checksums.

    `write_more` adds JSON files of its own to the folder that it is given. An earlier model of this format at `path` is
    replaced; anything else there is an error.
    """
    path = Path(path)
    if path.exists() and not (path / "MANIFEST.json").is_file() and (not path.is_dir() or any(path.iterdir())):
        raise ModelFileError(f"{path}: exists and is not a saved model; choose another name or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    beside.mkdir()
    try:
        (beside / "model.json").write_text(json.dumps(description, indent=1, allow_nan=False) + "\n")
        for name, array in arrays.items():
            np.save(beside / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
        if write_more:
            write_more(beside)
        files = {f.name: {"bytes": f.stat().st_size, "sha256": _sha256(f)} for f in sorted(beside.iterdir())}
        manifest = {"format": FORMAT, "version": VERSION, "files": files}
        (beside / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n")
        for file in beside.iterdir():
            _sync(file)
        _replace(beside, path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_model(path: str | Path, verify: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays of a model directory; arrays are read-only memory maps.

    Raises `ModelFileError` where a file is missing, has another size or checksum (`verify`), or is no plain array.
    """
    path = Path(path)
    manifest = _read_json(path / "MANIFEST.json")
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        got = shorten((manifest.get("format"), manifest.get("version")))
        raise ModelFileError(f"{path}: format must be {FORMAT} version {VERSION}, got {got}")
    files = manifest.get("files")
    if not isinstance(files, dict) or "model.json" not in files:
        raise ModelFileError(f"{path / 'MANIFEST.json'}: must list the files of the model, got {shorten(files)}")
    arrays = {}
    for name, entry in files.items():
        file = path / name
        _check_file(file, name, entry, verify)
        if file.suffix == ".npy":
            try:
                arrays[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
            except ValueError as error:
                raise ModelFileError(f"{file}: must be a plain array, got: {error}") from error
    return _read_json(path / "model.json"), arrays


def _check_file(file: Path, name: str, entry: Any, verify: bool) -> None:
    """Raise unless `file` is a regular file in the model's folder with the promised size and checksum."""
    if name != Path(name).name or file.suffix not in (".npy", ".json") or not isinstance(entry, dict):
        raise ModelFileError(f"{file}: the manifest may name only .npy and .json files of its folder")
    if file.is_symlink() or not file.is_file():
        raise ModelFileError(f"{file}: is missing or no regular file; copy the whole model folder again")
    if file.stat().st_size != entry.get("bytes"):
        raise ModelFileError(f"{file}: must have {entry.get('bytes')} bytes, got {file.stat().st_size}")
    if verify and _sha256(file) != entry.get("sha256"):
        raise ModelFileError(f"{file}: its checksum differs from the manifest; the file was altered or damaged")


def _read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object from a file."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(f"{file.parent}: is not a saved model: {file.name} is missing") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{file}: must be a JSON object, got: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{file}: must be a JSON object, got {shorten(value)}")
    return value


def _sha256(file: Path) -> str:
    """Return the checksum of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(file: Path) -> None:
    """Wait until a file is on the disk."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _replace(source: Path, target: Path) -> None:
    """Rename a directory over another: the old one steps aside first, since a rename needs an empty target."""
    if target.exists():
        aside = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}-old")
        target.rename(aside)
        try:
            source.rename(target)
        except OSError:
            aside.rename(target)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    else:
        source.rename(target)
