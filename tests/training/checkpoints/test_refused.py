"""Checkpoints that are refused, and folders in which none can be written."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import replace

import numpy as np
import pytest

from shared import light, toy
from shared.cut_runs import (
    BATCH,
    EPOCHS,
    N_ROWS,
    NETWORK,
    SCHEDULE,
    STEPS,
    assert_same,
    diverging,
    go,
    job_of,
    overflowing,
)
from shared.running_mean import RunningMean
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.files.folders import read_folder, write_folder
from xmlsgd.data.files.manifest import CHECKPOINT
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.samplers.uniform import UniformNegatives
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.checkpoints import Checkpoint, identity, read_checkpoint, writer
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Start
from xmlsgd.training.loop import train

SIZE = NETWORK.layout.size
OTHER = Start(np.ones(SIZE, np.float32), np.ones(2 * SIZE, np.float32), updates=1, epochs=1)
POSITION = {"epoch": 0, "at": 20, "returned": [], "loss": 1.0, "rows": 20, "seconds": 0.1, "ended": False}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"network": replace(NETWORK, hidden=(9,))}, r"hidden_layer_sizes was \(8,\), is \(9,\)"),
        ({"optimizer": SGD()}, "optimizer was Adam, is SGD"),
        ({"optimizer": Adam(weight_decay=0.5)}, "weight_decay was 0.01, is 0.5"),
        ({"sampler": UniformNegatives(3)}, "sampler was AllLabels, is UniformNegatives"),
        ({"seed": 5}, r"another seed \(random_state\)"),
        ({"sample_weight": None}, "other rows, labels or weights"),
        ({"dataset": toy.random_data(N_ROWS, 12, 9, seed=1)}, "other rows, labels or weights"),
        ({"start": OTHER}, "another initial model"),
    ],
    ids=["hidden", "optimizer", "decay", "sampler", "seed", "weights", "data", "start"],
)
def test_another_run_does_not_resume_from_it(dataset, at, change, said):
    go(job_of(dataset), at, STEPS)
    before = {file.name: file.read_bytes() for file in at.folder.iterdir()}
    advice = "resume with the same settings, or remove .*kept$"
    with pytest.raises(DataError, match=f"kept: is the checkpoint of another run: {said}; {advice}"):
        go(replace(job_of(dataset), **change), at)
    assert {file.name: file.read_bytes() for file in at.folder.iterdir()} == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schedule": Schedule(4, "cosine", 0.1)}, "max_epochs was 3, is 4"),
        ({"algorithm": Sequential(BATCH, 0.01)}, "learning_rate_init was 0.05, is 0.01"),
        ({"callbacks": [RunningMean()]}, "RunningMean.of was none, is 'all steps'"),
        ({"algorithm": Sequential(11, 0.05)}, "batch_size was 10, is 11"),
    ],
)
def test_a_run_of_another_length_learning_rate_or_batch_does_not_resume(dataset, at, given, said):
    go(job_of(dataset), at, STEPS)
    with pytest.raises(DataError, match=said):
        go(job_of(dataset), at, **given)


def test_a_run_of_other_code_does_not_resume(dataset, at, monkeypatch):
    go(job_of(dataset), at, STEPS)
    monkeypatch.setattr(identity, "source_checksum", lambda: "0123456789ab")
    said = r"sources\) was \d+\.\d+\.\d+ \(\w{12}\), is \d+\.\d+\.\d+ \(0123456789ab\)"
    with pytest.raises(DataError, match=f"{said}; resume with that version of xmlsgd, or"):
        go(job_of(dataset), at)
    with pytest.raises(DataError, match=rf"another seed \(.*\); xmlsgd .*{said}; resume with the same settings, or"):
        go(replace(job_of(dataset), seed=5), at)


@pytest.mark.parametrize("name", ["nn/optimizers/adam.py", "data/random_streams.py", "devices/cuda/kernels/common.cu"])
def test_the_checksum_of_sources_follows_what_decides_a_step(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text("a rule")
    first = identity.source_checksum(tmp_path)
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "table.py").write_text("of columns")
    (file.parent / "a.pyc").write_text("compiled")
    assert identity.source_checksum(tmp_path) == first
    file.write_text("another")
    assert identity.source_checksum(tmp_path) != first


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
        {"position": 3},
        {"position": {"epoch": 0, "at": "x"}},
        {"position": {"no": 1}},
        {"position": {**POSITION, "epoch": 10**30}},
        {"position": {**POSITION, "at": -5}},
        {"position": {**POSITION, "at": N_ROWS + 1}},
        {"position": {**POSITION, "epoch": 3}},
        {"position": {**POSITION, "returned": [[5, 2]]}},
        {"position": {**POSITION, "returned": [[0, 5], [3, 7]]}},
        {"updates": None},
        {"updates": -1},
        {"updates": 10**400},
        {"updates": True},
        {"position": {**POSITION, "rows": 10**30}},
        {"records": [{"loss": 10**400}]},
        {"callbacks": 1},
        {"records": [{}]},
        {"records": [1]},
        {"records": [{"loss": 1.0}]},
        {"seed": "x"},
        {"run": []},
    ],
)
def test_contents_that_fit_no_run_are_refused(dataset, at, change):
    go(job_of(dataset), at, STEPS)
    files = read_folder(at.folder, kind=CHECKPOINT)
    arrays = {name: np.array(array) for name, array in files.arrays.items()}
    write_folder(at.folder, {**files.description, **change}, arrays, kind=CHECKPOINT)
    with pytest.raises(
        ModelFileError, match=r"kept: (\w+ must be|must hold a position of) .*, got .*; remove .* to start over"
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
    """An error is told once, and again if checkpoints were written in between."""
    whole, tries = go(job_of(dataset)), []

    def full(*given, **more):
        tries.append(given)
        if len(tries) in (2, 3, 5):
            raise OSError(28, "No space left on device", str(at.folder))
        return write_folder(*given, **more)

    monkeypatch.setattr(writer, "write_folder", full)
    with caplog.at_level(logging.WARNING, "xmlsgd"):
        run = go(job_of(dataset), at)
    assert_same(run, whole)
    assert len(tries) == EPOCHS * STEPS, "one a step, that of the last behind its epoch"
    full_disk = f"[Errno 28] No space left on device: '{at.folder}'"
    told = f"no checkpoint was written: {full_disk}"
    assert [record.getMessage() for record in caplog.records] == [told, told]


@pytest.mark.parametrize("device", [diverging(STEPS + 3), overflowing(STEPS + 3)], ids=["loss", "update"])
def test_a_model_that_diverges_is_in_no_checkpoint(dataset, at, device):
    """Also where the last update shows in no loss yet."""
    run = go(job_of(dataset), at, device=device)
    assert run.diverged
    saved = read_checkpoint(at)
    assert (saved.position.epoch, saved.position.at) == (1, 2 * BATCH)
    assert np.isfinite(saved.arrays.arrays["params"]).all()


def test_invalid_parameters_are_refused():
    for minutes in (-1.0, np.inf, np.nan, "10"):
        with pytest.raises(DataError, match=r"minutes must be (finite and at least 0|a number), got"):
            Checkpoint("kept", minutes)
    for path in (None, 3, "", b"kept"):
        with pytest.raises(DataError, match="checkpoint: must be a path or a Checkpoint, got"):
            Checkpoint(path)
    with pytest.raises(DataError, match="keep must be True or False, got 3"):
        Checkpoint("kept", keep=3)


def test_nothing_is_trained_if_no_checkpoint_can_be_written(dataset, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    class Unwanted(Callback):
        """Is not to see a run."""

        def start(self, n_rows, epochs, center):
            raise AssertionError("a run has begun")

    for path in ("../file/kept", "/proc/kept", "."):
        with pytest.raises(OSError, match=r"File exists|No such file|Permission|current folder"):
            go(job_of(dataset), Checkpoint(path), callbacks=[Unwanted()])
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "loop"):
        with pytest.raises(ModelFileError, match=f"{name}: exists and is not a checkpoint"):
            go(job_of(dataset), Checkpoint(f"../{name}"), callbacks=[Unwanted()])


def test_a_checkpoint_is_of_one_run_at_a_time(dataset, at):
    told = []

    class Second(Callback):
        """Starts the same run on the same checkpoint."""

        def span(self, report):
            with pytest.raises(DataError, match="kept: another run uses this checkpoint; wait until it has ended"):
                go(job_of(dataset), at)
            told.append(report)

    go(job_of(dataset), at, STEPS, callbacks=[Second()])
    assert len(told) == STEPS
    go(job_of(dataset), at)  # the first run was killed
    assert not list(at.folder.parent.glob(".*"))


def test_another_run_that_writes_there_meanwhile_is_not_overwritten(dataset, at, caplog, tmp_path):
    other = Checkpoint(tmp_path / "other", minutes=0)

    class Meddling(Callback):
        """Lets another run write its own."""

        def span(self, report):
            if report.rows == 3:
                at.remove()
                go(replace(job_of(dataset), seed=99), other, steps=3)
                other.folder.rename(at.folder)

    with caplog.at_level(logging.WARNING, "xmlsgd"):
        go(job_of(dataset), at, callbacks=[Meddling()], schedule=Schedule(1))
    assert "kept: another run has written a checkpoint there in the meantime" in caplog.text
    assert read_checkpoint(at).seed == 99


@pytest.mark.parametrize("name", ["params.npy", "run.json"])
def test_a_checkpoint_that_is_damaged_during_the_run_is_replaced(dataset, at, name):
    class Damaging(Callback):
        """Cuts a file of the checkpoint short, at the end of an epoch."""

        def span(self, report):
            if report.rows == 3:
                (at.folder / name).write_bytes(b"")

    go(job_of(dataset), at, callbacks=[Damaging()])
    assert read_checkpoint(at).position.ended


def test_a_checkpoint_stays_where_its_path_led_at_first(dataset, tmp_path, monkeypatch):
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


@pytest.mark.parametrize("state", [{"n": {1, 2}}, {"n": np.nan}, {"n": np.array([None])}, {"n": np.array([1, np.nan])}])
def test_a_callback_with_a_state_that_cannot_be_written_is_named(dataset, at, state):
    class Odd(Callback):
        """Has a strange state."""

        def state(self):
            return state

    with pytest.raises(DataError, match=r"Odd.state: must be finite numbers, strings and arrays by name, got"):
        go(job_of(dataset), at, callbacks=[Odd()])


@pytest.mark.parametrize(
    "mean", [np.full(SIZE, np.nan), np.ones(3), np.ones(SIZE) * 1j], ids=["nan", "short", "complex"]
)
def test_a_state_that_does_not_fit_a_callback_is_refused(dataset, at, mean):
    go(job_of(dataset), at, EPOCHS * STEPS, [RunningMean()])
    files = read_folder(at.folder, kind=CHECKPOINT)
    arrays = {name: np.array(array) for name, array in files.arrays.items()} | {"RunningMean-mean": mean}
    write_folder(at.folder, files.description, arrays, kind=CHECKPOINT)
    with pytest.raises(ModelFileError, match="RunningMean cannot resume from it, got"):
        go(job_of(dataset), at, callbacks=[RunningMean()])


@pytest.mark.parametrize("how", ["missing", "a folder"])
def test_a_checkpoint_without_its_description_is_not_overwritten(dataset, at, how):
    go(job_of(dataset), at, STEPS)
    (at.folder / "run.json").unlink()
    told = r"run.json.*; remove the checkpoint to start over|is not a checkpoint: run.json is missing; remove"
    if how == "a folder":
        (at.folder / "run.json").mkdir()
        told = "holds run.json, which is no part of the checkpoint; move it or choose another name$"
    assert at.exists
    with pytest.raises(ModelFileError, match=told):
        go(job_of(dataset), at)
    assert (at.folder / "params.npy").exists()


def test_a_checkpoint_of_another_run_is_kept_when_a_run_is_done(dataset, at, caplog):
    ours = Checkpoint(at.path, minutes=0)
    go(job_of(dataset), ours)
    at.remove()
    go(replace(job_of(dataset), seed=99), at, steps=3)
    ours.done()
    assert "kept: another run has written a checkpoint there in the meantime" in caplog.text
    assert read_checkpoint(at).seed == 99
    at.done()
    assert not at.exists


def test_other_files_are_never_removed(dataset, at, tmp_path, caplog):
    go(job_of(dataset), at, STEPS)
    for name in ("train.json", "thesis.partial", "letter.txt"):
        (at.folder / name).write_text("dear")
        with pytest.raises(ModelFileError, match=rf"kept: holds {name}, which is no part of the checkpoint"):
            at.remove()
        (at.folder / name).unlink()
    (at.folder / "letter.txt").write_text("dear")
    at.done()
    assert "the checkpoint cannot be removed" in caplog.text
    (tmp_path / "other").mkdir()
    for name in ("MANIFEST.json", "run.json"):
        (tmp_path / "other" / name).write_text("{}")
    with pytest.raises(ModelFileError, match="other: exists and is not a checkpoint"):
        Checkpoint(tmp_path / "other").remove()
    assert (at.folder / "letter.txt").is_file()


def test_a_checkpoint_that_cannot_be_renamed_as_in_a_container_is_removed(dataset, at, monkeypatch):
    def rename(path, target):
        if path == at.folder:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return os_rename(path, target)

    go(job_of(dataset), at, STEPS)
    os_rename = os.rename
    monkeypatch.setattr(os, "rename", rename)
    at.remove()
    assert not at.exists
    assert not list(at.folder.parent.iterdir())


def test_a_state_that_is_not_finite_is_in_no_checkpoint(dataset, at, caplog):
    go(job_of(dataset), at, STEPS)
    rows = read_checkpoint(at).position.rows

    class Spoiling(Callback):
        """Spoils the optimizer's state at the end of the first epoch."""

        def epoch(self, record, center):
            if record["epoch"] == 0:
                executor.shared.states[0, 0] = np.inf
            return False

    executor = Serial([light.Marking()])
    run = train(job_of(dataset), Sequential(BATCH, 0.05), executor, SCHEDULE, [Spoiling()], at)
    assert "kept: the optimizer state is not finite" in caplog.text
    assert len(run.records) == EPOCHS
    assert read_checkpoint(at).position.rows == rows
