"""Checkpoints: a run that was cut short anywhere goes on from there and ends as one that never was."""

from __future__ import annotations

import itertools
import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shared import toy
from shared.failing import Failing
from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.averaging import WeightAverage
from xmlsgd.checkpoints import Checkpoint, Place, read_saved, writer
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
from xmlsgd.runs import Interrupted
from xmlsgd.samplers import SharedNegatives
from xmlsgd.schedules import Schedule
from xmlsgd.snapshot import Snapshot

N_ROWS, BATCH, EPOCHS = 53, 10, 3
STEPS = 6  # an epoch
NETWORK = Network(12, 9, (8,), input_dropout=0.1, hidden_dropout=0.2, gradient_rounding=0.1)
SIZE = NETWORK.layout.size
OTHER = Start(np.ones(SIZE, np.float32), np.ones(2 * SIZE, np.float32), steps=1, epochs=1)
SCHEDULE = Schedule(EPOCHS, "cosine", 0.1)


class Killed(Exception):
    """Stands for the end of a process."""


PLACE = {"epoch": 0, "at": 20, "returned": [], "loss": 1.0, "rows": 20, "seconds": 0.1, "ended": False}


@pytest.fixture(scope="module")
def dataset():
    return toy.random_data(N_ROWS, 12, 9)


@pytest.fixture
def at(tmp_path):
    return Checkpoint(tmp_path / "kept", minutes=0)


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
    place = read_saved(at).place
    epochs, rest = divmod(steps - 1, STEPS)
    assert (place.epoch * N_ROWS + place.at) == place.rows == epochs * N_ROWS + rest * BATCH
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
    assert read_saved(at).place.ended


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

    def write(self, place):
        write_one(self, place)
        written.append(place.seconds)

    def write_slowly(*given, **more):
        write_model(*given, **more)
        for _ in range(1000):
            next(seconds)

    write_one = writer.Writer.write
    monkeypatch.setattr(writer.Writer, "write", write)
    monkeypatch.setattr(writer, "write_model", write_slowly)
    with pytest.raises(Killed):
        train(job_of(dataset), Sequential(BATCH, 0.05), executor, SCHEDULE, [Failing(Killed(), STEPS + 3)], at)
    assert written == sorted(written)
    assert written[-1] < 1000
    assert go(job_of(dataset), at).records[-1]["seconds"] >= written[-1]


def test_checkpoints_are_written_no_more_often_than_asked(dataset, at, monkeypatch):
    written = []
    monkeypatch.setattr(writer.Writer, "write", lambda self, place: written.append(place))
    go(job_of(dataset), replace(at, minutes=60.0))
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

        def state(self):
            return {"count": np.int64(self.count), "vector": np.full(2, self.count, np.float32)}

        def resume(self, so_far):
            self.told, self.count = so_far, so_far.state["count"]

    go(job_of(dataset), at, STEPS + 2, [Counting(0), Counting(100)])
    one, other = Counting(7), Counting(8)
    go(job_of(dataset), at, monitors=[one, other])
    assert (one.count, other.count) == (EPOCHS * STEPS, EPOCHS * STEPS + 100)
    np.testing.assert_array_equal(other.told.state["vector"], [STEPS + 101] * 2)
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
        ({"network": replace(NETWORK, hidden=(9,))}, r"hidden_layer_sizes was \(8,\), is \(9,\)"),
        ({"optimizer": SGD()}, "optimizer was Adam, is SGD"),
        ({"optimizer": Adam(weight_decay=0.5)}, "weight_decay was 0.01, is 0.5"),
        ({"sampler": SharedNegatives(3)}, "sampler was Sampler, is SharedNegatives"),
        ({"seed": 5}, "seed was 4, is 5"),
        ({"sample_weight": None}, "other rows, labels or weights"),
        ({"dataset": toy.random_data(N_ROWS, 12, 9, seed=1)}, "other rows, labels or weights"),
        (
            {"start": OTHER},
            "another model to begin with",
        ),
    ],
    ids=["hidden", "optimizer", "decay", "sampler", "seed", "weights", "data", "start"],
)
def test_another_run_does_not_go_on_from_it(dataset, at, change, said):
    go(job_of(dataset), at, STEPS)
    before = {file.name: file.read_bytes() for file in at.folder.iterdir()}
    with pytest.raises(
        DataError, match=f"kept: is the checkpoint of another run: {said}; go on as it was, or remove .*kept$"
    ):
        go(replace(job_of(dataset), **change), at)
    assert {file.name: file.read_bytes() for file in at.folder.iterdir()} == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schedule": Schedule(4, "cosine", 0.1)}, "max_epochs was 3, is 4"),
        ({"algorithm": Sequential(BATCH, 0.01)}, "learning_rate_init was 0.05, is 0.01"),
        ({"monitors": [WeightAverage(0.5)]}, "average_weights was none, is 0.5"),
        ({"algorithm": Sequential(11, 0.05)}, "batch_size was 10, is 11"),
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
    damaged = bytearray((at.folder / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (at.folder / name).write_bytes(damaged)
    with pytest.raises(ModelFileError, match=r"kept.*remove"):
        go(job_of(dataset), at)


@pytest.mark.parametrize(
    "change",
    [
        {"place": 3},
        {"place": {"epoch": 0, "at": "x"}},
        {"place": {"no": 1}},
        {"place": {**PLACE, "epoch": 10**30}},
        {"place": {**PLACE, "at": -5}},
        {"place": {**PLACE, "at": N_ROWS + 1}},
        {"place": {**PLACE, "epoch": 3}},
        {"place": {**PLACE, "returned": [[5, 2]]}},
        {"place": {**PLACE, "returned": [[0, 5], [3, 7]]}},
        {"steps": None},
        {"steps": -1},
        {"steps": 10**400},
        {"monitors": 1},
        {"records": [{}]},
        {"records": [1]},
        {"records": [{"loss": 1.0}]},
        {"seed": "x"},
        {"run": []},
    ],
)
def test_what_tells_of_no_run_is_refused(dataset, at, change):
    go(job_of(dataset), at, STEPS)
    files = read_model(at.folder, kind=CHECKPOINT)
    arrays = {name: np.array(array) for name, array in files.arrays.items()}
    write_model(at.folder, {**files.description, **change}, arrays, kind=CHECKPOINT)
    with pytest.raises(
        ModelFileError, match=r"kept: (\w+ must be|must tell of a place in) .*, got .*; remove .* to begin anew"
    ):
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
            raise OSError(28, "No space left on device", str(at.folder))
        return write_model(*given, **more)

    monkeypatch.setattr(writer, "write_model", full)
    with caplog.at_level(logging.WARNING, "xmlsgd"):
        run = go(job_of(dataset), at)
    assert_same(run, whole)
    assert len(tries) == EPOCHS * STEPS, "one a step, that of the last behind its epoch"
    full_disk = f"[Errno 28] No space left on device: '{at.folder}'"
    told = f"no checkpoint was written: {full_disk}"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_a_model_that_diverges_is_in_no_checkpoint(dataset, at):
    device = toy.Marking()
    steps = []

    def output_step(*given):
        steps.append(1)
        return (np.nan if len(steps) == STEPS + 3 else 0.5), given[0]

    device.output_step = output_step
    run = go(job_of(dataset), at, device=device)
    assert run.diverged
    saved = read_saved(at)
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
    place = read_saved(at).place
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
        left = 600 - read_saved(at).place.rows
        run = train(job, again, logged, Schedule(3), checkpoint=at)
    assert 200 < left <= 400
    assert [record["rows"] for record in run.records] == [200, 400, 600]
    assert np.isfinite(run.params).all()
    trained = sum(step.rows for step in logged.of("issue"))
    if name == "omnivore":  # its trials are begun anew; what they train does not count
        assert left <= trained < 600
    else:
        assert trained == left


class Careful(Omnivore):
    """Looks whether anybody is in the middle of a step when an epoch ends."""

    def end_epoch(self, comm):
        assert not comm.busy
        super().end_epoch(comm)


@pytest.mark.parametrize("name", sorted({*algorithm_names()} - {"omnivore"}))
def test_every_algorithm_goes_on_in_the_middle_of_an_epoch(name, at):
    goes_on_in_the_middle(at, lambda: get_algorithm(name, batch=5, rate=0.1), (1.0, 0.7))


@pytest.mark.parametrize("options", [{}, {"tune": False, "groups": 2}, {"tune": False, "groups": 1}], ids=str)
def test_omnivore_ends_the_first_epoch_where_it_ends(options, at):
    goes_on_in_the_middle(at, lambda: Careful(5, 0.1, **options), (1.0, 0.9, 0.8, 0.7))


def goes_on_in_the_middle(at, algorithm, speeds):
    """Let one worker do a part of an epoch, and several by an algorithm the rest of the run."""
    job = Job(toy.learnable_data(200), toy.FITTING, SGD())
    device, fleet = CPU(1), [VirtualDevice(speed=speed) for speed in speeds]
    with device.start():
        with pytest.raises(Killed):
            train(job, Sequential(5, 0.1), Serial([device]), Schedule(3), [Late(100)], at)
        assert read_saved(at).place.done == 95
        executor = Simulated(device, fleet)
        run = train(job, algorithm(), executor, Schedule(3), checkpoint=at)
    assert [record["rows"] for record in run.records] == [200, 400, 600]
    assert np.isfinite(run.params).all()


def test_replicas_that_are_never_merged_together_are_kept_at_the_end_of_an_epoch(at):
    job = Job(toy.learnable_data(60), toy.FITTING, SGD())
    algorithm = LocalSGD(5, 0.1, steps=100)
    with pytest.raises(Killed):
        train(job, algorithm, Serial([Reference(), Reference()]), Schedule(3), [Failing(Killed(), 20)], at)
    assert read_saved(at).place == Place(1, rows=60, seconds=read_saved(at).place.seconds)


def test_the_interval_must_be_one():
    for minutes in (-1.0, np.inf, np.nan, "10"):
        with pytest.raises(DataError, match="minutes: must be 0 or more, got"):
            Checkpoint("kept", minutes)
    for path in (None, 3, "", b"kept"):
        with pytest.raises(DataError, match="checkpoint: must be a path or a Checkpoint, got"):
            Checkpoint(path)
    with pytest.raises(DataError, match="keep: must be True or False, got 3"):
        Checkpoint("kept", keep=3)


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("algorithm", [Hogwild, LocalSGD], ids=["shared", "replicas"])
def test_a_run_that_is_to_end_writes_a_checkpoint_first(dataset, at, algorithm, n_workers):
    """Of replicas too: they are merged for it."""
    seldom, stop = replace(at, minutes=60.0), KeyboardInterrupt("enough")
    assert not seldom.end_by(stop), "no run is under way"

    class Stopping(Monitor):
        """Asks for the end in the second epoch."""

        def start(self, n_rows, epochs, center):
            self.rows, self.asked, self.longest = 0, 0, 0

        def step(self, report):
            self.rows, self.longest = self.rows + report.rows, max(self.longest, report.rows)
            if self.rows > N_ROWS and not self.asked:
                assert seldom.end_by(stop)
                self.asked = self.rows

    stopping, executor = Stopping(), Serial([Reference() for _ in range(n_workers)])
    with pytest.raises(Interrupted) as ended:
        train(job_of(dataset), algorithm(BATCH, 0.05), executor, SCHEDULE, [stopping], seldom)
    assert ended.value.__cause__ is stop
    saved = read_saved(at)
    assert N_ROWS < stopping.asked <= saved.place.rows <= stopping.asked + (n_workers - 1) * stopping.longest
    np.testing.assert_array_equal(saved.arrays.arrays["params"], ended.value.run.params)
    assert seldom.request.error is None
    run = train(job_of(dataset), algorithm(BATCH, 0.05), executor, SCHEDULE, checkpoint=seldom)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]


def test_a_run_that_goes_on_says_so(dataset, at, caplog):
    go(job_of(dataset), at, STEPS + 2)
    with caplog.at_level(logging.WARNING, "xmlsgd"):
        go(job_of(dataset), at)
    assert [record.getMessage() for record in caplog.records] == [f"going on from {at.path}: 63 of 159 rows are done"]


def test_where_none_can_be_written_nothing_is_trained(dataset, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    device = toy.Marking()
    for path in ("../file/kept", "/proc/kept", "."):
        with pytest.raises(OSError, match=r"File exists|No such file|Permission|current folder"):
            go(job_of(dataset), Checkpoint(path), device=device)
    with pytest.raises(ModelFileError, match="file: exists and is not a checkpoint"):
        go(job_of(dataset), Checkpoint("../file"))


def test_another_run_that_writes_there_meanwhile_is_not_overwritten(dataset, at, caplog):
    class Meddling(Monitor):
        """Lets another run write its own."""

        def step(self, report):
            if report.rows == 3:
                at.remove()
                go(replace(job_of(dataset), seed=99), at, steps=3)

    with caplog.at_level(logging.WARNING, "xmlsgd"):
        go(job_of(dataset), at, monitors=[Meddling()], schedule=Schedule(1))
    assert "kept: another run has written there meanwhile" in caplog.text
    assert read_saved(at).seed == 99


def test_a_checkpoint_lies_where_its_path_led_at_first(dataset, tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    monkeypatch.chdir(tmp_path)
    kept = [Checkpoint("link", minutes=0), Checkpoint("kept", minutes=0)]
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    for each in kept:
        go(job_of(dataset), each, STEPS)
    assert (tmp_path / "there" / "run.json").is_file()
    assert (tmp_path / "kept" / "run.json").is_file()
    for each in kept:
        each.remove()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["else", "link"]


def test_one_that_a_kill_left_aside_is_found_again(dataset, at):
    """Where names cannot be exchanged a kill may come between two renames."""
    go(job_of(dataset), at, STEPS)
    scratch = at.folder.with_name(".kept.0123abcd.partial")
    scratch.mkdir()
    at.folder.rename(scratch / "old")
    assert at.exists
    assert read_saved(at).place.rows == (STEPS - 1) * BATCH


def test_nothing_of_a_checkpoint_stays_open_in_a_run_that_goes_on(dataset, at):
    class Looking(Monitor):
        """Looks at the files that the process has mapped."""

        def epoch(self, record, center):
            self.maps = Path("/proc/self/maps").read_text()
            return False

    go(job_of(dataset), at, STEPS)
    looking = Looking()
    go(job_of(dataset), at, monitors=[looking])
    assert str(at.folder.parent) not in looking.maps


@pytest.mark.parametrize("state", [{"n": {1, 2}}, {"n": np.nan}, {"n": np.array([None])}])
def test_a_monitor_with_a_state_that_cannot_be_written_is_named(dataset, at, state):
    class Odd(Monitor):
        """Has a strange state."""

        def state(self):
            return state

    with pytest.raises(DataError, match=r"Odd.state: must be finite numbers, texts and arrays by name, got"):
        go(job_of(dataset), at, monitors=[Odd()])


@pytest.mark.parametrize(
    "mean", [np.full(SIZE, np.nan), np.ones(3), np.ones(SIZE) * 1j], ids=["nan", "short", "complex"]
)
def test_a_state_that_is_none_of_a_monitor_is_refused(dataset, at, mean):
    go(job_of(dataset), at, EPOCHS * STEPS, [WeightAverage(0.9)])
    files = read_model(at.folder, kind=CHECKPOINT)
    arrays = {name: np.array(array) for name, array in files.arrays.items()} | {"WeightAverage-mean": mean}
    write_model(at.folder, files.description, arrays, kind=CHECKPOINT)
    with pytest.raises(ModelFileError, match="WeightAverage cannot go on from it, got"):
        go(job_of(dataset), at, monitors=[WeightAverage(0.9)])


def test_an_error_that_comes_behind_the_last_checkpoint_is_raised_all_the_same(dataset, at):
    """Of a run that diverges, and of one that has written what it had."""
    seldom, device, steps = replace(at, minutes=60.0), toy.Marking(), []

    def output_step(*given):
        steps.append(1)
        if len(steps) == STEPS + 2:
            assert seldom.end_by(KeyboardInterrupt())
        return (np.nan if len(steps) == STEPS + 2 else 0.5), given[0]

    device.output_step = output_step
    with pytest.raises(Interrupted) as ended:
        go(job_of(dataset), seldom, device=device)
    assert [record["epoch"] for record in ended.value.run.records] == [0]
    assert not seldom.exists


def test_what_is_not_ours_is_never_removed(dataset, at, tmp_path, caplog):
    go(job_of(dataset), at, STEPS)
    (at.folder / "letter.txt").write_text("dear")
    with pytest.raises(ModelFileError, match=r"kept: holds letter.txt, which is no part of the checkpoint"):
        at.remove()
    at.done()
    assert "the checkpoint cannot be removed" in caplog.text
    (tmp_path / "other").mkdir()
    for name in ("MANIFEST.json", "run.json"):
        (tmp_path / "other" / name).write_text("{}")
    with pytest.raises(ModelFileError, match="other: exists and is not a checkpoint"):
        Checkpoint(tmp_path / "other").remove()
    assert (at.folder / "letter.txt").is_file()


def test_a_state_that_is_not_finite_is_in_no_checkpoint(dataset, at, caplog):
    go(job_of(dataset), at, STEPS)
    rows = read_saved(at).place.rows

    class Spoiling(Monitor):
        """Spoils the optimizer's state in the last epoch."""

        def epoch(self, record, center):
            if record["epoch"] == 0:
                executor.table.states[0, 0] = np.inf
            return False

    executor = Serial([toy.Marking()])
    train(job_of(dataset), Sequential(BATCH, 0.05), executor, SCHEDULE, [Spoiling()], at)
    assert "kept: the state of the optimizer is not finite" in caplog.text
    assert read_saved(at).place.rows <= rows + BATCH


def test_gradients_may_be_rounded_otherwise_on_another_device(dataset, at):
    go(job_of(dataset), at, STEPS)
    job = replace(job_of(dataset), network=replace(NETWORK, gradient_rounding=0.0))
    assert [record["rows"] for record in go(job, at).records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]


def test_what_was_learned_from_is_used_up(dataset, at):
    first = go(job_of(dataset), at)
    start = Start(first.params.copy(), first.state.copy(), first.steps, epochs=EPOCHS)
    run = go(job_of(dataset, start=start), at)
    assert [record["epoch"] for record in run.records] == [3, 4, 5]
    assert [record["epoch"] for record in read_saved(at).records] == [3, 4, 5]
