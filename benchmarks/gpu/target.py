"""What is measured: a GPU, or the tests' emulation of one, whose figures mean nothing."""

from __future__ import annotations

import hashlib
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xmlsgd.devices.cuda import CUDA
from xmlsgd.devices.cuda.kernels import kernel_source

from .changes import kernel_stamps

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "xmlsgd" / "devices" / "cuda").rglob("*.[cp][uy]"))
REPEATS = 20


class Target:
    """A GPU or its emulation: makes devices and times what they do."""

    def __init__(self, shim: bool) -> None:
        self.shim = shim
        self.repeats = 2 if shim else REPEATS

    def device(self, precision: str = "auto", **options: Any) -> CUDA:
        """Return a device of the first GPU."""
        if not self.shim:
            return CUDA(precision=precision, **options)
        tests = str(ROOT / "tests")
        if tests not in sys.path:
            sys.path.append(tests)
        made: CUDA = importlib.import_module("shared.fake_gpu.shim").shim_device(precision, **options)
        return made

    def seconds(self, device: CUDA, call: Callable[[], Any], warm_up: int = 3) -> dict[str, float]:
        """Return median, p10 and p90 of the seconds from the call to the end of its work on the GPU."""
        taken = []
        with device.start():
            for _ in range(warm_up + self.repeats):
                device.runtime.stream.synchronize()
                begun = time.perf_counter()
                call()
                device.runtime.stream.synchronize()
                taken.append(time.perf_counter() - begun)
        taken = sorted(taken[warm_up:])
        last = len(taken) - 1
        return {"median": statistics.median(taken), "p10": taken[last // 10], "p90": taken[last - last // 10]}

    def facts(self) -> dict[str, Any]:
        """Return the GPU, its driver and the libraries; the sources by their hash."""
        stamp = hashlib.sha256(b"".join(file.read_bytes() for file in SOURCES)).hexdigest()[:12]
        kernels = kernel_stamps(kernel_source(tensor_cores=True, hopper=True))
        if self.shim:
            return {"gpu": "none: kernels run on the CPU", "sources": stamp, "kernels": kernels}
        import cupy
        from cupy_backends.cuda.libs import cublas

        run = cupy.cuda.runtime
        found = run.getDeviceProperties(0)
        handle = cupy.cuda.device.get_cublas_handle()
        return {
            "gpu": found["name"].decode(),
            "memory_bytes": found["totalGlobalMem"],
            "multiprocessors": found["multiProcessorCount"],
            "capability": f"{found['major']}.{found['minor']}",
            "driver": run.driverGetVersion(),
            "cuda": run.runtimeGetVersion(),
            "cublas": cublas.getVersion(handle),
            "cupy": cupy.__version__,
            "sources": stamp,
            "kernels": kernels,
        }
