"""What the GPU can do at most: copies, products, launches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from xmlsgd.devices.cuda import CUDA

from .target import Target

COPY_FLOATS = 1 << 28  # 1 GB read and 1 GB written: beyond every cache
CACHED_FLOATS = 1 << 22  # 16 MB each: both inside the level-2 cache of a data-center GPU
COPIES, DEVICE_TO_DEVICE = 8, 3  # the second is cudaMemcpyKind's number
GEMM_SIZE = 8192
LAUNCHES = 1000


def ceilings(target: Target) -> Iterator[dict[str, Any]]:
    """Yield, as they come, bytes and operations a second, and the host's seconds of a launch and of a product."""
    device = target.device("auto")
    far, near, side, launches = (1 << 12, 1 << 10, 64, 4) if target.shim else (
        COPY_FLOATS, CACHED_FLOATS, GEMM_SIZE, LAUNCHES,
    )  # fmt: skip
    result: dict[str, Any] = {"copied_bytes_per_second": _copy(target, device, far)}
    yield result
    result["cached_bytes_per_second"] = _copy(target, device, near)
    result["float32_flops_per_second"] = _product(target, device, side // 2, np.float32)
    if device.bfloat16:
        result["bfloat16_flops_per_second"] = _product(target, device, side, np.uint16)
    yield result
    run = device.runtime
    with device.start():
        x, square = run.to_device(np.ones(1024, np.float32)), run.to_device(np.ones((32, 32), np.float32))
        out = run.empty((32, 32))
        result["launch_seconds"] = _host(device, launches, lambda: run.launch("drop", 4, x, 1024, 0, 0, 1.0))
        result["gemm_call_seconds"] = _host(device, launches, lambda: run.gemm(square, square, out))
    yield result


def _copy(target: Target, device: CUDA, floats: int) -> float:
    """Return the bytes a second, read and written, of copies inside the GPU's memory."""
    run = device.runtime
    with device.start():
        source = run.to_device(np.random.default_rng(0).standard_normal(floats, dtype=np.float32))
        out = run.empty((floats,))

        def copies() -> None:  # several, beside which the launch is short
            for _ in range(COPIES):
                run.copy(out.data.ptr, source.data.ptr, source.nbytes, DEVICE_TO_DEVICE, run.stream)

        return COPIES * 8 * floats / target.seconds(device, copies)["median"]


def _product(target: Target, device: CUDA, side: int, dtype: Any) -> float:
    """Return the operations a second of a product of random square matrices; one of zeros would take less power."""
    rng, run = np.random.default_rng(0), device.runtime
    with device.start():
        A = rng.standard_normal((side, side), dtype=np.float32)
        placed = run.to_device(A if dtype is np.float32 else (A.view(np.uint32) >> 16).astype(np.uint16))
        C = run.empty((side, side))
        return 2 * side**3 / target.seconds(device, lambda: run.gemm(placed, placed, C, tb=True))["median"]


def _host(device: CUDA, n: int, call: Any) -> float:
    """Return the seconds that the host needs for one call."""
    call()
    device.runtime.stream.synchronize()
    begun = time.perf_counter()
    for _ in range(n):
        call()
    seconds = (time.perf_counter() - begun) / n
    device.runtime.stream.synchronize()
    return seconds
