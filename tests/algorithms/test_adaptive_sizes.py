"""Mega-batches of Adaptive SGD, and batch sizes that make the updates of all workers equal."""

from __future__ import annotations

import numpy as np
import pytest

from shared import toy
from shared.adaptive_runs import did, started, traced_run
from xmlsgd.algorithms.adaptive import SIZE_RULES, AdaptiveSGD
from xmlsgd.training.executors.virtual_device import VirtualDevice


def test_a_mega_batch_has_its_rows_and_less_than_one_batch_more():
    """The tail of an epoch is trained on, once, and nothing twice."""
    algorithm, executor = traced_run(toy.fleet(1, 0.7, 0.3, noise=0.1), 5003, mega_batch=640)
    *full, last = algorithm.trace
    for given, _, before, _, rows in full:
        assert rows == 640 <= sum(given.values()) < 640 + max(before.values())
    assert sum(last[0].values()) == 5003 - sum(sum(given.values()) for given, *_ in full)
    assert sum(step.rows for step in executor.of("issue")) == 5003


def test_a_mega_batch_has_room_for_a_batch_of_everyone():
    algorithm = started(4, mega_batch=10)
    assert algorithm.round_rows == 4 * 1024
    algorithm.worker_joined(4)
    assert algorithm.round_rows == 5 * 1024


@pytest.mark.parametrize(("rows", "rows_expected"), [(2300, 575), (7000, 1000), (100, 25), (30, 20)])
def test_mega_batches_divide_an_epoch_evenly_at_least_by_four(rows, rows_expected):
    algorithm = AdaptiveSGD(10, 0.1)
    algorithm.start([0, 1], rows)
    assert algorithm.round_rows == rows_expected


@pytest.mark.parametrize("dynamic", [True, False])
def test_no_worker_idles_for_longer_than_a_batch_where_routing_is_dynamic(monkeypatch, dynamic):
    """Static shares make all wait for the slowest."""
    monkeypatch.setattr(AdaptiveSGD, "dynamic", dynamic)
    _, executor = traced_run(toy.fleet(1, 0.25), 2000, mega_batch=500, low=32)
    longest = max(report.seconds for report in executor.of("done"))
    idle, free, waits = [], {}, []
    for (kind, what), at in zip(executor.log, executor.times, strict=True):
        if kind == "done":
            free[what.worker] = at
        elif kind == "issue" and what.worker in free:
            idle.append(at - free.pop(what.worker))
        elif kind == "merge":
            waits += [at - since for since in free.values()]
    assert (max(waits) <= longest + 1e-9) == dynamic


def test_rates_are_linear_in_the_sizes_which_stay_in_their_bounds():
    """The rate over the size is the same for all."""
    for rule in SIZE_RULES:
        algorithm, executor = traced_run(toy.fleet(1, 0.6, 0.1), 6000, mega_batch=320, size_rule=rule, low=4)
        for _, _, before, after, _ in algorithm.trace:
            assert all(4 <= size <= 32 for size in after.values())
            assert before.keys() == after.keys()
        for step in executor.of("issue"):
            assert step.learning_rate / 0.1 * 32 == pytest.approx(round(step.learning_rate / 0.1 * 32))
            assert (step.batch or step.rows) == round(step.learning_rate / 0.1 * 32)


@pytest.mark.parametrize("speeds", [(1, 0.9, 0.8, 0.7), (1, 1, 0.5, 0.25)])
def test_updates_become_equal_and_sizes_those_of_the_speeds(speeds):
    """Within 10 mega-batches, without noise; sizes to 3 %."""
    algorithm, _ = traced_run(toy.fleet(*speeds), 170_000, batch=128, mega_batch=12_800, low=16)
    assert len(algorithm.trace) > 11
    for i in range(10, len(algorithm.trace) - 1):
        updates = algorithm.updates_of(i)
        assert max(updates) - min(updates) <= 1
    sizes = algorithm.trace[-2][2]
    np.testing.assert_allclose([sizes[w] / sizes[0] for w in range(4)], np.array(speeds) / speeds[0], rtol=0.03)


def test_updates_become_equal_again_after_a_device_slows_down():
    """Within 10 mega-batches."""
    devices = toy.fleet(1, 0.9, 0.8, 0.7)
    devices[0] = VirtualDevice(0, 1e-3, trace=((30.0, 0.4),))
    algorithm, executor = traced_run(devices, 300_000, batch=128, mega_batch=12_800, low=16)
    ends = [at for (kind, _), at in zip(executor.log, executor.times, strict=True) if kind == "merge"]
    slowed = next(i for i, at in enumerate(ends) if at > 30.0)
    spread = [max(updates) - min(updates) for updates in map(algorithm.updates_of, range(len(ends) - 1))]
    assert max(spread[slowed : slowed + 2]) > 5
    assert len(spread) > slowed + 12
    assert max(spread[slowed + 10 :]) <= 1


def test_the_level_of_the_sizes_does_not_sink_under_noise():
    """1,000 merges with 50 % noise."""
    algorithm, rng = started(4), np.random.default_rng(0)
    for _ in range(1000):
        share = np.array([1, 0.9, 0.8, 0.7]) * np.exp(0.5 * rng.standard_normal(4))
        did(algorithm, [max(round(100 * 1024 * s / share.sum() / algorithm.size[w]), 0) for w, s in enumerate(share)])
        algorithm.scale_batches(algorithm.work)
        assert max(algorithm.size.values()) == 1024


def test_the_papers_additive_rule_oscillates_and_the_multiplicative_one_settles():
    """Stable if beta u / b < 2, which b_min / 2 breaks at these counts."""
    speeds = np.array([1, 0.9, 0.8, 0.7])
    spreads = {}
    for rule in SIZE_RULES:
        algorithm = started(4, size_rule=rule)
        algorithm.size = dict.fromkeys(range(4), 512)
        spread = []
        for _ in range(60):
            updates = [round(100 * 1024 * s / speeds.sum() / algorithm.size[w]) for w, s in enumerate(speeds)]
            did(algorithm, updates)
            spread.append(max(updates) - min(updates))
            algorithm.scale_batches(algorithm.work)
        spreads[rule] = np.mean(spread[-20:])
    assert spreads["additive"] > 20
    assert spreads["multiplicative"] <= 1


def test_the_additive_rule_moves_sizes_by_half_the_smallest_and_leaves_those_that_would_be_out_of_range():
    algorithm = started(3, size_rule="additive")
    algorithm.size = {0: 900, 1: 1000, 2: 130}
    did(algorithm, [13, 15, 11])
    algorithm.scale_batches(algorithm.work)
    assert algorithm.size == {0: 900, 1: 1000, 2: 130}
    did(algorithm, [14, 14, 11])
    algorithm.scale_batches(algorithm.work)
    assert algorithm.size == {0: 900 + 64, 1: 1000, 2: 130}


def test_a_worker_without_an_update_gets_the_smallest_size():
    algorithm = started(2)
    did(algorithm, [9, 0])
    algorithm.scale_batches(algorithm.work)
    assert algorithm.size == {0: 1024, 1: 128}
