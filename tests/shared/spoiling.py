"""A callback that makes a run diverge."""

from __future__ import annotations

import math

from xmlsgd.training.callbacks import Callback


class Spoiling(Callback):
    """Write NaN into the model at the start of an epoch's second step."""

    def __init__(self, epoch):
        self.at_rows, self.rows, self.wanted = None, 0, epoch

    def start(self, n_rows, epochs, center):
        self.at_rows, self.center = n_rows * self.wanted, center

    def span(self, report):
        self.rows += report.rows
        if self.rows > self.at_rows:
            self.center[:] = math.nan
