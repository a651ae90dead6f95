"""Devices and a loss for worker processes, which start in a third of the time where Numba and SciPy are not loaded.

Nothing else may be imported here. A worker imports this module with the device that it is sent, which also makes the
loss known by the name "light"; those of the package load Numba for their fast forms.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

from xmlsgd.devices.base import EXACT
from xmlsgd.devices.reference import Reference
from xmlsgd.nn import losses
from xmlsgd.nn.optimizers import RATE


def value_and_gradient(z, target, log_sum):
    """Binary cross-entropy."""
    return np.logaddexp(0, z) - target * z, np.exp(-np.logaddexp(0, -z)) - target


LOSS = losses.Loss(value_and_gradient, lambda frequency: np.log(frequency) - np.log1p(-np.minimum(frequency, 0.999)))
sys.modules[f"{losses.__name__}.light"] = sys.modules[__name__]


class Light(Reference):
    """The reference, defined here."""


class Marking(Reference):
    """Adds 1 to the weight of a row's feature whenever the row is trained, and changes nothing else."""

    def input_forward(self, X, rows, layer):
        return np.zeros((len(rows), layer.W.shape[1]), np.float32)

    def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
        return 0.0, A

    def input_step(self, X, rows, dZ, layer, update):
        layer.W[X.columns_of(rows)] += 1


def die_once(folder, names):
    """Kill this process, once for each name: a file of this name in the folder says that it was done."""
    for name in names:
        try:
            (folder / str(name)).touch(exist_ok=False)  # of two processes at once one is killed
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


class Fatal(Marking):
    """Kills its process in the middle of a step that trains one of the `fatal` rows, each of them once."""

    def __init__(self, folder, fatal):
        self.folder, self.fatal = folder, fatal

    def input_step(self, X, rows, dZ, layer, update):
        half = len(rows) // 2
        super().input_step(X, rows[:half], dZ, layer, update)
        die_once(self.folder, set(rows.tolist()) & set(self.fatal))
        super().input_step(X, rows[half:], dZ, layer, update)


class FatalReference(Reference):
    """Kills its process in a step that trains one of the `fatal` rows, once each, when the output layer is updated."""

    def __init__(self, folder, fatal):
        self.folder, self.fatal = folder, fatal

    def input_step(self, X, rows, dZ, layer, update):
        die_once(self.folder, set(rows.tolist()) & set(self.fatal))
        super().input_step(X, rows, dZ, layer, update)


class Failing(Marking):
    """Runs out of memory at every step; if `folder` is given, only once, in the first of all."""

    def __init__(self, folder=None):
        self.folder = folder

    def output_step(self, *given):
        failed = self.folder and self.folder / "failed"
        if not (failed and failed.exists()):
            if failed:
                failed.touch()
            raise MemoryError("no room\nleft")
        return super().output_step(*given)


class Quadratic(Marking):
    """A step moves the one weight of the output layer, w, towards the mean number m of its rows: w -= rate (w - m)."""

    def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
        W = layer.W
        W -= update.hyper[RATE] * (W - np.float32(targets.rows.mean() / 100))
        return 0.0, A


class Early(Marking):
    """Kills its process while it starts, once for each of the `names` of files to be made in `folder`."""

    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def load_kernels(self, *given):
        die_once(self.folder, self.names)


class Loud(Marking):
    """Writes to both standard streams at every step."""

    def output_step(self, *given):
        os.write(1, b"said")
        os.write(2, b"said")
        return super().output_step(*given)
