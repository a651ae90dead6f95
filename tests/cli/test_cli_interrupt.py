"""Ctrl-C and the signals that end a process: what was learned is kept, and nothing else is left."""

from __future__ import annotations

import errno
import json
import signal
import threading
import time
import types

import pytest

from shared.command_line import ROWS, TEST_ROWS
from shared.processes import end, n_lines, start, wait_for
from xmlsgd.cli import main, signals
from xmlsgd.cli.model_folder import growing_history, name_of_interrupted
from xmlsgd.cli.signals import SignalInterrupt, signal_number, signals_as_exceptions, signals_deferred
from xmlsgd.errors import WorkerDied
from xmlsgd.estimators import XMLClassifier
from xmlsgd.training.callbacks import Evaluation
from xmlsgd.training.learner import Learner
from xmlsgd.training.loop import Loop

QUICK = ["--hidden", "16", "--threads", "1", "--seed", "0", "--quiet"]
MANY_EPOCHS = ["--epochs", "100000"]


def test_an_interrupted_run_saves_the_model_as_it_is(tmp_path):
    """By Ctrl-C, in a process of its own; another signal is sent in test_cli_checkpoint."""
    process = start(tmp_path, "train", ROWS, "--test", TEST_ROWS, "--out", "m", *QUICK, *MANY_EPOCHS)
    growing = tmp_path / "m.history.jsonl"
    wait_for(lambda: n_lines(growing) >= 2)
    assert not (tmp_path / "m").exists(), "the folder appears when it is complete"
    returned, lines = end(process, signal.SIGINT)
    assert returned == 130
    model = XMLClassifier.load(tmp_path / "m")
    assert lines == [f"xmlsgd: interrupted after {model.n_epochs_} whole epochs; the model as it was then is in m"]
    history = [json.loads(line) for line in (tmp_path / "m" / "history.jsonl").read_text().splitlines()]
    assert len(history) == model.n_epochs_ >= 2
    assert history[0]["P@1"] > 0
    report = json.loads((tmp_path / "m" / "train.json").read_text())
    assert report["interrupted"] is True
    assert report["epochs"] == model.n_epochs_
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.usefixtures("listening")
def test_an_epoch_counts_whose_measures_are_interrupted(tmp_path, monkeypatch, capsys):
    """The model has learned it; the file that grows with the history has not got it yet."""
    measure = Evaluation.epoch

    def interrupted(self, record, center):
        if record["epoch"] == 1:
            signal.raise_signal(signal.SIGINT)
        return measure(self, record, center)

    monkeypatch.setattr(Evaluation, "epoch", interrupted)
    words = ["train", ROWS, "--test", TEST_ROWS, "--out", str(tmp_path / "m"), *QUICK, "--epochs", "3"]
    assert main(words) == 130
    assert "interrupted after 2 whole epochs;" in capsys.readouterr().err
    report = json.loads((tmp_path / "m" / "train.json").read_text())
    assert report["epochs"] == XMLClassifier.load(tmp_path / "m").n_epochs_ == 2
    assert len((tmp_path / "m" / "history.jsonl").read_text().splitlines()) == 2


def at_step(monkeypatch, act):
    """Call a function with every step of a run, before the step."""
    step = Learner.train_span

    def acting(self, task):
        act(task)
        return step(self, task)

    monkeypatch.setattr(Learner, "train_span", acting)


@pytest.mark.usefixtures("listening")
def test_an_interrupted_run_leaves_an_earlier_model_alone(tmp_path, monkeypatch, capsys):
    words = ["train", ROWS, "--out", str(tmp_path / "m"), *QUICK]
    assert main([*words, "--epochs", "1"]) == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()}
    at_step(monkeypatch, lambda task: signal.raise_signal(signal.SIGINT) if task.epoch == 2 else None)
    assert main([*words, "--epochs", "5", "--overwrite"]) == 130
    assert capsys.readouterr().err.endswith(f"; the model as it was then is in {tmp_path}/m.interrupted\n")
    assert {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()} == before
    assert XMLClassifier.load(tmp_path / "m.interrupted").n_epochs_ == 2


def test_an_interrupted_model_never_replaces_another(tmp_path):
    out = tmp_path / "m"
    assert name_of_interrupted(str(out)) == str(out)
    for name in ("m", "m.interrupted", "m.interrupted-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "MANIFEST.json").write_text("{}")
    assert name_of_interrupted(str(out)) == f"{out}.interrupted-3"


def test_ctrl_c_before_the_first_epoch_is_over_saves_too(tmp_path, monkeypatch, capsys):
    def interrupt(task):
        if task.start:
            raise KeyboardInterrupt

    at_step(monkeypatch, interrupt)
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK]) == 130
    assert "interrupted after 0 whole epochs" in capsys.readouterr().err
    assert XMLClassifier.load(tmp_path / "m").n_epochs_ == 0
    assert [file.name for file in tmp_path.iterdir()] == ["m"]
    report = json.loads((tmp_path / "m" / "train.json").read_text())
    assert (report["learning_curve"], report["not_drawn"]) == (None, "not drawn, no epoch was finished")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (WorkerDied("worker 0 failed", "Traceback\nMemoryError: no room"), "worker 0 failed: MemoryError: no room"),
        (OSError(errno.ENOSPC, "No space left on device", "/tmp"), "/tmp: No space left on device"),
    ],
)
def test_a_run_ended_by_an_error_saves_the_model_as_it_is(tmp_path, monkeypatch, capsys, error, told):
    def fail(task):
        if task.epoch == 2 and task.start:
            raise error

    at_step(monkeypatch, fail)
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK, "--epochs", "5"]) == 1
    where = f"the model as it was then is in {tmp_path}/m"
    assert f"xmlsgd: stopped after 2 whole epochs; {where}: {told}" in capsys.readouterr().err
    assert XMLClassifier.load(tmp_path / "m").n_epochs_ == 2


def test_ctrl_c_while_the_test_rows_are_measured_saves_the_trained_model(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("xmlsgd.cli.model_metrics.evaluate", interrupted)
    words = ["train", ROWS, "--test", TEST_ROWS, "--out", str(tmp_path / "m"), *QUICK, "--epochs", "1"]
    assert main(words) == 130
    assert "interrupted after 1 whole epoch;" in capsys.readouterr().err
    assert XMLClassifier.load(tmp_path / "m").n_epochs_ == 1


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("stopped_before", [False, True])
def test_ctrl_c_while_the_model_is_saved_waits_until_it_is(tmp_path, monkeypatch, capsys, stopped_before):
    def interrupted(*_, **__):
        if stopped_before:
            signal.raise_signal(signal.SIGINT)
        return {}

    def interrupted_again(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("xmlsgd.cli.training_runs.measure", interrupted)
    monkeypatch.setattr("xmlsgd.cli.model_folder.draw_curve", interrupted_again)
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK, "--epochs", "1"]) == 130
    how = "interrupted after 1 whole epoch; the model as it was then is in"
    where = how if stopped_before else "interrupted while the model was saved; it is complete, in"
    assert capsys.readouterr().err == f"xmlsgd: {where} {tmp_path}/m\n"
    assert XMLClassifier.load(tmp_path / "m").n_epochs_ == 1
    assert json.loads((tmp_path / "m" / "train.json").read_text())["interrupted"] is stopped_before
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def interrupted_twice(monkeypatch):
    """Let Ctrl-C come in the second step of a run, and again while its end is brought about."""
    partial_run = Loop._partial_run

    def interrupted_again(*given):
        signal.raise_signal(signal.SIGINT)
        return partial_run(*given)

    at_step(monkeypatch, lambda task: signal.raise_signal(signal.SIGINT) if task.start else None)
    monkeypatch.setattr(Loop, "_partial_run", interrupted_again)


@pytest.mark.usefixtures("listening")
def test_a_second_ctrl_c_does_not_interrupt_the_cleanup_of_the_first(tmp_path, monkeypatch, capsys):
    interrupted_twice(monkeypatch)
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK]) == 130
    assert "interrupted after 0 whole epochs; the model as it was then is in" in capsys.readouterr().err
    assert XMLClassifier.load(tmp_path / "m").n_epochs_ == 0


@pytest.mark.usefixtures("listening")
def test_a_second_signal_does_not_interrupt_what_the_first_leaves_to_do():
    done = []

    def interrupted_twice():
        try:
            with signals_deferred(first_raises=True):
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            done.append("cleaned up")

    with pytest.raises(SignalInterrupt, match="interrupted"), signals_as_exceptions():
        interrupted_twice()
    assert done == ["cleaned up"]


@pytest.mark.usefixtures("listening")
def test_a_second_ctrl_c_long_after_the_first_interrupts_the_cleanup(tmp_path, monkeypatch, capsys):
    interrupted_twice(monkeypatch)
    monkeypatch.setattr(signals, "CLEANUP_SECONDS", -1.0)
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK]) == 130
    assert capsys.readouterr().err == "xmlsgd: interrupted\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("listening")
def test_an_interruption_is_acknowledged_at_once(monkeypatch, capfd):
    with pytest.raises(SignalInterrupt), signals_as_exceptions(), signals_deferred(True, "ending the run ..."):
        signal.raise_signal(signal.SIGTERM)
    assert capfd.readouterr().err == "xmlsgd: ended by SIGTERM: ending the run ...\n"


def test_a_model_that_cannot_be_written_is_saved_among_the_temporary_files(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        if len(asked) < 1:
            asked.append(1)
            raise OSError(errno.ENOSPC, "No space left on device", "m")
        return None

    asked = []
    monkeypatch.setattr("xmlsgd.cli.model_folder.draw_curve", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK, "--epochs", "1"]) == 1
    (place,) = tmp_path.glob("xmlsgd-model-*")
    assert capsys.readouterr().err == f"xmlsgd: m: No space left on device; the model is in {place}/m instead\n"
    assert XMLClassifier.load(place / "m").n_epochs_ == 1


@pytest.mark.parametrize("has_temporary_folder", [True, False])
def test_a_failed_save_says_why_and_leaves_no_temporary_files(tmp_path, monkeypatch, capsys, has_temporary_folder):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "m")

    monkeypatch.setattr("xmlsgd.cli.model_folder.draw_curve", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not has_temporary_folder:
        monkeypatch.setattr("xmlsgd.cli.training_runs.compile_kernels", lambda *_: None)  # which needs one, too
        monkeypatch.setattr("tempfile.mkdtemp", lambda **_: open("/nowhere/file"))  # noqa: SIM115
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK, "--epochs", "1"]) == 1
    assert capsys.readouterr().err == "xmlsgd: m: No space left on device\n"
    assert [path.name for path in tmp_path.iterdir()] == ["m.history.jsonl"]


def test_an_interruption_of_the_second_save_leaves_no_temporary_files(tmp_path, monkeypatch):
    def full(*_, **__):
        raise asked.pop()

    asked = [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device", "m")]
    monkeypatch.setattr("xmlsgd.cli.model_folder.draw_curve", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK, "--epochs", "1"]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["m.history.jsonl"]


def test_ctrl_c_before_anything_is_learned_leaves_nothing(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("xmlsgd.estimators.planning.precision_of_cpu", interrupted)
    assert main(["train", ROWS, "--out", str(tmp_path / "m"), *QUICK]) == 130
    assert capsys.readouterr().err == "xmlsgd: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_the_growing_history_is_removed_after_a_save_and_remains_after_a_failure(tmp_path):
    import numpy as np

    def grow(fail):
        with growing_history(str(tmp_path / "m")) as history:
            history.start(1, 1, np.zeros(1, np.float32))
            history.epoch({"epoch": 0, "loss": 1.0}, np.zeros(1, np.float32))
            if fail:
                raise OSError("disk full")

    grow(fail=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="disk full"):
        grow(fail=True)
    assert [file.name for file in tmp_path.iterdir()] == ["m.history.jsonl"]


def test_a_signal_while_reading_standard_input_leaves_no_temporary_file(tmp_path):
    process = start(tmp_path, "convert", "-", "store", "--quiet")
    process.stdin.write(b"0 1:1\n")
    process.stdin.flush()
    wait_for(lambda: list((tmp_path / "temporary").rglob("stdin")))
    returned, lines = end(process, signal.SIGHUP)
    assert (returned, lines) == (129, ["xmlsgd: ended by SIGHUP"])
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [file.name for file in tmp_path.iterdir()] == ["temporary"]


def stopped_while(act):
    """Do something that a signal interrupts, at the latest when it is over; return how the signal was raised."""
    with signals_as_exceptions():
        try:
            act()
            time.sleep(60)  # waiting for an `Event` may raise another error, if its lock is interrupted
        except SignalInterrupt as stop:
            return stop
    raise AssertionError("nothing was raised within a minute")


def test_a_signal_during_compilation_is_raised_after_it():
    done = []

    def work():
        signal.raise_signal(signal.SIGTERM)
        done.append("compiled")

    of_llvm = types.FunctionType(
        work.__code__, {"__name__": "llvmlite.binding", "signal": signal}, closure=work.__closure__
    )
    assert str(stopped_while(of_llvm)) == "ended by SIGTERM"
    assert done == ["compiled"]


@pytest.mark.usefixtures("listening")
def test_a_signal_in_a_finalizer_is_raised_after_it(capsys):
    class Closing:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    stop = stopped_while(lambda: Closing() and None)
    assert (str(stop), signal_number(stop)) == ("interrupted", signal.SIGINT)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("listening")
def test_a_signal_retried_during_the_hook_of_finalizers_is_not_lost(capsys, monkeypatch):
    later, waited = signals._retry, []

    def slowly(number):
        later(number)
        if not waited:
            waited.append(number)
            threading.Event().wait(3 * signals.RETRY_SECONDS)  # in which the clock of the signal runs out

    monkeypatch.setattr(signals, "_retry", slowly)

    class Closing:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    assert str(stopped_while(lambda: Closing() and None)) == "interrupted"
    assert waited
    assert capsys.readouterr().err == ""


def test_other_errors_in_finalizers_are_printed_as_usual(capsys):
    class Closing:
        def __del__(self):
            raise OSError("the file is gone")

    closing = Closing()
    with signals_as_exceptions():
        del closing
    assert "OSError: the file is gone" in capsys.readouterr().err
