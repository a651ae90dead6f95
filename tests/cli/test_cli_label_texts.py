"""`--label-texts`: a file of the texts of labels."""

from __future__ import annotations

import json

import pytest

from xmlsgd import load_model
from xmlsgd.cli import main

FLAGS = ["--hidden", "8", "--epochs", "1", "--candidates", "8", "--threads", "1", "--seed", "0"]
ROWS = [f"{label}\t{word} text {i}" for i in range(120) for label, word in (("a", "apple"), ("b", "bear"))]


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("\n".join(ROWS), encoding="utf-8")
    return file


def test_texts_by_label_bring_a_label_that_no_row_has(rows, tmp_path):
    texts = tmp_path / "labels.txt"
    texts.write_text("a\tapple\nc\tapple bear\n", encoding="utf-8")
    assert main(["train", str(rows), "--label-texts", str(texts), "--out", str(tmp_path / "model"), *FLAGS]) == 0
    model = load_model(tmp_path / "model")
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.label_counts_.tolist() == [120, 120, 0]


def test_evaluate_reports_the_recall_of_labels_without_training_rows(rows, tmp_path, capsys):
    texts, test = tmp_path / "labels.txt", tmp_path / "test.txt"
    texts.write_text("a\tapple\nc\tapple bear\n", encoding="utf-8")
    test.write_text("c\tapple bear\nc,d\tbear\n", encoding="utf-8")
    main(["train", str(rows), "--label-texts", str(texts), "--out", str(tmp_path / "model"), *FLAGS])
    assert main(["evaluate", str(tmp_path / "model"), str(test), "--json", str(tmp_path / "result.json")]) == 0
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (result["zero_shot_R@10"], result["zero_shot_labels"]) == (75.0, 3)
    assert "labels without training rows: R@10 75.00, 3 true ones" in capsys.readouterr().out


def test_line_i_is_the_text_of_label_i_beside_rows_of_numbers(tmp_path, capsys):
    train, texts, words = (tmp_path / name for name in ("train.txt", "labels.txt", "features.txt"))
    train.write_text("4 3 2\n" + "0 0:1\n1 1:1 2:1\n" * 2, encoding="utf-8")
    texts.write_text("0\tapple\n1\tbear\n2\tapple bear\n", encoding="utf-8")
    words.write_text("apple\nbear\ntext\n", encoding="utf-8")
    call = ["train", str(train), "--label-texts", str(texts), "--feature-names", str(words), "--dry-run"]
    assert main(call) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("label_rows")]
    assert line.split()[1] == "3"
    assert main(call[:4] + call[-1:]) == 2
    assert "pass feature_names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a\tapple\na\tbear\n", "labels.txt:2: a label must have one text, got 'a' twice"),
        ("0\tapple\n", "must have a line for each of 2 labels, got 1"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(rows, tmp_path, capsys, texts, message):
    file = tmp_path / "labels.txt"
    file.write_text(texts, encoding="utf-8")
    assert main(["train", str(rows), "--label-texts", str(file), "--dry-run"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--label-texts", "given"]])
def test_names_of_features_need_rows_of_numbers(rows, tmp_path, capsys, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").write_text("apple\n")
    assert main(["train", str(rows), "--dry-run", "--feature-names", "given", *more]) == 2
    assert "train.txt has words of its own; leave it out" in capsys.readouterr().err


def test_explanations_name_the_words_of_rows_of_numbers(tmp_path, capsys):
    train, words = tmp_path / "train.txt", tmp_path / "features.txt"
    train.write_text("4 3 2\n" + "0 0:1\n1 1:1 2:1\n" * 2, encoding="utf-8")
    words.write_text("apple\nbear\ntext\n", encoding="utf-8")
    model = str(tmp_path / "m")
    assert main(["train", str(train), "--feature-names", str(words), "--out", model, *FLAGS, "--candidates", "0"]) == 0
    capsys.readouterr()
    assert main(["predict", model, str(train), "--explain", "--k", "1"]) == 0
    assert "apple " in capsys.readouterr().out
