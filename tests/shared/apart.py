"""Devices of NumPy that stand for GPUs: their arrays lie in a memory of their own."""

from __future__ import annotations

from xmlsgd.devices.reference import Reference

from . import light


class Apart:
    """Makes a device of NumPy stand for a GPU: its arrays lie in a memory of their own."""

    memory = "apart"

    def to_device(self, flat):
        return flat.copy()

    def copy_to_device(self, placed, flat):
        placed[:] = flat

    def to_host(self, placed, flat=None):
        if flat is None:
            return placed.copy()
        flat[:] = placed
        return flat


class ReferenceApart(Apart, Reference):
    """A GPU."""


class MarkingApart(Apart, light.Marking):
    """A GPU that leaves marks."""
