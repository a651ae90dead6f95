"""The models of Omnivore's efficiency: implicit momentum of asynchrony, the time of an update."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.papers.efficiency import HardwareEfficiency, fit_momentum, quadratic_path
from shared.omnivore_runs import Updates, simulated
from xmlsgd.algorithms.omnivore import implicit_momentum
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train


@pytest.mark.parametrize("g", [2, 4, 8, 16])
def test_random_asynchrony_is_momentum_of_one_minus_one_over_g(g):
    """g workers that end in random order: the momentum that fits is within 0.01 of 1 - 1/g."""
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
    """On twelve workers, with merges that hardly count and with merges that keep the server busy."""
    batch, overhead, per_row, n = 48, 2e-3, 1e-4, 2400
    rng = np.random.default_rng(0)
    data = Dataset(*(CSR.from_scipy(sp.csr_array((rng.random((n, 9)) < 0.5).astype(np.float32))) for _ in range(2)))
    executor = simulated([1.0] * 12, bandwidth=bandwidth, overhead=overhead, per_row=per_row)
    network, algorithm = Network(9, 9, (4,)), Updates(batch, 0.01, groups=g, split="rows")
    with executor.device.start():
        train(Job(data, network, SGD()), algorithm, executor, Schedule(1))
    floats = sum(np.prod(shape) for shape in network.layout.shapes.values())
    vector = 4 * 2 * floats / bandwidth  # read and written, in seconds
    model = HardwareEfficiency(12, batch * per_row, overhead=overhead, server=3 * vector, exchange=vector)
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
