"""The first run of all: seconds until every kernel is compiled, with an empty cache, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .launch import THREAD_VARIABLES


def first_run_seconds(threads: int) -> float:
    """Return the seconds of `xmlsgd compile`, start of the interpreter included."""
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as cache:
        variables = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"NUMBA_CACHE_DIR": cache}
        start = time.perf_counter()
        command = [sys.executable, "-m", "xmlsgd", "compile", "--n-jobs", str(threads)]
        subprocess.run(command, cwd=root, env=variables, check=True, capture_output=True)
        return time.perf_counter() - start
