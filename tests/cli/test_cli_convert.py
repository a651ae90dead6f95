"""The command convert: rows go through all forms, and models take what it wrote."""

from __future__ import annotations

import gzip
import json

import numpy as np

from shared.command_line import QUICK, ROWS, TEST_TEXT, TEXT, run
from shared.paths import DATA
from xmlsgd.data.loading import load_folder
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.estimators import XMLClassifier


def same_rows(one, other):
    """Tell whether two data sets hold the same rows."""
    pairs = [(getattr(one, part), getattr(other, part)) for part in "XY"]
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for a, b in pairs for n in ("indptr", "indices", "data"))


def test_rows_are_unchanged_after_conversion_through_all_formats(tmp_path, capsys):
    run("convert", DATA, tmp_path / "split", "--to", "split")
    run("convert", tmp_path / "split", tmp_path / "npz", "--to", "npz")
    run("convert", tmp_path / "npz", tmp_path / "store")
    run("convert", tmp_path / "store", tmp_path / "text", "--to", "libsvm")
    for before, after in zip(load_folder(DATA), load_folder(tmp_path / "text"), strict=True):
        assert same_rows(before, after)
        assert list(before.label_names) == list(after.label_names)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in shown] == [str(tmp_path / n) for n in ("split", "npz", "store", "text")]


def test_convert_replaces_its_earlier_output_with_overwrite(tmp_path):
    (tmp_path / "few.txt").write_text("0 1:1\n1 0:1\n")
    for target in ("pair", "store", "rows.txt"):
        run("convert", DATA if target == "pair" else ROWS, tmp_path / target)
        run("convert", tmp_path / "few.txt", tmp_path / target, "--overwrite")
        assert load_folder(tmp_path / target)[0].n_rows == 2, target


def test_train_reads_a_store_converted_from_rows(tmp_path, models):
    run("convert", ROWS, tmp_path / "store")
    run("train", tmp_path / "store", "--out", tmp_path / "m", "--quiet", *QUICK)
    assert (tmp_path / "m" / "params.npy").read_bytes() == (models / "rows" / "params.npy").read_bytes()


def test_a_model_trained_on_converted_text_reads_text(tmp_path):
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


def test_a_model_trained_on_a_folder_of_converted_texts_reads_text(tmp_path):
    (tmp_path / "texts.txt").write_text("read\tread a file\nclose\tclose a file\n" * 3)
    run("convert", tmp_path / "texts.txt", tmp_path / "both" / "train")
    run("convert", tmp_path / "texts.txt", tmp_path / "both" / "test", "--vectorizer", tmp_path / "both" / "train")
    run("train", tmp_path / "both", "--out", tmp_path / "m", "--quiet", *QUICK, "--epochs", "1")
    words = TextVectorizer.from_files(tmp_path / "both" / "train").words
    assert XMLClassifier.load(tmp_path / "m").vectorizer_.words == words


def test_convert_reports_names_that_the_target_format_loses(tmp_path, capsys):
    told = "not kept there: the names of labels and the words of features; a store has them"
    run("convert", TEXT, tmp_path / "store")
    assert "not kept" not in capsys.readouterr().out
    run("convert", tmp_path / "store", tmp_path / "rows.txt")
    assert told in capsys.readouterr().out
    run("convert", TEXT, tmp_path / "text.txt")
    assert told in capsys.readouterr().out
    run("convert", tmp_path / "store", tmp_path / "npz", "--to", "npz")
    assert "not kept there: the words of features; a store" in capsys.readouterr().out
    run("convert", tmp_path / "rows.txt", tmp_path / "again")
    assert "not kept" not in capsys.readouterr().out


def test_the_suffix_of_the_target_selects_a_text_file_of_rows(tmp_path):
    run("convert", TEXT, tmp_path / "rows.txt.gz", "--analyzer", "word")
    with gzip.open(tmp_path / "rows.txt.gz", "rt") as stream:
        assert stream.readline() == "2108 2344 643\n"
