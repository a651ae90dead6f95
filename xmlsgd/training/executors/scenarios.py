"""Fleets that show what a scheduler is good for: S1 to S8, from equal devices to ones that stall, slow down and leave.

Speeds are relative to `base`, whose costs are mostly those of a real device (`calibration.py`). `seconds` is about how
long a run will last, for what happens in its middle; `nnz` the stored features of an average row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...data.validation import check_choice
from .costs import VirtualDevice

Fleet = list[VirtualDevice]

MILD = (1.0, 0.9, 0.8, 0.7)  # GPUs of one model differ by up to 32 % on sparse rows (Adaptive SGD, 2021)
STRONG = (1.0, 1.0, 0.5, 0.25)  # chosen: a generation twice as fast as the next
NOISE = 0.05  # chosen: the scenarios are what they are said to be


def of_speeds(base: VirtualDevice, speeds: Sequence[float], noise: float = 0.0) -> Fleet:
    """Return a device for each speed, named by its number."""
    return [replace(base, speed=speed, noise=noise, name=f"gpu {i}") for i, speed in enumerate(speeds)]


def s1(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return 1:1:1:1. No harm: what adapts must not lose where there is nothing to adapt to."""
    return of_speeds(base, (1.0,) * 4)


def s2(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return 1:.9:.8:.7 with 5 % noise: several GPUs of one model, as in the paper of Adaptive SGD."""
    return of_speeds(base, MILD, NOISE)


def s3(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return 1:1:.5:.25: GPUs of different generations."""
    return of_speeds(base, STRONG)


def s4(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return a GPU, and a CPU a tenth as fast with a tenth of the overhead: what Hogbatch is for."""
    gpu = replace(base, overhead=2e-3, speed=1.0, noise=0.0, name="gpu")
    return [gpu, replace(gpu, overhead=0.2e-3, speed=0.1, in_place=True, name="cpu")]


def s5(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 with the first device at 40 % of its speed from the middle on. A scheduler has to follow."""
    first, *others = s2(base, seconds, nnz)
    return [replace(first, trace=((seconds / 2, 0.4 * first.speed),)), *others]


def s6(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 with all work in the features: batches take as long as their rows have entries."""
    per_nnz = base.per_nnz + base.per_row / nnz
    return [replace(device, per_row=0.0, per_nnz=per_nnz) for device in s2(base, seconds, nnz)]


def s7(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 with 1 % of the updates 20 times as long: stragglers."""
    return [replace(device, stalls=(0.01, 20.0)) for device in s2(base, seconds, nnz)]


def s8(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 whose third device leaves in the middle and is back after three quarters: elasticity."""
    first, second, third, fourth = s2(base, seconds, nnz)
    return [first, second, replace(third, absent=((seconds / 2, 3 * seconds / 4),)), fourth]


Scenario = Callable[[VirtualDevice, float, float], Fleet]
SCENARIOS: dict[str, Scenario] = {"S1": s1, "S2": s2, "S3": s3, "S4": s4, "S5": s5, "S6": s6, "S7": s7, "S8": s8}


def scenario(name: str, base: VirtualDevice, rows: int, nnz: float, batch: int) -> Fleet:
    """Return the fleet of a scenario for a run over `rows` rows in batches of `batch`; `DataError` for other names."""
    check_choice("scenario", name, SCENARIOS)
    make = SCENARIOS[name]
    return make(base, expected_seconds(make(base, 1.0, nnz), rows, nnz, batch), nnz)


def expected_seconds(fleet: Sequence[VirtualDevice], rows: int, nnz: float, batch: int) -> float:
    """Return how long `rows` rows of `nnz` features take in batches of `batch` if nobody ever waits or changes."""
    return rows / sum(1 / device.row_seconds(0.0, batch, nnz) for device in fleet)
