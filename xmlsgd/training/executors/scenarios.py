"""Fleets of virtual devices: read from text, or one of the scenarios S1 to S8 (equal speeds, noise, stalls, absences).

Speeds are relative to `base`, usually measured on a real device (`virtual_device.py`). `seconds` is the approximate
length of the run, for events in its middle; `nnz` the stored features of an average row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...data.validation import check_choice
from ...errors import DataError, shorten
from .virtual_device import VirtualDevice

Fleet = list[VirtualDevice]

MILD = (1.0, 0.9, 0.8, 0.7)  # GPUs of one model differ by up to 32 % on sparse rows (Adaptive SGD, 2021)
STRONG = (1.0, 1.0, 0.5, 0.25)  # chosen: a generation twice as fast as the next
NOISE = 0.05  # chosen

FORM = "NAME:SPEED[*COUNT], as in gpu:1*2,cpu:.1"
MEMBER = re.compile(r"([A-Za-z][\w-]*):([^*]+)(?:\*(\d{1,4}))?")
MAX_DEVICES = 1024
IN_PLACE = "cpu"  # devices of this name write a shared model in place


def parse_fleet(text: str, base: VirtualDevice) -> Fleet:
    """Return the devices of a text in the form `FORM`, with the costs of `base`; `DataError` if it is malformed."""
    fleet: Fleet = []
    for member in text.split(","):
        found = MEMBER.fullmatch(member.strip())
        if not found:
            raise DataError(f"fleet: must be {FORM}, got {shorten(member)}")
        name, speed, count = found.groups()
        try:
            factor = float(speed)
        except ValueError:
            raise DataError(f"fleet: speed must be a number, got {shorten(member)}") from None
        try:
            device = replace(base, speed=factor, noise=0.0, in_place=name == IN_PLACE, name=name)
        except DataError as error:
            raise DataError(f"fleet: {member.strip()!r}: {error}") from error
        fleet += [device] * int(count or 1)
        if not 1 <= len(fleet) <= MAX_DEVICES:
            raise DataError(f"fleet: must have 1 to {MAX_DEVICES} devices, got {shorten(text)}")
    return [replace(device, name=f"{device.name} {i}") for i, device in enumerate(fleet)]


def of_speeds(base: VirtualDevice, speeds: Sequence[float], noise: float = 0.0) -> Fleet:
    """Return a device for each speed."""
    return [replace(base, speed=speed, noise=noise, name=f"gpu {i}") for i, speed in enumerate(speeds)]


def s1(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return speeds 1:1:1:1. With equal speeds, adapting must cost nothing."""
    return of_speeds(base, (1.0,) * 4)


def s2(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return speeds 1:.9:.8:.7 with 5 % noise: several GPUs of one model, as in the paper of Adaptive SGD."""
    return of_speeds(base, MILD, NOISE)


def s3(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return speeds 1:1:.5:.25: GPUs of different generations."""
    return of_speeds(base, STRONG)


def s4(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return a GPU, and a CPU a tenth as fast with a tenth of the overhead: the case of Hogbatch."""
    gpu = replace(base, overhead=2e-3, speed=1.0, noise=0.0, name="gpu")
    return [gpu, replace(gpu, overhead=0.2e-3, speed=0.1, in_place=True, name="cpu")]


def s5(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 with the first device at 40 % of its speed from the middle on."""
    first, *others = s2(base, seconds, nnz)
    return [replace(first, trace=((seconds / 2, 0.4 * first.speed),)), *others]


def s6(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 with costs per stored feature only: the duration of a batch follows its density."""
    per_nnz = base.per_nnz + base.per_row / nnz
    return [replace(device, per_row=0.0, per_nnz=per_nnz) for device in s2(base, seconds, nnz)]


def s7(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 with 1 % of the updates 20 times as long."""
    return [replace(device, stalls=(0.01, 20.0)) for device in s2(base, seconds, nnz)]


def s8(base: VirtualDevice, seconds: float, nnz: float) -> Fleet:
    """Return S2 with the third device away between the middle and three quarters."""
    first, second, third, fourth = s2(base, seconds, nnz)
    return [first, second, replace(third, absent=((seconds / 2, 3 * seconds / 4),)), fourth]


Scenario = Callable[[VirtualDevice, float, float], Fleet]
SCENARIOS: dict[str, Scenario] = {"S1": s1, "S2": s2, "S3": s3, "S4": s4, "S5": s5, "S6": s6, "S7": s7, "S8": s8}


def scenario(name: str, base: VirtualDevice, rows: int, nnz: float, batch: int) -> Fleet:
    """Return the fleet of a scenario for a run over `rows` rows in batches of `batch`."""
    check_choice("scenario", name, SCENARIOS)
    make = SCENARIOS[name]
    return make(base, expected_seconds(make(base, 1.0, nnz), rows, nnz, batch), nnz)


def expected_seconds(fleet: Sequence[VirtualDevice], rows: int, nnz: float, batch: int) -> float:
    """Return the seconds for `rows` rows of `nnz` features in batches of `batch` if no device waits or changes."""
    return rows / sum(1 / device.row_seconds(0.0, batch, nnz) for device in fleet)
