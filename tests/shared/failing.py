"""A monitor that ends a run by an error."""

from __future__ import annotations

from xmlsgd.training.history import Monitor


class Failing(Monitor):
    """Presses Ctrl-C, or raises what a monitor may, after some steps."""

    def __init__(self, error, steps):
        self.error, self.left = error, steps

    def step(self, report):
        self.left -= 1
        if self.left == 0:
            raise self.error
