"""The command predict: labels and scores of rows and of text."""

from __future__ import annotations

import shutil
from pathlib import Path

from shared.command_line import N_TEST, TEST_ROWS, TEST_TEXT, in_a_process, run
from xmlsgd.estimators import XMLClassifier


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
    texts = "read a json file\n\nopen a socket\n"
    result = in_a_process("predict", models / "text", "-", "-k", "1", "--threads", "1", stdin=texts)
    assert result.returncode == 0, result.stderr
    names = [line.rpartition(":")[0] for line in result.stdout.splitlines()]
    assert len(names) == 3
    assert set(names) <= set(XMLClassifier.load(models / "text").classes_)
    assert result.stderr == ""


def test_rows_of_numbers_for_a_model_of_texts_are_warned_of(models, tmp_path, capsys):
    warning = "rows of numbers, but the model was trained on text, and feature j is its word j; pass texts"
    run("predict", models / "text", TEST_ROWS)
    assert f"{TEST_ROWS}: {warning}" in capsys.readouterr().err
    result = in_a_process("predict", models / "text", "-", "--threads", "1", stdin="1 3:0.5\n")
    assert (result.returncode, result.stdout.count("\n")) == (0, 1)
    assert f"warning: stdin: {warning}" in result.stderr


def test_predict_reads_rows_converted_with_the_words_of_the_model(models, tmp_path, capsys):
    run("convert", TEST_TEXT, tmp_path / "store", "--vectorizer", models / "text")
    run("predict", models / "text", TEST_TEXT, "--out", tmp_path / "of_texts")
    run("predict", models / "text", tmp_path / "store", "--out", tmp_path / "of_rows")
    assert (tmp_path / "of_texts").read_bytes() == (tmp_path / "of_rows").read_bytes()
    assert capsys.readouterr().err == ""


def test_a_huge_k_means_all_labels_and_huge_threads_all_processors(models, tmp_path):
    words = ["predict", models / "rows", TEST_ROWS, "--k", str(10**30), "--threads", str(10**6), "--quiet"]
    result = in_a_process(*words, "--out", tmp_path / "p.txt")
    assert (result.returncode, result.stderr) == (0, "")
    n_labels = len(XMLClassifier.load(models / "rows").classes_)
    assert {line.count(":") for line in (tmp_path / "p.txt").read_text().splitlines()} == {n_labels}


def test_predict_restores_a_model_set_aside_by_a_killed_writer(models, tmp_path, capsys):
    (tmp_path / ".m.0123abcd.partial").mkdir(0o700)
    shutil.copytree(models / "rows", tmp_path / ".m.0123abcd.partial" / "old")
    run("predict", tmp_path / "m", TEST_ROWS, "--k", "1")
    assert len(capsys.readouterr().out.splitlines()) == N_TEST
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_threshold_leaves_out_labels_of_lower_probability(models, capsys):
    run("predict", models / "rows", TEST_ROWS, "--threshold", "0.9999999")
    assert capsys.readouterr().out == "\n" * N_TEST
