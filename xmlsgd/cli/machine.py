"""What a run tells of its machine: versions, processor, threads, peak memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import DataError

if TYPE_CHECKING:
    from argparse import Namespace

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite")


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of what it stands on; nothing is imported for it."""
    found = {"xmlsgd": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def peak_memory_bytes() -> int | None:
    """Return the largest resident size of this process so far; None where the system does not tell."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux: getrusage would count the memory of the process that started this one
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def processor() -> dict[str, Any]:
    """Return model name, usable threads and whether bfloat16 products are native; imports Numba."""
    import numba

    from ..devices.cpu.intrinsics import bf16

    return {
        "processor": processor_name(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": numba.config.NUMBA_NUM_THREADS,
        "bfloat16": bool(bf16.HAS_AVX512_BF16),
    }


def gpu() -> str:
    """Return "cuda:0" where the first GPU can be used, else what is missing; imports CuPy if it is there."""
    from ..devices.cuda.gpus import check_gpu

    try:
        check_gpu(0)
    except DataError as error:
        return str(error).partition(": ")[2]
    return "cuda:0"


def processor_name() -> str:
    """Return the processor's own name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def limit_threads(args: Namespace) -> None:
    """Hold parsers and kernels to `--n-jobs` threads: before Numba is loaded, which asks but once.

    More than the machine has processors are as many as it has. Where Numba is loaded already, the estimator's own limit
    holds alone. OpenBLAS would start a thread a processor, with memory for each, as it is loaded; where it gets neither
    it waits for ever, or says that the user has pressed Ctrl-C.
    """
    n_jobs = getattr(args, "n_jobs", None)
    if n_jobs and n_jobs > 0 and "numba" not in sys.modules:
        args.n_jobs = min(n_jobs, os.cpu_count() or 1)
        os.environ["NUMBA_NUM_THREADS"] = str(args.n_jobs)
        if "numpy" not in sys.modules:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", str(args.n_jobs))
