"""The weights of Adaptive SGD's merges: shares of the updates, perturbed while all norms are small."""

from __future__ import annotations

import numpy as np
import pytest

from shared import toy
from shared.adaptive_runs import did, started
from xmlsgd.algorithms import adaptive


def weights(algorithm, updates, norms=None, sizes=None):
    did(algorithm, updates, sizes)
    comm = toy.Replicas(0, *(norms or [0.0] * len(updates)))
    if norms is not None:
        comm.shared.params[1:] = np.array(norms, np.float32)[:, None]
    return algorithm.merge_weights(comm, algorithm.work)


def test_weights_are_shares_of_the_updates_and_of_the_sizes_where_updates_are_equal():
    """They add up to 1."""
    algorithm = started(3)
    assert weights(algorithm, [3, 2, 1]) == pytest.approx({0: 1 / 2, 1: 1 / 3, 2: 1 / 6}, abs=1e-12)
    by_size = weights(algorithm, [2, 2, 2], sizes={0: 1024, 1: 512, 2: 512})
    assert by_size == pytest.approx({0: 1 / 2, 1: 1 / 4, 2: 1 / 4}, abs=1e-12)
    for updates in ([5, 1, 3], [7, 7, 7], [1, 0, 0]):
        assert sum(weights(algorithm, updates).values()) == pytest.approx(1, abs=1e-12)


def test_perturbed_weights_add_up_to_what_the_paper_gives():
    raw = started(2, perturbation=0.1)
    assert sum(weights(raw, [8, 0]).values()) == pytest.approx(1.1, abs=1e-12)
    assert weights(raw, [3, 1]) == pytest.approx({0: 0.75 * 1.1, 1: 0.25 * 0.9}, abs=1e-12)
    assert sum(weights(raw, [3, 1]).values()) == pytest.approx(1 + 0.1 * (0.75 - 0.25), abs=1e-12)


def test_equal_updates_are_never_perturbed():
    assert weights(started(2, perturbation=0.5), [4, 4]) == {0: 0.5, 1: 0.5}


def test_one_replica_above_the_norm_threshold_closes_the_gate_for_all(monkeypatch):
    """The norm a parameter of a vector of n equal numbers x is x / sqrt(n)."""
    n = toy.Replicas(0, 0).n_params
    monkeypatch.setattr(adaptive, "NORM_THRESHOLD", 1 / np.sqrt(n))
    algorithm = started(2, perturbation=0.1)
    shares = {0: 0.75, 1: 0.25}
    assert weights(algorithm, [3, 1], [0.999, 0.999]) != pytest.approx(shares)
    assert weights(algorithm, [3, 1], [1.001, 1.001]) == pytest.approx(shares)
    assert weights(algorithm, [3, 1], [0.999, 1.001]) == pytest.approx(shares)
    assert weights(algorithm, [3, 1], [1.001, 0.0]) == pytest.approx(shares)


@pytest.mark.parametrize(("perturbation", "growth"), [(0.0, 1.0), (0.1, 1.1**10)])
def test_perturbed_merges_inflate_the_model(perturbation, growth, monkeypatch):
    """A straggler lets it grow by a tenth a merge."""
    monkeypatch.setattr(adaptive, "NORM_THRESHOLD", 10)
    algorithm = started(2, perturbation=perturbation, momentum=0.0)
    comm = toy.Replicas(1, 1, 1)
    for _ in range(10):
        did(algorithm, [8, 0])
        comm.shared.touched[:] = 1
        algorithm.merge(comm, [0, 1])
    assert comm.values() == pytest.approx([growth] * 3, rel=1e-5)
