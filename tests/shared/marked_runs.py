"""Runs of worker processes that leave marks, on devices that fail or talk; a light module, as workers import it."""

from __future__ import annotations

import os
import signal

from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train

from . import toy

N_ROWS = 60


class Early(toy.Marking):
    """Kills its process while it starts, once for each of the `names` of files to be made in `folder`."""

    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def warm_up(self, *given):
        for name in self.names:
            if not (self.folder / name).exists():
                (self.folder / name).touch()
                os.kill(os.getpid(), signal.SIGKILL)


class Loud(toy.Marking):
    """Writes to both standard streams at every step."""

    def output_step(self, *given):
        os.write(1, b"said")
        os.write(2, b"said")
        return super().output_step(*given)


def marks_of(executor, callbacks=()):
    """Train once on all rows by Hogwild; return how often each row is in the model."""
    data = toy.dataset(N_ROWS)
    run = train(Job(data, toy.counting(data), SGD()), Hogwild(10, 0.1), executor, Schedule(1), callbacks=callbacks)
    return toy.marks(run.params, data)
