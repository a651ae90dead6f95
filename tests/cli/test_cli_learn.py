"""The command learn: adds rows to a saved model."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from shared.command_line import QUICK, ROWS, TEST_ROWS, TEST_TEXT, TEXT, complaint, run
from xmlsgd.cli import main, training_runs
from xmlsgd.cli.model_folder import manifest_of, unchanged
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.errors import ModelFileError
from xmlsgd.estimators import XMLClassifier

NEW = "a_label_never_seen\tread the yzzyva and close it\n" * 3


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Train a model on text."""
    folder = tmp_path_factory.mktemp("words") / "m"
    options = ("--analyzer", "word", "--epochs", "1", "--candidates", "16")
    run("train", TEXT, "--out", folder, "--quiet", *QUICK, *options)
    return folder


def test_a_text_model_that_learns_keeps_its_words_and_adds_rows_labels_and_words(tmp_path, words, capsys):
    first = XMLClassifier.load(words)
    (tmp_path / "new.txt").write_text(NEW)
    capsys.readouterr()
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "m")
    assert "added 3 rows" in (told := capsys.readouterr().out)
    assert "1 new label, 1 new word\n" in told
    second = XMLClassifier.load(tmp_path / "m")
    assert second.vectorizer_.words == [*first.vectorizer_.words, "yzzyva"]
    assert second.classes_.tolist() == [*first.classes_.tolist(), "a_label_never_seen"]
    assert second.n_samples_seen_ == first.n_samples_seen_ + 3
    assert second.candidates_.knn.Y.n_rows == first.candidates_.knn.Y.n_rows + 3


def test_texts_to_learn_are_vectorized_once(tmp_path, words, monkeypatch):
    (tmp_path / "new.txt").write_text(NEW)
    vectorized, rows_of = [], TextVectorizer.rows_of

    def noted(self, texts):
        vectorized.extend(texts)
        return rows_of(self, texts)

    monkeypatch.setattr(TextVectorizer, "rows_of", noted)
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "m", "--json", tmp_path / "r.json", "--quiet")
    assert [text for text in vectorized if text] == ["read the yzzyva and close it"] * 3
    sizes = json.loads((tmp_path / "r.json").read_text())["data"]["train"]
    assert (sizes["rows"], sizes["label_nnz"], "nnz" in sizes) == (3, 3, False)


def test_a_model_of_numbers_learns_rows_with_fewer_and_with_new_columns_in_its_own_folder(tmp_path):
    run("train", ROWS, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1")
    first = XMLClassifier.load(tmp_path / "m")
    n_features, n_labels = first.n_features_in_, len(first.classes_)
    for text in ("0 1:1\n", f"{n_labels} {n_features}:1\n"):
        Path(tmp_path, "new.txt").write_text(text)
        run("learn", tmp_path / "m", tmp_path / "new.txt", "--quiet")
    second = XMLClassifier.load(tmp_path / "m")
    assert (second.n_features_in_, len(second.classes_)) == (n_features + 1, n_labels + 1)
    assert second.n_samples_seen_ == first.n_samples_seen_ + 2


@pytest.mark.parametrize(
    ("mark", "n", "is_refused"), [(";", 1, True), (", ", 1, False), (", ", 3, True), ("><", 1, True), (" ", 1, False)]
)
def test_known_labels_with_another_separator_are_refused_before_they_are_learned(tmp_path, capsys, mark, n, is_refused):
    (tmp_path / "rows.csv").write_text("text,labels\n" + "read the file,sea|tale\nwrite it,poem\n" * 5)
    run("train", tmp_path / "rows.csv", "--out", tmp_path / "m", "--quiet", *QUICK, "--label-separator", "|")
    pairs = ("sea", "tale"), ("tale", "poem"), ("poem", "sea")
    joined = [f"<{a}><{b}>" if mark == "><" else f"{a}{mark}{b}" for a, b in pairs[:n]]
    (tmp_path / "new.csv").write_text("text,labels\n" + "".join(f'read a file,"{name}"\n' for name in joined))
    capsys.readouterr()
    assert main(["learn", str(tmp_path / "m"), str(tmp_path / "new.csv"), "--quiet"]) == (2 if is_refused else 0)
    err, learned = capsys.readouterr().err, len(XMLClassifier.load(tmp_path / "m").classes_)
    assert f"--label-separator '{'|' if mark == '><' else mark.strip() or mark}'" in err
    assert (learned, f"{n} of {n} new labels that are known ones" in err) == ((3, True) if is_refused else (4, False))


def test_known_labels_with_several_separators_are_refused_but_not_those_of_a_store(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("text,labels\n" + "read the file,sea\nwrite it,poem\n" * 5)
    run("train", tmp_path / "rows.csv", "--out", tmp_path / "m", "--quiet", *QUICK)
    (tmp_path / "mixed.txt").write_text("sea|poem\tread\nsea;poem\twrite\n")
    assert main(["learn", str(tmp_path / "m"), str(tmp_path / "mixed.txt"), "--quiet"]) == 2
    assert "2 of 2 new labels that are known ones" in capsys.readouterr().err
    (tmp_path / "rows.jsonl").write_text('{"text": "read", "labels": ["sea;poem"]}\n')
    run("convert", tmp_path / "rows.jsonl", tmp_path / "store", "--vectorizer", tmp_path / "m", "--quiet")
    run("learn", tmp_path / "m", tmp_path / "store", "--quiet")
    assert "sea;poem" in XMLClassifier.load(tmp_path / "m").classes_


def test_learning_makes_the_folders_above_its_output(tmp_path, words):
    Path(tmp_path, "new.txt").write_text(NEW)
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "of" / "today", "--quiet")
    before, after = (XMLClassifier.load(path) for path in (words, tmp_path / "of" / "today"))
    assert after.n_samples_seen_ == before.n_samples_seen_ + 3


def test_learning_measures_before_and_after(tmp_path):
    (tmp_path / "few.txt").write_text("\n".join(Path(TEXT).read_text().splitlines()[:500]))
    run("train", tmp_path / "few.txt", "--out", tmp_path / "m", "--quiet", "--analyzer", "word", *QUICK)
    run("learn", tmp_path / "m", TEXT, "--test", TEST_TEXT, "--json", tmp_path / "r.json", "--quiet")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["P@5"] > result["before"]["P@5"] + 2 > 2
    assert json.loads((tmp_path / "m" / "train.json").read_text())["before"] == result["before"]


def test_text_is_refused_by_a_model_of_numbers(tmp_path, capsys):
    run("train", ROWS, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1")
    (tmp_path / "new.txt").write_text(NEW)
    assert main(["learn", str(tmp_path / "m"), str(tmp_path / "new.txt")]) == 2
    assert "the model was trained on numeric features and has no words, got text" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "report", "learn"])
def test_names_of_labels_are_refused_by_a_model_of_numbered_labels(tmp_path, capsys, command):
    texts, Y = ["read a file", "write a file"] * 5, [[1, 0], [0, 1]] * 5
    model = XMLClassifier((4,), max_epochs=1, candidates=0, random_state=0).fit(texts, np.array(Y))
    model.save(tmp_path / "model")
    (tmp_path / "names.txt").write_text("reading\tread\n")
    (tmp_path / "numbers.txt").write_text("0\tread\n1\twrite\n")
    code, message = complaint(capsys, tmp_path, command, "{place}/model", "{place}/names.txt")
    assert code == 2
    assert message.startswith("names.txt: must have labels from 0 to 1, since the model was trained on numbered ones")
    run("evaluate", tmp_path / "model", tmp_path / "numbers.txt", "--json", tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text())["data"]["test"]["labels"] == 2
    run("learn", tmp_path / "model", tmp_path / "numbers.txt", "--quiet")
    assert XMLClassifier.load(tmp_path / "model").label_counts_.tolist() == [6, 6]


def test_labels_and_words_of_test_rows_are_matched_with_those_that_are_learned(tmp_path, words):
    (tmp_path / "new.txt").write_text("a_new\tread a file\n" + "b_new\tclose the socket\n" * 9)
    (tmp_path / "test.txt").write_text("b_new\tclose the socket\n")
    results = ("--out", tmp_path / "m", "--json", tmp_path / "r.json", "--quiet")
    run("learn", words, tmp_path / "new.txt", "--test", tmp_path / "test.txt", *results)
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["before"]["R@5"], result["R@5"]) == (0, 100)


def test_test_rows_are_measured_by_the_words_that_are_learned(tmp_path, words):
    (tmp_path / "new.txt").write_text("a_new\tyzzyva\n" * 3)
    (tmp_path / "test.txt").write_text("a_new\tyzzyva\n")
    results = ("--out", tmp_path / "m", "--json", tmp_path / "r.json", "--quiet")
    run("learn", words, tmp_path / "new.txt", "--test", tmp_path / "test.txt", *results)
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["before"]["P@1"], result["P@1"]) == (0, 100)


def test_test_texts_are_read_once_so_that_no_error_loses_what_was_learned(tmp_path, words, monkeypatch):
    (tmp_path / "new.txt").write_text("a_new\tyzzyva\n" * 3)
    (tmp_path / "test.txt").write_text("a_new\tyzzyva\n")
    learn = XMLClassifier.partial_fit

    def learn_and_remove(*given, **more):
        (tmp_path / "test.txt").unlink()
        return learn(*given, **more)

    monkeypatch.setattr(XMLClassifier, "partial_fit", learn_and_remove)
    run("learn", words, tmp_path / "new.txt", "--test", tmp_path / "test.txt", "--out", tmp_path / "m", "--quiet")
    assert XMLClassifier.load(tmp_path / "m").classes_[-1] == "a_new"


def test_a_model_of_numbers_that_learns_new_features_is_measured_before_and_after(tmp_path):
    run("train", ROWS, "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1")
    first = XMLClassifier.load(tmp_path / "m")
    (tmp_path / "new.txt").write_text(f"{len(first.classes_)} {first.n_features_in_}:1\n")
    run("learn", tmp_path / "m", tmp_path / "new.txt", "--test", TEST_ROWS, "--json", tmp_path / "r.json", "--quiet")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["P@1"] == pytest.approx(result["before"]["P@1"], abs=5)


def test_a_new_label_that_differs_from_a_known_one_in_case_alone_is_warned_of(tmp_path, words, capsys):
    name = next(name for name in XMLClassifier.load(words).classes_ if name != name.upper())
    (tmp_path / "new.txt").write_text(f"{name.upper()},never_seen,{name}\tread a file\n")
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "m")
    told = f"1 of 2 new labels differ from one of the model in case alone, such as {name.upper()!r} and {name!r}; write"
    assert told in capsys.readouterr().err
    run("learn", tmp_path / "m", tmp_path / "new.txt")  # known by now
    assert "case" not in capsys.readouterr().err


def test_a_few_rows_of_known_labels_are_not_warned_of(tmp_path, words, capsys):
    names = XMLClassifier.load(words).classes_.tolist()[1:31]
    (tmp_path / "new.txt").write_text("".join(f"{name}\tread a file\n" for name in names))
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "m")
    run("train", ROWS, "--out", tmp_path / "n", "--quiet", *QUICK, "--epochs", "1")
    (tmp_path / "rows.txt").write_text("".join(f"{label} {label}:1\n" for label in range(1, 31)))
    run("learn", tmp_path / "n", tmp_path / "rows.txt")
    assert "warning" not in capsys.readouterr().err
    few_are_known = [*names[:10], *(f"new {i}" for i in range(20))]
    (tmp_path / "new.txt").write_text("".join(f"{name}\tread a file\n" for name in few_are_known))
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "m", "--overwrite")
    (tmp_path / "no_labels.csv").write_text("text,labels\n" + "read it,\n" * 30)
    run("learn", words, tmp_path / "no_labels.csv", "--out", tmp_path / "m", "--overwrite")
    assert "warning" not in capsys.readouterr().err
    (tmp_path / "new.txt").write_text("".join(f"read it\t<http://x.org/{i}> <http://x.org/1>\n" for i in range(30)))
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "m", "--overwrite")
    assert "new.txt: the model knows 0 % of its labels; the others become new labels" in capsys.readouterr().err


@pytest.mark.parametrize("labels", ["read, a new label", "new;read", "a_label_never_seen"])
def test_texts_before_the_tab_are_not_learned_as_labels(tmp_path, words, capsys, labels):
    """Next week's records without the header, text<TAB>labels, that those of training had."""
    rows = "".join(f"read a file {i}\t{labels}\n" for i in range(3))
    (tmp_path / "new.txt").write_text(rows)
    code, told = complaint(capsys, tmp_path, "learn", str(words), "{place}/new.txt", "--out", "{place}/m")
    assert code == 2
    assert "labels must stand before the tab, and texts behind it, got the label 'read a file 0' and the te" in told
    assert not (tmp_path / "m").exists()
    run("predict", words, tmp_path / "new.txt", "--out", tmp_path / "best.txt")
    assert "new.txt: labels must stand before the tab" in capsys.readouterr().err
    (tmp_path / "new.txt").write_text("labels\ttext\n" + rows)
    run("learn", words, tmp_path / "new.txt", "--out", tmp_path / "m")
    assert "read a file 0" in XMLClassifier.load(tmp_path / "m").classes_


@pytest.mark.parametrize("out", ["m", "new"])
def test_a_model_that_another_process_has_saved_meanwhile_is_not_replaced(tmp_path, words, monkeypatch, capsys, out):
    model, folder = shutil.copytree(words, tmp_path / "m"), tmp_path / out
    (tmp_path / "new.txt").write_text(NEW)
    before, learn = XMLClassifier.load(model).n_samples_seen_, training_runs.learn
    given = ["--out", str(folder)] if folder != model else []
    call = ["learn", str(model), str(tmp_path / "new.txt"), "--quiet", *given]

    def learn_after_another(*arguments):
        monkeypatch.setattr(training_runs, "learn", learn)
        assert main(call) == 0
        return learn(*arguments)

    monkeypatch.setattr(training_runs, "learn", learn_after_another)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(call) == 1
    (spare,) = tmp_path.glob(f"xmlsgd-model-*/{out}")
    wrong = f"{folder}: another process has changed the model meanwhile; the model is in {spare} instead"
    assert capsys.readouterr().err == f"xmlsgd: {wrong}\n"
    assert [XMLClassifier.load(each).n_samples_seen_ for each in (folder, spare)] == [before + 3] * 2


def test_processes_that_have_learned_at_once_do_not_replace_the_same_model(tmp_path, words):
    model = str(shutil.copytree(words, tmp_path / "m"))
    manifest = manifest_of(model)
    with (
        unchanged(model, manifest),
        pytest.raises(ModelFileError, match="is saving a model"),
        unchanged(model, manifest),
    ):
        pass
    with unchanged(model, manifest):
        assert manifest_of(model) == manifest


def test_a_model_of_labels_counted_from_one_has_the_labels_of_the_file(tmp_path):
    (tmp_path / "rows.txt").write_text("1 1:1 3:1\n2 2:1 3:1\n" * 20)
    (tmp_path / "more.txt").write_text("5 1:1 2:1\n2 2:1 3:1\n1 1:1 3:1\n" * 20)
    (tmp_path / "excluded.txt").write_text("2\n")
    call = ("train", tmp_path / "rows.txt", "--test", tmp_path / "more.txt", "--out", tmp_path / "m", "--checkpoint", 0)
    run(*call, "--one-based", "--one-based-labels", *QUICK, "--quiet")
    predict = ("predict", tmp_path / "m", tmp_path / "rows.txt", "--k", "1", "--out", tmp_path / "p")
    run(*predict)
    assert [line.split(":")[0] for line in (tmp_path / "p").read_text().splitlines()] == ["1", "2"] * 20
    run(*predict, "--exclude", tmp_path / "excluded.txt")
    assert {line.split(":")[0] for line in (tmp_path / "p").read_text().splitlines()} == {"1"}
    run("evaluate", tmp_path / "m", tmp_path / "more.txt", "--per-label", tmp_path / "labels.csv")
    rows = {line.split(",")[0]: line.split(",")[2] for line in (tmp_path / "labels.csv").read_text().splitlines()[1:]}
    assert rows == {"1": "20", "2": "20", "3": "0", "4": "0", "5": "20"}
    run("learn", tmp_path / "m", tmp_path / "more.txt", "--quiet")
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == [1, 2, 3, 4, 5]
