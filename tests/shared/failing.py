"""A callback that ends a run by an error."""

from __future__ import annotations

from xmlsgd.training.callbacks import Callback


class Failing(Callback):
    """Presses Ctrl-C, or raises what a callback may, after some steps."""

    def __init__(self, error, steps):
        self.error, self.left = error, steps

    def span(self, report):
        self.left -= 1
        if self.left == 0:
            raise self.error
