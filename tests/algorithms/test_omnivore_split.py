"""How Omnivore splits a batch among the members of a group: by rows or by work, by measured speeds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from shared.omnivore_runs import BATCH, N_ROWS, Recorded, Updates, cpu, go, simulated
from xmlsgd.algorithms.omnivore import PER_LABEL, PER_NNZ, Omnivore
from xmlsgd.algorithms.omnivore_groups import ComputeGroups, largest_remainder
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.random_streams import epoch_order
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.router import Router


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9), st.integers(1, 500))
def test_shares_are_whole_sum_to_the_batch_and_end_within_a_row_of_each_other(speeds, batch):
    """Times are predicted from the same speeds, and a row of a worker takes 1 / speed."""
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
        train(Job(data, network, SGD()), algorithm, Simulated(cpu(), fleet), Schedule(1))
        pairs = np.array(ends[4 : len(ends) // 2 * 2]).reshape(-1, 2)
        spreads[split] = np.abs(np.diff(pairs)).mean() / pairs.mean()
    assert spreads["work"] < 0.15
    assert spreads["rows"] > 1.5 * spreads["work"]


def test_work_counts_features_and_labels_and_is_cut_in_the_order_of_the_epoch(dataset):
    algorithm, executor = Updates(BATCH, 0.1, groups=1), simulated((1, 1), kind=Recorded)
    work = algorithm.measure_costs(dataset)
    np.testing.assert_array_equal(work, 2 * np.diff(dataset.X.indptr) + 3 * 9)
    assert Omnivore(split="rows").measure_costs(dataset) is None
    go(dataset, algorithm, executor)
    for span in executor.spans[:8]:
        rows = epoch_order(N_ROWS, 0, span.epoch)[span.start : span.stop]
        assert work[rows].sum() == pytest.approx(6 * work.mean(), abs=work.max())
    assert any(span.rows > 6 for span in executor.spans)
    assert all(span.updates == 1 for span in executor.spans), "whatever its rows"


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
    router.give_back(0)
    assert router.rows_left == 20
    taken = [router.take(w, 4) for w in (0, 1, 0, 2)]
    assert taken == [(0, 4), (4, 8), (8, 12), (12, 16)]
    router.give_back(0)
    assert router.take(1, 8) == (0, 4), "what another holds divides them"
