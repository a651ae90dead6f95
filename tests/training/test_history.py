"""Callbacks of a run: records, metrics, early stopping, and the model that it keeps."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xmlsgd.training.callbacks import Callback, EarlyStopping, Evaluation, ResumedRun
from xmlsgd.training.history import History
from xmlsgd.training.messages import Report


def vector(value):
    return np.full(5, value, np.float32)


def watch(callback, values, metric="P@1"):
    """Show a callback an epoch for each value; the model of epoch i is full of i. Return (epochs run, final model)."""
    center = vector(0)
    callback.start(10, len(values), center)
    for epoch, value in enumerate(values):
        center[:] = epoch
        if callback.epoch({"epoch": epoch, metric: value}, center):
            break
    callback.finish(center)
    return epoch + 1, center[0]


def test_history_keeps_the_records_and_writes_them_as_json_lines(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text("what an earlier run left\n")
    history = History(path)
    history.start(10, 2, vector(0))
    for epoch in range(2):
        assert history.epoch({"epoch": epoch, "loss": 0.5}, vector(0)) is False
        assert len(path.read_text().splitlines()) == epoch + 1, "a line is there as soon as its epoch is"
    assert [json.loads(line) for line in path.read_text().splitlines()] == history.records
    assert history.records == [{"epoch": 0, "loss": 0.5}, {"epoch": 1, "loss": 0.5}]


def test_history_without_a_path_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = History()
    history.start(1, 1, vector(0))
    history.epoch({"epoch": 0}, vector(0))
    assert history.records == [{"epoch": 0}]
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_an_earlier_run_stays_until_an_epoch_has_ended(tmp_path):
    """Also in a run that resumes: it may still be refused."""
    file = tmp_path / "history.jsonl"
    file.write_text("earlier")
    history = History(file)
    history.start(1, 2, vector(0))
    history.resume(ResumedRun([{"epoch": 0}], 1, 0.5, {}))
    assert file.read_text() == "earlier"
    history.epoch({"epoch": 1}, vector(0))
    history.epoch({"epoch": 2}, vector(0))
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"epoch": epoch} for epoch in range(3)]
    assert history.records == [{"epoch": epoch} for epoch in range(3)]


def test_no_record_is_written_through_a_link(tmp_path):
    theirs, file = tmp_path / "theirs", tmp_path / "history.jsonl"
    theirs.write_text("dear")
    history = History(file)
    history.start(1, 2, vector(0))
    history.epoch({"epoch": 0}, vector(0))
    file.unlink()
    file.symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic links"):
        history.epoch({"epoch": 1}, vector(0))
    assert theirs.read_text() == "dear"


def test_evaluation_adds_its_measures_to_the_record():
    record = {"epoch": 3}
    assert Evaluation(lambda center: {"P@1": float(center[0])}).epoch(record, vector(7)) is False
    assert record == {"epoch": 3, "P@1": 7.0}


def test_the_base_callback_changes_nothing_and_never_stops_a_run():
    record, center = {"epoch": 0}, vector(2)
    callback = Callback()
    callback.start(10, 1, center)
    callback.span(Report(0, 1, 1, 0.5, 0.1))
    assert callback.epoch(record, center) is False
    callback.finish(center)
    assert record == {"epoch": 0}
    np.testing.assert_array_equal(center, 2)


@pytest.mark.parametrize(
    ("values", "patience", "tol", "epochs", "best"),
    [
        ([1, 2, 3], 1, 0.0, 3, 2),  # rises to the end: nothing to put back
        ([1, 3, 2, 2, 9], 2, 0.0, 4, 1),  # patience ends before the late rise
        ([1, 3, 2, 4, 3, 3], 2, 0.0, 6, 3),  # a rise begins the wait anew
        ([1, 1.5, 1.9, 9], 2, 1.0, 3, 0),  # rises within the tolerance do not count
        ([5, 5, 5, 5], 3, 0.0, 4, 0),  # neither does standing still
        ([1, 3, 2], 5, 0.0, 3, 1),  # the run ends first: the best is put back all the same
    ],
)
def test_early_stopping_waits_and_puts_the_best_model_back(kept, values, patience, tol, epochs, best):
    stopping = EarlyStopping("P@1", patience, tol, kept)
    assert watch(stopping, values) == (epochs, best)
    assert (stopping.best_epoch, stopping.best) == (best, values[best])


def test_a_kept_model_brings_back_the_last_model_that_was_kept_bit_for_bit(kept):
    model = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    kept.keep(np.zeros(1000, np.float32))
    kept.keep(model)
    for _ in range(2):
        other = np.full(1000, np.nan, np.float32)
        kept.restore(other)
        np.testing.assert_array_equal(other, model)


def test_a_kept_model_restores_into_a_row_of_a_table(kept):
    table = np.arange(20, dtype=np.float32).reshape(4, 5)
    kept.keep(table[2])
    table[:] = 0
    kept.restore(table[2])
    np.testing.assert_array_equal(table[2], np.arange(10, 15))
    assert not table[[0, 1, 3]].any()
