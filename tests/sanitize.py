"""Run the tests of the GPU's kernels under the address sanitizer: `python tests/sanitize.py`; takes some minutes.

The sanitizer has to be in the process from its start; `shared/needs.py` sees it there and `shared/fake_gpu/kernels.py`
compiles the kernels with it. What lies beside an array is forbidden to read, too, which the guards of an ordinary run
do not notice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.needs import COMPILER
from shared.paths import ROOT, TESTS

GPU = TESTS / "devices" / "gpu"
FILES = [
    GPU / f"test_{name}.py"
    for name in ("sanitizer", "cuda", "cuda_softmax", "tensor_cores", "cuda_merging", "cuda_mutants")
]
FILES.append(TESTS / "devices" / "test_output_layer.py")
CHOSEN = "not planted and (cuda or sanitizer or softmax or tensor)"  # of all devices, only the GPU


def library():
    """Return the path of the compiler's sanitizer, or None."""
    if COMPILER is None:
        return None
    found = subprocess.run([COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = Path(found.stdout.strip())
    return path if path.is_absolute() and path.exists() else None


def main():
    """Return the tests' exit status, that of no test where they cannot run."""
    path = library()
    if path is None:
        print("skipped: g++ has no address sanitizer; install libasan", file=sys.stderr)
        return pytest.ExitCode.NO_TESTS_COLLECTED
    options = "detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0"
    environment = {**os.environ, "LD_PRELOAD": str(path), "ASAN_OPTIONS": options}
    command = [sys.executable, "-m", "pytest", "-q", "-k", CHOSEN, "-p", "no:cacheprovider", *map(str, FILES)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
