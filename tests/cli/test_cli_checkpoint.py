"""`train --checkpoint`: the same call goes on after a kill, a signal or an error, and cleans up when it is done."""

from __future__ import annotations

import json
import signal
from inspect import signature

import pytest

from shared.command_line import ROWS, TEST_ROWS
from shared.processes import end, n_lines, start, wait_for
from xmlsgd.cli import main, model_folder
from xmlsgd.cli.commands import train
from xmlsgd.data.loading import load_file
from xmlsgd.estimators import XMLClassifier
from xmlsgd.training.checkpoints import Checkpoint, CheckpointWriter

QUICK = ["--hidden", "16", "--candidates", "0", "--threads", "1", "--seed", "0", "--quiet"]


def names(folder):
    return sorted(file.name for file in folder.iterdir() if file.name != "temporary")


def wait_for_another(folder):
    """Wait until another checkpoint has taken the place of the one that is there, if any is."""

    def written():
        return folder.stat().st_mtime_ns if folder.exists() else 0

    before = written()
    wait_for(lambda: written() > before)


def test_a_run_that_is_killed_and_resumed_gives_the_model_of_an_uninterrupted_run(tmp_path):
    words = ["train", ROWS, "--test", TEST_ROWS, *QUICK, "--epochs", "9"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    process = start(tmp_path, *words, "--out", "m", "--checkpoint", "0")
    for _ in range(3):
        wait_for_another(tmp_path / "m.checkpoint")
    end(process, signal.SIGKILL)
    assert not (tmp_path / "m").exists()
    assert main([*words, "--out", str(tmp_path / "m"), "--checkpoint", "60"]) == 0
    assert names(tmp_path) == ["m", "whole"]
    assert (tmp_path / "m" / "params.npy").read_bytes() == (tmp_path / "whole" / "params.npy").read_bytes()
    assert (tmp_path / "m" / "history.jsonl").read_text().count("\n") == 9


def test_a_run_writes_its_checkpoint_on_a_signal_and_the_same_command_resumes(tmp_path):
    words = ["train", ROWS, *QUICK, "--epochs", "60", "--out"]
    process = start(tmp_path, *words, "m", "--checkpoint", "60")
    wait_for(lambda: n_lines(tmp_path / "m.history.jsonl") >= 2)
    returned, lines = end(process, signal.SIGTERM)
    assert returned == 143
    told = json.loads((tmp_path / "m.checkpoint" / "run.json").read_text())["position"]["epoch"]
    assert lines == [f"xmlsgd: ended by SIGTERM after {told} whole epochs; the same command resumes from m.checkpoint"]
    assert names(tmp_path) == ["m.checkpoint"]
    assert told >= 2
    assert main([*words, str(tmp_path / "m"), "--checkpoint", "0.5"]) == 0
    assert names(tmp_path) == ["m"]
    assert XMLClassifier.load(tmp_path / "m").n_epochs_ == 60
    assert main([*words, str(tmp_path / "whole")]) == 0
    assert (tmp_path / "m" / "params.npy").read_bytes() == (tmp_path / "whole" / "params.npy").read_bytes()


@pytest.mark.slow
def test_ctrl_c_with_checkpoints_also_saves_the_model_beside(tmp_path):
    process = start(tmp_path, "train", ROWS, *QUICK, "--epochs", "100000", "--out", "m", "--checkpoint", "60")
    wait_for(lambda: n_lines(tmp_path / "m.history.jsonl") >= 1)
    returned, lines = end(process, signal.SIGINT)
    told = XMLClassifier.load(tmp_path / "m.interrupted").n_epochs_
    text = (
        f"xmlsgd: interrupted after {told} whole epoch{'s' * (told != 1)}; the model as it was then is in m.interrupted"
    )
    assert (returned, lines) == (130, [f"{text}; the same command resumes from m.checkpoint"])
    assert names(tmp_path) == ["m.checkpoint", "m.interrupted"]


class Killed(BaseException):
    """Stands for the end of a process."""


def killed(writer, *given, write=CheckpointWriter.write):
    write(writer, *given)
    if writer.checkpoint.exists:
        raise Killed


@pytest.fixture
def interrupted(monkeypatch):
    """Return a function that runs a command to its first checkpoint, as if the process was killed then."""

    def run(*words):
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointWriter, "write", killed)
            with pytest.raises(Killed):
                main(list(words))

    return run


def test_a_run_without_checkpoints_warns_of_one_that_exists(tmp_path, capsys, interrupted):
    out = str(tmp_path / "m")
    words = ["train", ROWS, *QUICK, "--out", out]
    interrupted(*words, "--epochs", "3", "--checkpoint", "0")
    assert main([*words, "--epochs", "1"]) == 0
    told = f"warning: {out}.checkpoint: found a checkpoint of an interrupted run; pass --checkpoint to resume"
    assert told in capsys.readouterr().err
    growing = tmp_path / "m.history.jsonl"
    growing.write_text("of the interrupted run")
    kept = {file: file.read_bytes() for file in [growing, *(tmp_path / "m.checkpoint").iterdir()]}
    assert main([*words, "--epochs", "1", "--overwrite", "--checkpoint", "5"]) == 2
    told = f"xmlsgd: {out}.checkpoint: is the checkpoint of another run: max_epochs was 3, is 1; resume with the"
    assert told in capsys.readouterr().err
    assert {file: file.read_bytes() for file in [growing, *(tmp_path / "m.checkpoint").iterdir()]} == kept


@pytest.mark.parametrize("minutes", ["-1", "nan", "inf", "soon"])
def test_minutes_between_checkpoints_must_be_finite_and_not_negative(tmp_path, capsys, minutes):
    assert main(["train", ROWS, *QUICK, "--out", str(tmp_path / "m"), "--checkpoint", minutes]) == 2
    assert "--checkpoint: must be a finite number of minutes, 0 or more" in capsys.readouterr().err
    assert names(tmp_path) == []


@pytest.mark.parametrize("removed", [0, 1])
def test_a_call_that_was_killed_behind_the_saved_model_is_done_when_it_is_repeated(tmp_path, monkeypatch, removed):
    words = ["train", ROWS, "--test", TEST_ROWS, *QUICK, "--epochs", "2", "--checkpoint", "0", "--out"]

    def killed_at_the_end(checkpoint, done=Checkpoint.done):
        if removed or checkpoint.keep:  # kept while it is trained
            done(checkpoint)
        if not checkpoint.keep:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "done", killed_at_the_end)
        with pytest.raises(Killed):
            main([*words, str(tmp_path / "m")])
    assert names(tmp_path) == ["m", *["m.checkpoint"] * (not removed), "m.history.jsonl"]
    made = (tmp_path / "m" / "params.npy").stat()
    (tmp_path / f".m.{'0' * 8}.partial").mkdir(mode=0o1700)
    again = [*words, str(tmp_path / "m"), "--json", str(tmp_path / "again.json")]
    assert main(again) == 0
    assert names(tmp_path) == ["again.json", "m"]
    assert (tmp_path / "m" / "params.npy").stat() == made
    assert json.loads((tmp_path / "again.json").read_text())["P@1"] > 0


def test_another_call_does_not_take_a_finished_model_for_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "groups").write_text("".join(f"{row // 2}\n" for row in range(load_file(ROWS).n_rows)))
    words = ["train", ROWS, *QUICK, "--epochs", "2", "--checkpoint", "60", "--out", str(tmp_path / "m")]
    assert main(words) == 0
    for other in (["--epochs", "1"], ["--seed", "1"], ["--compact"], ["--test", ROWS], ["--groups", "groups"]):
        assert main([*words, *other]) == 2, other
        assert "m: exists; --overwrite replaces it" in capsys.readouterr().err
    assert main(words[:-4] + words[-2:]) == 2  # without --checkpoint


def test_all_arguments_of_train_but_named_ones_are_settings_of_its_call(tmp_path, monkeypatch):
    found = []

    def call_of(given, rows):
        found.append(given[0])
        return ""

    monkeypatch.setattr(model_folder, "call_of", call_of)
    assert main(["train", ROWS, *QUICK, "--epochs", "1", "--checkpoint", "60", "--out", str(tmp_path / "m")]) == 0
    assert found[0].keys() | train.NO_SETTINGS == signature(train.run).parameters.keys()


def test_a_finished_model_leaves_the_checkpoint_of_another_run_alone(tmp_path, interrupted):
    words = ["train", ROWS, *QUICK, "--checkpoint", "0", "--out", str(tmp_path / "m")]
    assert main([*words, "--epochs", "1"]) == 0
    interrupted(*words, "--epochs", "3", "--overwrite")
    assert main([*words, "--epochs", "1"]) == 0
    assert (tmp_path / "m.checkpoint").is_dir()
