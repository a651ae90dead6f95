"""The command train: what it reports, prints and leaves, and how it goes on from a model."""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from shared.command_line import N_TEST, QUICK, ROWS, TEST_ROWS, TEST_TEXT, TEXT, complaint, run
from shared.failing import Failing
from shared.spoiling import Spoiling
from xmlsgd import load_model
from xmlsgd.cli import main, training_runs
from xmlsgd.cli.input_warnings import warn_of_base, warn_of_workers
from xmlsgd.cli.results import size_text
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.estimators import XMLClassifier, fitting
from xmlsgd.estimators.candidate_training import CandidateTraining
from xmlsgd.estimators.defaults import auto_batch_size
from xmlsgd.training import trackers
from xmlsgd.training.history import History


@pytest.mark.parametrize("form", ["rows", "text"])
def test_training_reports_metrics_speed_memory_and_versions(models, form):
    result = json.loads((models / f"{form}.json").read_text())
    assert 15 < result["P@1"] < 40
    assert result["P@1"] > result["P@3"] > result["P@5"] > 5
    assert result["nDCG@1"] == result["P@1"]
    assert result["train_seconds"] > 0
    assert result["rows_per_second"] > 0
    assert 50e6 < result["peak_memory_bytes"] < 10e9
    assert result["parameters"]["hidden_layer_sizes"] == [32]
    assert result["epochs"] == 8
    assert result["data"]["train"]["rows"] == 2108
    assert result["data"]["test"]["rows"] == N_TEST
    assert result["versions"].keys() >= {"xmlsgd", "python", "numpy", "numba"}


@pytest.mark.parametrize("form", ["rows", "text"])
def test_the_model_folder_has_history_report_and_curve(models, form):
    folder = models / form
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == list(range(8))
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["P@1"] == pytest.approx(json.loads((folder / "train.json").read_text())["P@1"])
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_training_time_includes_candidates_and_the_curve_says_it_does_not_show_them(tmp_path, capsys, monkeypatch):
    late, learn = [], CandidateTraining.finish

    def slow(*given):
        late.append(100)
        return learn(*given)

    monkeypatch.setattr(CandidateTraining, "finish", slow)
    monkeypatch.setattr(fitting, "time", SimpleNamespace(perf_counter=lambda: time.perf_counter() + sum(late)))
    words = ("--candidates", "8", "--out", tmp_path / "m", "--json", tmp_path / "r.json")
    run("train", ROWS, "--test", TEST_ROWS, *QUICK, "--epochs", "1", *words)
    result, last = json.loads((tmp_path / "r.json").read_text()), XMLClassifier.load(tmp_path / "m").history_[-1]
    assert last["seconds"] + 100 < result["train_seconds"] < last["seconds"] + 200
    assert result["rows_per_second"] == pytest.approx(2108 / result["train_seconds"])


def test_the_training_time_of_a_diverged_run_is_that_of_its_finished_epochs(tmp_path, monkeypatch):
    # In the place of the bar: diverge in the second epoch.
    monkeypatch.setattr(training_runs, "ProgressBar", lambda: nullcontext(Spoiling(1)))
    run("train", ROWS, *QUICK, "--out", tmp_path / "m", "--json", tmp_path / "r.json")
    result, (record,) = json.loads((tmp_path / "r.json").read_text()), XMLClassifier.load(tmp_path / "m").history_
    assert result["train_seconds"] == record["seconds"]


def test_one_based_rows_are_warned_of_without_the_flag(tmp_path, capsys):
    lines = "".join(f"{1 + i % 5} {1 + i % 7}:1 8:0.5\n" for i in range(40))
    (tmp_path / "libsvm.txt").write_text(lines)
    words = ("--out", tmp_path / "m", *QUICK, "--epochs", "1")
    run("train", tmp_path / "libsvm.txt", *words)
    assert "neither feature 0 nor label 0 occurs; if they count from one: --one-based" in capsys.readouterr().err
    run("train", tmp_path / "libsvm.txt", *words, "--overwrite", "--one-based", "--one-based-labels")
    assert "neither feature 0" not in capsys.readouterr().err
    run("evaluate", tmp_path / "m", tmp_path / "libsvm.txt")  # as it was trained
    assert complaint(capsys, tmp_path, "evaluate", "{place}/m", "{place}/libsvm.txt", "--no-one-based")[0] == 2


@pytest.mark.parametrize(("feature", "label"), [(0, 1), (1, 0)])
def test_rows_with_feature_0_or_label_0_are_not_suspected_of_counting_from_one(feature, label):
    X, Y = (CSR(np.arange(21), np.full(20, n, np.int32), np.ones(20, np.float32), 2) for n in (feature, label))
    warn_of_base(Dataset(X, Y), "rows.txt")  # and warnings are errors


def test_raw_text_is_not_suspected_of_counting_from_one(tmp_path, capsys):
    lines = "".join(f"{'dbac'[i % 4]}\tword{i % 7} other{i % 5}\n" for i in range(40))
    (tmp_path / "texts.txt").write_text(f"\tthe zero\n{lines}")
    run("train", TEXT, "--test", TEST_TEXT, "--out", tmp_path / "m", *QUICK, "--epochs", "1")
    run("learn", tmp_path / "m", tmp_path / "texts.txt")
    assert "one-based" not in capsys.readouterr().err


def test_unrepeated_labels_and_unknown_test_labels_are_warned_of(tmp_path, capsys):
    swapped = [line.split("\t")[::-1] for line in Path(TEST_TEXT).read_text().splitlines()]
    (tmp_path / "swapped.txt").write_text("".join(f"{' '.join(a.split(','))}\t{b}\n" for a, b in swapped))
    run("train", tmp_path / "swapped.txt", "--test", TEST_TEXT, "--out", tmp_path / "m", *QUICK, "--epochs", "1")
    err = capsys.readouterr().err
    assert "hardly one of them twice, so there is little to learn; are they labels? They stand before the tab" in err
    assert f"{TEST_TEXT}: the model knows none of its labels, so that all measures will be 0" in err
    (tmp_path / "own.csv").write_text(
        "text,labels\n" + "".join(f"{b} read,{a}\n" for a, b in zip("abcdefghijklmnopqrst", range(20), strict=True))
    )
    run("train", tmp_path / "own.csv", "--out", tmp_path / "own", *QUICK, "--epochs", "1")
    assert capsys.readouterr().err.rstrip().endswith("so there is little to learn")
    (tmp_path / "none.txt").write_text("\tread a file\n")
    run("evaluate", tmp_path / "m", tmp_path / "none.txt")
    assert "none.txt: no row has a label, so that all measures will be 0" in capsys.readouterr().err
    run("evaluate", tmp_path / "m", TEST_TEXT)
    assert f"{TEST_TEXT}: the model knows none of its labels, so that all" in capsys.readouterr().err


def test_test_rows_that_are_training_rows_are_warned_of(tmp_path, capsys):
    train, test = Path(TEXT).read_text().splitlines(), Path(TEST_TEXT).read_text().splitlines()
    expected = r"test.txt: \d+% of the test rows have the features and labels of a training row, so that measures are"
    for name, part in (("few", train[:20]), ("many", train[: len(test)])):
        (tmp_path / "test.txt").write_text("\n".join(test + part))
        words = ("--test", tmp_path / "test.txt", *QUICK, "--analyzer", "word", "--epochs", "1", "--overwrite")
        run("train", TEXT, *words, "--out", tmp_path / "m")
        assert bool(re.search(expected, capsys.readouterr().err)) == (name == "many")


def test_test_labels_that_are_separated_otherwise_than_in_training_are_warned_of(models, tmp_path, capsys):
    labels, texts = zip(*(line.split("\t") for line in Path(TEST_TEXT).read_text().splitlines()), strict=True)
    lines = (f"{names.replace(',', ';')}\t{text}\n" for names, text in zip(labels, texts, strict=True))
    (tmp_path / "test.txt").write_text("".join(lines))
    run("evaluate", models / "text", tmp_path / "test.txt")
    assert re.search(r"the model does not know \d+ % of its labels; .*--label-separator", capsys.readouterr().err)
    run("evaluate", models / "text", tmp_path / "test.txt", "--label-separator", ";")
    assert "does not know" not in capsys.readouterr().err
    name = labels[0].split(",")[0]
    (tmp_path / "new.txt").write_text(f"{name}\t{texts[0]}\nnever seen\t{texts[1]}\n")
    run("evaluate", models / "text", tmp_path / "new.txt")
    assert "new.txt: the model does not know 50 % of its labels; these count as misses" in capsys.readouterr().err
    new = ("never seen", "nor this", "one;two")  # a separator in one of three names is a part of it
    (tmp_path / "new.txt").write_text(f"{name}\t{texts[0]}\n" + "".join(f"{each}\t{texts[1]}\n" for each in new))
    run("evaluate", models / "text", tmp_path / "new.txt")
    assert "new.txt: the model does not know 75 % of its labels; these count as misses" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ('"Woolf, Virginia', """the label '"Woolf' begins with a quote and does not end with it; quotes go around a"""),
        ('novel,"', "the label '\"' begins with a quote and does not end with it"),
        (
            "novel;letter,1890,London",  # names of some rows have commas beside
            "1 of 3 labels contain ';', such as 'novel;letter'; if it separates labels: --label-separator ';'",
        ),
        (
            "Woolf, Virginia",
            "every comma ends a label, also in 'Woolf, Virginia'; quote names with commas, or pass another --label",
        ),
        ('"novel",l\'histoire,a|b,letter,poem', None),
        ('"Woolf, Virginia",novel', None),
    ],
)
def test_label_names_with_quotes_separators_or_commas_are_warned_of(tmp_path, capsys, labels, told):
    (tmp_path / "texts.txt").write_text(f"{labels}\tthe book of the sea\n" * 4)
    run("train", tmp_path / "texts.txt", "--out", tmp_path / "m", *QUICK, "--epochs", "1")
    err = capsys.readouterr().err
    assert told in err if told else "warning" not in err


def test_labels_that_differ_in_case_alone_are_warned_of_if_they_are_many(tmp_path, capsys):
    for name, others in (("few", 200), ("many", 0)):
        lines = [f"{label}\tread a file\n" for label in ("Novel", "novel", "poem", *map(str, range(others)))]
        (tmp_path / name).write_text("".join(lines) * 2)
        run("train", tmp_path / name, "--out", tmp_path / "m", *QUICK, "--epochs", "1", "--overwrite")
    err = capsys.readouterr().err
    assert "many: 2 of 3 labels differ from another in case alone, such as 'Novel' and 'novel'; write them" in err
    assert "few: " not in err


def test_labels_of_a_table_with_another_separator_are_warned_of(tmp_path, capsys):
    (tmp_path / "texts.csv").write_text("text,labels\n" + "the book of the sea,novel;letter\n" * 4)
    run("train", tmp_path / "texts.csv", "--out", tmp_path / "m", *QUICK, "--quiet")
    expected = "1 of 1 labels contain ';', such as 'novel;letter'; if it separates labels: --label-separator ';'"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "mark"),
    [
        (["sea,tale", "sea,poem", "poem,tale", "sea,poem,tale", "poem,sea", "tale,poem", "tale,sea"], ","),
        (["sea", "tale", "sea, tale"], ","),
        (["sea", "tale", "sea tale"], " "),
        (["sea><tale", "tale"], "><"),
        (["Woolf, Virginia", "Joyce, James", "sea", "sea tale"], None),
    ],
)
def test_labels_whose_parts_are_labels_or_recur_are_told_their_separator(tmp_path, capsys, labels, mark):
    (tmp_path / "texts.csv").write_text("text,labels\n" + "".join(f'the book of the sea,"{each}"\n' for each in labels))
    run("train", tmp_path / "texts.csv", "--out", tmp_path / "m", *QUICK, "--quiet", "--label-separator", "|")
    err = capsys.readouterr().err
    assert f"if it separates labels: --label-separator '{mark}'" in err if mark else "separator" not in err


@pytest.mark.parametrize("separator", ["|", "><"])
def test_labels_in_angle_brackets_are_warned_of(tmp_path, capsys, separator):
    (tmp_path / "texts.csv").write_text("text,labels\n" + "read a query,<c#><linq>\nthe query of it,<linq><sql>\n" * 2)
    run("train", tmp_path / "texts.csv", "--out", tmp_path / "m", *QUICK, "--quiet", "--label-separator", separator)
    err = capsys.readouterr().err
    assert re.search(
        r"labels begin with '<' or end with '>', such as '<.*; write a\|b for <a><b>, and pass --label", err
    )
    assert "'><'" not in err
    (tmp_path / "good.csv").write_text("text,labels\n" + "read a query,c#|linq|a > b\n" * 2)
    run("train", tmp_path / "good.csv", "--out", tmp_path / "n", *QUICK, "--quiet", "--label-separator", "|")
    assert "<" not in capsys.readouterr().err


def test_more_workers_than_cores_are_warned_of(monkeypatch):
    monkeypatch.setattr("xmlsgd.cli.input_warnings.usable_cores", lambda: 2)
    with pytest.warns(UserWarning, match=r"--devices: 3 workers on the CPU, but this machine has 2 usable cores; pass"):
        warn_of_workers(["cpu"] * 3)
    warn_of_workers(["cpu", "cpu", "cuda:0"])


def test_a_dry_run_prints_the_training_plan_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("train", ROWS, "--dry-run", "--epochs", "3")
    plan = {line.split()[0]: line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()}
    assert plan["max_epochs"].split()[0] == "3"
    assert re.match(r"\d+\.\d MB +estimated, besides Python and kernels; a run may use \d+\.\d GB", plan["memory"])
    run("train", ROWS, "--dry-run", "--epochs", "3", "--n-estimators", "3", "--json", "-")
    three = json.loads(capsys.readouterr().out)
    assert three["max_epochs"]["value"] == 3
    assert float(three["memory"]["value"].split()[0]) > float(plan["memory"].split()[0])  # that of all classifiers
    assert list(tmp_path.iterdir()) == []


def test_rows_and_text_of_a_data_set_give_the_same_accuracy(models):
    rows, text = (json.loads((models / f"{form}.json").read_text()) for form in ("rows", "text"))
    assert text["P@1"] == pytest.approx(rows["P@1"], abs=3)  # the text has words that the rows leave out


def test_training_prints_a_table_and_where_the_model_is(tmp_path, capsys):
    run("train", ROWS, "--test", TEST_ROWS, "--out", tmp_path / "m", *QUICK, "--epochs", "1")
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5"]
    assert len(lines[1].split()) == 6
    assert f"model: {tmp_path / 'm'}" in lines
    assert f"learning curve: {tmp_path / 'm'}/learning_curve.png" in lines
    assert "trained on 2,108 rows, 1,378 features (8.1 a row), 643 labels (2.7 a row)" in lines
    assert err == ""


def test_training_says_what_texts_became_and_why_unless_a_flag_has_chosen(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("a\t上海城市规划\nb\t北京城市历史\n", encoding="utf-8")
    words = ["train", tmp_path / "texts.txt", "--out", tmp_path / "m", *QUICK]
    run(*words)
    line = "features by TextVectorizer(ngram_range=(1, 4), analyzer='char_wb'): most texts have hardly any spaces"
    assert line in capsys.readouterr().out.splitlines()
    run(*words, "--overwrite", "--analyzer", "char_wb", "--ngram-range", "1,4")
    assert "features by" not in capsys.readouterr().out


@pytest.mark.slow
def test_training_with_several_workers_says_what_auto_has_chosen(tmp_path, capsys):
    words = ["--epochs", "1", "--candidates", "0", "--devices", "cpu*2", "--threads", "2"]
    run("train", ROWS, "--out", tmp_path / "m", *QUICK, *words)
    line = "algorithm: Hogwild; workers write one memory: no merges, no averaging"
    assert line in capsys.readouterr().out.splitlines()
    assert json.loads((tmp_path / "m" / "train.json").read_text())["algorithm"]["algorithm"] == "Hogwild"


def test_the_model_is_saved_even_if_the_curve_cannot_be_drawn(tmp_path, capsys, monkeypatch):
    def draw_half(records, path, title):
        path.write_bytes(b"half a picture")
        raise ValueError("no such backend")

    monkeypatch.setattr("xmlsgd.training.plots.plot_learning_curve", draw_half)
    run("train", ROWS, "--out", tmp_path / "m", *QUICK, "--epochs", "1")
    assert capsys.readouterr().out.endswith("learning curve: not drawn, ValueError: no such backend\n")
    assert not (tmp_path / "m" / "learning_curve.png").exists()
    run("evaluate", tmp_path / "m", TEST_ROWS)


def test_training_without_test_rows_has_no_precision_and_says_so(tmp_path, capsys):
    run("train", ROWS, "--out", tmp_path / "m", "--json", tmp_path / "r.json", *QUICK, "--epochs", "1")
    assert capsys.readouterr().out.startswith("nothing was measured: no test rows; --test FILE, or later: xmlsgd eval")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["P@1"] is None
    assert result["rows_per_second"] > 0


def test_json_on_stdout_is_alone_there(tmp_path, capsys):
    run("train", ROWS, "--out", tmp_path / "m", "--json", "-", *QUICK, "--epochs", "1")
    out, err = capsys.readouterr()
    assert json.loads(out)["epochs"] == 1
    assert err == ""


def test_one_seed_and_one_thread_give_one_model(tmp_path, models):
    run("train", ROWS, "--out", tmp_path / "again", "--quiet", *QUICK)
    assert (tmp_path / "again" / "params.npy").read_bytes() == (models / "rows" / "params.npy").read_bytes()


def test_an_earlier_model_is_replaced_with_overwrite(tmp_path):
    words = ["train", ROWS, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs"]
    run(*words, "1")
    run(*words, "2", "--overwrite")
    assert XMLClassifier.load(tmp_path / "m").n_epochs_ == 2


def test_an_ensemble_trains_evaluates_and_predicts_like_one_model(tmp_path, capsys):
    words = (*QUICK, "--epochs", "2", "--n_estimators", "2")
    run("train", ROWS, "--test", TEST_ROWS, *words, "--out", tmp_path / "m", "--json", tmp_path / "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    history = [json.loads(line) for line in (tmp_path / "m" / "history.jsonl").read_text().splitlines()]
    told = capsys.readouterr().out
    assert "trained 2 classifiers in" in told
    assert [(record["estimator"], record["epoch"]) for record in history] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert result["epochs"] == 4
    assert result["parameters"]["n_estimators"] == 2
    assert result["train_seconds"] == pytest.approx(history[1]["seconds"] + history[3]["seconds"])
    assert result["rows_per_second"] == pytest.approx(4 * 2108 / result["train_seconds"])
    assert (tmp_path / "m" / "learning_curve.png").is_file()
    run("evaluate", tmp_path / "m", TEST_ROWS, "--json", tmp_path / "e.json")
    measured = json.loads((tmp_path / "e.json").read_text())
    assert measured["P@5"] == pytest.approx(result["P@5"])
    assert measured["parameters"]["n_estimators"] == 2
    run("predict", tmp_path / "m", TEST_ROWS, "--k", "3", "--out", tmp_path / "p.txt", "--threads", "1")
    lines = (tmp_path / "p.txt").read_text().splitlines()
    assert len(lines) == N_TEST
    assert all(line.count(":") == 3 for line in lines)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("train", ROWS, "--out", "m", "--n-estimators", "0", "--overwrite"),
            "--n-estimators: must be a whole number of at least 1, got '0'",
        ),
        (("learn", "m", ROWS), "m: must hold an XMLClassifier, got 'XMLEnsemble'; xmlsgd.load_model reads it"),
    ],
)
def test_an_ensemble_is_not_empty_and_does_not_learn_on(tmp_path, capsys, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    run("train", ROWS, *QUICK, "--epochs", "1", "--n-estimators", "2", "--out", "m")
    capsys.readouterr()
    assert main([*words]) == 2
    assert told in capsys.readouterr().err


def test_an_interrupted_ensemble_saves_its_finished_models(tmp_path, capsys, monkeypatch):
    steps = math.ceil(2108 / auto_batch_size(2108, False))
    # In the place of the bar: press Ctrl-C in the second model.
    monkeypatch.setattr(training_runs, "ProgressBar", lambda: nullcontext(Failing(KeyboardInterrupt, steps + 3)))
    words = (*QUICK, "--epochs", "1", "--n-estimators", "3", "--out", str(tmp_path / "m"))
    assert main(["train", ROWS, *words]) == 130
    assert "interrupted with 1 of 3 classifiers, after 1 whole epoch; the model as it was" in capsys.readouterr().err
    (member,) = load_model(tmp_path / "m").estimators_
    assert member.n_epochs_ == 1
    result = json.loads((tmp_path / "m" / "train.json").read_text())
    assert (result["classifiers"], result["parameters"]["n_estimators"], result["interrupted"]) == (1, 3, True)


def test_the_report_has_what_auto_became_also_if_the_run_was_interrupted(tmp_path, capsys, monkeypatch):
    words = ("train", ROWS, "--candidates", "0", "--seed", "0")
    run(*words, "--dry-run", "--json", "-")
    plan = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(training_runs, "ProgressBar", lambda: nullcontext(Failing(KeyboardInterrupt, 3)))
    assert main([*words, "--out", str(tmp_path / "m")]) == 130
    result = json.loads((tmp_path / "m" / "train.json").read_text())
    assert result["parameters"]["batch_size"] == "auto"
    assert result["plan"] == {name: decision for name, decision in plan.items() if name != "memory"}
    assert result["plan"]["batch_size"]["value"] > 1


def test_groups_of_training_rows_are_one_a_line(tmp_path, capsys):
    groups = tmp_path / "groups.txt"
    groups.write_text("".join(f"module {i // 10}\n" for i in range(2108)))
    run("train", ROWS, "--dry-run", "--groups", groups)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("groups ")]
    assert line.split(maxsplit=2) == ["groups", "211", "held out as a whole: new rows are assumed to be of new groups"]
    run("train", ROWS, "--out", tmp_path / "m", "--groups", groups, "--quiet", *QUICK)
    assert load_model(tmp_path / "m").thresholds_["micro"] != 0.5
    groups.write_text("a\n" * 2109)
    told = "must have a line for each of 2,108 rows, got 2,109"
    for given, said in ((str(groups), told), ("module", "no such file; pass a file")):
        assert main(["train", ROWS, "--dry-run", "--groups", given]) == 2
        assert f"--groups {given}: {said}" in capsys.readouterr().err


def test_similar_rows_are_groups_without_a_file(capsys):
    run("train", ROWS, "--dry-run", "--groups", "similar")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("groups ")]
    assert int(line.split()[1].replace(",", "")) > 100


def test_each_tracker_gets_the_record_of_each_epoch(tmp_path, monkeypatch):
    class Kept(History):
        def __init__(self, place):
            super().__init__(place)

    monkeypatch.setitem(trackers.TRACKERS, "mlflow", Kept)
    places = [tmp_path / "kept", tmp_path / "second"]
    tracked = [word for place in places for word in ("--track", f"mlflow:{place}")]
    run("train", ROWS, *QUICK, "--epochs", "2", *tracked, "--out", tmp_path / "m")
    for place in places:
        assert place.read_text() == (tmp_path / "m" / "history.jsonl").read_text()


def test_a_tracker_that_is_unknown_or_not_installed_is_refused(tmp_path, capsys, monkeypatch):
    words = ["train", ROWS, "--out", str(tmp_path / "m"), "--track"]
    assert main([*words, "tensorbord"]) == 2
    assert "--track: must be one of tensorboard, mlflow, wandb, got 'tensorbord'; did you" in capsys.readouterr().err
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    assert main([*words, "mlflow"]) == 2
    assert '--track: mlflow is missing: pip install "xmlsgd[trackers]"' in capsys.readouterr().err


def test_a_model_that_another_run_has_saved_meanwhile_is_not_replaced(tmp_path, monkeypatch, capsys):
    call = ["train", str(ROWS), "--out", str(tmp_path / "m"), "--quiet", *QUICK, "--epochs", "1"]
    measure = training_runs.measure

    def measure_after_another_run(*arguments):
        monkeypatch.setattr(training_runs, "measure", measure)
        assert main([*call, "--seed", "1"]) == 0
        return measure(*arguments)

    monkeypatch.setattr(training_runs, "measure", measure_after_another_run)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main([*call, "--seed", "2"]) == 1
    (spare,) = tmp_path.glob("xmlsgd-model-*/m")
    assert f"m: another process has changed the model meanwhile; the model is in {spare}" in capsys.readouterr().err
    assert [XMLClassifier.load(each).random_state for each in (tmp_path / "m", spare)] == [1, 2]


def test_the_size_of_data_counts_one_row_and_one_label():
    one = CSR.from_scipy(sp.csr_array([[1.0]]))
    assert size_text(Dataset(one, one)) == "1 row, 1 feature (1.0 a row), 1 label (1.0 a row)"
