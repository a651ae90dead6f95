"""Sources of the CUDA kernels, one text for the compiler, and the parameters that each kernel declares there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
FILES = ("common", "dense", "sparse", "binary", "softmax", "top_k")  # each uses what those before it define
TENSOR_CORES, HOPPER = "tensor_cores", "hopper"

_KERNEL = re.compile(r'extern "C" __global__ void (?:[A-Z]+_BLOCKS )?(\w+)\(([^)]*)\)')
_TYPES = {
    "int": np.dtype(np.int32), "i64": np.dtype(np.int64), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "float": np.dtype(np.float32), "double": np.dtype(np.float64),
}  # fmt: skip


class KernelParameter:
    """A kernel's parameter: a number, or a pointer to elements, of a dtype.

    `convert` returns an argument as the kernel reads it; `TypeError` for an array of another dtype. It does not check
    that an array is contiguous, which takes CuPy as long as all the rest; the tests' stand-in for a GPU does.
    """

    def __init__(self, declaration: str, operand: np.dtype) -> None:
        kind = declaration.replace("const ", "").split()[0]
        self.dtype = operand if kind == "operand" else _TYPES[kind]
        self.is_pointer, self.name = "*" in declaration, re.split(r"[ *]", declaration)[-1]
        self.convert: Callable[[Any], Any] = self._checked if self.is_pointer else self.dtype.type

    def _checked(self, array: Any) -> Any:
        if array.dtype != self.dtype:
            raise TypeError(f"{self.name} must be {self.dtype}, got {array.dtype}")
        return array


def kernel_parameters(source: str, operand: np.dtype) -> dict[str, list[KernelParameter]]:
    """Return the parameters of every kernel of a source by name."""
    return {
        name: [KernelParameter(" ".join(one.split()), operand) for one in parameters.split(",")]
        for name, parameters in _KERNEL.findall(source)
    }


def kernel_source(tensor_cores: bool, hopper: bool = False) -> str:
    """Return the source of the kernels; tensor_cores, hopper : whether to add those of bfloat16 products and Hopper."""
    return _joined(*FILES, *[TENSOR_CORES] * tensor_cores, *[HOPPER] * hopper)


def hopper_source() -> str:
    """Return the source of the kernels for Hopper alone, which are compiled for another architecture than the rest."""
    return _joined(FILES[0], HOPPER)


def _joined(*names: str) -> str:
    files = [FOLDER / f"{name}.cu" for name in names]
    return "".join(f'#line 1 "{file.name}"\n{file.read_text()}' for file in files)


def defined(file: str, *names: str) -> list[int]:
    """Return the integers that the source file `file`.cu defines by these names."""
    found = dict(re.findall(r"^#define (\w+) +(\d+)\b", (FOLDER / f"{file}.cu").read_text(), re.MULTILINE))
    return [int(found[name]) for name in names]
