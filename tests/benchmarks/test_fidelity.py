"""The simulated clock foretells runs: costs fitted to reports, and durations played again."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.fidelity import Still, fitted_fleet, predicted_seconds
from shared import light
from xmlsgd.algorithms import algorithm_class, rounds
from xmlsgd.algorithms.adaptive_hogbatch import AdaptiveHogbatch
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

N_ROWS = 400
NETWORK = Network(60, 4, (2,))


@pytest.fixture(scope="module")
def data():
    """Rows of one to fifty features."""
    rng = np.random.default_rng(0)
    share = rng.uniform(0, 1, (N_ROWS, 1)) ** 2
    X, Y = rng.random((N_ROWS, 60)) < share, rng.random((N_ROWS, 4)) < 0.5
    return Dataset(*(CSR.from_scipy(sp.csr_array(rows.astype(np.float32))) for rows in (X, Y)))


@dataclass
class Kept(Callback):
    """Keeps the reports of a run."""

    reports: list = field(default_factory=list)

    def span(self, report):
        self.reports.append(report)


def reported(algorithm, executor, data):
    """The record of one epoch, and all reports."""
    kept = Kept()
    run = train(Job(data, NETWORK, SGD()), algorithm, executor, Schedule(1), callbacks=[kept])
    return run.records[0], kept.reports


@pytest.mark.parametrize("name", ["hogwild", "synchronous", "local_sgd", "adaptive", "elastic", "crossbow", "omnivore"])
@pytest.mark.parametrize("seed", range(3))
def test_costs_fitted_to_one_run_foretell_the_time_of_another_within_15_percent(data, name, seed):
    """Of unequal simulated devices, whose costs have overhead, rows, features and noise."""
    truth = [VirtualDevice(4e-3, 1e-4, 4e-5, speed=speed, noise=0.1, in_place=True) for speed in (1.0, 0.6)]
    tried = AdaptiveHogbatch(8, 0.1, sizes=(4,), high=(40,))
    _, reports = reported(tried, Simulated(Still(), truth, seed=seed), data)
    algorithm = algorithm_class(name)(8, 0.1)
    record, _ = reported(algorithm, Simulated(Still(), truth, seed=7 + seed), data)
    foretold = predicted_seconds(algorithm, fitted_fleet(reports), Job(data, NETWORK, SGD(), seed=20 + seed))
    assert foretold == pytest.approx(record["seconds"], rel=0.15)


@dataclass(frozen=True)
class Recorded(VirtualDevice):
    """Takes for each of its steps what it took before."""

    durations: deque = field(default_factory=deque)

    def seconds(self, at, rows, nnz, updates, draw):
        return self.durations.popleft()


@pytest.mark.parametrize(
    ("name", "fields"), [("synchronous", {}), ("elastic", {"mega_batch": 80}), ("crossbow", {"sync_every": 1})]
)
def test_the_steps_of_a_real_run_of_two_processes_played_again_take_no_longer_than_it_did(
    data, monkeypatch, name, fields
):
    """What a real run takes beyond its steps, for merges and messages, `python -m benchmarks workers` tells."""
    # How long the last spans of an epoch are depends on who asks first.
    monkeypatch.setattr(rounds, "MOST_UPDATES_PER_SPAN", 1)
    algorithm = algorithm_class(name)(8, 0.1, **fields)
    record, reports = reported(algorithm, Processes([light.Quadratic] * 2), data)
    durations = defaultdict(deque)
    for report in reports:
        durations[report.worker].append(report.seconds)
    busiest = max(map(sum, durations.values()))
    fleet = [Recorded(durations=durations[w]) for w in sorted(durations)]
    again, replayed = reported(algorithm, Simulated(Still(), fleet, bandwidth=float("inf")), data)
    for w in (0, 1):
        assert [r.rows for r in replayed if r.worker == w] == [r.rows for r in reports if r.worker == w]
        assert not durations[w]
    assert busiest - 1e-6 <= again["seconds"] <= record["seconds"]
