"""A callback that reads the model at each step, keeps an array in checkpoints, and replaces the model at the end."""

from __future__ import annotations

import numpy as np

from xmlsgd.training.callbacks import Callback


class RunningMean(Callback):
    """The mean of the models after all steps, which the run ends with."""

    def start(self, n_rows, epochs, center):
        self.center, self.mean, self.samples = center, np.zeros_like(center), 0

    def settings(self):
        return {"of": "all steps"}

    def state(self):
        return {"samples": self.samples, "mean": self.mean}

    def resume(self, run):
        if run.state:
            self.samples = run.state["samples"]
            self.mean = np.array(run.state["mean"], np.float32).reshape(self.center.shape)

    def reads(self, report):
        return True

    def span(self, report):
        self.samples += 1
        self.mean += (self.center - self.mean) / np.float32(self.samples)

    def epoch(self, record, center):
        record["averaged"] = self.samples
        return False

    def finish(self, center):
        center[:] = self.mean
