"""Small runs of Omnivore: the rows, the network, a fleet and what was done."""

from __future__ import annotations

from contextlib import nullcontext

from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.devices.cpu import CPU
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

N_ROWS, BATCH, RATE = 61, 12, 0.5
NETWORK = Network(14, 9, (6,), loss="softmax")
SPEEDS = (1.0, 0.8, 0.6, 0.5)


def cpu():
    return CPU(1, precision="float32")


def simulated(speeds=SPEEDS, kind=Simulated, bandwidth=2e10, **device):
    return kind(cpu(), [VirtualDevice(speed=speed, **device) for speed in speeds], bandwidth=bandwidth)


def go(dataset, algorithm, executor, epochs=2, optimizer=None, callbacks=()):
    with executor.device.start() if isinstance(executor, Simulated) else nullcontext():
        job, schedule = Job(dataset, NETWORK, optimizer or SGD()), Schedule(epochs, "constant", 0)
        return train(job, algorithm, executor, schedule, callbacks)


class Recorded(Simulated):
    """Keeps the spans that were submitted, and when."""

    def start(self, job, sharing):
        super().start(job, sharing)
        self.spans = []

    def submit(self, span):
        self.spans.append(span)
        super().submit(span)


class Updates(Omnivore):
    """Keeps the members of each update and the rows that they had trained."""

    def start(self, workers, n_rows):
        super().start(workers, n_rows)
        self.log = []

    def update(self, comm, j):
        self.log.append((comm.now(), self.compute.rows(j)))
        super().update(comm, j)
