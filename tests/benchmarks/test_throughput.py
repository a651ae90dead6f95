"""The benchmark of training steps counts whole batches of our network."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.ours import throughput
from benchmarks.peers.runner import BATCH, Problem
from xmlsgd import make_xmc


def test_the_steps_of_our_network_are_timed_after_those_that_warm_it_up():
    data = make_xmc(2 * BATCH, 40, 30, nnz_per_row=4, labels_per_row=2)
    X, Y = data.X.to_scipy(), data.Y.to_scipy()
    found = throughput(Problem(Path(), X, Y, X, Y, 1, 0), "float32", 1, 3)
    assert found["steps"] == 3
    assert found["rows_per_second"] > 0 < found["warm_up_seconds"]
    assert found["variant"] == "float32"
