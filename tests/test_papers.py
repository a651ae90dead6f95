"""The papers' experiments: every table, its JSON and its plots on tiny data; the numbers behind a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.papers import study
from benchmarks.papers.__main__ import EXPERIMENTS, main
from benchmarks.papers.study import NOISY_POINTS, Runs, point_at, ranged, target
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.simulation import Outcome

DATA = str(Path(__file__).parents[1] / "data")
TINY = ["--rows", "240", "--test-rows", "60", "--hidden", "8", "--epochs", "1", "--batch", "16", "--threads", "1"]
TINY += ["--seeds", "2", "--rates", "1", "3"]
TABLES = {
    "adaptive": ("adaptive-S2", "adaptive-S3"),
    "hogbatch": ("hogbatch-S4",),
    "crossbow": ("crossbow",),
    "omnivore": ("omnivore", "omnivore-efficiency"),
}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_leaves_tables_runs_and_plots(experiment, tmp_path):
    pytest.importorskip("matplotlib")
    assert main(["--data", DATA, "--out", str(tmp_path), "--only", experiment, *TINY]) == 0
    for name in TABLES[experiment]:
        text = (tmp_path / f"{name}-data.md").read_text()
        found = json.loads((tmp_path / f"{name}-data.json").read_text())
        assert text.startswith("## ")
        assert "rates 1, 3 for everybody" in text
        for method, runs in found["result"].items():
            assert f"| {method} |" in text or name == "omnivore-efficiency"
            assert set(runs["grid"]) == ({"3"} if method == "tuned" else {"1", "3"})
            assert len(runs["seeds"]) == 2
        assert found["machine"]["versions"]["xmlsgd"]
    for name in TABLES[experiment][:1]:
        assert (tmp_path / f"{name}-data.png").read_bytes().startswith(b"\x89PNG")


def outcome(*precisions, diverged=False):
    curve = [{"seconds": float(i + 1), "rows": 10 * (i + 1), "P@1": value} for i, value in enumerate(precisions)]
    return Outcome([], [], [], curve, diverged, 1.0, 0.0)


def test_a_single_lucky_measurement_does_not_reach_the_target():
    assert NOISY_POINTS == 3
    assert point_at(outcome(10, 60, 10, 40, 50, 60), 50.0)["seconds"] == 6
    assert point_at(outcome(10, 20), 50.0) is None
    assert point_at(outcome(90, 90, diverged=True), 50.0) is None


def test_the_target_is_a_share_of_what_the_best_median_settled_at():
    runs = {"a": Runs(1.0, [outcome(40), outcome(9, 50, 60, 70), outcome(50)], {}), "b": Runs(1.0, [outcome(30)], {})}
    assert target(runs) == pytest.approx(0.95 * 50)
    assert target({"a": Runs(1.0, [outcome(90, diverged=True)], {})}) == 0


def test_a_method_that_most_seeds_did_not_bring_there_has_no_time():
    runs = Runs(1.0, [outcome(1), outcome(2)], {})
    assert study.at_target([3.0], runs) == "-"
    assert study.at_target([3.0, 4.0], runs) == "3.5"


def test_several_seeds_show_their_range():
    assert ranged([3.0, 1.0, 2.0]) == "2.00 [1.00, 3.00]"
    assert ranged([3.0]) == "3.00"


def test_each_method_runs_at_its_best_rate_of_the_common_grid(monkeypatch, tmp_path):
    tried = []

    def simulate(setting, algorithm, fleet):
        tried.append((algorithm.rate, setting.seed))
        return outcome({1.0: 20, 3.0: 40, 10.0: 30}[algorithm.rate])

    monkeypatch.setattr(study, "simulate", simulate)
    monkeypatch.setattr(study, "replace", lambda setting, seed: type("Setting", (), {"seed": seed}))
    made = study.Study(None, None, 16, (1.0, 3.0, 10.0), 3, 1, tmp_path, "data")
    found = made.run([study.Method("method", lambda rate: Sequential(16, rate), [])])["method"]
    assert tried == [(1.0, 0), (3.0, 0), (10.0, 0), (3.0, 1), (3.0, 2)]
    assert found.rate == 3.0
    assert found.grid == {1.0: 20, 3.0: 40, 10.0: 30}
    assert len(found.outcomes) == 3
