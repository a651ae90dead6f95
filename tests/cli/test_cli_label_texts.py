"""`--label-texts`: a file of the texts of labels."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xmlsgd import XMLClassifier, XMLEnsemble, load_model
from xmlsgd.cli import main
from xmlsgd.cli.label_texts import with_label_texts
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.vectorizer import TextVectorizer

FLAGS = ["--hidden", "8", "--epochs", "1", "--candidates", "8", "--threads", "1", "--seed", "0"]
ROWS = [f"{label}\t{word} text {i}" for i in range(120) for label, word in (("a", "apple"), ("b", "bear"))]


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("\n".join(ROWS), encoding="utf-8")
    return file


def test_texts_by_label_bring_a_label_that_no_row_has(rows, tmp_path):
    texts = tmp_path / "labels.txt"
    texts.write_text("a\tapple\nc\tapple bear\n\tof no label\n", encoding="utf-8")
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
    assert "R@10 of the 3 true labels without training rows: 75.00" in capsys.readouterr().out


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
    assert "pass feature_names (--feature-names)" in capsys.readouterr().err


def test_line_i_is_the_text_of_label_i_of_documents_with_numbers(tmp_path, capsys):
    """As in the files of LF-AmazonTitles, whose labels are line numbers."""
    documents, texts = tmp_path / "train.jsonl", tmp_path / "labels.txt"
    rows = [{"title": f"{word} text", "target": [label]} for label, word in ((10, "apple"), (2, "bear")) * 10]
    documents.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    texts.write_text("".join(f"word{number}\n" for number in range(12)), encoding="utf-8")
    call = ["train", str(documents), "--text-column", "title", "--label-column", "target", "--label-texts", str(texts)]
    assert main([*call, "--out", str(tmp_path / "model"), *FLAGS]) == 0
    model = load_model(tmp_path / "model")
    assert sorted(model.classes_.tolist(), key=int) == [str(number) for number in range(12)]
    best = model.predict_topk([f"word{number}" for number in range(12)], k=1)[0][:, 0]
    assert model.classes_[best].tolist() == [str(number) for number in range(12)]
    texts.write_text("".join(f"word{number}\n" for number in range(10)), encoding="utf-8")
    assert main([*call, "--out", str(tmp_path / "other"), *FLAGS]) == 2
    assert "labels.txt: must have a line for each label from 0 to 10, got 10 lines" in capsys.readouterr().err
    texts.write_text('{"uid": "1", "title": "apple"}\n', encoding="utf-8")
    assert main([*call, "--out", str(tmp_path / "other"), *FLAGS]) == 2
    assert "labels.txt:1: must read `label<TAB>text`, or a text a line, got JSON" in capsys.readouterr().err


def test_label_texts_are_matched_by_name_even_if_names_are_numbers():
    rows = CSR(np.arange(3), np.arange(2, dtype=np.int32), np.ones(2, np.float32), 2)
    train = Dataset(rows, rows, label_names=["10", "2"])
    _, texts = with_label_texts(train, [("2", "bear"), ("10", "apple")], "labels.txt")
    assert texts == ["apple", "bear"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a\tapple\na\tbear\n", "labels.txt:2: a label must have one text, got 'a' twice"),
        ("0\tapple\n", "2 labels, or lines that begin with names of labels, such as 'a', and a tab, got 1"),
        (
            "0\tapple\n1\tbear\n2\tcat\n",
            "2 labels, or lines that begin with names of labels, such as 'a', and a tab, got 3",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(rows, tmp_path, capsys, texts, message):
    file = tmp_path / "labels.txt"
    file.write_text(texts, encoding="utf-8")
    assert main(["train", str(rows), "--label-texts", str(file), "--dry-run"]) == 2
    assert message in capsys.readouterr().err


def test_a_label_with_two_texts_is_refused_before_words_are_chosen(rows, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("xmlsgd.cli.sources._fit_vectorizer", None)
    (tmp_path / "labels.txt").write_text("a\tapple\na\tbear\n", encoding="utf-8")
    assert main(["train", str(rows), "--label-texts", str(tmp_path / "labels.txt"), "--dry-run"]) == 2
    assert "labels.txt:2: a label must have one text, got 'a' twice" in capsys.readouterr().err


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


def test_a_model_learns_the_texts_of_new_labels(rows, tmp_path, capsys):
    new, texts, model = tmp_path / "new.txt", tmp_path / "labels.txt", str(tmp_path / "m")
    assert main(["train", str(rows), "--out", model, *FLAGS, "--quiet"]) == 0
    new.write_text("b\tbear text\nd\tapple bear\n", encoding="utf-8")
    texts.write_text("a\tapple\nc\tapple text\nd\tbear\ne\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["learn", model, str(new), "--label-texts", str(texts)]) == 0
    assert "3 new labels" in capsys.readouterr().out
    learned = load_model(model)
    assert learned.classes_.tolist() == ["a", "b", "d", "c", "e"]
    assert learned.label_counts_.tolist() == [120, 121, 1, 0, 0]
    found, _ = learned.predict_topk(["apple text"], 5)
    alone = tmp_path / "alone"
    assert main(["train", str(rows), "--out", str(alone), *FLAGS, "--quiet"]) == 0
    assert main(["learn", str(alone), str(new), "--quiet"]) == 0
    assert load_model(alone).classes_.tolist() == ["a", "b", "d"]
    assert found[0].tolist().index(3) < found[0].tolist().index(4)  # "c" has these words, "e" has none


def test_a_model_of_numbers_refuses_texts_of_new_labels(tmp_path, capsys):
    train, texts = tmp_path / "train.txt", tmp_path / "labels.txt"
    train.write_text("4 3 2\n" + "0 0:1\n1 1:1 2:1\n" * 2, encoding="utf-8")
    texts.write_text("apple\nbear\n", encoding="utf-8")
    assert main(["train", str(train), "--out", str(tmp_path / "m"), *FLAGS, "--candidates", "0", "--quiet"]) == 0
    assert main(["learn", str(tmp_path / "m"), str(train), "--label-texts", str(texts)]) == 2
    assert "--label-texts: the model was trained on numeric features and has no words; leave" in capsys.readouterr().err


def test_parameters_are_searched_with_label_texts_and_named_in_the_command(rows, tmp_path, capsys, monkeypatch):
    pytest.importorskip("optuna", reason='needs the extra "tune"')
    texts, seen = tmp_path / "labels.txt", []
    texts.write_text("a\tapple\nc\tapple bear\n", encoding="utf-8")
    fit = XMLClassifier._fit_data

    def watched(self, data, *given):
        if data.n_label_rows:  # not where kernels are compiled
            X, Y = (each.span(data.n_given_rows, data.all_rows.n_rows) for each in (data.all_rows.X, data.all_rows.Y))
            seen.append((Y.indices.tolist(), np.diff(X.indptr).tolist()))
        return fit(self, data, *given)

    monkeypatch.setattr(XMLClassifier, "_fit_data", watched)
    flags = ["--ngram-range", "1,2", "--label-texts", str(texts)]
    assert main(["tune", str(rows), *FLAGS, *flags, "--trials", "2", "--seconds", "1e9"]) == 0
    assert seen == [([0, 2], [1, 3])] * 2
    assert f"--ngram-range 1,2 --label-texts {texts}" in capsys.readouterr().out.splitlines()[-1]


def test_a_plan_has_label_rows_by_the_options_of_texts(rows, tmp_path, capsys):
    texts = tmp_path / "labels.txt"
    texts.write_text("a\tapple\nc\tapple bear\n", encoding="utf-8")
    given = ["--label-texts", str(texts), "--analyzer", "char_wb", "--ngram-range", "3,4"]
    assert main(["train", str(rows), *given, *FLAGS, "--dry-run"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("label_rows")]
    assert line.split()[1] == "2"


def test_an_ensemble_learns_label_texts_by_the_options_of_its_texts(monkeypatch):
    fit, seen = XMLClassifier._fit_data, []

    def watched(self, data, *given):
        seen.append(data.all_rows.X.span(data.n_given_rows, data.all_rows.n_rows).shape)
        return fit(self, data, *given)

    monkeypatch.setattr(XMLClassifier, "_fit_data", watched)
    classifier = XMLClassifier(
        (4,), max_epochs=1, n_jobs=1, candidates=0, vectorizer=TextVectorizer(ngram_range=(2, 2))
    )
    XMLEnsemble(classifier, 2).fit(["red car", "blue car"], [["a"], ["b"]], label_texts={"a": "red car", "b": "boat"})
    assert seen == [(1, 2)] * 2
