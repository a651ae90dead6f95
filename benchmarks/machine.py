"""The machine of a result: what it is, and the rates that bound a training step from below."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from xmlsgd.cli.machine import processor_name, versions

COPY_BYTES = 256 << 20  # beyond most caches, though not beyond those of the largest servers
GEMM_SIZE = 2048
TILED_SIZE = 256  # rows, columns and depth of the bfloat16 product: its operands stay in the cache of a core
TILED_TIMES = 200  # products in one measurement: 7 GFLOP
REPEATS = 5
PLACES = ("--envs", "--work", "--out")  # where folders lie is no one's business


def git_commit() -> str:
    """Return the short name of the commit, with a "+" where files differ from it; empty outside a repository."""
    root = Path(__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def command_line() -> str:
    """Return the command without the flags of folders that change no figure, and with the last parts of other paths."""
    words, given = [], iter(sys.argv[1:])
    for word in given:
        if word in PLACES:
            next(given, None)
        elif word.partition("=")[0] not in PLACES:
            words.append(Path(word).name if Path(word).is_absolute() else word)
    module = getattr(sys.modules["__main__"].__spec__, "name", "benchmarks").removesuffix(".__main__")
    return " ".join(["python", "-m", module, *words])


def describe(threads: int) -> dict[str, Any]:
    """Return what every result carries: date, processor, cores, threads, system, versions, commit, command."""
    return {
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "system": platform.platform(terse=True),
        "versions": versions(),
        "commit": git_commit(),
        "command": command_line(),
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


def gemm_rate(threads: int) -> float:
    """Return the float32 GEMM rate of NumPy's BLAS in operations a second."""
    A = np.ones((GEMM_SIZE, GEMM_SIZE), np.float32)
    out = np.empty_like(A)
    with threadpool_limits(threads):
        return 2 * GEMM_SIZE**3 / best_seconds(lambda: np.matmul(A, A, out=out))


def copy_rate(threads: int) -> float:
    """Return the bytes a second, read and written together, of copies by all threads at once."""
    source = np.ones(COPY_BYTES // 4, np.float32)
    target = np.empty_like(source)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        return 2 * COPY_BYTES / best_seconds(lambda: list(pool.map(lambda pair: np.copyto(*pair), parts)))


def bfloat16_gemm_rate(threads: int) -> float | None:
    """Return the rate of our bfloat16 product in operations a second; None where the processor lacks it."""
    from xmlsgd.devices.cpu.intrinsics import bf16

    if not bf16.HAS_AVX512_BF16:
        return None
    multiply = _tiled_products()
    operands = [[_aligned(TILED_SIZE**2 // size) for size in (2, 2, 1)] for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = best_seconds(lambda: list(pool.map(lambda abc: multiply(*abc), operands)))
    return threads * TILED_TIMES * 2 * TILED_SIZE**3 / seconds


def _tiled_products() -> Any:
    """Return a kernel that multiplies packed operands TILED_TIMES."""
    from numba import njit

    from xmlsgd.devices.cpu.intrinsics.bf16 import multiply, tiles_off, tiles_on

    @njit(nogil=True)
    def products(a, b, c):  # type: ignore[no-untyped-def]
        tiles_on()
        for _ in range(TILED_TIMES):
            multiply(
                a.ctypes.data, b.ctypes.data, c.ctypes.data,
                TILED_SIZE, TILED_SIZE, TILED_SIZE * 4, TILED_SIZE // 32, 0,
            )  # fmt: skip
        tiles_off()

    return products


def _aligned(n_words: int) -> np.ndarray:
    """Return zeroed words from an address that is a multiple of 64."""
    memory = np.zeros(n_words + 16, np.uint32)
    first = -memory.ctypes.data % 64 // 4
    return memory[first : first + n_words]


def rates(threads: int) -> dict[str, float | None]:
    """Return the rates of the roofline."""
    return {
        "float32_flops_per_second": gemm_rate(threads),
        "bfloat16_flops_per_second": bfloat16_gemm_rate(threads),
        "copied_bytes_per_second": copy_rate(threads),
    }
