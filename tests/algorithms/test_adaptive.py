"""Adaptive SGD and its baseline: routing, merge weights, global momentum, batch sizes that equalise the updates."""

from __future__ import annotations

import numpy as np
import pytest
import toy

from xmlsgd.algorithms.adaptive import SIZE_RULES, AdaptiveSGD
from xmlsgd.algorithms.combining import Work
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.outer import HeavyBall
from xmlsgd.errors import DataError
from xmlsgd.executors.costs import VirtualDevice
from xmlsgd.network import Network


class Traced(AdaptiveSGD):
    """Keeps what each mega-batch was like at its merge: rows given, work and sizes before, sizes after."""

    def start(self, workers, n_rows):
        super().start(workers, n_rows)
        self.trace = []

    def merge(self, comm, members):
        given, work, before, rows = dict(self.given), dict(self.work), dict(self.size), self.mega_rows
        super().merge(comm, members)
        self.trace.append((given, work, before, dict(self.size), rows))

    def updates_of(self, i):
        return [done.updates for _, done in sorted(self.trace[i][1].items())]


def started(n=4, **settings):
    algorithm = AdaptiveSGD(**{"batch": 1024, "rate": 0.5, "low": 128, **settings})
    algorithm.start(range(n), 10**6)
    return algorithm


def did(algorithm, updates, sizes=None):
    """Let each worker have made so many updates."""
    sizes = sizes or algorithm.size
    algorithm.work = {w: Work(u, u * sizes[w], sizes[w]) for w, u in enumerate(updates)}


# --- the update --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_a_run_is_the_papers_algorithm_worked_by_hand(momentum):
    """MERGE and SCALE of section 3.1 on one number: shares of the updates, momentum, sizes, rates linear in them."""
    algorithm = AdaptiveSGD(16, 0.2, mega_batch=120, momentum=momentum, low=4)
    done, executor = toy.run(algorithm, toy.fleet(1, 0.55, 0.3), n_rows=900)
    w = previous = 0.0
    replicas, updates, sizes = dict.fromkeys(range(3), 0.0), dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 16)
    merges = 0
    for i, (kind, what) in enumerate(executor.log):
        if kind == "issue":
            assert (what.batch or what.rows) in (sizes[what.worker], 900 - what.start)
            assert what.learning_rate == pytest.approx(0.2 * sizes[what.worker] / 16)
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
    """T3.10, trap 2."""
    models = []
    for momentum in (0.0, 0.9):
        algorithm = AdaptiveSGD(8, 0.3, mega_batch=240, momentum=momentum, size_rule="fixed")
        models.append(toy.weight(toy.run(algorithm, toy.fleet(1, 0.5))[0]))
    assert models[0] == pytest.approx(models[1], rel=1e-6)


def test_momentum_of_the_merges_counts_from_the_second_on():
    models = []
    for momentum in (0.0, 0.9):
        algorithm = AdaptiveSGD(8, 0.03, mega_batch=80, momentum=momentum, size_rule="fixed")
        models.append(toy.weight(toy.run(algorithm, toy.fleet(1, 0.5))[0]))
    assert models[1] > 1.2 * models[0]


@pytest.mark.parametrize("momentum", [None, 0.0])
def test_one_worker_without_momentum_is_sequential_gradient_descent(momentum):
    """T3.1, to the bit; 1 - 1/n is 0 for one worker."""
    data, network = toy.random_data(65, 7, 5), Network(7, 5, (4,))
    algorithm = AdaptiveSGD(10, 0.3, mega_batch=20, momentum=momentum)
    done, executor = toy.run(algorithm, toy.fleet(1), device=toy.Reference(), data=data, network=network, epochs=2)
    assert len(executor.of("merge")) == 8
    np.testing.assert_array_equal(done.params, toy.sequential(data, network, epochs=2).params)


def test_one_worker_with_momentum_is_gradient_descent_with_block_momentum():
    """T3.1."""
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


def test_block_momentum_is_adaptive_sgd_with_equal_shares():
    """T1.4: one object serves both; BMUF with zeta = 1."""
    data, network = toy.random_data(240, 7, 5), Network(7, 5, (4,))
    block = LocalSGD(10, 0.3, steps=4, dynamic=False, outer=HeavyBall(0.6), weights="equal", combine="mean")
    adaptive = AdaptiveSGD(10, 0.3, mega_batch=120, momentum=0.6, size_rule="fixed", dispatch="static", weights="equal")
    runs = [
        toy.run(algorithm, toy.fleet(1, 0.7, 0.5), device=toy.Reference(), data=data, network=network)[0].params
        for algorithm in (block, adaptive)
    ]
    np.testing.assert_array_equal(*runs)


def test_elastic_averaging_is_adaptive_sgd_with_everything_off():
    """T6.2, to the bit: static shares, fixed sizes, equal weights, no momentum."""
    data, network = toy.random_data(300, 7, 5), Network(7, 5, (4,))
    off = AdaptiveSGD(
        10, 0.3, mega_batch=100, size_rule="fixed", dispatch="static", weights="equal", momentum=0.0, perturbation=0.0
    )
    runs = [
        toy.run(algorithm, toy.fleet(1, 0.5), device=toy.Reference(), data=data, network=network, epochs=2)[0].params
        for algorithm in (Elastic(10, 0.3, mega_batch=100), off)
    ]
    np.testing.assert_array_equal(*runs)


def test_the_rate_changes_between_merges_of_one_epoch():
    """Trap 10: with a schedule, rates of two mega-batches of an epoch differ."""
    executor = toy.Logged(toy.Marking(), toy.fleet(1, 1))
    algorithm = AdaptiveSGD(10, 0.3, mega_batch=40)
    toy.train(
        toy.dataset(240), Network(240, 1, (1,)), algorithm, executor, optimizer=toy.SGD(), epochs=1, schedule="linear"
    )
    kinds = [kind for kind, _ in executor.log]
    first = [0, *(i + 1 for i, kind in enumerate(kinds[:-1]) if kind == "merge")]
    rates = [executor.log[i][1].learning_rate for i in first]
    assert len(set(rates)) == len(rates) == 6


# --- merge weights -----------------------------------------------------------------------------------------------


def weights(algorithm, updates, norms=None, sizes=None):
    did(algorithm, updates, sizes)
    comm = toy.Replicas(0, *(norms or [0.0] * len(updates)))
    if norms is not None:
        comm.table.params[1:] = np.array(norms, np.float32)[:, None]
    return algorithm.merge_weights(comm, algorithm.work)


def test_weights_are_shares_of_the_updates_and_of_the_sizes_where_updates_are_equal():
    """T3.2."""
    algorithm = started(3)
    assert weights(algorithm, [3, 2, 1]) == pytest.approx({0: 1 / 2, 1: 1 / 3, 2: 1 / 6}, abs=1e-12)
    by_size = weights(algorithm, [2, 2, 2], sizes={0: 1024, 1: 512, 2: 512})
    assert by_size == pytest.approx({0: 1 / 2, 1: 1 / 4, 2: 1 / 4}, abs=1e-12)
    for updates in ([5, 1, 3], [7, 7, 7], [1, 0, 0]):
        assert sum(weights(algorithm, updates).values()) == pytest.approx(1, abs=1e-12)


def test_perturbed_weights_add_up_to_what_the_paper_gives_and_to_one_when_renormalised():
    """T3.2, T3.12, trap 4."""
    raw = started(2, perturbation=0.1, renormalise=False)
    assert sum(weights(raw, [8, 0]).values()) == pytest.approx(1.1, abs=1e-12)
    assert weights(raw, [3, 1]) == pytest.approx({0: 0.75 * 1.1, 1: 0.25 * 0.9}, abs=1e-12)
    assert sum(weights(raw, [3, 1]).values()) == pytest.approx(1 + 0.1 * (0.75 - 0.25), abs=1e-12)
    renormalised = started(2, perturbation=0.1)
    for updates in ([8, 0], [3, 1]):
        assert sum(weights(renormalised, updates).values()) == pytest.approx(1, abs=1e-12)


def test_equal_updates_are_never_perturbed():
    """T3.11."""
    assert weights(started(2, perturbation=0.5), [4, 4]) == {0: 0.5, 1: 0.5}


def test_one_replica_above_the_norm_threshold_closes_the_gate_for_all():
    """T3.11, trap 4: the norm a parameter of a vector of n equal numbers x is x / sqrt(n)."""
    n = toy.Replicas(0, 0).n_params
    algorithm = started(2, perturbation=0.1, renormalise=False, norm_threshold=1 / np.sqrt(n))
    shares = {0: 0.75, 1: 0.25}
    assert weights(algorithm, [3, 1], [0.999, 0.999]) != pytest.approx(shares)
    assert weights(algorithm, [3, 1], [1.001, 1.001]) == pytest.approx(shares)
    assert weights(algorithm, [3, 1], [0.999, 1.001]) == pytest.approx(shares)
    assert weights(algorithm, [3, 1], [1.001, 0.0]) == pytest.approx(shares)


@pytest.mark.parametrize(("renormalise", "growth"), [(True, 1.0), (False, 1.1**10)])
def test_ten_perturbed_merges_keep_the_norm_when_renormalised(renormalise, growth):
    """T3.12, trap 4: a straggler would let the model grow by a tenth a merge."""
    algorithm = started(2, perturbation=0.1, renormalise=renormalise, momentum=0.0, norm_threshold=10)
    comm = toy.Replicas(1, 1, 1)
    for _ in range(10):
        did(algorithm, [8, 0])
        comm.table.touched[:] = 1
        algorithm.merge(comm, [0, 1])
    assert comm.values() == pytest.approx([growth] * 3, rel=1e-5)


# --- routing -----------------------------------------------------------------------------------------------------


def traced_run(devices, n_rows, **settings):
    algorithm = Traced(**{"batch": 32, "rate": 0.1, "patience": np.inf, **settings})
    return algorithm, toy.run(algorithm, devices, n_rows=n_rows, device=toy.Marking())[1]


def test_a_mega_batch_has_its_rows_and_less_than_one_batch_more():
    """T3.6, trap 3: the tail of an epoch is trained on, once, and nothing twice."""
    algorithm, executor = traced_run(toy.fleet(1, 0.7, 0.3, noise=0.1), 5003, mega_batch=640)
    *full, last = algorithm.trace
    for given, _, before, _, rows in full:
        assert rows == 640 <= sum(given.values()) < 640 + max(before.values())
    assert sum(last[0].values()) == 5003 - sum(sum(given.values()) for given, *_ in full)
    assert sum(step.rows for step in executor.of("issue")) == 5003


def test_a_mega_batch_has_room_for_a_batch_of_everyone():
    algorithm = started(4, mega_batch=10)
    assert algorithm.mega_rows == 4 * 1024
    algorithm.joined(4)
    assert algorithm.mega_rows == 5 * 1024


def test_mega_batches_divide_an_epoch_evenly():
    algorithm = AdaptiveSGD(10, 0.1)
    algorithm.start([0, 1], 2300)
    assert algorithm.mega_rows == 1150


@pytest.mark.parametrize("dispatch", ["dynamic", "static"])
def test_nobody_idles_for_longer_than_a_batch_where_routing_is_dynamic(dispatch):
    """T3.9; static shares make all wait for the slowest."""
    _, executor = traced_run(toy.fleet(1, 0.25), 2000, mega_batch=500, dispatch=dispatch, size_rule="fixed")
    longest = max(report.seconds for report in executor.of("done"))
    idle, free, waits = [], {}, []
    for (kind, what), at in zip(executor.log, executor.times, strict=True):
        if kind == "done":
            free[what.worker] = at
        elif kind == "issue" and what.worker in free:
            idle.append(at - free.pop(what.worker))
        elif kind == "merge":
            waits += [at - since for since in free.values()]
    assert (max(waits) <= longest + 1e-9) == (dispatch == "dynamic")


# --- sizes -------------------------------------------------------------------------------------------------------


def test_rates_are_linear_in_the_sizes_which_stay_in_their_bounds():
    """T3.5: the rate over the size is the same for all."""
    for rule in SIZE_RULES:
        algorithm, executor = traced_run(toy.fleet(1, 0.6, 0.1), 6000, mega_batch=320, size_rule=rule, low=4)
        for _, _, before, after, _ in algorithm.trace:
            assert all(4 <= size <= 32 for size in after.values())
            assert before.keys() == after.keys()
        for step in executor.of("issue")[:-1]:
            assert step.learning_rate / 0.1 * 32 == pytest.approx(round(step.learning_rate / 0.1 * 32))
            assert (step.batch or step.rows) == round(step.learning_rate / 0.1 * 32)


@pytest.mark.parametrize("speeds", [(1, 0.9, 0.8, 0.7), (1, 1, 0.5, 0.25)])
def test_updates_become_equal_and_sizes_those_of_the_speeds(speeds):
    """T3.7: within 10 mega-batches, without noise; sizes to 3 %."""
    algorithm, _ = traced_run(toy.fleet(*speeds), 170_000, batch=128, mega_batch=12_800, low=16)
    assert len(algorithm.trace) > 11
    for i in range(10, len(algorithm.trace) - 1):
        updates = algorithm.updates_of(i)
        assert max(updates) - min(updates) <= 1
    sizes = algorithm.trace[-2][2]
    np.testing.assert_allclose([sizes[w] / sizes[0] for w in range(4)], np.array(speeds) / speeds[0], rtol=0.03)


def test_updates_become_equal_again_after_a_device_slows_down():
    """T3.8: within 10 mega-batches."""
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
    """T3.13, trap 15: 1,000 merges with 50 % noise."""
    algorithm, rng = started(4), np.random.default_rng(0)
    for _ in range(1000):
        share = np.array([1, 0.9, 0.8, 0.7]) * np.exp(0.5 * rng.standard_normal(4))
        did(algorithm, [max(round(100 * 1024 * s / share.sum() / algorithm.size[w]), 0) for w, s in enumerate(share)])
        algorithm.rescale(algorithm.work)
        assert max(algorithm.size.values()) == 1024


def test_the_additive_rule_oscillates_with_the_papers_step_and_settles_with_the_automatic_one():
    """T3.7, trap 6: stable if beta u / b < 2, which b_min / 2 breaks at these counts; automatic, it is at most 1."""
    speeds = np.array([1, 0.9, 0.8, 0.7])
    spreads = {}
    for step in (64.0, None):
        algorithm = started(4, size_rule="additive", size_step=step)
        algorithm.size = dict.fromkeys(range(4), 512)
        spread = []
        for _ in range(60):
            updates = [round(100 * 1024 * s / speeds.sum() / algorithm.size[w]) for w, s in enumerate(speeds)]
            did(algorithm, updates)
            spread.append(max(updates) - min(updates))
            algorithm.rescale(algorithm.work)
        spreads[step] = np.mean(spread[-20:])
    assert spreads[64.0] > 20
    assert spreads[None] <= 2


def test_the_automatic_step_of_the_additive_rule_is_at_most_size_over_updates():
    """Trap 6: beta * u / b <= 1 for everyone."""
    algorithm = started(3, size_rule="additive", low=2)
    did(algorithm, [60, 30, 30])
    algorithm.size = {0: 500, 1: 1000, 2: 1000}
    algorithm.rescale(algorithm.work)
    beta = min(500 / 60, 1000 / 30, 2 / 2)
    assert algorithm.size == {0: round(500 + beta * 20), 1: 990, 2: 990}


def test_sizes_out_of_range_are_clamped_or_left_as_they_were():
    for rule, expected in (("clamp", {0: 1024, 1: 128}), ("skip", {0: 1000, 1: 130})):
        algorithm = started(2, size_rule="additive", size_step=10.0, out_of_range=rule)
        algorithm.size = {0: 1000, 1: 130}
        did(algorithm, [20, 10])
        algorithm.rescale(algorithm.work)
        assert algorithm.size == expected


def test_the_released_codes_rule_goes_by_steps_of_32():
    algorithm = started(3, size_rule="step32", low=32)
    algorithm.size = {0: 512, 1: 512, 2: 512}
    did(algorithm, [9, 6, 3])
    algorithm.rescale(algorithm.work)
    assert algorithm.size == {0: 544, 1: 512, 2: 480}


def test_a_worker_without_an_update_gets_the_smallest_size():
    algorithm = started(2)
    did(algorithm, [9, 0])
    algorithm.rescale(algorithm.work)
    assert algorithm.size == {0: 1024, 1: 128}


# --- who comes and goes ------------------------------------------------------------------------------------------


def test_who_joins_in_the_middle_of_a_mega_batch_keeps_its_size_until_the_next():
    algorithm = started(2)
    algorithm.size = {0: 1024, 1: 512}
    algorithm.joined(2)
    assert algorithm.size[2] == 768
    did(algorithm, [40, 40, 1])
    algorithm.given = {0: 40960, 1: 20480, 2: 768}
    algorithm.merge(toy.Replicas(0, 1, 1, 1), [0, 1, 2])
    assert algorithm.size == {0: 1024, 1: 512, 2: 768}
    did(algorithm, [40, 40, 10])
    algorithm.rescale(algorithm.work)
    assert algorithm.size[2] < 768


def test_a_part_of_a_mega_batch_at_the_end_of_an_epoch_changes_no_size():
    algorithm, _ = traced_run(toy.fleet(1, 0.2), 1100, mega_batch=1000)
    assert len(algorithm.trace) == 2
    assert algorithm.trace[0][3] != {0: 32, 1: 32}
    assert algorithm.trace[1][3] == algorithm.trace[0][3]


def test_the_next_epoch_begins_a_mega_batch_of_its_own():
    algorithm = Traced(10, 0.1, mega_batch=100)
    toy.run(algorithm, toy.fleet(1, 0.5), n_rows=130, device=toy.Marking(), epochs=2)
    rows = [sum(given.values()) for given, *_ in algorithm.trace]
    assert rows[0] + rows[1] == rows[2] + rows[3] == 130
    assert all(100 <= first < 110 for first in rows[::2])


def test_block_momentum_follows_the_number_of_workers():
    gammas = {}
    for n in (1, 2, 4, 10):
        algorithm = started(n)
        comm = toy.Replicas(0, *[1.0] * n)
        for values in (1.0, 0.0):  # the second merge changes nothing but by momentum
            comm.table.params[1:] = comm.center if not values else 1.0
            did(algorithm, [1] * n)
            comm.table.touched[:] = 1
            algorithm.merge(comm, range(n))
        gammas[n] = comm.values()[0] - 1
    assert gammas == pytest.approx({1: 0, 2: 0.5, 4: 0.75, 10: 0.8}, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"kappa": 2.0}, "kappa must be in"),
        ({"perturbation": 1.0}, "perturbation must be in"),
        ({"low": 2000}, "low must be in"),
        ({"mega_batch": 0}, "mega_batch must be at least 1, got 0"),
        ({"size_step": 0.0}, "size_step must be finite and above 0, got 0"),
        ({"norm_threshold": -1.0}, "norm_threshold must be at least 0"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"patience": 1.0}, "patience must be above 1, got 1"),
        ({"size_rule": "magic"}, "size_rule must be one of"),
        ({"dispatch": "magic"}, "dispatch must be one of dynamic, static, got 'magic'"),
    ],
)
def test_bad_numbers_are_refused_at_construction(settings, complaint):
    with pytest.raises(DataError, match=complaint):
        AdaptiveSGD(**{"batch": 1024, **settings})
