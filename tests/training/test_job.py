"""Jobs whose parts do not fit each other are refused before a kernel follows them."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job, Start
from xmlsgd.training.loop import train

N_ROWS, BATCH = 53, 10
NETWORK = Network(12, 9, (8,))


@pytest.mark.parametrize(
    ("n_rows", "network", "weights", "complaint"),
    [
        (0, NETWORK, None, "dataset: must have at least one row, got none"),
        (5, Network(11, 9), None, "network: must have at least 12 features and 9 labels, .* got 11 and 9"),
        (5, Network(12, 8), None, "network: must have at least 12 features and 9 labels, .* got 12 and 8"),
        (5, NETWORK, 4, "sample_weight: must be an array of 5 numbers, one a row, got array"),
    ],
)
def test_a_job_whose_parts_do_not_fit_each_other_is_refused(dataset, n_rows, network, weights, complaint):
    """Kernels check no bounds: a feature that a network does not have would end the process."""
    rows = dataset.take(np.arange(n_rows))
    job = Job(rows, network, sample_weight=None if weights is None else np.ones(weights, np.float32))
    with pytest.raises(DataError, match=complaint):
        train(job, Sequential(BATCH), Serial([Reference()]), Schedule(1))


@pytest.mark.parametrize("part", ["X", "Y"])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"indices": lambda indices: indices + 10**6}, r"indices: must be in \[0, \d+\), got 1000"),
        ({"indices": lambda indices: indices - 100}, r"indices: must be in \[0, \d+\), got -"),
        ({"indptr": lambda indptr: indptr * 1000}, r"indptr: must lead from 0 to"),
        ({"data": lambda data: data * np.float32(np.nan)}, "values must be finite, got nan in row 0"),
        ({"data": lambda data: data.astype(float)}, "must be of int64, int32 and float32 arrays"),
    ],
)
def test_rows_that_would_lead_a_kernel_outside_of_its_arrays_are_refused(dataset, part, change, complaint):
    rows = {name: getattr(dataset, name) for name in ("X", "Y")}
    whole = rows[part]
    (name, of_array), *_ = change.items()
    arrays = {each: getattr(whole, each) for each in ("indptr", "indices", "data")}
    rows[part] = CSR(**arrays | {name: of_array(arrays[name])}, n_cols=whole.n_cols)
    with pytest.raises(DataError, match=f"dataset: {part}: {complaint}"):
        train(Job(Dataset(**rows), NETWORK), Sequential(BATCH), Serial([Reference()]), Schedule(1))


@pytest.mark.parametrize("wrong", [-1, np.nan, np.inf])
def test_a_weight_that_is_negative_or_not_finite_is_refused(dataset, wrong):
    """Rows of negative weight would be unlearned in silence."""
    weight = np.ones(N_ROWS, np.float32)
    weight[7] = wrong
    with pytest.raises(DataError, match=f"sample_weight: must be finite and at least 0, got {wrong}"):
        train(Job(dataset, NETWORK, sample_weight=weight), Sequential(BATCH), Serial([Reference()]), Schedule(1))


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_a_seed_that_draws_nothing_is_refused(dataset, seed):
    with pytest.raises(DataError, match=f"seed must be (at least 0|a whole number), got {seed}"):
        train(Job(dataset, NETWORK, seed=seed), Sequential(BATCH), Serial([Reference()]), Schedule(1))


@pytest.mark.parametrize(
    "params",
    [
        np.zeros(5, np.float32),
        np.zeros(NETWORK.layout.size),
        np.zeros(2 * NETWORK.layout.size, np.float32)[::2],
        np.broadcast_to(np.float32(0), NETWORK.layout.size),
    ],
    ids=["short", "float64", "strided", "read-only"],
)
def test_a_start_whose_arrays_cannot_be_trained_in_place_is_refused(dataset, params):
    start = Start(params, np.zeros(0, np.float32))
    with pytest.raises(DataError, match=r"start: params must be float32 \(\d+,\), contiguous and writable, got"):
        train(Job(dataset, NETWORK, SGD(), start=start), Sequential(BATCH), Serial([Reference()]), Schedule(1))
