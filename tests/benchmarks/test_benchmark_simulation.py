"""The benchmark of what simulating costs: medians over rounds, ratios, and a whole run in small."""

from __future__ import annotations

import json

from benchmarks import simulation as module
from benchmarks.launch import Launcher
from benchmarks.plan import Plan
from benchmarks.prepare import prepare
from benchmarks.simulation import Timed, simulation, table
from shared.paths import DATA


def test_the_table_has_medians_and_their_ratios():
    runs = [Timed("elastic", 3.0, 2.0), Timed("elastic", 4.0, 9.0), Timed("elastic", 9.0, 3.2)]
    runs += [Timed("hogwild", 4.0, 3.0)]
    text = table("toy", 5000, [1.0, 2.0, 9.0], runs).markdown()
    assert "| elastic | 4.00 | 2.00 | 3.20 | 1.25 | met |" in text
    assert "| hogwild | 4.00 | 2.00 | 3.00 | 1.33 | missed |" in text
    assert "One worker takes 2.00 s for 5,000 rows" in text
    assert "1.3 times as long as the same arithmetic" in text


def test_every_algorithm_is_timed_in_every_round(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "algorithm_names", lambda: ["auto", "hogwild", "local_sgd", "sequential"])
    monkeypatch.setattr(module, "HIDDEN", 8)
    plan = Plan(Launcher(tmp_path, 1, 60.0), tmp_path, tmp_path / "out", rounds=2)
    simulation(prepare(DATA, tmp_path), plan)
    found = json.loads((tmp_path / "out" / "simulation-data.json").read_text())["result"]
    assert [run["algorithm"] for run in found["runs"]] == 2 * ["hogwild", "local_sgd"]
    assert len(found["one_worker"]) == 2
    assert all(run["simulated"] > 0 and run["in_turn"] > 0 for run in found["runs"])
