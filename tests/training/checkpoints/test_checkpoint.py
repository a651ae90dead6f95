"""A run that was interrupted anywhere resumes and ends as an uninterrupted one."""

from __future__ import annotations

import itertools
import json
import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shared import light
from shared.cut_runs import BATCH, EPOCHS, N_ROWS, SCHEDULE, STEPS, Killed, assert_same, diverging, go, job_of
from shared.ended import ended_run
from shared.failing import Failing
from shared.running_mean import RunningMean
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.files.folders import write_folder
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.samplers.uniform import UniformNegatives
from xmlsgd.training.callbacks import Callback, EarlyStopping
from xmlsgd.training.checkpoints import read_checkpoint, writer
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.history import History
from xmlsgd.training.job import Start
from xmlsgd.training.loop import train
from xmlsgd.training.progress_bar import ProgressBar, ProgressLines


@pytest.mark.parametrize("steps", [2, STEPS, STEPS + 1, STEPS + 4, EPOCHS * STEPS])
def test_a_run_killed_after_any_step_ends_as_one_that_never_was(dataset, at, steps):
    whole = go(job_of(dataset))
    assert go(job_of(dataset), at, steps) is None
    position = read_checkpoint(at).position
    epochs, rest = divmod(steps - 1, STEPS)
    assert (position.epoch * N_ROWS + position.at) == position.rows == epochs * N_ROWS + rest * BATCH
    assert_same(go(job_of(dataset), at), whole)


def test_a_run_may_be_killed_again_and_again(dataset, at):
    killed = 0
    while go(job_of(dataset), at, steps=3) is None:
        killed += 1
    assert killed == (EPOCHS * STEPS) // 2 - 1, "two of the three steps of each process count"
    assert_same(go(job_of(dataset), at), go(job_of(dataset)))


def test_kernels_draw_the_same_masks_labels_and_roundings_again(dataset, at):
    job = job_of(dataset, sampler=UniformNegatives(3))
    whole = go(job, device=CPU(1))
    assert go(job, at, STEPS + 3, device=CPU(1)) is None
    assert_same(go(job, at, device=CPU(1)), whole)


def test_a_run_that_ended_trains_nothing_more(dataset, at):
    whole = go(job_of(dataset), at)
    device = light.Marking()
    run = go(job_of(dataset), at, device=device)
    assert_same(run, whole)
    assert [record["epoch"] for record in run.records] == [0, 1, 2]
    assert read_checkpoint(at).position.ended


def test_a_run_on_an_earlier_model_goes_on_in_its_arrays(dataset, at):
    first = go(job_of(dataset))

    def start():
        return Start(first.params.copy(), first.state.copy(), first.updates, epochs=EPOCHS)

    whole = go(job_of(dataset, start=start()))
    assert go(job_of(dataset, start=start()), at, STEPS + 2) is None
    again = start()
    run = go(job_of(dataset, start=again), at)
    assert_same(run, whole)
    assert run.params.base is again.params
    assert [record["first_epoch"] for record in run.records] == [EPOCHS] * 3


def test_a_resumed_run_that_diverges_keeps_the_saved_model_not_the_one_before(dataset, at):
    first = go(job_of(dataset))

    def job():
        params = first.params.copy()
        return job_of(dataset, start=Start(params, first.state.copy(), first.updates, EPOCHS, origin=first.params))

    assert go(job(), at, STEPS + 2) is None
    run = go(job(), at, device=diverging(1))
    assert run.diverged
    assert not np.array_equal(run.params, first.params)


def test_the_clock_goes_on_and_stands_still_while_checkpoints_are_written(dataset, at, monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    written = []

    def write(self, position):
        write_one(self, position)
        written.append(position.seconds)

    def write_slowly(*given, **more):
        write_folder(*given, **more)
        for _ in range(1000):
            next(seconds)

    write_one = writer.CheckpointWriter.write
    monkeypatch.setattr(writer.CheckpointWriter, "write", write)
    monkeypatch.setattr(writer, "write_folder", write_slowly)
    with pytest.raises(Killed):
        train(
            job_of(dataset),
            Sequential(BATCH, 0.05),
            Serial([Reference()]),
            SCHEDULE,
            [Failing(Killed(), STEPS + 3)],
            at,
        )
    assert written == sorted(written)
    assert written[-1] < 1000
    assert go(job_of(dataset), at).records[-1]["seconds"] >= written[-1]


def test_checkpoints_are_written_no_more_often_than_asked(dataset, at, monkeypatch):
    written = []
    monkeypatch.setattr(writer.CheckpointWriter, "write", lambda self, position: written.append(position))
    go(job_of(dataset), replace(at, minutes=60.0))
    assert [position.ended for position in written] == [True]


def test_averages_best_models_and_records_go_on(dataset, at, kept, tmp_path):
    precision = {0: 10.0, 1: 30.0, 2: 20.0}

    class Model(Callback):
        """Gives each epoch a P@1."""

        def epoch(self, record, center):
            record["P@1"] = precision[record["epoch"]]
            return False

    def callbacks(name):
        return [Model(), RunningMean(), EarlyStopping("P@1", 2, 0.0, kept), History(tmp_path / name)]

    whole = go(job_of(dataset), callbacks=callbacks("whole"))
    for steps in (STEPS + 4, 5, 2):  # the best model, of epoch 1, is one of the first process, or of the second
        go(job_of(dataset), at, steps, callbacks("cut"))
    run = go(job_of(dataset), at, callbacks=callbacks("cut"))
    assert_same(run, whole)
    files = ((tmp_path / name).read_text().splitlines() for name in ("cut", "whole"))
    cut, uncut = ([json.loads(line)["loss"] for line in file] for file in files)
    assert cut == uncut
    assert [record["averaged"] for record in run.records] == [STEPS, 2 * STEPS, 3 * STEPS]


def test_callbacks_of_one_class_are_told_apart(dataset, at):
    class Counting(Callback):
        """Counts steps from a number on."""

        def __init__(self, first):
            self.count, self.told = first, None

        def span(self, report):
            self.count += 1

        def state(self):
            return {"count": np.int64(self.count), "vector": np.full(2, self.count, np.float32)}

        def resume(self, so_far):
            self.told, self.count = so_far, so_far.state["count"]

    go(job_of(dataset), at, STEPS + 2, [Counting(0), Counting(100)])
    one, other = Counting(7), Counting(8)
    go(job_of(dataset), at, callbacks=[one, other])
    assert (one.count, other.count) == (EPOCHS * STEPS, EPOCHS * STEPS + 100)
    np.testing.assert_array_equal(other.told.state["vector"], [STEPS + 101] * 2)
    assert (one.told.rows, len(one.told.records)) == (N_ROWS + BATCH, 1)


def test_progress_begins_where_the_run_does(dataset, at, capsys):
    go(job_of(dataset), at, STEPS + 2)
    bar = ProgressBar()
    go(job_of(dataset), at, callbacks=[bar])
    assert isinstance(bar.bar, ProgressLines)
    assert (bar.bar.done, bar.bar.rows) == (N_ROWS + BATCH, EPOCHS * N_ROWS)
    assert capsys.readouterr().err == ""


def test_a_run_that_resumes_is_logged(dataset, at, caplog):
    go(job_of(dataset), at, STEPS + 2)
    with caplog.at_level(logging.WARNING, "xmlsgd"):
        go(job_of(dataset), at)
    assert [record.getMessage() for record in caplog.records] == [f"resuming from {at.path}: 63 of 159 rows are done"]


def test_nothing_of_a_checkpoint_stays_open_in_a_run_that_goes_on(dataset, at):
    class Looking(Callback):
        """Looks at the files that the process has mapped."""

        def epoch(self, record, center):
            self.maps = Path("/proc/self/maps").read_text()
            return False

    go(job_of(dataset), at, STEPS)
    looking = Looking()
    go(job_of(dataset), at, callbacks=[looking])
    assert str(at.folder.parent) not in looking.maps


def test_an_error_that_comes_behind_the_last_checkpoint_is_raised_all_the_same(dataset, at):
    """Of a run that diverges, and of one that has written what it had."""
    seldom = replace(at, minutes=60.0)

    def ask():
        assert seldom.end_by(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt) as ended:
        go(job_of(dataset), seldom, device=diverging(STEPS + 2, ask))
    assert [record["epoch"] for record in ended_run(ended.value).records] == [0]
    assert not seldom.exists


def test_what_was_learned_from_is_used_up(dataset, at):
    first = go(job_of(dataset), at)
    start = Start(first.params.copy(), first.state.copy(), first.updates, epochs=EPOCHS)
    run = go(job_of(dataset, start=start), at)
    assert [record["epoch"] for record in run.records] == [3, 4, 5]
    assert [record["epoch"] for record in read_checkpoint(at).records] == [3, 4, 5]
