"""Trackers: what TensorBoard, MLflow and Weights & Biases keep of epoch records, read back from their files."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from shared.command_line import ROWS, TINY, in_a_process
from xmlsgd.training import trackers
from xmlsgd.training.trackers import TRACKERS, Tracker, numbers_of

RECORDS = [
    {"epoch": 0, "first_epoch": 0, "rows": 10, "seconds": 1.5, "loss": 3.0, "P@1": 50.0, "stopped": False},
    {"epoch": 1, "first_epoch": 0, "rows": 20, "seconds": 3.0, "loss": 2.0, "P@1": 60.0, "stopped": True},
]
CENTER = np.zeros(3, np.float32)


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def watch(tracker, records=RECORDS):
    tracker.start(10, 2, CENTER)
    for record in records:
        assert tracker.epoch(record, CENTER) is False
    tracker.finish(CENTER)


def test_the_numbers_of_a_record_have_the_names_of_what_they_are_of():
    workers = [{"worker": 0, "rows": 6, "utilisation": np.float64(0.9)}, {"worker": 3, "rows": 4}]
    algorithm = {"reason": "two devices", "alpha": 0.45, "trials": [{"loss": 1.0}]}
    record = {**RECORDS[0], "estimator": 1, "workers": workers, "algorithm": algorithm, "nan": float("nan")}
    assert numbers_of(record) == {
        "estimator1/rows": 10,
        "estimator1/seconds": 1.5,
        "estimator1/loss": 3.0,
        "estimator1/P@1": 50.0,
        "estimator1/algorithm/alpha": 0.45,
        "estimator1/worker0/rows": 6,
        "estimator1/worker0/utilisation": 0.9,
        "estimator1/worker3/rows": 4,
    }


@needs("tensorboard")
def test_tensorboard_reads_back_the_epochs_of_two_runs_in_one_folder(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = TRACKERS["tensorboard"](str(tmp_path / "runs"))
    watch(tracker)
    watch(tracker, [{**RECORDS[1], "epoch": 2, "P@1": 70.0}])
    events = EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    found = {
        name: [(e.step, float(e.tensor_proto.float_val[0])) for e in events.Tensors(name)]
        for name in events.Tags()["tensors"]
    }
    assert found.keys() == {"rows", "seconds", "loss", "P@1"}
    assert found["P@1"] == [(0, 50.0), (1, 60.0), (2, 70.0)]


@needs("mlflow")
def test_mlflow_reads_back_the_epochs_of_a_finished_run(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "store").as_uri()
    before = mlflow.get_tracking_uri()
    try:
        tracker = TRACKERS["mlflow"](store)
        watch(tracker)
        client = mlflow.MlflowClient()
        (run,) = client.search_runs(["0"])
        assert run.info.status == "FINISHED"
        history = client.get_metric_history(run.info.run_id, "P_at_1")
        assert [(metric.step, metric.value) for metric in history] == [(0, 50.0), (1, 60.0)]
        with mlflow.start_run() as own:
            watch(tracker)
            assert mlflow.active_run() is not None
        assert client.get_run(own.info.run_id).data.metrics["loss"] == 2.0
        assert len(client.search_runs(["0"])) == 2
    finally:
        mlflow.set_tracking_uri(before)


def wandb_records(path):
    """Yield the records of a file of an offline run: a log as LevelDB has it, after 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (1 << 15) - at % (1 << 15) < 7:  # the rest of a block has no room for a header
            at += (1 << 15) - at % (1 << 15)
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


@needs("wandb")
def test_the_command_line_tracks_a_run_of_weights_and_biases_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_DIR", raising=False)
    words = ("train", ROWS, "--out", tmp_path / "model", *TINY, "--epochs", "2", "--track", "wandb:words")
    done = in_a_process(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "does not track" not in done.stderr
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    records = list(wandb_records(path))
    assert [record.run.project for record in records if record.HasField("run")] == ["words"]
    found = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    lines = (tmp_path / "model" / "history.jsonl").read_text().splitlines()
    assert [{name: epoch[name] for name in ("epoch", "loss", "rows")} for epoch in found] == [
        {name: record[name] for name in ("epoch", "loss", "rows")} for record in map(json.loads, lines)
    ]


class Failing(Tracker):
    """A tracker whose calls fail from some point on."""

    package = "json"

    def __init__(self, fails):
        super().__init__()
        self.fails, self.calls = fails, []

    def _call(self, name):
        self.calls.append(name)
        if name == self.fails:
            raise OSError("No space left on device")

    def _open(self):
        self._call("open")
        self._run = "run"

    def _send(self, numbers, epoch):
        self._call("send")

    def _close(self):
        if self._run is not None:
            self._run = None
            self._call("close")


@pytest.mark.parametrize(
    ("fails", "calls"), [("open", ["open"]), ("send", ["open", "send"]), ("close", ["open", "send", "send", "close"])]
)
def test_a_tracker_that_fails_warns_once_and_is_left_out(fails, calls, caplog):
    tracker = Failing(fails)
    watch(tracker)
    assert tracker.calls == calls
    assert caplog.messages == ["Failing does not track the rest of the run: OSError: No space left on device"]


def test_a_tracker_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    for kind in TRACKERS.values():
        with pytest.raises(ImportError, match=rf'{kind.package} is missing: pip install "xmlsgd\[trackers\]"'):
            kind()


@needs("tensorboard")
def test_a_folder_that_cannot_be_made_does_not_end_the_run(tmp_path, caplog):
    (tmp_path / "runs").write_text("a file")
    watch(TRACKERS["tensorboard"](str(tmp_path / "runs")))
    (message,) = caplog.messages
    assert message.startswith("TensorBoard does not track the rest of the run: ")


def test_no_tracker_is_imported_before_it_is_used():
    code = "import sys, xmlsgd.training.trackers; print(set(sys.modules) & {'tensorboard', 'mlflow', 'wandb'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
