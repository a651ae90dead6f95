"""The machine of a result: what it is, and the rates that bound a training step from below."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COPY_BYTES = 256 << 20  # beyond most caches, though not beyond those of the largest servers
GEMM_SIZE = 2048
REPEATS = 5


def cpu_model() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def describe(threads: int) -> dict[str, Any]:
    """Return what every result carries: date, processor, cores, threads, system, command."""
    return {
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "system": platform.platform(terse=True),
        "command": " ".join(["python", "-m", "benchmarks", *sys.argv[1:]]),
    }


def best_seconds(call: Callable[[], Any]) -> float:
    """Return the least seconds of a call over REPEATS, after one that is not counted."""
    call()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def gemm_rate() -> float:
    """Return the float32 GEMM rate of NumPy's BLAS in operations a second, at its current number of threads."""
    A = np.ones((GEMM_SIZE, GEMM_SIZE), np.float32)
    out = np.empty_like(A)
    return 2 * GEMM_SIZE**3 / best_seconds(lambda: np.matmul(A, A, out=out))


def copy_rate() -> float:
    """Return the bytes a second, read and written together, of one thread's copy."""
    source = np.ones(COPY_BYTES // 4, np.float32)
    target = np.empty_like(source)
    return 2 * COPY_BYTES / best_seconds(lambda: np.copyto(target, source))
