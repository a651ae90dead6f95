"""Omnivore: compute groups and their update, the split of a batch, efficiency, and the tuner, rule by rule."""

from __future__ import annotations

import copy
import json
import math
import pickle
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from xmlsgd.algorithms.compute_groups import ComputeGroups, largest_remainder
from xmlsgd.algorithms.efficiency import (
    HardwareEfficiency,
    divisors,
    explicit_momentum,
    fit_momentum,
    implicit_momentum,
    quadratic_path,
)
from xmlsgd.algorithms.group_tuning import CENTRE, FRACTIONS, MOMENTA, GroupTuner, Phase, Result, Setting, best, skipped
from xmlsgd.algorithms.omnivore import PER_LABEL, PER_NNZ, Omnivore, most_groups
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.csr import CSR, Dataset, epoch_order
from xmlsgd.devices.cpu import CPU
from xmlsgd.engine import Interrupted, train
from xmlsgd.errors import DataError
from xmlsgd.executors.costs import VirtualDevice
from xmlsgd.executors.processes import Processes
from xmlsgd.executors.serial import Serial
from xmlsgd.executors.simulated import Simulated
from xmlsgd.executors.threads import Threads
from xmlsgd.history import Monitor
from xmlsgd.learner import Job, Learner
from xmlsgd.network import Network
from xmlsgd.optimizers import SGD, Adam
from xmlsgd.records import Sharing, Step
from xmlsgd.router import Router

N_ROWS, BATCH, RATE = 61, 12, 0.5
NETWORK = Network(14, 9, (6,), loss="softmax")
SPEEDS = (1.0, 0.8, 0.6, 0.5)


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    X, Y = (CSR.from_scipy(sp.csr_array(rng.random((N_ROWS, n)) * (rng.random((N_ROWS, n)) < 0.3))) for n in (14, 9))
    return Dataset(X, Y)


def cpu():
    return CPU(1, precision="float32")


def simulated(speeds=SPEEDS, kind=Simulated, bandwidth=2e10, **device):
    return kind(cpu(), [VirtualDevice(speed=speed, **device) for speed in speeds], bandwidth=bandwidth)


def go(dataset, algorithm, executor, epochs=2, optimizer=None, monitors=()):
    with executor.device.start() if isinstance(executor, Simulated) else nullcontext():
        return train(
            dataset, NETWORK, algorithm, executor, optimizer=optimizer or SGD(), epochs=epochs, schedule="constant",
            warm_up=0, monitors=monitors,
        )  # fmt: skip


class Recorded(Simulated):
    """Keeps the steps that were submitted, and when."""

    def start(self, job, sharing):
        super().start(job, sharing)
        self.steps = []

    def submit(self, step):
        self.steps.append(step)
        super().submit(step)


class Updates(Omnivore):
    """Keeps the members of each update and the rows that they had trained."""

    def start(self, workers, n_rows):
        super().start(workers, n_rows)
        self.log = []

    def update(self, comm, j):
        self.log.append((comm.now(), self.compute.rows(j)))
        super().update(comm, j)


class Stay(Monitor):
    """Keeps the models of the ends of epochs and the rows of the steps that it is shown."""

    def start(self, n_rows, epochs, center):
        self.centers, self.rows = [], 0

    def step(self, report):
        self.rows += report.rows

    def epoch(self, record, center):
        self.centers.append(center.copy())
        return False


# --- the update --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["rows", "work"])
def test_one_group_without_momentum_equals_sgd_on_the_whole_batch(dataset, split):
    """T4.1."""
    algorithm = Updates(BATCH, RATE, groups=1, momentum=0.0, split=split)
    run = go(dataset, algorithm, simulated())
    if split == "rows":
        alone = go(dataset, Sequential(BATCH, RATE), Serial([cpu()])).params
    else:  # the batches are those that equal work makes
        alone = by_hand(dataset, [sum(rows.values()) for _, rows in algorithm.log])
    np.testing.assert_allclose(run.params, alone, rtol=2e-5, atol=2e-6)


def by_hand(dataset, batches):
    """Return the model after SGD on batches of these rows, epoch after epoch."""
    flat = np.zeros(NETWORK.layout.size, np.float32)
    job = Job(dataset, NETWORK, SGD())
    NETWORK.initialize(flat, dataset.Y, 0)
    learner, at = Learner(job, cpu(), flat), 0
    for rows in batches:
        epoch, start = divmod(at, N_ROWS)
        learner.step(Step(0, epoch, start, start + rows, RATE))
        at += rows
    return flat


def test_gradients_of_the_members_sum_to_that_of_the_whole_batch(dataset):
    """T4.2."""
    job = Job(dataset, NETWORK, SGD())
    first = np.random.default_rng(1).standard_normal(NETWORK.layout.size).astype(np.float32)

    def change(start, stop):
        flat = first.copy()
        Learner(job, cpu(), flat).step(Step(0, 0, start, stop, 1.0))
        return flat - first

    cuts = [0, 3, 4, 11, 20]
    total = sum((b - a) / 20 * change(a, b) for a, b in pairwise(cuts))
    np.testing.assert_allclose(total, change(0, 20), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("n_features", [14, 600])
def test_the_update_is_that_of_the_paper_worked_by_hand(dataset, momentum, n_features):
    """Two groups of two: v <- m v - eta G of the model that the group read, w <- w + v; in rows that few have, too."""
    network = replace(NETWORK, n_features=n_features)
    if n_features > 14:
        X = np.random.default_rng(1).random((N_ROWS, n_features))
        dataset = Dataset(CSR.from_scipy(sp.csr_array(X * (X < 0.005))), dataset.Y)
    algorithm, executor = Updates(BATCH, RATE, groups=2, momentum=momentum), simulated(kind=Recorded)
    with executor.device.start():
        run = train(
            dataset, network, algorithm, executor, optimizer=SGD(), epochs=1, schedule="constant", warm_up=0
        )  # fmt: skip
    of_all_rows = len(algorithm.log) * 4 * 2 * 3 * network.layout.size / executor.bandwidth
    assert (executor.merge_seconds < 0.5 * of_all_rows) == (n_features > 14), "merges are sparse where rows are"
    w = np.zeros(network.layout.size, np.float32)
    network.initialize(w, dataset.Y, 0)
    v, waiting = np.zeros_like(w), {worker: [] for worker in range(4)}
    for step in executor.steps:
        waiting[step.worker].append(step)
    read = dict.fromkeys(range(2), w)
    for _, rows in algorithm.log:
        j = min(rows) % 2
        total = sum(rows.values())
        G = np.zeros_like(w)
        for member, trained in rows.items():
            if trained:
                step, flat = waiting[member].pop(0), read[j].copy()
                assert step.rows == trained
                Learner(Job(dataset, network, SGD()), cpu(), flat).step(step)
                G += (read[j] - flat) / np.float32(RATE) * np.float32(trained / total)
        v = np.float32(momentum) * v - np.float32(RATE) * G
        w = w + v
        read[j] = w
    assert len(algorithm.log) > 4
    assert not any(waiting.values())
    np.testing.assert_allclose(run.params, w, rtol=1e-4, atol=1e-5)


def test_a_group_steps_from_what_it_read_while_others_write(dataset):
    """Without momentum two groups of one add the differences of both to the model."""
    executor = simulated((1.0, 0.9))
    algorithm = Omnivore(BATCH, RATE, groups=2, momentum=0.0)
    algorithm.weigh_rows(dataset)
    executor.start(Job(dataset, NETWORK, SGD()), Sharing.REPLICAS)
    algorithm.start(executor.workers, N_ROWS)
    first = executor.center.copy()
    for w, start in ((0, 0), (1, BATCH)):
        executor.submit(Step(w, 0, start, start + BATCH, RATE))
        algorithm.submitted(w, BATCH)
    for _ in range(2):
        algorithm.finished(executor.wait())
    changes = executor.table.params[1:] - first
    algorithm.merge(executor, [0])
    np.testing.assert_array_equal(executor.table.params[1], executor.center)
    algorithm.merge(executor, [1])
    np.testing.assert_allclose(executor.center, first + changes[0] + changes[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(executor.table.params[2], executor.center)
    assert algorithm.notes()["staleness"] == 0.5


@pytest.mark.parametrize("g", [1, 2, 4])
def test_a_gradient_is_on_average_as_stale_as_there_are_other_groups(dataset, g):
    """T4.5, second half: the whole model has the staleness that the paper gives to the hidden layers."""
    algorithm = Omnivore(2, 0.01, groups=g)
    go(dataset, algorithm, simulated((1, 1, 1, 1), noise=0.3, overhead=0), epochs=6)
    starts = g * 6  # the first update of each group after an epoch's barrier is fresher
    n = algorithm.version
    assert n > 100
    assert algorithm.notes()["staleness"] == pytest.approx(g - 1, abs=starts * g / n + 1e-9)


def test_all_rows_are_trained_once_an_epoch_and_all_end_with_one_model(dataset):
    algorithm, executor = Updates(BATCH, 0.1, groups=2), simulated()
    go(dataset, algorithm, executor, epochs=3)
    assert sum(sum(rows.values()) for _, rows in algorithm.log) == 3 * N_ROWS
    np.testing.assert_array_equal(executor.table.params, np.tile(executor.center, (5, 1)))


# --- groups ------------------------------------------------------------------------------------------------------


def test_momentum_is_what_asynchrony_lacks_to_the_best():
    assert [round(explicit_momentum(g, 0.9), 6) for g in (1, 2, 4, 10, 20)] == [0.9, 0.4, 0.15, 0, 0]
    for g in (1, 2, 4):
        algorithm = Omnivore(groups=g)
        algorithm.start(range(4), N_ROWS)
        assert algorithm.notes()["momentum"] == explicit_momentum(g, 0.9)


@pytest.mark.parametrize(
    ("n", "best_momentum", "g"), [(4, 0.9, 4), (10, 0.9, 10), (12, 0.9, 6), (11, 0.9, 1), (8, 0.5, 2)]
)
def test_there_are_as_many_groups_as_momentum_allows(n, best_momentum, g):
    assert most_groups(n, best_momentum) == g


def test_a_worker_that_leaves_takes_its_rows_along_and_one_that_comes_gets_a_group(dataset):
    fleet = [VirtualDevice(), VirtualDevice(speed=0.8, absent=((0.004, 0.012),)), VirtualDevice(absent=((0.0, 0.006),))]
    for g, groups in ((3, 3), (1, 1)):
        algorithm, executor = Updates(4, 0.1, groups=g), Recorded(cpu(), fleet)
        run = go(dataset, algorithm, executor, epochs=4)
        assert [record["rows"] for record in run.records] == [N_ROWS * e for e in (1, 2, 3, 4)]
        assert sum(sum(rows.values()) for _, rows in algorithm.log) == 4 * N_ROWS
        assert sum(step.rows for step in executor.steps) > 4 * N_ROWS, "what was lost is given out again"
        assert {w for _, rows in algorithm.log[-6:] for w in rows} == {0, 1, 2}
        assert len(algorithm.notes()["members"]) == groups


def test_a_run_outlives_the_absence_of_everybody(dataset):
    fleet = [VirtualDevice(absent=((0.003, 0.02),)), VirtualDevice(absent=((0.004, 0.01),))]
    algorithm = Updates(4, 0.1, groups=2)
    run = go(dataset, algorithm, Simulated(cpu(), fleet), epochs=3)
    assert sum(sum(rows.values()) for _, rows in algorithm.log) == 3 * N_ROWS
    assert not run.diverged
    assert np.isfinite(run.params).all()


def test_a_worker_that_waits_for_a_group_goes_on_alone_when_all_others_leave():
    algorithm = Omnivore(BATCH, groups=1, tune=False)
    algorithm.start([0], N_ROWS)
    algorithm.joined(1)
    assert algorithm.batch_size(1) == 0
    algorithm.closing = True  # also at the end of a trial
    algorithm.left(0)
    assert algorithm.batch_size(1) == BATCH
    assert algorithm.notes()["members"] == [[1]]


def test_a_group_whose_last_worker_leaves_is_gone():
    groups = ComputeGroups(8)
    groups.form([0, 1, 2], 2)
    assert groups.members == {0: [0, 2], 1: [1]}
    groups.remove(1)
    assert groups.members == {0: [0, 2]}
    assert groups.free_number() == 1
    assert groups.wanted(1) == 0
    groups.add(1, 1)
    assert groups.wanted(1) == 8


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"groups": 0}, "groups must be at least 1, got 0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"best_momentum": -0.1}, r"momentum must be in \[0, 1\), got -0.1"),
        ({"split": "even"}, "split must be one of work, rows, got 'even'"),
        ({"tune": True, "groups": 2}, "tune finds groups and momentum, got groups 2 and momentum None"),
        ({"slice_seconds": 0}, "slice_seconds and long_seconds must be above 0"),
        ({"score_window": 0}, "score_window at least 1"),
        ({"tie": 1.0}, r"tie must be in \(0, 1\), got 1.0"),
        ({"saturation": 0.0}, "saturation must be above 0, got 0.0"),
    ],
)
def test_numbers_outside_their_ranges_are_refused_at_once(numbers, message):
    with pytest.raises(DataError, match=message):
        Omnivore(**numbers)


# --- the split ---------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9), st.integers(1, 500))
def test_shares_are_whole_sum_to_the_batch_and_end_within_a_row_of_each_other(speeds, batch):
    """T4.3: times are predicted from the same speeds, and a row of a worker takes 1 / speed."""
    shares = largest_remainder(dict(enumerate(speeds)), batch)
    assert sum(shares.values()) == batch
    together = batch / sum(speeds)
    for w, speed in enumerate(speeds):
        assert shares[w] >= 0
        assert abs(shares[w] - together * speed) < 1 + 1e-9
        assert abs(shares[w] / speed - together) < (1 + 1e-9) / speed


def test_a_slow_worker_keeps_a_row_so_that_its_speed_is_measured():
    assert largest_remainder({0: 1.0, 1: 1.0, 2: 0.01}, 10) == {0: 5, 1: 4, 2: 1}


def test_speeds_are_moving_averages_of_work_a_second():
    groups = ComputeGroups(30)
    groups.form([0, 1], 1)
    assert groups.share == {0: 15, 1: 15}
    groups.finished(0, 15, 0.0, 200.0)
    groups.finished(1, 15, 0.0, 100.0)
    groups.open_batch(0)
    assert groups.share == {0: 20, 1: 10}
    groups.finished(0, 20, 0.0, 100.0)
    assert groups.speed == {0: pytest.approx(180.0), 1: 100.0}


def test_members_end_together_although_rows_are_unequal():
    """The rows of one half have 30 features, of the other 2: equal work ends within half a row, equal rows do not."""
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(400) < 0.5, 30, 2)
    X = sp.csr_array(np.array([rng.permutation(np.arange(40) < n) for n in lengths], np.float32))
    data = Dataset(CSR.from_scipy(X), CSR.from_scipy(sp.csr_array(np.eye(400, 4))))
    per_row, per_nnz = PER_LABEL * 4 * 1e-6, PER_NNZ * 1e-6
    spreads = {}
    for split in ("work", "rows"):
        ends = []

        class Ends(Omnivore):
            def finished(self, report):
                super().finished(report)
                ends.append(report.seconds)  # noqa: B023  used at once

        fleet = [VirtualDevice(0.0, per_row, per_nnz, speed) for speed in (1.0, 0.5)]
        network, algorithm = Network(40, 4, (3,)), Ends(50, 0.01, groups=1, split=split)
        train(data, network, algorithm, Simulated(cpu(), fleet), optimizer=SGD(), epochs=1)
        pairs = np.array(ends[4 : len(ends) // 2 * 2]).reshape(-1, 2)
        spreads[split] = np.abs(np.diff(pairs)).mean() / pairs.mean()
    assert spreads["work"] < 0.15
    assert spreads["rows"] > 1.5 * spreads["work"]


def test_work_counts_features_and_labels_and_is_cut_in_the_order_of_the_epoch(dataset):
    algorithm, executor = Updates(BATCH, 0.1, groups=1), simulated((1, 1), kind=Recorded)
    work = algorithm.weigh_rows(dataset)
    np.testing.assert_array_equal(work, 2 * np.diff(dataset.X.indptr) + 3 * 9)
    assert Omnivore(split="rows").weigh_rows(dataset) is None
    go(dataset, algorithm, executor)
    for step in executor.steps[:8]:
        rows = epoch_order(N_ROWS, 0, step.epoch)[step.start : step.stop]
        assert work[rows].sum() == pytest.approx(6 * work.mean(), abs=work.max())
    assert any(step.rows > 6 for step in executor.steps)
    assert all(step.updates == 1 for step in executor.steps), "whatever its rows"


def test_rows_given_back_are_given_out_in_whole_batches_again():
    router = Router(20)
    for w in (0, 1, 0, 1, 0):
        router.take(w, 3)
    router.commit([])
    router.give_back(0)
    router.give_back(1)
    assert [router.take(0, 6) for _ in range(4)] == [(0, 6), (6, 12), (12, 18), (18, 20)]
    for w, size in ((1, 4), (2, 4), (1, 4)):
        assert router.take(w, size) is None
    assert router.give_back(0) == 20
    taken = [router.take(w, 4) for w in (0, 1, 0, 2)]
    assert taken == [(0, 4), (4, 8), (8, 12), (12, 16)]
    router.give_back(0)
    assert router.take(1, 8) == (0, 4), "what another holds divides them"


# --- efficiency --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("g", [2, 4, 8, 16])
def test_random_asynchrony_is_momentum_of_one_minus_one_over_g(g):
    """T4.4."""
    path = quadratic_path(g, rate=0.2, steps=60, replicas=20_000)
    momentum, rate = fit_momentum(path, path)
    assert momentum == pytest.approx(implicit_momentum(g), abs=0.01)
    assert rate == pytest.approx(0.2 / g, abs=0.002)


def test_groups_in_turn_do_not_amount_to_that_momentum():
    path = quadratic_path(4, rate=0.02, steps=60, replicas=2, in_turn=True)
    assert abs(fit_momentum(path, path)[0] - implicit_momentum(4)) > 0.05


@pytest.mark.parametrize("bandwidth", [1e9, 2e5])
@pytest.mark.parametrize("g", [1, 2, 3, 4, 6, 12])
def test_the_model_predicts_the_time_of_an_update_within_5_percent(g, bandwidth):
    """T4.7, on twelve workers, with merges that hardly count and with merges that keep the server busy."""
    batch, overhead, per_row, n = 48, 2e-3, 1e-4, 2400
    rng = np.random.default_rng(0)
    data = Dataset(*(CSR.from_scipy(sp.csr_array((rng.random((n, 9)) < 0.5).astype(np.float32))) for _ in range(2)))
    executor = simulated([1.0] * 12, bandwidth=bandwidth, overhead=overhead, per_row=per_row)
    network, algorithm = Network(9, 9, (4,)), Updates(batch, 0.01, groups=g, split="rows")
    with executor.device.start():
        train(data, network, algorithm, executor, optimizer=SGD(), epochs=1)
    floats = sum(np.prod(shape) for shape in network.layout.shapes.values())
    vector = 4 * 2 * floats / bandwidth  # read and written, in seconds
    model = HardwareEfficiency(12, batch * per_row, overhead=overhead, server=vector, exchange=vector)
    if g == 12:
        assert (model.saturation() < 12) == (bandwidth == 2e5)
    times = [at for at, _ in algorithm.log]
    updates = (len(times) // g - 3) * g  # whole rounds of all groups, without the first and the last
    measured = (times[g + updates] - times[g]) / updates
    assert measured == pytest.approx(model.update_seconds(g), rel=0.05)


def test_the_model_of_efficiency_is_that_of_the_paper():
    """T(g) = max(t_fc, (t_conv(N/g) + t_fc) / g), t_conv(k) = max(compute / k, network)."""
    model = HardwareEfficiency(8, compute=8.0, network=1.5, server=0.5)
    assert [model.group_seconds(g) for g in (1, 2, 4, 8)] == [1.5, 2, 4, 8]
    assert [model.update_seconds(g) for g in (1, 2, 4, 8)] == [2.0, 1.25, 1.125, 1.0625]
    assert model.relative(8) == 1.0625 / 2
    assert model.saturation() == 8
    assert HardwareEfficiency(8, compute=8.0, server=2.0).saturation() == 2
    with pytest.raises(DataError, match="groups must divide the 8 workers, got 3"):
        model.update_seconds(3)
    with pytest.raises(DataError, match="times must be finite, at least 0 and not all 0"):
        HardwareEfficiency(8, compute=0.0)


# --- the tuner's rules -------------------------------------------------------------------------------------------


def play(tuner, loss, seconds=lambda g: 1 / g, phases=200, until_long=1):
    """Feed a tuner with results until so many stretches of training have been ordered; return all phases."""
    order = []
    while sum(not phase.trial for phase in order) < until_long and len(order) < phases:
        order.append(tuner.phase())
        tuner.results.append(Result(loss(order[-1].setting), seconds(order[-1].setting.groups)))
    return order


def flat_loss(setting):
    """Return a loss that falls with the rate and has its best total momentum at 0.9."""
    return 1 + (implicit_momentum(setting.groups) + setting.momentum - 0.9) ** 2 - 0.1 * setting.rate


def trials(order, g):
    return [phase.setting for phase in order if phase.trial and phase.setting.groups == g]


def test_the_cold_start_begins_with_one_group_and_one_momentum():
    order = play(GroupTuner(4, 1.0), flat_loss)
    assert trials(order, 1) == [Setting(1, 0.9, 1 / part) for part in FRACTIONS]


def test_more_groups_try_all_momenta_and_the_rate_or_a_tenth_of_it():
    order = play(GroupTuner(2, 1.0), lambda s: s.rate)  # the winner of one group has the smallest rate
    least = 1 / FRACTIONS[-1]
    assert trials(order, 2) == [*(Setting(2, m, least) for m in MOMENTA), Setting(2, 0.9, least / 10)]


def test_a_rate_never_rises_with_the_groups():
    """T4.6, first half."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tuner = GroupTuner(8, 1.0)
        order = play(tuner, lambda s: rng.random())  # noqa: B023  used at once
        winners = {}
        for phase, result in tuner.history():
            g = phase.setting.groups
            if phase.trial and result.loss < winners.get(g, (math.inf, None))[0]:
                winners[g] = result.loss, phase.setting
        assert sorted(winners) == [1, 2, 4, 8]
        for g in (2, 4, 8):
            assert all(s.rate <= winners[g // 2][1].rate for s in trials(order, g))


@pytest.mark.parametrize(
    ("momentum", "rate", "spared"),
    [(0.6, 2.0, True), (0.9, 1.0, True), (0.6, 1.0, False), (0.3, 1.0, False), (0.3, 0.1, True), (0.6, 0.1, False)],
)
def test_what_is_more_daring_or_more_timid_than_the_winner_of_fewer_groups_is_skipped(momentum, rate, spared):
    assert skipped(Setting(4, momentum, rate), Setting(2, 0.6, 1.0), []) == spared
    assert not skipped(Setting(4, momentum, rate), None, [])


def test_what_is_at_least_as_daring_as_a_pair_that_failed_is_skipped():
    failed = [Setting(1, 0.3, 0.1)]
    assert skipped(Setting(1, 0.3, 0.1), None, failed)
    assert skipped(Setting(1, 0.6, 1.0), None, failed)
    assert not skipped(Setting(1, 0.0, 1.0), None, failed)
    assert not skipped(Setting(1, 0.6, 0.01), None, failed)
    order = play(GroupTuner(2, 1.0), lambda s: math.nan if s.groups == 2 and s.momentum >= 0.3 else s.rate)
    least = 1 / FRACTIONS[-1]
    assert trials(order, 2) == [Setting(2, 0.0, least), Setting(2, 0.3, least), Setting(2, 0.9, least / 10)]


def test_groups_are_not_split_further_when_an_update_gets_hardly_faster():
    order = play(GroupTuner(8, 1.0), flat_loss, lambda g: {1: 1.0, 2: 0.5, 4: 0.46, 8: 0.1}[g])
    assert {phase.setting.groups for phase in order} == {1, 2, 4}
    order = play(GroupTuner(8, 1.0), flat_loss, lambda g: {1: 1.0, 2: 0.5, 4: 0.45, 8: 0.1}[g])
    assert {phase.setting.groups for phase in order} == {1, 2, 4, 8}


def test_the_cold_start_takes_the_groups_of_the_lowest_loss():
    for wanted in (1, 2, 4):
        order = play(GroupTuner(4, 1.0), lambda s: 1.0 - (s.groups == wanted) * s.momentum)  # noqa: B023  used at once
        assert order[-1] == Phase(Setting(wanted, 0.9, order[-1].setting.rate), trial=False)


def test_the_steady_state_begins_with_the_most_groups_before_saturation():
    order = play(GroupTuner(8, 1.0), flat_loss, lambda g: max(1 / g, 0.5), until_long=2)
    assert order[-1].setting.groups == 2
    assert {phase.setting.groups for phase in order} == {1, 2, 4}
    later = order[[phase.trial for phase in order].index(False) + 1 :]
    rate = later[0].setting.rate
    expected = [Setting(2, m, rate / part) for part in (1, 10) for m in MOMENTA]
    assert trials(later, 2) == expected


def test_near_the_best_loss_the_larger_rate_then_the_larger_momentum_is_preferred():
    a, b, c, d = Setting(2, 0.3, 1.0), Setting(2, 0.6, 1.0), Setting(2, 0.9, 0.1), Setting(2, 0.9, 1.0)
    tried = {a: Result(1.009, 1), b: Result(1.01, 1), c: Result(1.0, 1), d: Result(1.011, 1)}
    assert best(tried, 0.01) == b
    assert best(tried) == c
    assert best({a: Result(math.nan, 1), c: Result(math.inf, 1)}, 0.01) == c, "all failed: the least daring"


def test_groups_are_halved_exactly_when_no_momentum_is_best():
    """T4.6, second half: here one and two groups want momentum, four and eight want none."""
    order = play(GroupTuner(8, 1.0), lambda s: 1 + (s.momentum if s.groups > 2 else -s.momentum), until_long=2)
    later = order[[phase.trial for phase in order].index(False) + 1 :]
    assert list(dict.fromkeys(phase.setting.groups for phase in later)) == [8, 4, 2]
    assert later[-1].setting == Setting(2, 0.9, later[0].setting.rate)
    assert [s.momentum for s in trials(later, 8)[:4]] == list(MOMENTA)
    assert [s.momentum for s in trials(later, 4)[:4]] == sorted(MOMENTA, key=lambda m: abs(m - CENTRE))


def test_one_group_is_not_halved():
    order = play(GroupTuner(2, 1.0), lambda s: 1 + s.momentum, until_long=3)
    assert order[-1].setting == Setting(1, 0.0, order[-1].setting.rate)
    assert len(order) < 60


def test_halving_keeps_to_divisors_of_the_workers():
    order = play(GroupTuner(9, 1.0), lambda s: 1 + s.momentum, until_long=2)
    assert list(dict.fromkeys(phase.setting.groups for phase in order)) == [1, 3, 9]
    assert order[-1].setting.groups == 1
    assert divisors(9) == [1, 3, 9]


def test_a_search_in_which_all_diverges_ends_with_the_least_daring_setting():
    order = play(GroupTuner(4, 1.0), lambda s: math.nan)
    assert trials(order, 2) == []
    assert order[-1] == Phase(Setting(1, 0.9, 1 / FRACTIONS[-1]), trial=False)


# --- the tuner in a run ------------------------------------------------------------------------------------------


class Tuned(Updates):
    """Keeps what each phase began with, and the steps given out in it."""

    def start(self, workers, n_rows):
        self.begun = []
        self.parts = dict.fromkeys(range(9), 0)  # updates of each worker that stay
        super().start(workers, n_rows)

    def begin_phase(self, phase):
        super().begin_phase(phase)
        self.fresh = True
        self.begun.append([self.trial, None, 0])

    def keep_reads(self, comm):
        if self.fresh:
            self.begun[-1][1] = comm.center.copy()
        self.fresh = False
        super().keep_reads(comm)

    def submitted(self, w, rows):
        super().submitted(w, rows)
        self.begun[-1][2] += rows
        self.parts[w] += self.trial is None


def tuned(**numbers):
    """Return an Omnivore whose trials take a few updates."""
    return Tuned(**{"batch": 8, "rate": 1.0, "tune": True, "slice_seconds": 0.004, "long_seconds": 0.03} | numbers)


def test_trials_change_neither_the_model_nor_the_rows_of_an_epoch(dataset):
    algorithm, spy = tuned(), Stay()
    run = go(dataset, algorithm, simulated(), epochs=12, monitors=[spy])
    assert [record["rows"] for record in run.records] == [N_ROWS * e for e in range(1, 13)]
    assert spy.rows == 12 * N_ROWS, "monitors see what stays"
    checkpoints = [np.zeros(NETWORK.layout.size, np.float32), *spy.centers]
    NETWORK.initialize(checkpoints[0], dataset.Y, 0)
    kinds = [trial is None for trial, *_ in algorithm.begun]
    assert sum(kinds) >= 2, "it is tuned again after a long stretch"
    assert kinds.count(False) > 20
    at, epochs = 0, 0
    for stays, (_, model, rows) in zip(kinds, algorithm.begun, strict=True):
        if model is not None:
            np.testing.assert_array_equal(model, checkpoints[epochs])
        if stays:
            at += rows
            epochs = at // N_ROWS
            assert at == epochs * N_ROWS, "tuning begins with an epoch"
    assert epochs == 12


def test_a_trial_ends_with_its_slice_or_with_the_rows_of_the_epoch(dataset):
    algorithm = tuned(slice_seconds=1e9)
    go(dataset, algorithm, simulated(), epochs=1)
    assert {rows for trial, _, rows in algorithm.begun if trial is not None} == {N_ROWS}
    algorithm = tuned(slice_seconds=1e-9)
    go(dataset, algorithm, simulated(), epochs=1)
    assert max(rows for trial, _, rows in algorithm.begun if trial is not None) <= 4 * 8
    assert algorithm.begun[-1][::2] == [None, N_ROWS]


def test_a_trial_that_diverges_is_passed_over_and_leaves_no_trace(dataset):
    executor = Simulated(cpu(), [VirtualDevice()] * 2)
    algorithm = tuned(rate=1e20, long_seconds=1e9)
    with np.errstate(all="ignore"):  # NumPy warns of what overflows on the way
        go(dataset, algorithm, executor, epochs=3, optimizer=Adam())
    assert not np.isfinite(algorithm.tuner.results[0].loss)
    assert algorithm.notes()["trials"][0] == {"groups": 1, "momentum": 0.9, "rate": 1e20, "loss": None}
    assert np.isfinite(executor.table.states).all()
    assert len(algorithm.begun) > len(FRACTIONS)
    first = algorithm.begun[0][1]
    for _, model, _ in algorithm.begun[: len(FRACTIONS)]:
        np.testing.assert_array_equal(model, first)


def test_the_optimizer_states_know_nothing_of_trials(dataset):
    algorithm, executor = tuned(rate=0.1), simulated()
    run = go(dataset, algorithm, executor, epochs=4, optimizer=Adam())
    assert len(algorithm.tuner.results) > 4
    assert run.steps == max(algorithm.parts.values())


def test_the_notes_name_the_choice_and_what_led_to_it(dataset):
    """Trap 11: the setting that is trained with, not the last that was tried."""
    algorithm = tuned(long_seconds=1e9)
    (record,) = go(dataset, algorithm, simulated(), epochs=1).records
    notes = json.loads(json.dumps(record, allow_nan=False))["algorithm"]
    chosen = {name: notes[name] for name in Setting._fields}
    tried = notes["trials"]
    assert len(tried) == len(algorithm.tuner.results)
    least = min(trial["loss"] for trial in tried)
    assert chosen | {"loss": least} in tried
    assert chosen.items() - tried[-1].items(), "it is not what was tried last"
    assert len(notes["members"]) == chosen["groups"]
    assert algorithm.learning_rate(0, 8) == chosen["rate"]


def test_a_tuned_run_repeats_to_the_bit_and_its_algorithm_can_be_copied(dataset):
    first, second = tuned(), tuned()
    runs = [go(dataset, algorithm, simulated(noise=0.1), epochs=3) for algorithm in (first, second)]
    np.testing.assert_array_equal(runs[0].params, runs[1].params)
    assert first.notes() == second.notes()
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        np.testing.assert_array_equal(go(dataset, copied, simulated(noise=0.1), epochs=3).params, runs[0].params)


def test_an_interrupt_in_a_trial_leaves_the_model_of_the_checkpoint(dataset):
    class Stopped(Tuned):
        def update(self, comm, j):
            super().update(comm, j)
            if self.trial == 6 and self.version == 2:
                raise KeyboardInterrupt

    algorithm = Stopped(8, 1.0, tune=True, slice_seconds=0.02)
    with pytest.raises(Interrupted) as interrupt:
        go(dataset, algorithm, simulated())
    np.testing.assert_array_equal(interrupt.value.run.params, algorithm.begun[0][1])


def test_a_worker_that_leaves_in_a_trial_does_not_end_it(dataset):
    fleet = [VirtualDevice(), VirtualDevice(absent=((0.006, 0.03),)), VirtualDevice(speed=0.5), VirtualDevice()]
    algorithm = tuned(long_seconds=1e9)
    run = go(dataset, algorithm, Simulated(cpu(), fleet), epochs=3)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]
    assert {phase.setting.groups for phase, _ in algorithm.tuner.history()} == {1, 2, 4}
    assert sorted(algorithm.workers) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "make", [lambda: Threads([cpu(), cpu()]), lambda: Processes([cpu] * 2)], ids=["threads", "processes"]
)
def test_groups_and_the_tuner_work_on_real_executors(dataset, make):
    algorithm = tuned(long_seconds=1e9)
    run = go(dataset, algorithm, make(), epochs=2)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS]
    assert {phase.setting.groups for phase, _ in algorithm.tuner.history()} == {1, 2}
    assert all(result.seconds > 0 and np.isfinite(result.loss) for _, result in algorithm.tuner.history())
    assert not run.diverged
    assert np.any(run.params != algorithm.begun[0][1])


@pytest.mark.parametrize("seed", range(12))
def test_every_row_is_in_the_model_once_whoever_leaves_and_comes_in_whatever_phase(dataset, seed):
    rng = np.random.default_rng(seed)

    def absences(end):
        moments = np.sort(rng.uniform(0, end, 6))
        return tuple((float(a), float(b)) for a, b in moments.reshape(-1, 2))

    fleet = [VirtualDevice(speed=speed, noise=0.2, absent=absences(0.15)) for speed in SPEEDS[: 2 + seed % 3]]
    algorithm = tuned(slice_seconds=float(rng.uniform(1e-4, 0.02)))
    run = go(dataset, algorithm, Simulated(cpu(), fleet, seed=seed), epochs=6)
    assert [record["rows"] for record in run.records] == [N_ROWS * e for e in range(1, 7)]
    assert len(algorithm.tuner.results) > 4
    assert np.isfinite(run.params).all()
