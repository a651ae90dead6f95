"""Checkpoints: a run that was cut short anywhere goes on from there and ends as one that never was."""

from __future__ import annotations

import itertools
import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from shared import toy
from shared.failing import Failing
from xmlsgd import checkpoint as checkpoints
from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.averaging import WeightAverage
from xmlsgd.checkpoint import Checkpoint, Place
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.engine import train
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.executors.costs import VirtualDevice
from xmlsgd.executors.processes import Processes
from xmlsgd.executors.serial import Serial
from xmlsgd.executors.simulated import Simulated
from xmlsgd.executors.threads import Threads
from xmlsgd.files import CHECKPOINT
from xmlsgd.history import EarlyStopping, History, Monitor
from xmlsgd.learner import Job, Start
from xmlsgd.model_files import read_model, write_model
from xmlsgd.network import Network
from xmlsgd.optimizers import SGD, Adam
from xmlsgd.progress import Lines, Progress
from xmlsgd.samplers import SharedNegatives
from xmlsgd.schedules import Schedule
from xmlsgd.snapshot import Snapshot

N_ROWS, BATCH, EPOCHS = 53, 10, 3
STEPS = 6  # an epoch
NETWORK = Network(12, 9, (8,), input_dropout=0.1, hidden_dropout=0.2, gradient_rounding=0.1)
SCHEDULE = Schedule(EPOCHS, "cosine", 0.1)


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.fixture(scope="module")
def dataset():
    return toy.random_data(N_ROWS, 12, 9)


@pytest.fixture
def at(tmp_path):
    return Checkpoint(tmp_path / "kept", every=0)


@pytest.fixture
def snapshot():
    made = Snapshot()
    yield made
    made.close()


def job_of(dataset, **more):
    weight = np.random.default_rng(1).uniform(0.5, 2, dataset.n_rows).astype(np.float32)
    return Job(dataset, NETWORK, Adam(weight_decay=0.01), seed=4, sample_weight=weight, **more)


def go(job, checkpoint=None, steps=0, monitors=(), schedule=SCHEDULE, algorithm=None, device=None):
    """Train by one worker, killed after some steps; return the run, None of one that was killed."""
    killing = [Failing(Killed(), steps)] if steps else []
    executor = Serial([device or Reference()])
    try:
        return train(job, algorithm or Sequential(BATCH, 0.05), executor, schedule, [*monitors, *killing], checkpoint)
    except Killed:
        return None


def assert_same(run, whole):
    np.testing.assert_array_equal(run.params, whole.params)
    np.testing.assert_array_equal(run.state, whole.state)
    assert run.steps == whole.steps
    without = [{name: value for name, value in record.items() if name != "seconds"} for record in run.records]
    assert without == [{name: value for name, value in record.items() if name != "seconds"} for record in whole.records]


@pytest.mark.parametrize("steps", [2, STEPS, STEPS + 1, STEPS + 4, EPOCHS * STEPS])
def test_a_run_killed_after_any_step_ends_as_one_that_never_was(dataset, at, steps):
    whole = go(job_of(dataset))
    assert go(job_of(dataset), at, steps) is None
    place = at.read().place
    assert (place.epoch * N_ROWS + place.at) == place.rows == min((steps - 1) * BATCH, place.rows)
    assert_same(go(job_of(dataset), at), whole)


def test_a_run_may_be_killed_again_and_again(dataset, at):
    killed = 0
    while go(job_of(dataset), at, steps=3) is None:
        killed += 1
    assert killed == (EPOCHS * STEPS) // 2 - 1, "two of the three steps of each process count"
    assert_same(go(job_of(dataset), at), go(job_of(dataset)))


def test_kernels_draw_the_same_masks_labels_and_roundings_again(dataset, at):
    job = job_of(dataset, sampler=SharedNegatives(3))
    whole = go(job, device=CPU(1))
    assert go(job, at, STEPS + 3, device=CPU(1)) is None
    assert_same(go(job, at, device=CPU(1)), whole)


def test_a_run_that_ended_trains_nothing_more(dataset, at):
    whole = go(job_of(dataset), at)
    device = toy.Marking()
    run = go(job_of(dataset), at, device=device)
    assert_same(run, whole)
    assert [record["epoch"] for record in run.records] == [0, 1, 2]
    assert at.read().place.ended


def test_a_run_on_an_earlier_model_goes_on_in_its_arrays(dataset, at):
    first = go(job_of(dataset))

    def start():
        return Start(first.params.copy(), first.state.copy(), first.steps, epochs=EPOCHS)

    whole = go(job_of(dataset, start=start()))
    assert go(job_of(dataset, start=start()), at, STEPS + 2) is None
    again = start()
    run = go(job_of(dataset, start=again), at)
    assert_same(run, whole)
    assert run.params.base is again.params
    assert [record["first_epoch"] for record in run.records] == [EPOCHS] * 3


def test_the_clock_goes_on_and_stands_still_while_checkpoints_are_written(dataset, at, monkeypatch):
    seconds = itertools.count()
    executor = Serial([Reference()])
    monkeypatch.setattr(executor, "now", lambda: float(next(seconds)))
    written = []

    def write(self, place, *given):
        write_one(self, place, *given)
        written.append(place.seconds)
        for _ in range(1000):
            next(seconds)

    write_one = checkpoints.Keeper.write
    monkeypatch.setattr(checkpoints.Keeper, "write", write)
    with pytest.raises(Killed):
        train(job_of(dataset), Sequential(BATCH, 0.05), executor, SCHEDULE, [Failing(Killed(), STEPS + 3)], at)
    assert written == sorted(written)
    assert written[-1] < 1000
    assert go(job_of(dataset), at).records[-1]["seconds"] >= written[-1]


def test_checkpoints_are_written_no_more_often_than_asked(dataset, at, monkeypatch):
    written = []
    monkeypatch.setattr(checkpoints.Keeper, "write", lambda self, place, *_: written.append(place))
    go(job_of(dataset), replace(at, every=3600.0))
    assert [place.ended for place in written] == [True]


def test_averages_best_models_and_records_go_on(dataset, at, snapshot, tmp_path):
    precision = {0: 10.0, 1: 30.0, 2: 20.0}

    class Model(Monitor):
        """Gives each epoch a P@1."""

        def epoch(self, record, center):
            record["P@1"] = precision[record["epoch"]]
            return False

    def monitors(name):
        return [Model(), WeightAverage(0.6), EarlyStopping("P@1", 2, 0.0, snapshot), History(tmp_path / name)]

    whole = go(job_of(dataset), monitors=monitors("whole"))
    for steps in (STEPS + 4, 5, 2):  # the best model, of epoch 1, is one of the first process, or of the second
        go(job_of(dataset), at, steps, monitors("cut"))
    run = go(job_of(dataset), at, monitors=monitors("cut"))
    assert_same(run, whole)
    files = ((tmp_path / name).read_text().splitlines() for name in ("cut", "whole"))
    cut, uncut = ([json.loads(line)["loss"] for line in file] for file in files)
    assert cut == uncut
    assert [record["averaged"] for record in run.records] == [0, 5, 11]


def test_monitors_of_one_class_are_told_apart(dataset, at):
    class Counting(Monitor):
        """Counts steps from a number on."""

        def __init__(self, first):
            self.count, self.told = first, None

        def step(self, report):
            self.count += 1

        def kept(self):
            return {"count": self.count, "vector": np.full(2, self.count, np.float32)}

        def resume(self, so_far):
            self.told, self.count = so_far, so_far.kept["count"]

    go(job_of(dataset), at, STEPS + 2, [Counting(0), Counting(100)])
    one, other = Counting(7), Counting(8)
    go(job_of(dataset), at, monitors=[one, other])
    assert (one.count, other.count) == (EPOCHS * STEPS, EPOCHS * STEPS + 100)
    np.testing.assert_array_equal(other.told.kept["vector"], [STEPS + 101] * 2)
    assert (one.told.rows, len(one.told.records)) == (N_ROWS + BATCH, 1)


def test_progress_begins_where_the_run_does(dataset, at, capsys):
    go(job_of(dataset), at, STEPS + 2)
    bar = Progress()
    go(job_of(dataset), at, monitors=[bar])
    assert isinstance(bar.bar, Lines)
    assert (bar.bar.done, bar.bar.rows) == (N_ROWS + BATCH, EPOCHS * N_ROWS)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"network": replace(NETWORK, hidden=(9,))}, r"network.hidden was \(8,\), is \(9,\)"),
        ({"optimizer": SGD()}, "optimizer was Adam, is SGD"),
        ({"optimizer": Adam(weight_decay=0.5)}, "optimizer.weight_decay was 0.01, is 0.5"),
        ({"sampler": SharedNegatives(3)}, "sampler was Sampler, is SharedNegatives"),
        ({"seed": 5}, "seed was 4, is 5"),
        ({"sample_weight": None}, "data was [0-9a-f]{64}, is [0-9a-f]{64}; go on"),
        ({"dataset": toy.random_data(N_ROWS, 12, 9, seed=1)}, "data was [0-9a-f]{64}, is [0-9a-f]{64}; go on"),
        ({"dataset": toy.random_data(N_ROWS - 1, 12, 9)}, "rows was 53, is 52"),
    ],
    ids=["hidden", "optimizer", "decay", "sampler", "seed", "weights", "data", "rows"],
)
def test_another_run_does_not_go_on_from_it(dataset, at, change, said):
    go(job_of(dataset), at, STEPS)
    if "rows" in said:
        change["sample_weight"] = None
    before = {file.name: file.read_bytes() for file in at.path.iterdir()}
    with pytest.raises(DataError, match=f"kept: is the checkpoint of another run: .*{said}.* or remove .*kept$"):
        go(replace(job_of(dataset), **change), at)
    assert {file.name: file.read_bytes() for file in at.path.iterdir()} == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schedule": Schedule(4, "cosine", 0.1)}, "schedule.epochs was 3, is 4"),
        ({"algorithm": Sequential(BATCH, 0.01)}, "rate was 0.05, is 0.01"),
        ({"algorithm": Sequential(11, 0.05)}, "batch was 10, is 11"),
    ],
)
def test_nor_does_one_of_another_length_rate_or_batch(dataset, at, given, said):
    go(job_of(dataset), at, STEPS)
    with pytest.raises(DataError, match=said):
        go(job_of(dataset), at, **given)


def test_who_works_may_change(dataset, at):
    go(job_of(dataset), at, STEPS + 2)
    executor = Serial([Reference(), Reference()])
    run = train(job_of(dataset), Hogwild(BATCH, 0.05), executor, SCHEDULE, checkpoint=at)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]
    assert len(run.records[-1]["workers"]) == 2


@pytest.mark.parametrize("name", ["params.npy", "run.json", "MANIFEST.json"])
def test_a_damaged_checkpoint_is_refused_and_says_what_to_do(dataset, at, name):
    go(job_of(dataset), at, STEPS)
    damaged = bytearray((at.path / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (at.path / name).write_bytes(damaged)
    with pytest.raises(ModelFileError, match=r"kept.*remove"):
        go(job_of(dataset), at)


@pytest.mark.parametrize(
    "change", [{"place": 3}, {"place": {"epoch": 0, "at": "x"}}, {"steps": None}, {"place": {"no": 1}}, {"monitors": 1}]
)
def test_what_tells_of_no_run_is_refused(dataset, at, change):
    go(job_of(dataset), at, STEPS)
    files = read_model(at.path, kind=CHECKPOINT)
    arrays = {name: np.array(array) for name, array in files.arrays.items()}
    write_model(at.path, {**files.description, **change}, arrays, kind=CHECKPOINT)
    with pytest.raises(ModelFileError, match=r"kept: \w+ must be .*, got .*; remove the checkpoint to begin anew"):
        go(job_of(dataset), at)


def test_what_is_no_checkpoint_is_left_alone(dataset, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ModelFileError, match=r"mine: exists and is not a checkpoint; choose another name"):
        go(job_of(dataset), Checkpoint(tmp_path / "mine"))
    Checkpoint(tmp_path / "mine").remove()
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_a_checkpoint_that_cannot_be_written_costs_nothing_but_itself(dataset, at, monkeypatch, caplog):
    whole, tries = go(job_of(dataset)), []

    def full(*given, **more):
        tries.append(given)
        if len(tries) == 3:
            raise OSError(28, "No space left on device", str(at.path))
        return write_model(*given, **more)

    monkeypatch.setattr(checkpoints, "write_model", full)
    with caplog.at_level(logging.WARNING, "xmlsgd"):
        run = go(job_of(dataset), at)
    assert_same(run, whole)
    assert len(tries) == EPOCHS * (STEPS + 2), "before and behind each step, and at the end of an epoch"
    full_disk = f"[Errno 28] No space left on device: '{at.path}'"
    told = f"no checkpoint was written: {full_disk}; the run goes on, and tries again in 0 s"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_a_model_that_diverges_is_in_no_checkpoint(dataset, at):
    device = toy.Marking()
    steps = []

    def output_step(*given):
        steps.append(1)
        return (np.nan if len(steps) == STEPS + 3 else 0.5), given[0]

    device.output_step = output_step
    run = go(replace(job_of(dataset)), at, device=device)
    assert run.diverged
    saved = at.read()
    assert (saved.place.epoch, saved.place.at) == (1, 2 * BATCH)
    assert np.isfinite(saved.arrays.arrays["params"]).all()


@pytest.mark.parametrize("kind", ["serial", "threads", "simulated", "processes"])
def test_each_row_is_trained_once_an_epoch_by_workers_that_were_killed(at, kind):
    """Workers add 1 to a row's weight; those of one memory stop for a checkpoint, so that none is in the middle."""
    rows = toy.dataset(60)
    job = Job(rows, Network(60, 1, (1,), input_scale=0.0), SGD())
    make = {
        "serial": lambda: Serial([toy.Marking() for _ in range(3)]),
        "threads": lambda: Threads([toy.Marking() for _ in range(3)]),
        "simulated": lambda: Simulated(toy.Marking(), [VirtualDevice(speed=speed) for speed in (1.0, 0.5, 0.3)]),
        "processes": lambda: Processes([toy.Marking] * 2),
    }[kind]
    with pytest.raises(Killed):
        train(job, Hogwild(4, 0.1), make(), Schedule(3), [Failing(Killed(), 22)], at)
    place = at.read().place
    assert 0 < place.rows < 180
    run = train(job, Hogwild(4, 0.1), make(), Schedule(3), checkpoint=at)
    trained = job.network.layout.views(run.params)["W0"][:, 0]
    np.testing.assert_array_equal(trained, 3)
    assert [record["rows"] for record in run.records] == [60, 120, 180]


class Late(Monitor):
    """Kills a run when it has trained on some rows."""

    def __init__(self, rows):
        self.left = rows

    def step(self, report):
        self.left -= report.rows
        if self.left <= 0:
            raise Killed


@pytest.mark.parametrize("name", sorted({*algorithm_names()} - {"sequential"}))
def test_every_algorithm_goes_on(name, at):
    """Replicas are not waited for: what is kept is of the last time at which all work was in the model."""
    job = Job(toy.learnable_data(200), toy.FITTING, SGD())
    fleet = [VirtualDevice(speed=speed) for speed in (1.0, 0.7)]
    device, logged = CPU(1), toy.Logged(CPU(1), fleet)
    algorithm, again = (get_algorithm(name, batch=5, rate=0.1) for _ in range(2))
    with device.start():
        with pytest.raises(Killed):
            train(job, algorithm, Simulated(device, fleet), Schedule(3), [Late(330)], at)
        left = 600 - at.read().place.rows
        run = train(job, again, logged, Schedule(3), checkpoint=at)
    assert 200 < left <= 400
    assert [record["rows"] for record in run.records] == [200, 400, 600]
    assert np.isfinite(run.params).all()
    trials = name in ("crossbow", "omnivore")  # are begun anew, and what they train counts later
    assert sum(step.rows for step in logged.of("issue")) >= left if trials else left


def test_replicas_that_are_never_merged_together_are_kept_at_the_end_of_an_epoch(at):
    job = Job(toy.learnable_data(60), toy.FITTING, SGD())
    algorithm = LocalSGD(5, 0.1, steps=100)
    with pytest.raises(Killed):
        train(job, algorithm, Serial([Reference(), Reference()]), Schedule(3), [Failing(Killed(), 20)], at)
    assert at.read().place == Place(1, rows=60, seconds=at.read().place.seconds)


def test_the_interval_must_be_one():
    for every in (-1.0, np.inf, np.nan, "10"):
        with pytest.raises(DataError, match="every: must be seconds, 0 or more, got"):
            Checkpoint("kept", every)
