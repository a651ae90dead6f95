"""Staleness: the updates that others make between an update's reading and its writing."""

from __future__ import annotations

from shared import toy
from xmlsgd.algorithms.hogwild import Hogwild


def test_staleness_counts_the_updates_of_others_between_reading_and_writing():
    """Worker 1 makes seven updates, each of a staleness of 0, while worker 0 makes one."""
    _, executor = toy.run(Hogwild(10, 0.1, copies=True), toy.fleet(0.1, 0.75), n_rows=80)
    seen = [(report.worker, report.staleness) for report in executor.of("done")]
    assert seen == [(1, 0)] * 7 + [(0, 7)]
