"""The benchmark of the parts of the default model: every way to put them together, and what it is made of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.ablation import CALIBRATED, PATHS, ROUNDED, SHARED, Evidence, table, variants
from xmlsgd import make_xmc
from xmlsgd.candidates.stacking import LogisticStacking
from xmlsgd.data.csr import Dataset
from xmlsgd.metrics import precision_at_k

STANDARD_ERROR = 100 * (0.3 * 0.7 / 400) ** 0.5  # of a P@1 near 70 on the 400 test rows, in percent


@pytest.fixture(scope="module")
def found():
    whole = make_xmc(7400, 800, 400, nnz_per_row=10, labels_per_row=3, random_state=0)
    train, test = (Dataset(whole.X.span(*span), whole.Y.span(*span)) for span in ((0, 7000), (7000, 7400)))
    return {
        name: (seconds, 100 * precision_at_k(test.Y, ranking, 5)[0])
        for name, seconds, ranking in variants(train, test.X, 1)
    }


@pytest.mark.slow
def test_every_way_to_put_the_parts_together_is_measured(found):
    several = [" + ".join(chosen) for n in (2, 3, 4) for chosen in itertools.combinations(PATHS, n)]
    assert list(found) == [*ROUNDED.values(), SHARED, *PATHS[1:], *several, CALIBRATED]


@pytest.mark.slow
def test_two_paths_take_the_seconds_of_each_and_rank_no_worse_than_the_better_one(found):
    seconds, precision = (dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True))
    assert seconds["neighbors"] < seconds["linear"] < seconds["neighbors + linear"] < seconds[" + ".join(PATHS)]
    assert precision["neighbors + linear"] > max(precision["neighbors"], precision["linear"]) - STANDARD_ERROR
    assert precision[" + ".join(PATHS)] > precision["neighbors + linear"] - STANDARD_ERROR
    assert precision[CALIBRATED] > precision["neighbors + linear"] - STANDARD_ERROR


@pytest.mark.slow
def test_labels_are_ranked_by_the_chosen_paths_alone_and_none_before_any():
    labels = np.array([[4, 7, 9, 1, 2, -1]], np.int32)
    values = np.zeros((1, 6, 4), np.float32)
    values[0, :, 0], values[0, :, 2] = [5, 4, 3, 2, 1, 9], [1, 2, 3, 4, 5, 9]
    evidence, blend = Evidence(labels, values), LogisticStacking(1.0, 1.0, 1.0, 1.0, 0.0)
    assert evidence.best(("network",), blend).tolist() == [[4, 7, 9, 1, 2]]
    assert evidence.best(("linear",), blend).tolist() == [[2, 1, 9, 7, 4]]


@pytest.mark.slow
def test_calibrated_margins_are_those_of_their_labels():
    labels, values = np.array([[1, 0]], np.int32), np.ones((1, 2, 4), np.float32)
    calibrated = Evidence(labels, values).calibrated(np.array([2, 3], np.float32), np.array([0.5, 0.25], np.float32))
    assert calibrated.values.tolist() == [[[1, 1, 3.25, 1], [1, 1, 2.5, 1]]]
    assert values.max() == 1


@pytest.mark.slow
def test_the_table_keeps_the_order_of_the_parts():
    run = {"train_seconds": 1.25, "measures": {f"{name}@{k}": 7.0 for name in ("P", "PSP") for k in (1, 3, 5)}}
    lines = table("toy", {SHARED: run, "neighbors": run}).markdown().splitlines()
    assert lines[4].startswith(f"| {SHARED} | 7.00 |")
    assert lines[5].endswith("| 7.00 | 1.2 |")
