"""The command tune: trials, the command that trains with the best parameters, JSON."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from shared.command_line import ROWS, TEXT, run
from xmlsgd.cli import main, new_parser
from xmlsgd.cli.commands.tune import flags_of
from xmlsgd.estimators import XMLClassifier

GIVEN = ["--hidden", "8", "--epochs", "1", "--candidates", "0", "--threads", "1", "--seed", "0"]


@pytest.mark.parametrize("data", [ROWS, TEXT])
def test_it_shows_the_command_of_the_best_parameters_and_writes_json(data, tmp_path, capsys):
    run("tune", data, *GIVEN, "--metric", "nDCG@5", "--trials", "3", "--seconds", "1e9", "--json", tmp_path / "r.json")
    *trials, result, command = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in trials] == 3 * ["nDCG@5"]
    assert trials[0].endswith("as given")
    assert "nDCG@5 of 210 validation rows" in result
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["best"] == max(trial["value"] for trial in found["trials"]) >= found["default"]
    values = vars(new_parser().parse_args(shlex.split(command)[1:]))
    assert {name: values[name] for name in found["parameters"]} == found["parameters"] | {"hidden_layer_sizes": (8,)}
    assert (values["train"], values["out"]) == (data, "model")


def test_ctrl_c_shows_the_best_of_the_trials_that_have_ended(tmp_path, capsys, monkeypatch):
    fit, n_fits = XMLClassifier._fit_data, 0

    def fit_twice(*given, **more):
        nonlocal n_fits
        n_fits += 1
        if n_fits > 2:
            raise KeyboardInterrupt
        return fit(*given, **more)

    monkeypatch.setattr(XMLClassifier, "_fit_data", fit_twice)
    assert main(["tune", ROWS, *GIVEN, "--trials", "9", "--seconds", "1e9", "--json", str(tmp_path / "r.json")]) == 130
    *trials, result, command = capsys.readouterr().out.splitlines()
    assert (len(trials), command.partition(" --")[0]) == (2, f"xmlsgd train {ROWS}")
    assert result.startswith("P@1 of validation rows: ")
    assert len(json.loads((tmp_path / "r.json").read_text())["trials"]) == 2
    assert main(["tune", ROWS, *GIVEN, "--json", str(tmp_path / "none.json")]) == 130
    assert not (tmp_path / "none.json").exists()


def test_flags_that_were_given_stay_in_the_command(tmp_path, capsys):
    names = tmp_path / "names.txt"
    names.write_text("".join(f"a, b{i % 3}; c{i % 2}\tword{i % 3} more{i % 2}\n" for i in range(40)))
    given = ["--label-separator", ";", "--min-df", "2", "--hidden-dropout", "0"]
    run("tune", names, *GIVEN, *given, "--trials", "3", "--seconds", "1e9", "--json", tmp_path / "r.json")
    command = capsys.readouterr().out.splitlines()[-1]
    values = vars(new_parser().parse_args(shlex.split(command)[1:]))
    assert [values[name] for name in ("label_separator", "min_df", "hidden_dropout")] == [";", 2, 0]
    trials = json.loads((tmp_path / "r.json").read_text())["trials"]
    assert not any("hidden_dropout" in trial["parameters"] for trial in trials)


def test_flags_of_every_kind_are_written_as_train_reads_them():
    parameters = {"hidden_layer_sizes": (16, 8), "loss": "bce", "early_stopping": False, "algorithm": "a b"}
    words = shlex.split(f"train x {flags_of(parameters)}")
    assert {name: vars(new_parser().parse_args(words))[name] for name in parameters} == parameters


def test_an_unknown_metric_is_refused_before_rows_are_read(tmp_path, capsys):
    (tmp_path / "broken.txt").write_text("no rows")
    assert main(["tune", str(tmp_path / "broken.txt"), "--metric", "P", "--quiet", *GIVEN]) == 2
    assert "metric: must be a name and a rank, as in nDCG@5" in capsys.readouterr().err


def test_a_missing_optuna_is_one_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", ROWS]) == 2
    assert 'optuna is missing: pip install "xmlsgd[tune]"' in capsys.readouterr().err
