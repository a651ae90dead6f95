"""Documents as CSV, JSON lines and Annif corpora on the command line."""

from __future__ import annotations

import gzip
import json

import pytest

from shared.command_line import QUICK, run
from xmlsgd.cli import main
from xmlsgd.estimators import XMLClassifier

NAMES = ("Smith, J.", "open sea")
LINES = [(f"a book of {('waves', 'letters')[i % 2]} and number {i % 5}", NAMES[i % 2 :]) for i in range(40)]


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


WRITTEN = {
    "rows.csv": "text,labels\n" + "".join(f"{quoted(text)},{quoted(';'.join(names))}\n" for text, names in LINES),
    "rows.jsonl": "".join(json.dumps({"text": text, "labels": names}) + "\n" for text, names in LINES),
    "rows.txt": "".join(f"{';'.join(names)}\t{text}\n" for text, names in LINES),
    "rows.tsv": "".join(
        text + "\t" + " ".join(f"<http://x/{NAMES.index(name)}>" for name in names) + "\n" for text, names in LINES
    ),
}
FLAGS = {"rows.csv": ("--label-separator", ";"), "rows.txt": ("--label-separator", ";"), "rows.jsonl": ()}


@pytest.mark.parametrize("name", WRITTEN)
def test_names_with_commas_are_trained_evaluated_predicted_and_learned_on(tmp_path, capsys, name):
    path, vocabulary = tmp_path / name, tmp_path / "vocabulary"
    path.write_text(WRITTEN[name])
    vocabulary.write_text("".join(f"<http://x/{i}>\t{label}\n" for i, label in enumerate(NAMES)))
    flags = FLAGS.get(name, ("--vocabulary", vocabulary))
    run("train", path, "--out", tmp_path / "m", *QUICK, "--quiet", *flags)
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == sorted(NAMES)
    assert "warning" not in capsys.readouterr().err
    run("evaluate", tmp_path / "m", path, "--json", tmp_path / "r.json", *flags)
    assert json.loads((tmp_path / "r.json").read_text())["P@1"] == 100
    run("predict", tmp_path / "m", path, "--k", "1", "--out", tmp_path / "p", *flags)
    assert len((tmp_path / "p").read_text().splitlines()) == 40
    run("learn", tmp_path / "m", path, "--quiet", *flags)
    assert XMLClassifier.load(tmp_path / "m").n_samples_seen_ == 80


def test_an_annif_corpus_is_told_by_its_lines_and_bears_uris(tmp_path):
    (tmp_path / "rows").write_text(WRITTEN["rows.tsv"])
    run("train", tmp_path / "rows", "--out", tmp_path / "m", *QUICK, "--quiet", "--epochs", "1")
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == ["http://x/0", "http://x/1"]


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["train", "rows.tsv", "--out", "m", "--json"], "--json"),
        (["train", "rows.tsv", "--dry-run", "--label-texts", "given", "--json"], "--json"),
        (
            ["train", "rows.tsv", "--dry-run", "--label-texts", "rows.tsv", "--feature-names", "given", "--json"],
            "--json",
        ),
        (["learn", "m", "rows.tsv", "--json"], "--json"),
        (["evaluate", "m", "rows.tsv", "--per-label"], "--per-label"),
        (["predict", "m", "rows.tsv", "--out"], "--out"),
        (["simulate", "rows.tsv", "--fleet", "S1", "--json"], "--json"),
        (["convert", "rows.tsv", "--overwrite"], "TARGET"),
    ],
)
def test_results_do_not_replace_a_vocabulary_label_texts_or_feature_names(tmp_path, capsys, monkeypatch, words, flag):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.tsv").write_text(WRITTEN["rows.tsv"])
    (tmp_path / "given").write_text("<http://x/0>\tsea\n")
    vocabulary = [] if "given" in words else ["--vocabulary", "given"]
    assert main([*words, "given", *vocabulary]) == 2
    assert f"{flag} given: is an input of this command" in capsys.readouterr().err
    assert (tmp_path / "given").read_text() == "<http://x/0>\tsea\n"


@pytest.mark.parametrize("rows", ["rows.txt", "-"], ids=["a file", "standard input"])
@pytest.mark.parametrize("words", [("--vocabulary", "given"), ("--text-column", "a"), ("--label-column", "a")])
def test_a_flag_of_another_format_is_refused(tmp_path, capsys, monkeypatch, words, rows):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text(WRITTEN["rows.txt"])
    (tmp_path / "given").write_text("<http://x/0>\tsea\n")
    for call in ("train {} --dry-run", "learn m {}", "evaluate m {}", "predict m {}", "convert {} new"):
        assert main([*call.format(rows).split(), *words]) == 2
        assert f"xmlsgd: {words[0]}: needs a file read by --format " in capsys.readouterr().err


def test_files_of_groups_and_of_excluded_labels_may_be_compressed(tmp_path, capsys):
    rows, groups, excluded = (tmp_path / name for name in ("rows.jsonl", "groups.gz", "excluded.gz"))
    rows.write_text(WRITTEN["rows.jsonl"])
    groups.write_bytes(gzip.compress(b"a\nb\n" * 20))
    excluded.write_bytes(gzip.compress(b"open sea\nunknown\n"))
    run("train", rows, "--out", tmp_path / "m", *QUICK, "--quiet", "--epochs", "1", "--groups", groups)
    capsys.readouterr()
    run("predict", tmp_path / "m", rows, "--k", "1", "--exclude", excluded)
    told = capsys.readouterr()
    assert "open sea" not in told.out
    assert "excluded.gz:2: the model has no label 'unknown'; unknown labels exclude nothing" in told.err
