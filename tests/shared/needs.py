"""What not every machine has, and marks of tests that need it."""

from __future__ import annotations

import functools
import os
import shutil

import pytest

from xmlsgd.devices.cpu.intrinsics import bf16
from xmlsgd.devices.cuda.availability import check_gpu
from xmlsgd.errors import DataError

COMPILER = shutil.which("g++")
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # tests/sanitize.py
FAKE_CUDA = "FAKE_FOLDER" in os.environ  # tests/real_cupy.py


@functools.cache
def missing_gpu() -> str:
    """Return why there is no GPU to test, nothing where there is one."""
    try:
        check_gpu(0)
    except DataError as error:
        return str(error)
    return ""


NEEDS_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no g++ to run the CUDA kernels on the CPU")
NEEDS_GPU = (pytest.mark.skipif(bool(missing_gpu()), reason=missing_gpu()), pytest.mark.gpu)
NEEDS_BFLOAT16 = pytest.mark.skipif(not bf16.HAS_AVX512_BF16, reason="the processor lacks AVX512-BF16")
