"""Runs of worker processes that leave marks."""

from __future__ import annotations

from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

from . import toy

N_ROWS = 60


def marks_of(executor, callbacks=()):
    """Train once on all rows by Hogwild; return how often each row is in the model."""
    data = toy.dataset(N_ROWS)
    run = train(Job(data, toy.counting(data), SGD()), Hogwild(10, 0.1), executor, Schedule(1), callbacks=callbacks)
    return toy.marks(run.params, data)
