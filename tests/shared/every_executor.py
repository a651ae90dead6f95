"""A network of a few weights and its rows, and each executor that can train it."""

from __future__ import annotations

from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.messages import Span

from .light import Light

N_ROWS = 12
NETWORK = Network(6, 5, (4,), "light")
SIZE = NETWORK.layout.size


def broken(*arguments):
    raise RuntimeError("out of order")


KINDS = {
    "serial": lambda: Serial([Reference() for _ in range(3)]),
    "threads": lambda: Threads([Reference() for _ in range(3)]),
    "simulated": lambda: Simulated(Reference(), [VirtualDevice(speed=speed) for speed in (1.0, 0.9, 0.8)]),
    "processes": lambda: Processes([Light] * 3),
}


def span(worker, start, stop, epoch=0, rate=0.1):
    return Span(worker, epoch, start, stop, rate)
