"""Folders of arrays with a manifest: saved models, checkpoints, stores.

Each holds a small JSON file and plain arrays; it contains no code, and nothing is unpickled. It is written under a
temporary name and then renamed, so that a crash or a full disk never leaves an incomplete folder under the final name.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ...errors import ModelFileError, shorten
from .atomic import atomic_folder
from .manifest import MODEL, FolderKind, ListedFiles, compare_checksums, listed_files, read_folder_json, write_manifest
from .system_errors import is_system_error

BLOCK = 1 << 22  # numbers checked at once, so that temporary arrays stay small


def write_folder(
    path: str | Path,
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    write_more: Callable[[Path], None] | None = None,
    kind: FolderKind = MODEL,
) -> None:
    """Write a folder of this kind: `description` as JSON, one `.npy` per array, `MANIFEST.json` with checksums.

    `write_more` adds JSON files of its own to the folder that it is given. An earlier folder of this kind at `path` is
    replaced. Raises `ModelFileError` if there is anything else, or if the earlier folder holds other files; and
    `OSError` with the name `path` if the disk is full.
    """
    path = Path(path)
    try:
        described = json.dumps(description, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{path}: parameters and history must be finite numbers or texts, got: {error}") from error
    try:
        with atomic_folder(path, kind.check_replaceable) as folder:
            for name, array in arrays.items():
                _write_array(folder / f"{name}.npy", array)
            (folder / kind.description).write_text(described, encoding="utf-8")
            if write_more:
                write_more(folder)
            write_manifest(folder, kind)
    except (FileExistsError, NotADirectoryError) as error:
        raise ModelFileError(str(error)) from error


class FolderContent(NamedTuple):
    """The content of a folder: its description, and its arrays as read-only memory maps.

    listed : the files of the folder, as the manifest lists them.
    """

    description: dict[str, Any]
    arrays: dict[str, np.ndarray]
    listed: ListedFiles


def read_folder(path: str | Path, verify: bool = True, kind: FolderKind = MODEL) -> FolderContent:
    """Read a folder of this kind.

    Raises `ModelFileError` if a file is missing, has another size or checksum, or is no plain array. verify : whether
    to compare checksums, of files that have changed since they were compared last.
    """
    path = Path(path)
    listed = listed_files(path, kind)
    if verify:
        compare_checksums(path, listed)
    arrays = {Path(name).stem: map_array(path / name) for name in listed.sha256 if name.endswith(".npy")}
    return FolderContent(read_folder_json(path / kind.description, kind), arrays, listed)


def _write_array(file: Path, array: np.ndarray) -> None:
    """Write an array as `numpy.save` does, but raise an error if the disk is full, which `numpy.save` hides."""
    array = np.ascontiguousarray(array)
    with file.open("xb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.reshape(-1).view(np.uint8).data)


def read_array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array; return its shape, whether it is in Fortran order, and its type."""
    is_short = np.lib.format.read_magic(stream) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_short else np.lib.format.read_array_header_2_0
    return read(stream)


def map_array(file: Path) -> np.ndarray:
    """Map an array, read-only; raise `ModelFileError` for no array, one of objects, or one in Fortran order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # about a header of an old NumPy
            with open(file, "rb") as opened:
                shape, is_fortran, dtype = read_array_header(opened)
                start = opened.tell()
        if is_fortran and len(shape) > 1:
            raise ValueError("one in Fortran order")
        if dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0:  # NumPy may end the process
            raise ValueError(f"one of type {dtype} and shape {shape}")
        return np.memmap(file, dtype, "r", start, shape)
    except MemoryError:
        raise
    except Exception as error:  # NumPy gives the header to Python's own parser, which may raise anything
        if is_system_error(error):
            raise
        raise ModelFileError(f"{file}: must be a plain array, got {shorten(str(error), 100)}") from error


@dataclass(frozen=True)
class FolderArrays:
    """The arrays of the folder `path`, by name, with checks of their types, shapes and numbers.

    check_values : whether `finite` and callers check values, which reads all of them. prefix : put before names in
    errors. remedy : put after errors about types and shapes.
    """

    arrays: dict[str, np.ndarray]
    path: Path
    check_values: bool = True
    prefix: str = ""
    remedy: str = ""

    def part(self, prefix: str) -> FolderArrays:
        """Return the arrays whose names begin with `prefix`, by the rest of their names."""
        size = len(prefix)
        of_part = {name[size:]: array for name, array in self.arrays.items() if name.startswith(prefix)}
        return replace(self, arrays=of_part, prefix=self.prefix + prefix)

    def array(self, name: str, kind: type, *shape: int | None) -> np.ndarray:
        """Return an array of this type and shape, in which None is any length; raise `ModelFileError` without one."""
        found = self.arrays.get(name)
        if found is None or found.dtype != kind or not _is_of(found.shape, shape):
            got = "none" if found is None else f"{found.dtype} {found.shape}"
            wanted = str(tuple("n" if length is None else length for length in shape)).replace("'", "")
            wanted = f"must be {np.dtype(kind)} {wanted}, got {got}{self.remedy}"
            raise ModelFileError(f"{self.path}: {self.prefix}{name} {wanted}")
        return found

    def finite(self, name: str, *shape: int | None) -> np.ndarray:
        """Return an array of float32; raise `ModelFileError` if, with `check_values`, any number is NaN or infinite."""
        found = self.array(name, np.float32, *shape)
        flat = found.reshape(-1)
        if self.check_values and not all(np.isfinite(flat[at : at + BLOCK]).all() for at in range(0, len(flat), BLOCK)):
            raise ModelFileError(f"{self.path}: {self.prefix}{name} must be finite")
        return found


def _is_of(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Return whether a shape is as wanted; None stands for any length."""
    return len(found) == len(wanted) and all(b is None or a == b for a, b in zip(found, wanted, strict=True))
