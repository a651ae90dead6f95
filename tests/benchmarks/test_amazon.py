"""The benchmark of Amazon-670K's shape: its rows, the rules of the network alone, and its table."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import amazon
from benchmarks.peers.network import SAMPLERS, NetworkAlone
from benchmarks.peers.runner import Problem
from benchmarks.prepare import prepared_shape
from xmlsgd.metrics import precision_at_k

PART = 1000


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return amazon.made(tmp_path_factory.mktemp("rows") / "small", PART, n_test=40)


def test_rows_features_and_labels_are_divided_alike_and_made_once(prepared):
    found = prepared_shape(prepared)
    assert [found[name] for name in ("train_rows", "features", "labels", "test_rows")] == [490, 135, 670, 40]
    before = (prepared / "X.trn.npz").stat().st_mtime_ns
    assert amazon.made(prepared, PART) == prepared
    assert (prepared / "X.trn.npz").stat().st_mtime_ns == before


@pytest.mark.parametrize("rule", SAMPLERS)
@pytest.mark.slow
def test_the_network_alone_learns_with_every_rule(prepared, rule, tmp_path):
    problem = Problem.read(prepared, 1, 0)
    runner = NetworkAlone(rule, {"hidden": 16, "epochs": 150})
    runner.load(problem)
    runner.train(problem, runner.settings[rule], tmp_path)
    runner.save(tmp_path)
    assert np.load(tmp_path / "params.npy").nbytes == runner.params.nbytes
    ranking = runner.predict(problem.X)
    assert ranking.shape == (490, 5)
    most_frequent = np.argsort(-np.asarray(problem.Y.sum(axis=0)).ravel(), kind="stable")[:5]
    guessed = precision_at_k(problem.Y, np.tile(most_frequent, (490, 1)).astype(np.int32), 1)
    assert precision_at_k(problem.Y, ranking, 1) > 3 * guessed
    assert runner.extra()["epochs"] == 150
    assert 5 < runner.extra()["labels_per_batch"] <= 670


def test_the_tables_name_every_rule_that_exists():
    assert {rule for rules in amazon.RULES.values() for rule in rules} == set(SAMPLERS)
    assert amazon.PARTS.keys() == amazon.RULES.keys()


def test_the_table_compares_rates_and_foretells_the_end_of_pytorch():
    measured = {"train_rows": 1000, "epochs": 4, "train_seconds": 2.0, "peak_memory_bytes": 5_000_000}
    run = {"peer": "network", "setting": "lsh", "measures": dict.fromkeys(amazon.MEASURES, 12.0), **measured}
    steps = [
        {"variant": "fp32-sparse", "rows_per_second": 100.0, "steps": 6, "peak_memory_bytes": 7_000_000},
        {"variant": "bf16-sparse", "failure": "pytorch: stopped"},
    ]
    lines = amazon.table("amazon-670k", [run], steps).markdown().splitlines()
    assert lines[4] == "| xmlsgd's network alone (lsh) | 12.00 | 12.00 | 12.00 | 2,000 | 20.0 | 2.0 | 0.001 | 5 |"
    assert lines[5] == "| PyTorch fp32-sparse, 6 steps |  |  |  | 100 | 1.0 | (40) | (0.01) | 7 |"
    assert lines[-1] == "Left out: PyTorch bf16-sparse: pytorch: stopped"
