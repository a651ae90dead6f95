"""NVRTC compiles every kernel for every architecture that is supported; no GPU takes part."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from xmlsgd.devices.cuda.hopper import THREADS
from xmlsgd.devices.cuda.kernels import hopper_source, kernel_source
from xmlsgd.devices.cuda.runtime import BFLOAT16_CAPABILITY, HOPPER_CAPABILITY
from xmlsgd.devices.cuda.tensor_cores import PRODUCT_THREADS

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)  # Turing to Blackwell
QUICK = 90  # the one outside the slow tier
FACTS = re.compile(  # what `-v` has ptxas say of every kernel; a warning is another line
    r"ptxas info *: (\d+ bytes gmem|Compiling entry function|Function properties for|Used \d+ registers|Compile time)"
    r"|ptxas *\. *\d+ bytes stack frame, "
)


def find_nvrtc():
    """Return NVRTC from the wheels nvidia-cuda-nvrtc or nvidia-cuda-nvrtc-cu12 or from the system, or None."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    files = [str(file) for folder in folders for file in sorted(folder.glob("*/lib/libnvrtc.so.*"), reverse=True)]
    for name in (*files, "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


NVRTC = find_nvrtc()
pytestmark = pytest.mark.skipif(NVRTC is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")


def compiled(source, *options):
    """Return (ok, log, bytes of the cubin)."""
    program = ctypes.c_void_p()
    assert NVRTC.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = NVRTC.nvrtcCompileProgram(program, len(options), flags)
    size = ctypes.c_size_t()
    NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetProgramLog(program, log)
    if status == 0:
        assert NVRTC.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return status == 0, log.value.decode(), size.value


def of_architecture(architecture, precision):
    """Return the source and the options by which a GPU gets its kernels."""
    of_cupy = ["-ftz=true", "--device-as-default-execution-space"]  # which it adds to ours
    options = ["--std=c++17", *["-DBFLOAT16"] * (precision != "float32"), f"-arch=sm_{architecture}", *of_cupy]
    if precision == "hopper":
        return hopper_source(), "-arch=sm_90a", *options
    return kernel_source(precision == "bfloat16"), *options


@cache
def told(architecture, precision):
    """Return what `compiled` does, with what ptxas tells of each kernel; compiling takes seconds, and is done once."""
    return compiled(*of_architecture(architecture, precision), "--ptxas-options=-v")


def slow(architecture, *values):
    """Return the parameters of an architecture; all but one are for the slow tier."""
    return pytest.param(architecture, *values, marks=pytest.mark.slow if architecture != QUICK else ())


@pytest.mark.parametrize(
    ("architecture", "precision"),
    [
        slow(architecture, precision)
        for architecture in ARCHITECTURES
        for precision in ("float32", "bfloat16")
        if precision == "float32" or architecture >= BFLOAT16_CAPABILITY
    ]
    + [(HOPPER_CAPABILITY, "hopper")],
)
def test_every_kernel_compiles_without_a_warning(architecture, precision):
    ok, log, size = told(architecture, precision)
    assert ok, log
    assert [line for line in log.splitlines() if line.strip() and not FACTS.match(line)] == []
    assert size > 10_000


@pytest.mark.parametrize(("architecture", "blocks"), [slow(80, 2), slow(90, 3), slow(100, 3), slow(120, 2)])
def test_products_keep_their_sums_in_registers_and_several_blocks_fit_a_multiprocessor(architecture, blocks):
    ok, log, _ = told(architecture, "bfloat16")
    assert ok, log
    used = re.findall(
        r"Compiling entry function '(product_\w+)'.*?(\d+) bytes stack.*?(\d+) bytes spill stores.*?Used (\d+)",
        log,
        re.DOTALL,
    )
    assert {name for name, *_ in used} == {"product_exponentials", "product_weights"}
    for name, stack, spilled, registers in used:
        assert (int(stack), int(spilled)) == (0, 0), name
        assert int(registers) * PRODUCT_THREADS * blocks <= 65_536, name


def test_the_kernel_for_hopper_keeps_rows_and_sums_in_registers():
    """ptxas counts those of a thread before the teams take them from the producer."""
    ok, log, _ = told(HOPPER_CAPABILITY, "hopper")
    assert ok, log
    found = re.search(r"(\d+) bytes stack.*?(\d+) bytes spill stores.*?Used (\d+)", log, re.DOTALL)
    assert found is not None
    assert found.groups()[:2] == ("0", "0")
    assert int(found[3]) * THREADS <= 65_536


def test_what_does_not_compile_is_told_with_its_line():
    ok, log, _ = compiled('extern "C" __global__ void broken(float *x) {\n  x[0] = y;\n}', "--gpu-architecture=sm_90")
    assert not ok
    assert "(2)" in log
