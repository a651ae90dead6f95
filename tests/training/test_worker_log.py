"""Statistics of workers: in the epoch records, in the summary of a run, in advice."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from shared.paths import DATA
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.cli import main
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice, scheduling_efficiency
from xmlsgd.training.history import History
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.worker_log import Tally, advice, contributions_of, summary

N_ROWS = 240
NETWORK = Network(6, 5, (4,))


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    X, Y = (CSR.from_scipy(sp.csr_array(rng.random((N_ROWS, n)) * (rng.random((N_ROWS, n)) < 0.5))) for n in (6, 5))
    return Dataset(X, Y)


def simulate(dataset, algorithm, speeds, epochs=2, **device):
    fleet = [VirtualDevice(**{"overhead": 0.0, "per_row": 1.0, "speed": speed, **device}) for speed in speeds]
    executor = Simulated(Reference(), fleet)
    return train(Job(dataset, NETWORK, SGD()), algorithm, executor, Schedule(epochs))


def test_records_tell_what_each_of_several_workers_did(dataset):
    run = simulate(dataset, Synchronous(10, 0.1), (1.0, 0.5))
    for record in run.records:
        first, second = record["workers"]
        assert (first["worker"], second["worker"]) == (0, 1)
        assert (first["rows"], second["rows"]) == (120, 120)
        assert (first["updates"], second["updates"]) == (12, 12)
        assert (first["busy"], second["busy"]) == (120.0, 240.0)
        assert first["utilisation"] == pytest.approx(0.5, abs=1e-3)
        assert second["utilisation"] == pytest.approx(1.0, abs=1e-3)
        assert (first["batch"], second["batch"]) == (10, 10)
        assert record["merges"] == 12
        assert 0 < record["merge_seconds"] < 1e-3
        assert "staleness" not in first, "replicas have none"
    assert [record["seconds"] for record in run.records] == pytest.approx([240, 480], abs=1e-3)


def test_busy_idle_and_merging_are_all_of_the_time_of_a_worker(dataset):
    """Where all meet at merges, the slowest worker never waits."""
    run = simulate(dataset, Synchronous(10, 0.1), (1.0, 0.25), epochs=1)
    (record,) = run.records
    assert record["workers"][1]["busy"] + record["merge_seconds"] == pytest.approx(record["seconds"], abs=1e-5)


def test_records_of_a_shared_model_tell_the_staleness_of_updates(dataset):
    """Two equal workers alternate: each update but the first misses the one that ended while it ran."""
    run = simulate(dataset, Hogbatch(10, 0.1, threads=(1,)), (1.0, 1.0), epochs=1)
    for entry in run.records[0]["workers"]:
        assert entry["staleness_max"] == 1
        assert 0.9 < entry["staleness"] <= 1
        assert entry["batch"] == 10


def test_records_tell_batch_sizes_and_merge_weights_of_adaptive_sgd(dataset):
    run = simulate(dataset, AdaptiveSGD(8, 0.1, mega_batch=80), (1.0, 0.5), epochs=4)
    fast, slow = run.records[-1]["workers"]
    assert fast["batch"] == 8
    assert slow["batch"] < 8
    assert fast["weight"] + slow["weight"] == pytest.approx(1, abs=1e-5)
    assert run.records[-1]["merges"] == 3
    json.dumps(run.records, allow_nan=False)


def test_one_worker_alone_leaves_records_as_they_were(dataset):
    run = train(Job(dataset, NETWORK, SGD()), Sequential(10, 0.1), Serial([Reference()]), Schedule(1))
    assert run.records[0].keys() == {"epoch", "first_epoch", "rows", "seconds", "loss"}
    assert run.workers == []


def test_other_callbacks_see_the_workers_in_the_record(dataset, tmp_path):
    history = History(tmp_path / "history.jsonl")
    fleet = [VirtualDevice(), VirtualDevice()]
    executor = Simulated(Reference(), fleet)
    train(Job(dataset, NETWORK, SGD()), Synchronous(10, 0.1), executor, Schedule(1), callbacks=[history])
    (line,) = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(json.loads(line)["workers"]) == 2


def test_merging_on_a_real_clock_takes_time_and_is_counted(dataset):
    executor = Serial([Reference(), Reference()])
    run = train(Job(dataset, NETWORK, SGD()), Elastic(10, 0.1), executor, Schedule(1))
    assert 0 < run.records[0]["merge_seconds"] < run.records[0]["seconds"]


def test_a_worker_that_was_away_is_told_of_and_was_not_busy_meanwhile(dataset):
    fleet = [VirtualDevice(0.0, 1.0), VirtualDevice(0.0, 1.0, absent=((0.0, 60.0),))]
    executor = Simulated(Reference(), fleet)
    run = train(Job(dataset, NETWORK, SGD()), Hogbatch(10, 0.1), executor, Schedule(1))
    there, away = run.records[0]["workers"]
    assert there["rows"] + away["rows"] == N_ROWS
    assert there["utilisation"] > 0.95
    assert away["busy"] <= run.records[0]["seconds"] - 60
    assert sum(device.capacity(run.records[0]["seconds"], 10, 0.0) for device in fleet) == pytest.approx(N_ROWS, abs=20)


@pytest.mark.parametrize("algorithm", [Elastic(10, 0.1, mega_batch=120), Hogbatch(10, 0.1)], ids=["replicas", "shared"])
def test_rows_lost_with_a_worker_are_counted_apart_and_once_by_the_worker_that_trains_them_again(dataset, algorithm):
    """The second worker leaves when it has done 40 rows and is at the next 10; elastic averaging has merged none."""
    fleet = [VirtualDevice(0.0, 1.0), VirtualDevice(0.0, 1.0, absent=((45.0, np.inf),))]

    class Counted(History):
        rows = 0

        def span(self, report):
            self.rows += report.rows

        def lost(self, reports):
            self.rows -= sum(report.rows for report in reports)

    counted = Counted()
    run = train(
        Job(dataset, NETWORK, SGD()), algorithm, Simulated(Reference(), fleet), Schedule(2), callbacks=[counted]
    )
    of_replicas = isinstance(algorithm, Elastic)
    first, second = run.records[0]["workers"]
    assert (first["rows"], second["rows"]) == ((240, 0) if of_replicas else (200, 40))
    assert second.get("lost", 0) == (40 if of_replicas else 0)
    assert second["updates"] == (0 if of_replicas else 4)
    assert second["busy"] == 40.0
    assert "lost" not in first
    assert run.workers[1].get("lost", 0) == second.get("lost", 0)
    assert sum(entry["rows"] for entry in run.workers) == counted.rows == 2 * N_ROWS


def test_a_worker_contributes_its_share_of_the_rows_if_idle_workers_take_the_next_batch(dataset):
    run = simulate(dataset, Hogbatch(2, 0.1), (1.0, 1.0, 0.05))
    shares = [entry["contribution"] for entry in run.workers]
    assert shares == pytest.approx([0.48, 0.48, 0.025], abs=0.03)
    assert advice(run.workers) == [
        f"worker 2 contributes {100 * shares[2]:.0f} % of the rows per second; it can be excluded"
    ]


def test_a_worker_that_all_others_wait_for_has_a_negative_contribution(dataset):
    run = simulate(dataset, Synchronous(10, 0.1), (1.0, 1.0, 0.5, 0.25))
    # With it 4 rows every 4 seconds a row, without it 3 every 2.
    assert run.workers[3]["contribution"] == pytest.approx(1 - 1.5, abs=1e-3)
    assert advice(run.workers) == ["worker 3 slows down the others: without it, 50 % more rows per second"]
    assert run.workers[0]["contribution"] == pytest.approx(0.25, abs=1e-3)


def test_no_worker_slows_down_the_others_where_merges_take_long(dataset):
    """Alone, either of two workers would merge twice as often, and the run would take longer."""

    def seconds(*speeds):
        fleet = [VirtualDevice(0.0, 1.0, speed=speed) for speed in speeds]
        executor = Simulated(Reference(), fleet, bandwidth=50)
        run = train(Job(dataset, NETWORK, SGD()), Synchronous(10, 0.1), executor, Schedule(2))
        return run.records[-1]["seconds"], run

    (together, run), (alone, _) = seconds(1.0, 1.0), seconds(1.0)
    assert together < alone
    assert [entry["contribution"] > 0 for entry in run.workers] == [True, True]


def test_there_is_no_advice_where_a_worker_left(dataset):
    fleet = [VirtualDevice(0.0, 1.0), VirtualDevice(0.0, 1.0, absent=((25.0, np.inf),))]
    run = train(Job(dataset, NETWORK, SGD()), Synchronous(10, 0.1), Simulated(Reference(), fleet), Schedule(2))
    there, left = run.workers
    assert left["contribution"] < 0.1
    assert (there.get("left"), left["left"]) == (None, 1)
    assert advice(run.workers) == []


def test_equal_workers_all_earn_their_places_however_many_they_are():
    tallies = {w: Tally(rows=10, updates=1, busy=1.0) for w in range(50)}
    values = contributions_of(tallies, 0.0)
    assert list(values.values()) == pytest.approx([0.02] * 50)
    assert advice([{"worker": w, "contribution": value} for w, value in values.items()]) == []


def test_learners_that_a_tuner_leaves_idle_are_no_workers_to_exclude(dataset):
    fleet = [VirtualDevice(0.0, 1.0)] * 2
    run = train(Job(dataset, NETWORK, SGD()), Crossbow(10, 0.1, learners=2), Simulated(Reference(), fleet), Schedule(1))
    assert [entry["learning"] for entry in run.workers] == [True, False]
    assert run.workers[1]["contribution"] == 0
    assert advice(run.workers) == []


def test_advice_never_says_that_others_are_slowed_down_by_0_percent():
    assert advice([{"worker": 0, "contribution": 1.0}, {"worker": 1, "contribution": -0.002}]) == [
        "worker 1 contributes 0 % of the rows per second; it can be excluded"
    ]


def test_a_worker_without_which_nothing_is_done_contributes_everything():
    assert contributions_of({0: Tally(rows=10, busy=1.0), 1: Tally()}, 0.0) == {0: 1.0, 1: 0.0}


def test_scheduling_efficiency_is_one_where_no_worker_waits_and_falls_where_the_fast_wait_for_the_slow(dataset):
    fleet = [VirtualDevice(0.0, 1.0, speed=speed) for speed in (1.0, 0.5)]
    for algorithm, expected in ((Hogbatch(1, 0.1), 1.0), (Synchronous(10, 0.1), 2 / 3)):
        run = train(Job(dataset, NETWORK, SGD()), algorithm, Simulated(Reference(), fleet), Schedule(1))
        seconds = run.records[-1]["seconds"]
        assert scheduling_efficiency(fleet, N_ROWS, seconds, 1, 3.0) == pytest.approx(expected, abs=0.01)


def test_the_capacity_of_a_device_follows_its_trace_and_its_absences():
    device = VirtualDevice(0.0, 1.0, speed=1.0, trace=((4.0, 0.5),), absent=((2.0, 3.0), (6.0, 8.0)))
    assert device.presence(7.0) == [(0.0, 2.0), (3.0, 6.0)]
    assert device.capacity(7.0, 1, 0.0) == 2 + 1 + 2 * 0.5
    assert device.capacity(10.0, 1, 0.0) == 2 + 1 + 2 * 0.5 + 2 * 0.5
    assert VirtualDevice(absent=((0.0, 5.0),)).capacity(3.0, 1, 0.0) == 0
    assert VirtualDevice(2.0, 1.0, per_nnz=0.5).capacity(12.0, 4, 3.0) == 12 / (2 / 4 + 1 + 1.5)


@pytest.mark.parametrize(
    ("device", "complaint"),
    [
        ({"noise": -1.0}, r"noise must be in \[0, 10\], got -1.0"),
        ({"speed": float("nan")}, "speed must be a number, got nan"),
        ({"noise": 50.0}, r"noise must be in \[0, 10\], got 50.0"),
        ({"overhead": 1e308}, r"overhead must be in \[0, 1e\+06\], got 1e\+308"),
        ({"absent": ((1.0, float("nan")),)}, r"times of trace and absent must be at least 0 and ascending, got "),
        ({"trace": ((float("nan"), 5.0),)}, r"times of trace and absent must be at least 0 and ascending, got "),
        ({"stalls": (2.0, 3.0)}, r"stalls must be a share in \[0, 1\] and a factor in \[1, 1e\+09\], got \(2.0, 3.0\)"),
    ],
)
def test_a_device_with_numbers_outside_their_ranges_is_refused(device, complaint):
    with pytest.raises(DataError, match=complaint):
        VirtualDevice(**device)


def test_the_summary_adds_up_the_records_of_a_run(dataset):
    run = simulate(dataset, Hogbatch(10, 0.1), (1.0, 0.5), epochs=3)
    entries = [record["workers"] for record in run.records]
    for w, entry in enumerate(run.workers):
        for name in ("rows", "updates"):
            assert entry[name] == sum(of_epoch[w][name] for of_epoch in entries)
        assert entry["utilisation"] == pytest.approx(entry["busy"] / run.records[-1]["seconds"], abs=1e-4)
        assert entry["staleness_max"] == max(of_epoch[w]["staleness_max"] for of_epoch in entries)
    assert summary([]) == summary([{"epoch": 0, "seconds": 1.0}]) == []


@pytest.mark.slow
def test_training_by_several_workers_tells_in_its_json_what_each_did(tmp_path):
    data, file = str(DATA), tmp_path / "result.json"
    words = ["--devices", "cpu*2", "--hidden", "8", "--epochs", "1", "--threads", "1", "--json", str(file), "--quiet"]
    assert main(["train", data, "--out", str(tmp_path / "model"), *words]) == 0
    workers = json.loads(file.read_text())["workers"]
    assert [entry["worker"] for entry in workers] == [0, 1]
    assert sum(entry["rows"] for entry in workers) == 2108
