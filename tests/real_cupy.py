"""Run the tests of GPUs by the real CuPy over CUDA that is not there: `python tests/real_cupy.py`; takes four minutes.

They run twice: streams work at once, then, by FAKE_LATE=1, as late as waiting for them allows. Another command runs
likewise, once: `python tests/real_cupy.py python -m benchmarks.gpu --out FOLDER`. FAKE_DRY=1 checks every call and
computes nothing, for real sizes. This is for Linux on x86-64, with g++ and a CuPy for CUDA 13: the environment needs
`cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime`; NVIDIA's cuBLAS and NCCL it must not have.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shared.paths import ROOT, TESTS

SOURCES = TESTS / "shared" / "fake_cuda"
SHIM = TESTS / "shared" / "fake_gpu" / "cuda_shim.h"
NAMES = ("libcuda.so.1", "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2")
COMPILER = shutil.which("g++")  # without `shared.needs`, which asks CuPy for a GPU
EMPTY = ("atomics.cuh", "math_constants.h")  # of what CuPy's kernels include


def cupy_libraries():
    """Return CuPy's modules of cuBLAS and NCCL, none where it is not installed."""
    spec = importlib.util.find_spec("cupy_backends")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    return [file for folder in folders for name in ("cublas", "nccl") for file in folder.glob(f"cuda/libs/{name}.*.so")]


def stubs(libraries):
    """Return the names that CuPy's modules take from cuBLAS and NCCL and that no source here defines."""
    listing = subprocess.run(["nm", "-D", *map(str, libraries)], capture_output=True, text=True, check=True).stdout
    wanted = {line.split()[-1].partition("@")[0] for line in listing.splitlines() if " U " in line}
    defined = set(re.findall(r"\w+(?=\()", "".join(file.read_text() for file in SOURCES.glob("*.h"))))
    return sorted(name for name in wanted - defined if name.startswith(("cublas", "nccl")))


def built(libraries):
    """Return the folder of the library, which is compiled where its sources, or CuPy, are new."""
    files = sorted(SOURCES.iterdir())
    stamp = hashlib.sha256(b"".join(file.read_bytes() for file in (*files, SHIM, *libraries))).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"xmlsgd-cuda-{os.getuid()}-{stamp}"
    if (folder / "built").exists():
        return folder
    includes = folder / "include" / "cupy"
    includes.mkdir(parents=True, exist_ok=True)
    (includes.parent / SHIM.name).write_bytes(SHIM.read_bytes())
    (includes / "complex.cuh").write_bytes((SOURCES / "complex.cuh").read_bytes())
    for name in EMPTY:
        (includes / name).touch()
    (folder / "stubs.h").write_text("".join(f"STUB({name})\n" for name in stubs(libraries)))
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-I", str(folder)]
    library = folder / "libfake.so"
    subprocess.run([COMPILER, *flags, str(SOURCES / "driver.cpp"), "-o", str(library), "-ldl"], check=True)
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library.name)
    (folder / "built").touch()
    return folder


def main(command):
    """Return the exit status of the tests or of another command, that of no test where they cannot run."""
    libraries = cupy_libraries()
    if COMPILER is None or not libraries:
        packages = "cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime"
        print(f"skipped: this takes Linux on x86-64, g++, and pip install {packages}", file=sys.stderr)
        return pytest.ExitCode.NO_TESTS_COLLECTED
    folder = str(built(libraries))
    environment = {
        **os.environ, "LD_PRELOAD": f"{folder}/libfake.so", "LD_LIBRARY_PATH": folder, "FAKE_FOLDER": folder,
        "CUPY_CACHE_DIR": f"{folder}/cupy",
    }  # fmt: skip
    if command:
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", str(TESTS / "devices")]
    statuses = [
        subprocess.run(tests, env={**environment, "FAKE_LATE": late}, cwd=ROOT, check=False).returncode for late in "01"
    ]
    return next(filter(None, statuses), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
