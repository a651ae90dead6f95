"""A data set in two parts, and what a network learns of it with a sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import Dataset
from xmlsgd.data.synthetic import make_xmc
from xmlsgd.devices.cpu import CPU
from xmlsgd.estimators.inference import Scorer
from xmlsgd.metrics import precision_at_k
from xmlsgd.nn.network import Network
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

if TYPE_CHECKING:
    from xmlsgd.nn.samplers import Sampler


def two_parts() -> list[Dataset]:
    """Return 2,000 rows to train on and 500 to test on, of 400 labels."""
    data = make_xmc(2500, 300, 400, nnz_per_row=15, labels_per_row=2, random_state=0)
    return [Dataset(data.X.take(r), data.Y.take(r)) for r in (np.arange(2000), np.arange(2000, 2500))]


def learned(parts: list[Dataset], sampler: Sampler, epochs: int = 6) -> tuple[Any, np.ndarray]:
    """Return P@1 and the parameters after training with a sampler."""
    network, device = Network(300, 400, (32,)), CPU(1)
    with device.start():
        run = train(Job(parts[0], network, sampler=sampler), Sequential(32, 0.01), Serial([device]), Schedule(epochs))
        labels, _ = Scorer(network, run.params, device).top_k(parts[1].X, 1)
    return precision_at_k(parts[1].Y, labels, 1)[0], run.params
