"""Fleets in a line of text: `gpu:1*2/price=3,cpu:.1/overhead=.0002`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ...errors import DataError, shorten
from .costs import VirtualDevice

FORM = "NAME:SPEED[*COUNT][/OPTION=VALUE]..., as in gpu:1*2/price=3,cpu:.1/noise=.05"
MEMBER = re.compile(r"([A-Za-z][\w-]*):([^*/]+)(?:\*(\d{1,4}))?((?:/[^/]+)*)")
MOST = 1024  # devices
SPANS = ("absent", "trace")
OPTIONS = {
    "noise": "standard deviation of the logarithm of a step's duration",
    "stalls": "SHARExFACTOR: that share of the updates takes so many times as long",
    "absent": "FROM-TO: seconds in which the device is away; may be given again",
    "trace": "FROM:SPEED: the speed from that second on; may be given again",
    "overhead": "seconds an update",
    "price": "money an hour",
    "in_place": "1 for a device that writes a shared model itself, as the CPUs of one machine do",
}


def parse_fleet(text: str, base: VirtualDevice) -> list[VirtualDevice]:
    """Return the devices of a text, with the costs of `base` at speed 1; `DataError` for what cannot be read."""
    fleet: list[VirtualDevice] = []
    for member in text.split(","):
        found = MEMBER.fullmatch(member.strip())
        if not found:
            raise DataError(f"fleet: must be {FORM}, got {shorten(member)}")
        name, speed, count, options = found.groups()
        given = _options(options)
        fields = {"speed": _number(speed, member), "noise": 0.0, "name": name, **given}
        try:
            device = replace(base, **fields)
        except DataError as error:
            hint = "behind the name stands its speed, as in gpu:1"
            raise DataError(f"fleet: {member.strip()!r}: {error}; {hint}") from error
        fleet += [device] * int(count or 1)
        if not 1 <= len(fleet) <= MOST:
            raise DataError(f"fleet: must have 1 to {MOST} devices, got {shorten(text)}")
    return [replace(device, name=f"{device.name} {i}") for i, device in enumerate(fleet)]


def _options(text: str) -> dict[str, Any]:
    """Return the fields of a device that `/noise=.1/absent=3-5` sets."""
    fields: dict[str, Any] = {}
    for option in text.split("/")[1:]:
        name, _, value = option.partition("=")
        if name not in OPTIONS:
            raise DataError(f"fleet: options are {', '.join(OPTIONS)}, got {shorten(option)}")
        if name in fields and name not in SPANS:
            raise DataError(f"fleet: {name} may be given once a device, got {shorten(text)}")
        if name == "stalls":
            fields[name] = _pair(value, "x", option)
        elif name in SPANS:
            fields[name] = (*fields.get(name, ()), _pair(value, "(?<!e)-" if name == "absent" else ":", option))
        elif name == "in_place":
            fields[name] = _number(value, option) != 0
        else:
            fields[name] = _number(value, option)
    return fields


def _pair(text: str, between: str, given: str) -> tuple[float, float]:
    """Return the two numbers of `3-5`, a part of `given`; `between` is a pattern."""
    first, second, *_ = [*re.split(between, text, maxsplit=1), ""]
    return _number(first, given), _number(second, given)


def _number(text: str, given: str) -> float:
    """Return a number, a part of `given`."""
    try:
        return float(text)
    except ValueError:
        raise DataError(f"fleet: must have numbers, got {shorten(given)}; the form is {FORM}") from None
