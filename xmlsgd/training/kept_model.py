"""A model that is kept on the disk: the last good one, to roll back to, or the best one of early stopping."""

from __future__ import annotations

import errno
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..data.files.system_errors import disk_errors_named


class NoModel:
    """A `KeptModel` that keeps nothing: a run that diverges returns its last parameters."""

    def refer(self, flat: np.ndarray) -> None:
        """Do nothing."""

    def keep(self, flat: np.ndarray) -> None:
        """Do nothing."""

    def restore(self, flat: np.ndarray) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class KeptModel:
    """Keeps one model, the last that it was given, in a temporary file, not in memory.

    A model that is in memory anyway and does not change is not written (`refer`). Raises `OSError` that names the
    folder if the file cannot be created or written.
    """

    def __init__(self) -> None:
        folder = tempfile.gettempdir()
        try:
            self._file = tempfile.TemporaryFile(prefix="xmlsgd-")  # noqa: SIM115 (lives as long as the object)
        except OSError as error:
            reason = f"a temporary file cannot be made ({error.strerror}); set TMPDIR to another folder"
            raise OSError(error.errno, reason, folder) from error
        self._unwritten: np.ndarray | None = None

    def refer(self, flat: np.ndarray) -> None:
        """Keep `flat` itself, without a copy; it must not change."""
        self._unwritten = flat

    def keep(self, flat: np.ndarray) -> None:
        """Save a copy of `flat`."""
        self._file.seek(0)
        with disk_errors_named(Path(tempfile.gettempdir())):
            self._file.write(np.ascontiguousarray(flat).data)  # says which error it met, unlike `tofile`
            self._file.flush()
        self._unwritten = None

    def restore(self, flat: np.ndarray) -> None:
        """Read what was kept back into `flat`, float32 and contiguous."""
        if self._unwritten is not None:
            np.copyto(flat, self._unwritten)
            return
        self._file.seek(0)
        if (n_bytes := self._file.readinto(flat.data.cast("B"))) != flat.nbytes:
            lost = f"a temporary file was cut short, to {n_bytes} of {flat.nbytes} bytes"
            raise OSError(errno.EIO, lost, tempfile.gettempdir())

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # a full disk fails again on buffered data, which nobody needs any more
            self._file.close()
