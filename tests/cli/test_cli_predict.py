"""The command predict: labels and scores of rows and of text."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from shared.command_line import N_TEST, QUICK, TEST_ROWS, TEST_TEXT, run
from xmlsgd.cli import main
from xmlsgd.data.loading import load_file
from xmlsgd.data.text import read_raw_text
from xmlsgd.estimators import XMLClassifier


def test_predictions_of_rows_are_label_and_probability_best_first(models, tmp_path):
    run("predict", models / "rows", TEST_ROWS, "--k", "3", "--out", tmp_path / "p.txt")
    lines = (tmp_path / "p.txt").read_text().splitlines()
    assert len(lines) == N_TEST
    for line in lines:
        labels, scores = zip(*(entry.split(":") for entry in line.split(" ")), strict=True)
        assert len(set(map(int, labels))) == 3
        assert sorted(map(float, scores), reverse=True) == list(map(float, scores))


def test_predictions_are_ranked_by_the_propensities_of_the_flags(models, tmp_path):
    power = ("--propensity-power", "1", "--propensity-a", "2", "--propensity-b", "0.1")
    run("predict", models / "rows", TEST_ROWS, "--out", tmp_path / "p.txt", *power)
    model, rows = XMLClassifier.load(models / "rows"), load_file(TEST_ROWS).X
    expected = model.predict_topk(rows, k=5, label_weight=model.inverse_propensity(2, 0.1))[0]
    assert (expected != model.predict_topk(rows, k=5, label_weight=model.inverse_propensity())[0]).any()
    lines = (tmp_path / "p.txt").read_text().splitlines()
    assert [[int(entry.split(":")[0]) for entry in line.split()] for line in lines] == expected.tolist()


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_outputs_are_compressed_if_their_names_say_so(models, tmp_path, suffix):
    for name in ("p.csv", f"p.csv{suffix}"):
        run("predict", models / "rows", TEST_ROWS, "--k", "1", "--out", tmp_path / name)
    run("evaluate", models / "rows", TEST_ROWS, "--per-label", tmp_path / f"labels{suffix}", "--quiet")
    assert (tmp_path / f"p.csv{suffix}").stat().st_size < (tmp_path / "p.csv").stat().st_size
    assert read_raw_text(tmp_path / f"p.csv{suffix}").texts == (tmp_path / "p.csv").read_text().splitlines()
    assert read_raw_text(tmp_path / f"labels{suffix}").texts[0].startswith("label,training_rows,")


def test_predictions_equal_those_of_the_estimator(models, tmp_path):
    run("predict", models / "text", TEST_TEXT, "--k", "2", "--out", tmp_path / "p.txt")
    texts = [line.partition("\t")[2] for line in Path(TEST_TEXT).read_text().splitlines()]
    model = XMLClassifier.load(models / "text")
    labels, chances = model.predict_topk(texts, k=2, proba=True)
    expected = [
        "\t".join(f"{model.classes_[j]}:{z:.6g}" for j, z in zip(*row, strict=True))
        for row in zip(labels, chances.tolist(), strict=True)
    ]
    assert (tmp_path / "p.txt").read_text().splitlines() == expected


def test_rows_of_numbers_for_a_model_of_texts_are_warned_of(models, capsys, give):
    warning = "numeric features, but the model was trained on text, and feature j is its word j; pass texts"
    run("predict", models / "text", TEST_ROWS)
    assert f"{TEST_ROWS}: {warning}" in capsys.readouterr().err
    code, out, err = give(b"1 3:0.5\n", "predict", models / "text", "-")
    assert (code, out.count("\n")) == (0, 1)
    assert f"stdin: {warning}" in err


def test_a_first_line_that_may_be_a_header_is_warned_of(models, tmp_path, capsys):
    (tmp_path / "texts.tsv").write_text("text\nread a file, or two\n")
    run("predict", models / "text", tmp_path / "texts.tsv", "--k", "1")
    out, err = capsys.readouterr()
    assert out.count("\n") == 2
    assert "texts.tsv: the first line, 'text', is a text, too; delete it if it is a header" in err


def test_predict_reads_rows_converted_with_the_words_of_the_model(models, tmp_path, capsys):
    run("convert", TEST_TEXT, tmp_path / "store", "--vectorizer", models / "text")
    run("predict", models / "text", TEST_TEXT, "--out", tmp_path / "of_texts")
    run("predict", models / "text", tmp_path / "store", "--out", tmp_path / "of_rows")
    assert (tmp_path / "of_texts").read_bytes() == (tmp_path / "of_rows").read_bytes()
    assert capsys.readouterr().err == ""


def test_a_huge_k_means_all_labels_and_huge_threads_all_processors(models, tmp_path, capsys):
    words = ["predict", models / "rows", TEST_ROWS, "--k", str(10**30), "--threads", str(10**6), "--quiet"]
    run(*words, "--out", tmp_path / "p.txt")
    assert capsys.readouterr().err == ""
    n_labels = len(XMLClassifier.load(models / "rows").classes_)
    assert {line.count(":") for line in (tmp_path / "p.txt").read_text().splitlines()} == {n_labels}


def test_a_threshold_leaves_out_labels_of_lower_probability(models, capsys):
    run("predict", models / "rows", TEST_ROWS, "--threshold", "0.9999999")
    assert capsys.readouterr().out == "\n" * N_TEST


def predicted(models, capsys, *words):
    run("predict", models / "text", TEST_TEXT, "--k", "3", *words)
    return capsys.readouterr().out.splitlines()


def test_predict_warns_if_labels_above_the_threshold_are_cut_off(models, capsys):
    words = ("predict", models / "text", TEST_TEXT, "--threshold", "0.0001")
    run(*words)
    out, err = capsys.readouterr()
    n_full = sum(line.count("\t") == 4 for line in out.splitlines())
    assert n_full > 0
    assert f"{n_full} of {N_TEST} rows have 5 labels above the threshold, and may have more; pass a larger --k" in err
    run(*words, "--k", "5")
    assert capsys.readouterr().err == ""


def test_a_row_with_all_labels_of_the_model_is_not_said_to_be_cut_off(tmp_path, capsys):
    (tmp_path / "train.txt").write_text("read\tread a file\nclose\tclose it\n" * 20)
    run("train", tmp_path / "train.txt", "--out", tmp_path / "m", "--quiet", *QUICK)
    run("predict", tmp_path / "m", tmp_path / "train.txt", "--threshold", "0")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("name", "missing"), [("d.csv", ""), ("d.jsonl", None)])
def test_rows_keep_their_identifiers(models, tmp_path, capsys, name, missing):
    ids, texts = ["B7", "a,1\tx", missing], ["read a file", "open a socket", "sort a list"]
    with (tmp_path / name).open("w", newline="") as file:
        if name == "d.csv":
            csv.writer(file).writerows([["sku", "text"], *zip(ids, texts, strict=True)])
        else:
            file.writelines(json.dumps({"sku": key, "text": text}) + "\n" for key, text in zip(ids, texts, strict=True))
    words = ("predict", models / "text", tmp_path / name, "--id-column", "sku", "--k", "1", "--output-format")
    run(*words, "csv")
    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert head[:3] == ["row", "id", "label_1"]
    assert [row[:2] for row in rows] == [["0", "B7"], ["1", "a,1\tx"], ["2", ""]]
    run(*words, "json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["row"], line["id"]) for line in lines] == [*enumerate(ids)]
    assert [line["labels"][0]["label"] for line in lines] == [row[2] for row in rows]
    run(*words, "text", "--explain")
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("  ")]
    assert [line.partition("\t")[0] for line in lines] == ["B7", "a,1\\tx", ""]


def test_json_and_csv_hold_what_text_holds(models, capsys):
    of_text = [[entry.rpartition(":")[::2] for entry in line.split("\t")] for line in predicted(models, capsys)]
    objects = [json.loads(line) for line in predicted(models, capsys, "--output-format", "json")]
    assert [each["row"] for each in objects] == list(range(N_TEST))
    found = [[(e["label"], f"{e['probability']:.6g}") for e in each["labels"]] for each in objects]
    assert found == of_text
    header, *rows = csv.reader(predicted(models, capsys, "--output-format", "csv"))
    assert header == ["row", "label_1", "probability_1", "label_2", "probability_2", "label_3", "probability_3"]
    assert [list(zip(row[1::2], row[2::2], strict=True)) for row in rows] == of_text


def test_csv_quotes_names_and_keeps_a_line_for_a_row_without_labels(models, tmp_path):
    text = 'says ""hello"";\tread a file\nb\tclose it\n' * 20
    (tmp_path / "train.txt").write_text(text)
    run("train", tmp_path / "train.txt", "--out", tmp_path / "m", "--quiet", *QUICK)
    (tmp_path / "t.txt").write_text("read a file\nclose it\n")
    words = ("predict", tmp_path / "m", tmp_path / "t.txt", "--output-format", "csv", "--out", tmp_path / "p.csv")
    run(*words, "--k", "1")
    _, first, second = csv.reader((tmp_path / "p.csv").read_text().splitlines())
    assert (first[1], second[1]) == ('says ""hello"";', "b")
    run(*words, "--k", "2", "--threshold", "1")
    assert (tmp_path / "p.csv").read_text().splitlines()[1:] == ["0,,,,", "1,,,,"]


def test_the_name_of_the_file_tells_the_format_unless_a_flag_does(models, tmp_path, capsys):
    words = ("predict", models / "rows", TEST_ROWS, "--k", "1", "--out")
    for name, flags, beginning in (
        ("p.csv", (), "row,label_1,"),
        ("P.CSV", (), "row,label_1,"),
        ("p.jsonl", (), '{"row": 0, '),
        ("p.tsv", (), r"\d+:0\."),
        ("q.csv", ("--output-format", "json"), '{"row": 0, '),
    ):
        run(*words, tmp_path / name, *flags)
        assert re.match(beginning, (tmp_path / name).read_text())
    assert main([*map(str, words), str(tmp_path / "p.npz")]) == 2
    told = capsys.readouterr().err
    assert "p.npz: predictions are text, JSON or CSV; choose another name; in Python" in told
    assert "predict_topk(X, k, as_csr=True, proba=True)" in told
    assert main([*map(str, words), str(tmp_path / "p.xlsx")]) == 2
    assert "p.xlsx: predictions are text, JSON or CSV; pass a name with .csv, and import" in capsys.readouterr().err
    assert not (tmp_path / "p.npz").exists()


@pytest.mark.filterwarnings("ignore:.* begin or end with a space")
def test_tabs_and_line_ends_in_names_end_no_entry(tmp_path, capsys):
    names = [["red\tapple"], ["two\nlines\r"]]
    model = XMLClassifier((4,), max_epochs=1, n_jobs=1).fit(["read a file", "close it"] * 20, names * 20)
    model.save(tmp_path / "m")
    (tmp_path / "t.txt").write_text("read a file\n")
    run("predict", tmp_path / "m", tmp_path / "t.txt", "--quiet")
    (line,) = capsys.readouterr().out.splitlines()
    assert {entry.rpartition(":")[0] for entry in line.split("\t")} == {r"red\tapple", r"two\nlines\r"}
    run("predict", tmp_path / "m", tmp_path / "t.txt", "--quiet", "--output-format", "csv")
    _, row = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert {row[1], row[3]} == {"red\tapple", "two\nlines\r"}


def test_thresholds_of_the_model_are_known_by_name(models, capsys):
    model = XMLClassifier.load(models / "text")
    texts = [line.partition("\t")[2] for line in Path(TEST_TEXT).read_text().splitlines()]
    for threshold in ("micro", "macro", "0.2"):
        lines = predicted(models, capsys, "--threshold", threshold)
        given = threshold if threshold.startswith("m") else float(threshold)
        labels, _ = model.predict_topk(texts, 3, threshold=given)
        assert [line.count(":") for line in lines] == (labels >= 0).sum(axis=1).tolist()
    assert main(["predict", str(models / "text"), TEST_TEXT, "--threshold", "1.5"]) == 2
    assert "--threshold: must be a probability in [0, 1], or micro or macro, got '1.5'" in capsys.readouterr().err


def test_excluded_labels_are_never_written_and_others_move_up(models, tmp_path, capsys):
    model = XMLClassifier.load(models / "text")
    often = model.classes_[np.argsort(-model.label_counts_)[:40]]
    (tmp_path / "deprecated.txt").write_text(
        "\n".join([*often[1:], f"{often[0]}\tits notation", "", "no such label"]) + "\n"
    )
    before = predicted(models, capsys)
    run("predict", models / "text", TEST_TEXT, "--k", "3", "--exclude", tmp_path / "deprecated.txt")
    said = capsys.readouterr()
    after = [[entry.rpartition(":")[0] for entry in line.split("\t")] for line in said.out.splitlines()]
    assert {len(names) for names in after} == {3}
    assert not set(often) & {name for names in after for name in names}
    kept = [[e.rpartition(":")[0] for e in line.split("\t") if e.rpartition(":")[0] not in often] for line in before]
    assert all(names[: len(first)] == first for names, first in zip(after, kept, strict=True))
    assert "deprecated.txt:42: the model has no label 'no such label'; unknown labels exclude nothing" in said.err


@pytest.mark.filterwarnings("ignore:.* is decomposed Unicode")
@pytest.mark.parametrize("learned", ["café", "cafe\u0301"])
def test_an_excluded_label_is_found_however_its_accents_are_written(tmp_path, capsys, learned):
    XMLClassifier((4,), max_epochs=1, n_jobs=1).fit(["a drink", "a fish"], [[learned], ["fish"]]).save(tmp_path / "m")
    (tmp_path / "deprecated.txt").write_text("cafe\u0301\n")
    (tmp_path / "new.txt").write_text("a drink\n")
    run("predict", tmp_path / "m", tmp_path / "new.txt", "--exclude", tmp_path / "deprecated.txt")
    said = capsys.readouterr()
    assert said.out.startswith("fish:")
    assert said.out.count(":") == 1
    assert "no label" not in said.err


def test_a_model_without_probabilities_writes_scores(tmp_path, capsys):
    (tmp_path / "train.txt").write_text("0 0:1\n1 1:1\n" * 10)
    run("train", tmp_path / "train.txt", "--out", tmp_path / "m", "--quiet", "--loss", "softmax", *QUICK)
    capsys.readouterr()
    words = ["predict", tmp_path / "m", tmp_path / "train.txt", "--k", "1"]
    run(*words, "--output-format", "json")
    assert "score" in json.loads(capsys.readouterr().out.splitlines()[0])["labels"][0]
    assert main([str(word) for word in (*words, "--threshold", "micro")]) == 2
    assert "threshold: needs a probability of each label by itself" in capsys.readouterr().err


def test_explanations_follow_the_lines_of_text_and_stand_beside_the_labels_of_json(models, tmp_path, capsys):
    (tmp_path / "t.txt").write_text("read a json file\nopen a socket\n")
    words = ("predict", models / "text", tmp_path / "t.txt", "--k", "2")
    run(*words)
    plain = capsys.readouterr().out.splitlines()
    run(*words, "--explain")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == plain
    assert sum("score" in line for line in lines) == 4
    run(*words, "--explain", "--output-format", "json", "--propensity-power", "1")
    for line in capsys.readouterr().out.splitlines():
        for entry in json.loads(line)["labels"]:
            found = entry["explanation"]
            assert abs(sum(term["contribution"] for term in found["terms"]) - found["score"]) < 1e-5
            assert all(isinstance(part["feature"], str) for part in found["features"])
    assert main([*map(str, words), "--explain", "--output-format", "csv"]) == 2
    assert "--explain: needs --output-format text or json, got csv" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "content"), [("day.csv", "text,labels\n"), ("day.jsonl", ""), ("day.txt", "\n")])
def test_an_export_without_documents_has_no_predictions(models, tmp_path, capsys, give, name, content):
    (tmp_path / name).write_text(content)
    run("predict", models / "text", tmp_path / name, "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().count("\n") == 1  # the header
    assert "has no document, so that nothing is predicted" in capsys.readouterr().err
    assert give(content.encode(), "predict", models / "text", "-")[:2] == (0, "")
