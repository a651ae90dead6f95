"""Flags that say how words of texts become features: where they work, and where they are refused."""

from __future__ import annotations

import pytest

from shared.command_line import TINY, run
from xmlsgd.cli import main
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.estimators import XMLClassifier

FLAGS = ["--ngram-range", "1,2", "--max-df", "0.9", "--max-features", "9", "--no-sublinear-tf"]
FLAGS_OF_TEXTS = ("--min-df", "--max-df", "--max-features", "--ngram-range", "--analyzer", "--stop-words")


@pytest.fixture
def stop_words(tmp_path):
    path = tmp_path / "stop"
    path.write_text("the\n\n a \nCLOSE\n")
    return path


def test_a_model_keeps_the_options_of_its_texts_and_predicts_and_learns_with_them(place, stop_words, capsys):
    flags = [*FLAGS, "--stop-words", stop_words]
    run("train", place / "text.txt", "--out", place / "m", *TINY, *flags, "--quiet", "--overwrite")
    vectorizer = XMLClassifier.load(place / "m").vectorizer_
    given = {"min_df": 1, "max_df": 0.9, "max_features": 9, "ngram_range": (1, 2), "analyzer": "word"}
    assert vectorizer.options == given | {"stop_words": ["CLOSE", "a", "the"], "sublinear_tf": False}
    assert vectorizer.words == ["file", "open", "open file", "read", "read file"][1:]
    run("learn", place / "m", place / "text.txt", "--quiet")
    assert XMLClassifier.load(place / "m").vectorizer_.words == vectorizer.words
    capsys.readouterr()
    run("predict", place / "m", place / "unlabelled.txt", "--explain", "--k", "1")
    assert "read file" in capsys.readouterr().out


def test_n_grams_of_characters_are_converted_and_trained_on(place):
    flags = ["--analyzer", "char_wb", "--ngram-range", "3,4"]
    run("convert", place / "text.txt", place / "store-2", *flags)
    words = TextVectorizer.from_files(place / "store-2").words
    assert " op" in words
    assert {len(word) for word in words} == {3, 4}
    run("train", place / "store-2", "--out", place / "m", *TINY, "--quiet")
    assert XMLClassifier.load(place / "m").vectorizer_.words == words


def test_a_line_of_stop_words_that_is_more_than_one_is_named(place, capsys):
    (place / "several.txt").write_text("the\n\na\tb\n")
    code = main(["train", str(place / "text.txt"), "--out", "m", "--stop-words", str(place / "several.txt")])
    assert code == 2
    assert capsys.readouterr().err.endswith("several.txt:3: must be one word, got 'a\\tb'; write one word a line\n")


@pytest.mark.parametrize("command", ["learn", "evaluate", "report", "predict", "simulate"])
def test_commands_that_make_no_features_have_no_flags_of_texts(command, capsys):
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert not [flag for flag in FLAGS_OF_TEXTS if flag in shown]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "good.txt", "--out", "m", "--min-df", "2"], "--min-df: needs texts whose words become features"),
        (["train", "store", "--out", "m", "--no-sublinear-tf"], "--sublinear-tf: needs texts whose words become"),
        (["convert", "good.txt", "t", "--no-sublinear-tf"], "got good.txt, which holds numeric features; leave it"),
        (["convert", "text.txt", "t", "--vectorizer", "words", "--max-df", "2"], "got those of --vectorizer words"),
        (["train", "text.txt", "--out", "m", "--ngram-range", "2,1"], "ngram_range: must be two integers from 1 to 16"),
        (["train", "text.txt", "--out", "m", "--ngram-range", "2"], "ngram_range: must be two integers from 1 to 16"),
        (["train", "text.txt", "--out", "m", "--ngram-range", "1-2"], "must be whole numbers with commas"),
        (["train", "text.txt", "--out", "m", "--stopwords", "s"], "--stopwords s; did you mean '--stop-words'?"),
        (["tune", "text.txt", "--max-df", "some"], "argument --max-df: must be a number of texts or a share, got"),
        (["tune", "text.txt", "--min-df", "1.5"], "min_df: must be a positive integer, or a float in (0, 1], got 1.5"),
        (["train", "text.txt", "--out", "m", "--analyzer", "words"], "did you mean 'word'?"),
        (
            ["train", "text.txt", "--out", "m", "--stop-words", "none.txt"],
            "no such file; pass a file of words, one a line",
        ),
        (["train", "empty.txt", "--out", "m", "--min-df", "2"], "empty.txt: file must have at least one row, got none"),
        (["convert", "text.txt", "good.txt", "--stop-words", "good.txt"], "TARGET good.txt: is an input"),
    ],
)
def test_wrong_flags_of_texts_are_refused_in_a_line(place, monkeypatch, capsys, words, message):
    pytest.importorskip("optuna")
    monkeypatch.chdir(place)
    (place / "empty.txt").touch()
    assert main(words) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
