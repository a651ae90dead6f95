"""The benchmark of two workers: what a hop is, what a table says is missed, tables that are made in several calls."""

from __future__ import annotations

import json

import pytest

from benchmarks import workers as module
from benchmarks.hops import Timed
from benchmarks.launch import Launcher
from benchmarks.plan import Plan
from benchmarks.workers import earlier, misses, table
from shared import light, toy
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train


def run(name, slow=1.0, speed=1.9, **measured):
    """What one run of a table measured."""
    return {
        "algorithm": name, "workers": 1 if name == "sequential" else 2, "slowdown": slow, "seconds": 5.0,
        "predicted_seconds": 5.5, "rows_per_second": 1000.0, "merge_share": 0.01, "curve": [[5.0, 60.0]],
        "table_bytes": 100e6, "workers_memory_bytes": 390e6, "hop_seconds": 2e-4, "message_seconds": 0.02,
        "hop_share": 0.01, "speed": speed, **measured,
    }  # fmt: skip


def test_every_message_of_a_run_has_a_hop_of_its_own():
    data = toy.dataset(64)
    executor = Timed([light.Marking] * 2)
    done = train(Job(data, toy.counting(data), SGD()), Hogwild(4, 0.1), executor, Schedule(1))
    told = done.records[-1]["workers"]
    assert len(executor.hops) == len(executor.steps) > 2
    assert sum(executor.steps) == pytest.approx(sum(worker["busy"] for worker in told), abs=1e-4)
    assert min(executor.hops) > 0
    found = executor.summary()
    assert found["hop_share"] == pytest.approx(sum(executor.hops) / sum(executor.steps))


def test_what_is_done_between_epochs_is_no_part_of_a_hop():
    executor = Timed([light.Marking])
    executor._heard_at[0] = 0.0
    executor.pause()
    assert not executor._heard_at


@pytest.mark.parametrize(
    ("name", "own", "slowed", "missed"),
    [
        ("hogwild", {}, {"speed": 1.2}, []),
        ("hogwild", {"speed": 1.7}, {"speed": 1.1}, ["rate", "slowed"]),
        ("elastic", {"merge_share": 0.06}, {"speed": 0.5}, ["merging"]),
        ("synchronous", {"speed": 0.9, "merge_share": 0.3, "hop_share": 0.03}, {"speed": 0.3}, []),
        ("crossbow", {"hop_share": 0.03}, {"speed": 0.3}, ["hops"]),
        ("adaptive", {"workers_memory_bytes": 410e6}, {"speed": 1.2}, ["memory"]),
    ],
)
def test_the_table_names_what_is_missed(name, own, slowed, missed):
    runs = [run(name, **own)], [run(name, 4.0, **slowed)]
    assert misses(*runs) == missed
    text = table("toy", [run("sequential"), *runs[0], *runs[1]]).markdown()
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    assert line.endswith(f"| {', '.join(missed)} |")


def test_a_table_made_in_several_calls_keeps_what_the_others_measured(tmp_path, monkeypatch):
    kept = {"runs": [run("sequential"), run("elastic"), run("elastic", 4.0), run("hogwild")], "epochs": 3}
    path = tmp_path / "workers-data.json"
    path.write_text(json.dumps({"result": kept}))
    plan = Plan(Launcher(tmp_path, 1, 60.0), tmp_path, tmp_path, reuse=True)
    assert earlier(path, plan) == kept["runs"]
    assert earlier(path, Plan(Launcher(tmp_path, 1, 60.0), tmp_path, tmp_path)) == []
    assert earlier(path, Plan(Launcher(tmp_path, 1, 60.0), tmp_path, tmp_path, reuse=True, epochs=2)) == []

    def made(name, n, slow, rows, test, epochs):
        return {key: value for key, value in run(name, slow, rows_per_second=500.0 * n).items() if key != "speed"}

    monkeypatch.setattr(module, "run", made)
    monkeypatch.setattr(module, "open_store", lambda path: None)
    monkeypatch.setattr(module, "test_rows", lambda path: None)
    monkeypatch.setattr(module, "prepared_shape", lambda path: {})
    again = Plan(Launcher(tmp_path, 1, 60.0), tmp_path, tmp_path, rounds=1, reuse=True, algorithms=("hogwild",))
    module.workers(tmp_path / "data", again)
    found = json.loads(path.read_text())["result"]["runs"]
    told = [(each["algorithm"], each["slowdown"]) for each in found]
    assert told == [
        ("sequential", 1.0), ("elastic", 1.0), ("elastic", 4.0), ("sequential", 1.0), ("hogwild", 1.0),
        ("hogwild", 4.0),
    ]  # fmt: skip
    assert found[-1]["speed"] == 2.0
