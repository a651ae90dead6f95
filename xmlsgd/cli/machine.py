"""The machine: versions, processor, peak memory, and limits of threads and of virtual memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import DataError, MemoryEstimateError

# Bytes of virtual memory that libraries, kernels and two threads need; for training, 800 MB were too few, 900 enough.
LEAST_ADDRESS_SPACE = 1 << 30
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite")


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of its dependencies, without importing them."""
    found = {package: importlib.metadata.version(package) for package in PACKAGES}
    return {"xmlsgd": __version__, "python": platform.python_version(), **found}


def peak_memory_bytes() -> int:
    """Return the largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux: getrusage would count the memory of the process that started this one
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
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
    """Return "cuda:0" if the first GPU can be used, else what is missing; imports CuPy if it is installed."""
    from ..devices.cuda.availability import check_gpu

    try:
        check_gpu(0)
    except DataError as error:
        return str(error).partition(": ")[2]
    return "cuda:0"


def processor_name() -> str:
    """Return the name of the processor, or that of its architecture if the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def check_address_space() -> None:
    """Raise `MemoryEstimateError` if the limit of virtual memory is so low that libraries crash or hang."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        needed, got = (f"{size >> 20:,} MB" for size in (LEAST_ADDRESS_SPACE, limit))
        raise MemoryEstimateError(f"a process needs {needed} of virtual memory at least, got {got}; see ulimit -v")


def limit_threads(parameters: dict[str, Any]) -> None:
    """Limit parsers, kernels and OpenBLAS to `n_jobs` threads, at most one per processor, before they are loaded.

    Numba reads its limit once, when it is loaded; if it is loaded already, only the estimator's own limit holds.
    OpenBLAS starts a thread per processor when it is loaded; if the system refuses one, it hangs or reports Ctrl-C.
    """
    n_jobs = parameters.get("n_jobs")
    if n_jobs and n_jobs > 0 and "numba" not in sys.modules:
        parameters["n_jobs"] = min(n_jobs, os.cpu_count() or 1)
        os.environ["NUMBA_NUM_THREADS"] = str(parameters["n_jobs"])
        if "numpy" not in sys.modules:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", str(parameters["n_jobs"]))
