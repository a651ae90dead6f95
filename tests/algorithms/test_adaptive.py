"""Adaptive SGD and its baseline: the update worked by hand, who comes and goes, numbers that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from shared import light, toy
from shared.adaptive_runs import Traced, did, started, traced_run
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.combiners import equal
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.outer import HeavyBall
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.job import Job


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_a_run_is_the_papers_algorithm_worked_by_hand(momentum):
    """Merging and scaling by hand on one number: shares of the updates, momentum, sizes, rates linear in them."""
    algorithm = AdaptiveSGD(16, 0.2, mega_batch=120, momentum=momentum, low=4)
    done, executor = toy.run(algorithm, toy.fleet(1, 0.55, 0.3), n_rows=900)
    w = previous = 0.0
    replicas, updates, sizes = dict.fromkeys(range(3), 0.0), dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 16)
    merges = 0
    for i, (kind, what) in enumerate(executor.log):
        if kind == "issue":
            assert (what.batch or what.rows) in (sizes[what.worker], 900 - what.start)
            assert what.learning_rate == pytest.approx(0.2 * (what.batch or what.rows) / 16)
            replicas[what.worker] = toy.after(replicas[what.worker], what, 900)
        elif kind == "done":
            updates[what.worker] += what.updates
        else:
            equal = len(set(updates.values())) == 1
            total = sum(sizes.values()) if equal else sum(updates.values())
            alpha = {v: (sizes if equal else updates)[v] / total for v in updates}
            w, previous = sum(alpha[v] * replicas[v] for v in alpha) + momentum * (w - previous), w
            mean = np.mean(list(updates.values()))
            wanted = {v: sizes[v] * (updates[v] / mean) ** 0.5 for v in sizes}
            if i < len(executor.log) - 1:
                sizes = {v: min(max(round(b * 16 / max(wanted.values())), 4), 16) for v, b in wanted.items()}
            replicas, updates = dict.fromkeys(range(3), w), dict.fromkeys(range(3), 0)
            merges += 1
    assert merges == 8
    assert len(set(sizes.values())) == 3, "sizes have changed"
    assert toy.weight(done, 900) == pytest.approx(w, rel=1e-4)


def test_the_momentum_term_of_the_first_merge_is_zero():
    """The earlier model, of which there is none yet, is not read."""
    models = []
    for momentum in (0.0, 0.9):
        algorithm = AdaptiveSGD(8, 0.3, mega_batch=240, momentum=momentum, low=8)
        models.append(toy.weight(toy.run(algorithm, toy.fleet(1, 0.5))[0]))
    assert models[0] == pytest.approx(models[1], rel=1e-6)


def test_momentum_of_the_merges_counts_from_the_second_on():
    models = []
    for momentum in (0.0, 0.9):
        algorithm = AdaptiveSGD(8, 0.03, mega_batch=80, momentum=momentum, low=8)
        models.append(toy.weight(toy.run(algorithm, toy.fleet(1, 0.5))[0]))
    assert models[1] > 1.2 * models[0]


@pytest.mark.parametrize("momentum", [None, 0.0])
def test_one_worker_without_momentum_is_sequential_gradient_descent(momentum):
    """To the bit; 1 - 1/n is 0 for one worker."""
    data, network = toy.random_data(65, 7, 5), Network(7, 5, (4,))
    algorithm = AdaptiveSGD(10, 0.3, mega_batch=20, momentum=momentum)
    done, executor = toy.run(algorithm, toy.fleet(1), device=toy.Reference(), data=data, network=network, epochs=2)
    assert len(executor.of("merge")) == 8
    np.testing.assert_array_equal(done.params, toy.sequential(data, network, epochs=2).params)


def test_one_worker_with_momentum_is_gradient_descent_with_block_momentum():
    algorithm = AdaptiveSGD(10, 0.1, mega_batch=40, momentum=0.5)
    done, executor = toy.run(algorithm, toy.fleet(1))
    w = replica = motion = 0.0
    for kind, what in executor.log:
        if kind == "issue":
            replica = toy.after(replica, what)
        elif kind == "merge":
            motion = 0.5 * motion + replica - w
            w += motion
            replica = w
    assert len(executor.of("merge")) == 6
    assert toy.weight(done) == pytest.approx(w, rel=1e-5)


class Static(AdaptiveSGD):
    """Adaptive SGD with equal shares and weights."""

    dynamic = False

    def merge_weights(self, comm, work):
        return equal(work)


def test_block_momentum_is_adaptive_sgd_with_equal_shares():
    """One object serves both; BMUF with zeta = 1."""
    data, network = toy.random_data(240, 7, 5), Network(7, 5, (4,))
    block = LocalSGD(10, 0.3, steps=4, dynamic=False, outer=HeavyBall(0.6), combine="mean")
    adaptive = Static(10, 0.3, mega_batch=120, momentum=0.6, low=10, straggler_timeout=np.inf)
    runs = [
        toy.run(algorithm, toy.fleet(1, 0.7, 0.5), device=toy.Reference(), data=data, network=network)[0].params
        for algorithm in (block, adaptive)
    ]
    np.testing.assert_array_equal(*runs)


def test_elastic_averaging_is_adaptive_sgd_with_everything_off():
    """To the bit: static shares, fixed sizes, equal weights, no momentum."""
    data, network = toy.random_data(300, 7, 5), Network(7, 5, (4,))
    off = Static(10, 0.3, mega_batch=100, low=10, momentum=0.0, straggler_timeout=np.inf)
    runs = [
        toy.run(algorithm, toy.fleet(1, 0.5), device=toy.Reference(), data=data, network=network, epochs=2)[0].params
        for algorithm in (Elastic(10, 0.3, mega_batch=100), off)
    ]
    np.testing.assert_array_equal(*runs)


def test_the_rate_changes_between_merges_of_one_epoch():
    """With a schedule, rates of two mega-batches of an epoch differ."""
    executor = toy.Logged(light.Marking(), toy.fleet(1, 1))
    algorithm = AdaptiveSGD(10, 0.3, mega_batch=40)
    toy.train(Job(toy.dataset(240), Network(240, 1, (1,)), toy.SGD()), algorithm, executor, Schedule(1, "linear"))
    kinds = [kind for kind, _ in executor.log]
    first = [0, *(i + 1 for i, kind in enumerate(kinds[:-1]) if kind == "merge")]
    rates = [executor.log[i][1].learning_rate for i in first]
    assert len(set(rates)) == len(rates) == 6


def test_a_worker_that_joins_in_a_mega_batch_keeps_its_batch_size_until_the_next():
    algorithm = started(2)
    algorithm.size = {0: 1024, 1: 512}
    algorithm.worker_joined(2)
    assert algorithm.size[2] == 768
    did(algorithm, [40, 40, 1])
    algorithm.given = {0: 40960, 1: 20480, 2: 768}
    algorithm.merge(toy.Replicas(0, 1, 1, 1), [0, 1, 2])
    assert algorithm.size == {0: 1024, 1: 512, 2: 768}
    did(algorithm, [40, 40, 10])
    algorithm.scale_batches(algorithm.work)
    assert algorithm.size[2] < 768


def test_a_part_of_a_mega_batch_at_the_end_of_an_epoch_changes_no_size():
    algorithm, _ = traced_run(toy.fleet(1, 0.2), 1100, mega_batch=1000)
    assert len(algorithm.trace) == 2
    assert algorithm.trace[0][3] != {0: 32, 1: 32}
    assert algorithm.trace[1][3] == algorithm.trace[0][3]


@pytest.mark.parametrize(("mega_batch", "changes"), [(140_000, True), (150_000, False)])
def test_half_of_a_mega_batch_is_enough_to_change_sizes(mega_batch, changes):
    algorithm = started(2, mega_batch=mega_batch)
    did(algorithm, [40, 30])
    algorithm.merge(toy.Replicas(0, 1, 1), [0, 1])
    assert (algorithm.size != {0: 1024, 1: 1024}) == changes


def test_the_next_epoch_begins_a_mega_batch_of_its_own():
    algorithm = Traced(10, 0.1, mega_batch=100)
    toy.run(algorithm, toy.fleet(1, 0.5), n_rows=130, device=light.Marking(), epochs=2)
    rows = [sum(given.values()) for given, *_ in algorithm.trace]
    assert rows[0] + rows[1] == rows[2] + rows[3] == 130
    assert all(100 <= first < 110 for first in rows[::2])


def test_block_momentum_follows_the_number_of_workers():
    gammas = {}
    for n in (1, 2, 4, 10):
        algorithm = started(n)
        comm = toy.Replicas(0, *[1.0] * n)
        for values in (1.0, 0.0):  # the second merge changes nothing but by momentum
            comm.shared.params[1:] = comm.center if not values else 1.0
            did(algorithm, [1] * n)
            comm.shared.touched[:] = 1
            algorithm.merge(comm, range(n))
        gammas[n] = comm.values()[0] - 1
    assert gammas == pytest.approx({1: 0, 2: 0.5, 4: 0.75, 10: 0.8}, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"perturbation": 1.0}, "perturbation must be in"),
        ({"low": 2000}, "low must be at most the batch, 1024, got 2000"),
        ({"mega_batch": 0}, "mega_batch must be at least 1 or None, got 0"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"straggler_timeout": 1.0}, "straggler_timeout must be above 1, got 1"),
        ({"size_rule": "magic"}, "size_rule must be one of"),
    ],
)
def test_bad_numbers_are_refused_at_construction(settings, complaint):
    with pytest.raises(DataError, match=complaint):
        AdaptiveSGD(**{"batch": 1024, **settings})
