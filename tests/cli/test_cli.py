"""The command line: every verb on real files, flags and their spellings, what it prints and what it leaves."""

from __future__ import annotations

import argparse
import gzip
import inspect
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from paths import DATA, ROOT

from xmlsgd.cli import VERBS, main, new_parser
from xmlsgd.cli import train as cli_train
from xmlsgd.cli.forms import is_raw_text
from xmlsgd.cli.outputs import check_file, check_folder
from xmlsgd.cli.parameters import PARAMETERS, given_parameters
from xmlsgd.cli.parser import canonical
from xmlsgd.cli.results import plain, table, text_file
from xmlsgd.datasets.text import read_raw_text
from xmlsgd.datasets.xmc import load_folder
from xmlsgd.estimators import XMLClassifier
from xmlsgd.estimators.list_learning import Listing

ROWS, TEST_ROWS = str(DATA / "train.txt"), str(DATA / "test.txt")
TEXT, TEST_TEXT = str(DATA / "train_raw.txt"), str(DATA / "test_raw.txt")
N_TEST = 333
QUICK = ["--hidden", "32", "--epochs", "8", "--threads", "1", "--seed", "0", "--shortlist", "0"]


def run(*words):
    """Run a command line in this process; fail on an exit code other than 0."""
    assert main([str(word) for word in words]) == 0


def in_a_process(*words, stdin=None, **options):
    """Run a command line in a process of its own."""
    command = [sys.executable, "-m", "xmlsgd", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environment, check=False, timeout=300, **options
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with `rows` and `text`, models of the sample in both forms, and the JSON of their training."""
    folder = tmp_path_factory.mktemp("models")
    run("train", ROWS, "--test", TEST_ROWS, "--out", folder / "rows", "--json", folder / "rows.json", *QUICK)
    run("train", TEXT, "--test", TEST_TEXT, "--out", folder / "text", "--json", folder / "text.json", *QUICK)
    return folder


# --- train -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["rows", "text"])
def test_training_reports_what_the_field_compares(models, form):
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
def test_the_model_folder_tells_how_it_came_about(models, form):
    folder = models / form
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == list(range(8))
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[-1]["P@1"] == pytest.approx(json.loads((folder / "train.json").read_text())["P@1"])
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_seconds_of_a_shortlist_count_as_training_and_its_curve_says_what_it_is_of(tmp_path, capsys, monkeypatch):
    late, finish = [], Listing.finish

    def slow(*given):
        late.append(100)
        return finish(*given)

    monkeypatch.setattr(Listing, "finish", slow)
    monkeypatch.setattr(cli_train, "time", SimpleNamespace(perf_counter=lambda: time.perf_counter() + sum(late)))
    words = ("--shortlist", "8", "--out", tmp_path / "m", "--json", tmp_path / "r.json")
    run("train", ROWS, "--test", TEST_ROWS, *QUICK, "--epochs", "1", *words)
    result, last = json.loads((tmp_path / "r.json").read_text()), XMLClassifier.load(tmp_path / "m").history_[-1]
    assert last["seconds"] + 100 < result["train_seconds"] < last["seconds"] + 200
    assert result["rows_per_second"] == pytest.approx(2108 / result["train_seconds"])
    assert "learning curve (of the network alone; the table has the shortlist too): " in capsys.readouterr().out


def test_labels_that_come_once_and_labels_that_nobody_knows_are_warned_of(tmp_path, capsys):
    swapped = [line.split("\t")[::-1] for line in Path(TEST_TEXT).read_text().splitlines()]
    (tmp_path / "swapped.txt").write_text("".join(f"{' '.join(a.split(','))}\t{b}\n" for a, b in swapped))
    run("train", tmp_path / "swapped.txt", "--test", TEST_TEXT, "--out", tmp_path / "m", *QUICK, "--epochs", "1")
    err = capsys.readouterr().err
    assert "rows, hardly one of them twice; are they labels? Of raw text they stand before the tab" in err
    assert f"{TEST_TEXT}: the model knows none of its labels, so that all measures will be 0" in err
    run("evaluate", tmp_path / "m", TEST_TEXT)
    assert f"{TEST_TEXT}: the model knows none of its labels, so that all" in capsys.readouterr().err


def test_rows_and_text_of_one_data_set_give_one_accuracy(models):
    rows, text = (json.loads((models / f"{form}.json").read_text()) for form in ("rows", "text"))
    assert text["P@1"] == pytest.approx(rows["P@1"], abs=2)


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


def test_warm_start_goes_on_from_the_model_in_out(tmp_path):
    words = ["train", ROWS, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1"]
    run(*words)
    first = XMLClassifier.load(tmp_path / "m")
    run(*words, "--warm-start", "--json", tmp_path / "r.json")
    second = XMLClassifier.load(tmp_path / "m")
    assert (first.n_epochs_, second.n_epochs_) == (1, 2)
    assert second.loss_curve_[-1] < first.loss_curve_[-1]


def test_warm_start_of_a_text_model_keeps_its_words_and_adds_labels(tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("a_label_never_seen\tread a file\nopen\topen a file and read its lines\n" * 40)
    run("train", TEXT, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1")
    first = XMLClassifier.load(tmp_path / "m")
    run("train", more, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1", "--warm-start")
    second = XMLClassifier.load(tmp_path / "m")
    assert second.vectorizer_.words == first.vectorizer_.words
    assert second.classes_[: len(first.classes_)].tolist() == first.classes_.tolist()
    assert "a_label_never_seen" in second.classes_


# --- evaluate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["rows", "text"])
def test_evaluation_repeats_what_training_measured(models, tmp_path, form):
    run("evaluate", models / form, {"rows": TEST_ROWS, "text": TEST_TEXT}[form], "--json", tmp_path / "e.json")
    trained, evaluated = (json.loads(p.read_text()) for p in (models / f"{form}.json", tmp_path / "e.json"))
    for name in ("P@1", "P@3", "P@5", "nDCG@5", "train_seconds", "rows_per_second"):
        assert evaluated[name] == trained[name], name
    assert evaluated["predict_rows_per_second"] > 0
    assert evaluated["peak_memory_bytes"] > 0


def test_evaluation_at_other_k_and_with_propensities(models, capsys):
    run("test", models / "rows", TEST_ROWS, "-k", "2", "--top-k", "10", "--propensity", ROWS)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["@1", "@2", "@3", "@5", "@10"]
    assert [row.split()[0] for row in rows[:4]] == ["P", "nDCG", "R", "PSP"]


def test_labels_that_training_never_saw_are_counted_not_refused(models, tmp_path):
    test = tmp_path / "test.txt"
    test.write_text("brand_new_label\tread a json file\n" + Path(TEST_TEXT).read_text())
    run("evaluate", models / "text", test, "--json", tmp_path / "e.json")
    result = json.loads((tmp_path / "e.json").read_text())
    assert result["data"]["test"]["rows"] == N_TEST + 1
    known = json.loads((models / "text.json").read_text())
    assert result["P@1"] == pytest.approx(known["P@1"] * N_TEST / (N_TEST + 1))


def test_rows_per_second_are_those_of_training_also_for_a_model_that_the_estimator_saved(models, tmp_path):
    model = XMLClassifier.load(models / "rows")
    model.save(tmp_path / "m", predict_only=True)
    run("evaluate", tmp_path / "m", TEST_ROWS, "--json", tmp_path / "e.json", "--quiet")
    result, last = json.loads((tmp_path / "e.json").read_text()), model.history_[-1]
    assert result["train_seconds"] == last["seconds"]
    assert result["rows_per_second"] == pytest.approx(last["rows"] / last["seconds"])


def ranked_by_hand(model, test, train, k=1):
    """Return PSP@k in percent of texts by label names alone: columns play no part."""
    texts = [line.rstrip("\n").split("\t") for line in test.read_text().splitlines()]
    counts, rows = Counter(), train.read_text().splitlines()
    for line in rows:
        counts.update(line.split("\t")[0].split(","))
    C = (np.log(len(rows)) - 1) * 2.5**0.55
    gain = {name: 1 + C * (counts[name] + 1.5) ** -0.55 for names, _ in texts for name in names.split(",")}
    best = model.classes_[model.predict_topk([text for _, text in texts], k=k)[0][:, 0]]
    hits = sum(gain[name] for (names, _), name in zip(texts, best, strict=True) if name in names.split(","))
    return 100 * hits / sum(max(gain[name] for name in names.split(",")) for names, _ in texts)


def test_propensities_may_come_from_rows_with_labels_and_words_that_the_model_does_not_know(models, tmp_path):
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    # Each has new labels of its own, and one in common, in another order.
    train.write_text("zz_common\tnewword a\nzz_common,bb_train\tnewword b\n" * 20 + Path(TEXT).read_text())
    test.write_text("aa_test\tread a file\nzz_common\topen a file\n" * 20 + Path(TEST_TEXT).read_text())
    run("evaluate", models / "text", test, "--propensity", train, "--json", tmp_path / "e.json", "--quiet")
    result = json.loads((tmp_path / "e.json").read_text())
    expected = ranked_by_hand(XMLClassifier.load(models / "text"), test, train)
    assert result["PSP@1"] == pytest.approx(expected)


def test_propensities_of_a_folder_are_those_of_its_training_part(models, tmp_path):
    for source, name in ((DATA, "folder"), (ROWS, "file")):
        run("evaluate", models / "rows", TEST_ROWS, "--propensity", source, "--json", tmp_path / name, "--quiet")
    folder, file = (json.loads((tmp_path / name).read_text())["PSP@5"] for name in ("folder", "file"))
    assert folder == file


def test_training_on_fewer_rows_than_propensities_need_still_ends_with_a_model(tmp_path):
    (tmp_path / "two.txt").write_text("0 0:1\n1 1:1\n")
    run("train", tmp_path / "two.txt", "--test", tmp_path / "two.txt", "--out", tmp_path / "m", "--quiet", *QUICK)
    assert "PSP@1" not in json.loads((tmp_path / "m" / "train.json").read_text())


# --- predict -----------------------------------------------------------------------------------------------------


def test_predictions_of_rows_are_label_and_score_best_first(models, tmp_path):
    run("predict", models / "rows", TEST_ROWS, "--k", "3", "--out", tmp_path / "p.txt")
    lines = (tmp_path / "p.txt").read_text().splitlines()
    assert len(lines) == N_TEST
    for line in lines:
        labels, scores = zip(*(entry.split(":") for entry in line.split(" ")), strict=True)
        assert len(set(map(int, labels))) == 3
        assert sorted(map(float, scores), reverse=True) == list(map(float, scores))


def test_predictions_equal_those_of_the_estimator(models, tmp_path):
    run("predict", models / "text", TEST_TEXT, "--k", "2", "--out", tmp_path / "p.txt")
    texts = [line.partition("\t")[2] for line in Path(TEST_TEXT).read_text().splitlines()]
    model = XMLClassifier.load(models / "text")
    labels, scores = model.predict_topk(texts, k=2)
    expected = [
        "\t".join(f"{model.classes_[j]}:{z:.6g}" for j, z in zip(*row, strict=True))
        for row in zip(labels, scores.tolist(), strict=True)
    ]
    assert (tmp_path / "p.txt").read_text().splitlines() == expected


def test_text_without_labels_goes_from_stdin_to_stdout(models):
    result = in_a_process("predict", models / "text", "-", "-k", "1", stdin="read a json file\n\nopen a socket\n")
    assert result.returncode == 0, result.stderr
    names = [line.rpartition(":")[0] for line in result.stdout.splitlines()]
    assert len(names) == 3
    assert set(names) <= set(XMLClassifier.load(models / "text").classes_)
    assert result.stderr == ""


def test_a_huge_k_is_all_labels_and_huge_threads_are_all_processors(models, tmp_path):
    words = ["predict", models / "rows", TEST_ROWS, "--k", str(10**30), "--threads", str(10**6)]
    result = in_a_process(*words, "--out", tmp_path / "p.txt")
    assert (result.returncode, result.stderr) == (0, "")
    n_labels = len(XMLClassifier.load(models / "rows").classes_)
    assert {line.count(":") for line in (tmp_path / "p.txt").read_text().splitlines()} == {n_labels}


def test_a_threshold_leaves_out_low_scores(models, capsys):
    run("predict", models / "rows", TEST_ROWS, "--threshold", "1e9")
    assert capsys.readouterr().out == "\n" * N_TEST


# --- convert ---------------------------------------------------------------------------------------------------


def same_rows(one, other):
    """Tell whether two data sets hold the same rows."""
    pairs = [(getattr(one, part), getattr(other, part)) for part in "XY"]
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for a, b in pairs for n in ("indptr", "indices", "data"))


def test_rows_go_through_all_forms_and_come_back_the_same(tmp_path, capsys):
    run("convert", DATA, tmp_path / "split", "--to", "split")
    run("convert", tmp_path / "split", tmp_path / "npz", "--to", "npz")
    run("convert", tmp_path / "npz", tmp_path / "store")
    run("convert", tmp_path / "store", tmp_path / "text", "--to", "text")
    for before, after in zip(load_folder(DATA), load_folder(tmp_path / "text"), strict=True):
        assert same_rows(before, after)
        assert list(before.label_names) == list(after.label_names)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in shown] == [str(tmp_path / n) for n in ("split", "npz", "store", "text")]


def test_a_file_of_rows_becomes_a_store_that_train_takes(tmp_path, models):
    run("convert", ROWS, tmp_path / "store")
    run("train", tmp_path / "store", "--out", tmp_path / "m", "--quiet", *QUICK)
    assert (tmp_path / "m" / "params.npy").read_bytes() == (models / "rows" / "params.npy").read_bytes()


def test_a_model_trained_on_converted_text_still_takes_text(tmp_path):
    run("convert", TEXT, tmp_path / "train")
    run("convert", TEST_TEXT, tmp_path / "test", "--vectorizer", tmp_path / "train")
    run(
        "train",
        tmp_path / "train",
        "--test",
        tmp_path / "test",
        "--out",
        tmp_path / "m",
        "--json",
        tmp_path / "r",
        *QUICK,
    )
    run("evaluate", tmp_path / "m", TEST_TEXT, "--json", tmp_path / "e")
    stored, texts = (json.loads((tmp_path / name).read_text()) for name in "re")
    assert texts["P@5"] == stored["P@5"]


def test_a_text_file_of_rows_is_named_by_its_end(tmp_path):
    run("convert", TEXT, tmp_path / "rows.txt.gz")
    with gzip.open(tmp_path / "rows.txt.gz", "rt") as stream:
        assert stream.readline() == "2108 1378 643\n"


# --- other verbs -------------------------------------------------------------------------------------------------


def test_bench_measures_training_and_prediction(capsys):
    shape = ["--rows", "500", "--features", "200", "--labels", "100", "--nnz", "8"]
    run("bench", *shape, "--json", "-", *QUICK, "--epochs", "1")
    result = json.loads(capsys.readouterr().out)
    assert result["rows_per_second"] > 0
    assert result["predict_rows_per_second"] > 0
    assert result["threads"] == 1
    assert result["data"]["labels"] == 100


def test_demo_trains_on_real_functions_and_shows_them(capsys, tmp_path, monkeypatch):
    from xmlsgd.datasets import python_functions

    texts = (
        read_raw_text(TEXT, labelled=True),
        read_raw_text(TEST_TEXT, labelled=True),
    )
    monkeypatch.setattr(python_functions, "python_functions_texts", lambda: texts)
    run("demo", "--out", tmp_path / "demo", *QUICK)
    out = capsys.readouterr().out
    network, frequent = (next(line for line in out.splitlines() if line.startswith(name)) for name in ("this", "most"))
    assert float(network.split()[2]) > float(frequent.split()[3])
    assert out.splitlines()[-1] == f"learning curve: {tmp_path / 'demo'}/learning_curve.png"


def test_warmup_says_that_kernels_are_compiled(capsys):
    run("warmup", "--threads", "1")
    assert capsys.readouterr().out.startswith("kernels are compiled")


def test_info_names_versions_and_processor(capsys):
    run("info", "--json", "-")
    facts = json.loads(capsys.readouterr().out)
    assert facts.keys() >= {"xmlsgd", "python", "numba", "processor", "threads", "bfloat16"}


def test_version_and_help_end_with_zero(capsys):
    run("--version")
    assert capsys.readouterr().out.startswith("xmlsgd ")
    for verb in VERBS:
        run(verb, "--help")
        assert "--quiet" in capsys.readouterr().out


def test_help_loads_nothing_heavy():
    code = "import sys; from xmlsgd.cli import main; main(['train', '--help']); print(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(result.stderr.split())
    assert {"numpy", "scipy", "numba", "sklearn", "tqdm", "matplotlib"}.isdisjoint(loaded)


# --- flags -------------------------------------------------------------------------------------------------------


def test_every_parameter_of_the_estimator_is_a_flag():
    assert [p.name for p in PARAMETERS] == list(inspect.signature(XMLClassifier).parameters)


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: p.name)
def test_every_spelling_of_a_flag_sets_the_parameter(parameter):
    value = {"hidden_layer_sizes": "7,5", "class_weight": "balanced"}.get(parameter.name, "1")
    read = True if parameter.read is None else parameter.read(value)
    for flag in (parameter.flag, f"--{parameter.name}", *parameter.synonyms):
        words = [flag] if parameter.read is None else [f"{flag}={value}"]
        args = new_parser().parse_args(canonical(["train", "x", "--out", "y", *words]))
        assert given_parameters(args) == {parameter.name: read}, flag


def test_flags_not_given_leave_the_estimators_defaults():
    assert given_parameters(new_parser().parse_args(["train", "x", "--out", "y"])) == {}


def test_words_after_two_dashes_are_no_flags():
    assert canonical(["predict", "--", "--epochs"]) == ["predict", "--", "--epochs"]


# --- what is raw text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "labelled", "expected"),
    [
        ("1,2 3:0.5\n", True, False),
        ("2 10 4\n1,2 3:0.5\n", True, False),
        ("# some rows\n1,2 3:0.5 # the first\n", False, False),
        ("1,2 3:0.5\n1,2 x:0.5\n3 1:1\n", False, False),
        ("1,2\t3:0.5\t4:1e-3\n", True, False),
        ("1,2 3:abc x\n", True, False),
        ("tag\tread a file\n", True, True),
        ("1,2\tread a file\n", True, True),
        ("\tread a file\n", True, True),
        ("read a file\n", True, False),
        ("read a file\n", False, True),
        ("\n\nread\n", False, True),
        ("1,2 3:0.5\n", False, False),
        ("", False, False),
    ],
)
def test_raw_text_is_told_from_rows_by_its_words(tmp_path, content, labelled, expected):
    file = tmp_path / "data"
    args = argparse.Namespace(format="auto")
    file.write_text(content)
    assert is_raw_text(str(file), args, labelled) is expected
    with gzip.open(tmp_path / "data.gz", "wt") as stream:
        stream.write(content)
    assert is_raw_text(str(tmp_path / "data.gz"), args, labelled) is expected


# --- files -------------------------------------------------------------------------------------------------------


def test_a_file_takes_its_name_when_it_is_complete(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("before")

    def write_half():
        with text_file(str(target)) as stream:
            stream.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_written_and_not_replaced():
    with text_file(os.devnull) as stream:
        stream.write("gone")
    assert not Path(os.devnull).is_file()


def test_out_may_be_new_empty_or_a_model(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "MANIFEST.json").write_text("{}")
    for name in ("empty", "model", "new", "several/new/folders"):
        check_folder(str(tmp_path / name))


def test_results_may_lie_beside_the_data_and_be_written_again(tmp_path):
    (tmp_path / "train.txt").write_text("0 0:1\n")
    (tmp_path / "results.json").write_text("{}")
    for given in (tmp_path, tmp_path / "train.txt"):
        check_file(str(tmp_path / "results.json"), "--json", str(given), beside=str(tmp_path / "model"))
        check_folder(str(tmp_path / "model"), str(given))


def test_a_device_may_be_read_and_written():
    check_file(os.devnull, "--json", os.devnull)


def test_json_holds_plain_numbers_and_null_for_none():
    value = {"a": np.float32(0.5), "b": (np.int64(3), float("nan")), "c": Path("x"), 1: True}
    assert plain(value) == {"a": 0.5, "b": [3, None], "c": "x", "1": True}


def test_tables_align_and_mark_what_is_missing():
    text = table([("ours", {"P@1": 50.0, "P@5": None}), ("theirs", {"P@1": 7.125, "P@5": 1.0})], ["P@1", "P@5"])
    assert text.splitlines() == ["            P@1      P@5", "ours      50.00        -", "theirs     7.12     1.00"]
