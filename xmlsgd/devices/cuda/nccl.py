"""Copies between the GPUs of this process by NCCL, which takes the links that they have."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ...errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .device import CUDA

INSTALL = "pip install nvidia-nccl-cu12 or nvidia-nccl-cu13, by the version of CUDA"


class Links:
    """Ways between GPUs: `devices` are one on each, on whose streams copies are made. The first is the hub.

    Raises `DataError` where CuPy finds no NCCL.
    """

    def __init__(self, devices: Sequence[CUDA]) -> None:
        cuda = devices[0].runtime.cupy.cuda
        self._nccl = cuda.nccl if hasattr(cuda, "nccl") else importlib.import_module("cupy.cuda.nccl")  # CuPy 14: later
        if not self._nccl.available:
            raise DataError(f"devices: CuPy finds no NCCL to link GPUs; {INSTALL}, or leave nccl=False")
        self._streams = [device.runtime.stream for device in devices]
        self._comms = self._nccl.NcclCommunicator.initAll([device.runtime.index for device in devices])

    def bring(self, copies: Iterable[tuple[int, Any, Any]]) -> None:
        """Copy arrays to the hub: (number of the device, array there, array of the hub); float32, contiguous."""
        self._move([(rank, 0, there, here) for rank, there, here in copies])

    def take_back(self, copies: Iterable[tuple[int, Any, Any]]) -> None:
        """Copy arrays from the hub to where they were brought from."""
        self._move([(0, rank, here, there) for rank, there, here in copies])

    def _move(self, copies: list[tuple[int, int, Any, Any]]) -> None:
        """Copy (from, to, source, target), one array a group."""
        kind = self._nccl.NCCL_FLOAT32
        for source, target, data, room in copies:
            self._nccl.groupStart()
            self._comms[source].send(data.data.ptr, data.size, kind, target, self._streams[source].ptr)
            self._comms[target].recv(room.data.ptr, room.size, kind, source, self._streams[target].ptr)
            self._nccl.groupEnd()
