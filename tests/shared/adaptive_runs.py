"""Adaptive SGD brought to a state, or run on a simulated fleet while its sizes are noted."""

from __future__ import annotations

import numpy as np

from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.rounds import LocalWork

from . import light, toy


class Traced(AdaptiveSGD):
    """Keeps what each mega-batch was like at its merge: rows given, work and sizes before, sizes after."""

    def start(self, workers, n_rows):
        super().start(workers, n_rows)
        self.trace = []

    def merge(self, comm, members):
        given, work, before, rows = dict(self.given), dict(self.work), dict(self.size), self.round_rows
        super().merge(comm, members)
        self.trace.append((given, work, before, dict(self.size), rows))

    def updates_of(self, i):
        return [done.updates for _, done in sorted(self.trace[i][1].items())]


def started(n=4, **settings):
    algorithm = AdaptiveSGD(**{"batch": 1024, "learning_rate": 0.5, "low": 128, **settings})
    algorithm.start(range(n), 10**6)
    return algorithm


def did(algorithm, updates, sizes=None):
    """Let each worker have made so many updates."""
    sizes = sizes or algorithm.size
    algorithm.work = {w: LocalWork(u, u * sizes[w], sizes[w]) for w, u in enumerate(updates)}


def traced_run(devices, n_rows, **settings):
    algorithm = Traced(**{"batch": 32, "learning_rate": 0.1, "straggler_timeout": np.inf, **settings})
    return algorithm, toy.run(algorithm, devices, n_rows=n_rows, device=light.Marking())[1]
