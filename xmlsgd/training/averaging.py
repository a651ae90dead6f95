"""Averaged weights: the mean of the models at the end of a run (Polyak and Juditsky 1992; Izmailov et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .callbacks import Callback, ResumedRun
from .history import EpochRecord
from .messages import Report

SAMPLES = 64  # models that enter the mean: more cost time and change the third digit of P@1 no more
BLOCK = 1 << 16  # floats averaged in one go: three of them lie in a level-2 cache


class WeightAverage(Callback):
    """The mean of models sampled over the last `share` of a run's rows; the run itself does not see it.

    `mean` is float32 (n_params,), or None before the first sample.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.mean: np.ndarray | None = None

    def start(self, n_rows: int, epochs: int, center: np.ndarray) -> None:
        """Place the samples."""
        self.center, self.mean, self.samples = center, None, 0
        total = n_rows * epochs
        self.next = total * (1 - self.share)
        self.every = total * self.share / SAMPLES
        self.rows = 0

    def settings(self) -> dict[str, Any]:
        """Return which models are averaged."""
        return {"share": self.share}

    def state(self) -> dict[str, Any]:
        """Return the mean, where there is one, and of how many models it is."""
        return {"samples": self.samples, "next": self.next} | ({} if self.mean is None else {"mean": self.mean})

    def resume(self, run: ResumedRun) -> None:
        """Go on with the mean."""
        self.rows = run.rows
        if kept := run.state:
            self.samples, self.next = kept["samples"], kept["next"]
            self.mean = np.array(kept["mean"], np.float32).reshape(self.center.shape) if "mean" in kept else None

    def reads(self, report: Report) -> bool:
        """Return whether a sample is due with this report."""
        return self.rows + report.rows >= self.next

    def step(self, report: Report) -> None:
        """Take a sample when one is due."""
        due = self.reads(report)
        self.rows += report.rows
        if not due:
            return
        self.next += self.every
        self.samples += 1
        if self.mean is None:
            self.mean = self.center.copy()
        else:
            # In blocks, so that no third copy of the model is ever made.
            for first in range(0, self.mean.size, BLOCK):
                mean, center = self.mean[first : first + BLOCK], self.center[first : first + BLOCK]
                mean += (center - mean) / np.float32(self.samples)

    def lost(self, reports: Sequence[Report]) -> None:
        """Count rows that are trained again once."""
        self.rows -= sum(report.rows for report in reports)

    def epoch(self, record: EpochRecord, center: np.ndarray) -> bool:
        """Note in the record how many models the mean has."""
        record["averaged"] = self.samples
        return False

    def finish(self, center: np.ndarray) -> None:
        """Replace the model by the mean."""
        if self.mean is not None:
            center[:] = self.mean
