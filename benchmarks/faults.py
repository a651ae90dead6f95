"""System calls that fail: `faults.c`, compiled and loaded before the C library of this process."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".c")
LOADED = "LD_PRELOAD"


def why_no_faults() -> str:
    """Return why calls cannot fail, "" if they can."""
    return "" if sys.platform.startswith("linux") and shutil.which("cc") else "no C compiler `cc` on Linux"


def restart_with_faults() -> None:
    """Run the command anew in this process, with `faults.c` loaded, unless it is or cannot be."""
    if (loaded := Path(os.environ.get(LOADED, ""))).stem == SOURCE.stem:
        del os.environ[LOADED]  # processes that this one starts do without
        shutil.rmtree(loaded.parent)
        return
    if why_no_faults():
        return
    library = Path(tempfile.mkdtemp(), f"{SOURCE.stem}.so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"], check=True)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, LOADED: str(library)})


class Faults:
    """Lets the n-th system call fail."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_disarm.restype = ctypes.c_char_p

    def run(self, call: Callable[[], Any], folder: Path, n: int, error: int) -> tuple[str, Any]:
        """Return which call failed, the `n`-th on files in `folder`, and what `call` returned or raised.

        error : 0 for a read or a write that does half. The text is empty where there were fewer calls.
        """
        self._library.faults_arm(os.fsencode(folder), ctypes.c_long(n), error)
        try:
            result = call()
        except Exception as failure:  # noqa: BLE001  judged by the caller
            result = failure
        return self._library.faults_disarm().decode(), result
