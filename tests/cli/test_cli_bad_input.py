"""Wrong command lines and broken files: one line on stderr, and no file is changed."""

from __future__ import annotations

import gzip
import os
import shutil
import sys

import pytest

from shared.command_line import GOOD_ROWS, ROWS, TINY, complaint
from xmlsgd.cli import main
from xmlsgd.cli.exit_codes import UsageError
from xmlsgd.cli.input_options import InputOptions


@pytest.fixture(scope="module")
def small_models(small_models, tmp_path_factory):
    """The folder with good files, and files that are good for something else."""
    place = tmp_path_factory.mktemp("more") / "models"
    shutil.copytree(small_models, place)
    (place / "texts.csv").write_text("text,label\nread a file,open\nclose the file,close\n")
    (place / "spaces.txt").write_text("open,read    read a file\nclose    close the file\n" * 3)
    (place / "numbers.txt").write_text("0.5,1.5,2\n0.25,1.75,1\n")
    (place / "semicolons.txt").write_text("0;1 0:1\n1 2:1\n")
    (place / "counts.txt").write_text("5,1,2\n2,7,1\n")
    (place / "others.txt").write_text("a\tsome other words\na\tof other words\n")
    assert main(["convert", str(place / "others.txt"), str(place / "others"), "--quiet"]) == 0
    return place


TRAIN = ("--out", "{place}/new", "--json", "{place}/new.json", *TINY)

BROKEN_ROWS = {
    "label above the header": (b"1 6 3\n3 0:1\n", "2: label must be in [0, 3), got 3"),
    "feature above the header": (b"1 6 3\n0 6:1\n", "2: feature index must be in [0, 6), got 6"),
    "negative feature": (b"0 -1:1\n", "1: feature index must be in [0, "),
    "word as index": (b"0 one:1\n", "1: feature index must be a plain integer, got 'one'"),
    "no colon": (b"0 1:1\n1 5\n", "2: feature must be 'index:value', got '5'"),
    "nan": (b"0 1:nan\n", "1: feature value must be finite, got 'nan'"),
    "infinite": (b"0 1:-inf\n", "1: feature value must be finite, got '-inf'"),
    "too large for float32": (b"0 1:1e60\n", "1: feature value must fit float32, got '1e60'"),
    "word as value": (b"0 1:x\n", "1: feature value must be a number, got 'x'"),
    "feature twice": (b"0 1:1 1:2\n", '1: feature must come once in a row, got 1 twice; pass duplicates="sum"'),
    "fewer rows than promised": (b"3 6 3\n0 1:1\n", "1: header promises 3 rows, got 1"),
    "more rows than promised": (b"1 6 3\n0 1:1\n1 1:1\n", "1: header promises 1 rows, got 2"),
    "no label at all": (b" 1:1\n 2:1\n", ": file must have at least one label, got 2 rows without any"),
    "no feature at all": (b"1,2\n0\n", ": file must have at least one feature, got 2 rows without any"),
    "empty": (b"", ": file must have at least one row, got none"),
    "NUL byte": (b"0 1:1\n0 1:\0\n", "2: "),
    "not UTF-8": (b"0 1:1 #\xff\n", "1: file must be UTF-8 text, got byte 0xff"),
    "truncated gzip": (gzip.compress(b"0 1:1\n" * 999, mtime=0)[:40], "file must be readable to its end"),
}


@pytest.mark.parametrize("case", BROKEN_ROWS)
def test_a_broken_file_of_rows_is_named_with_line_and_reason(case, place, capsys):
    content, expected = BROKEN_ROWS[case]
    (place / "bad.txt").write_bytes(content)
    code, line = complaint(capsys, place, "train", "{place}/bad.txt", *TRAIN)
    assert code == 2
    assert line.startswith("bad.txt:")
    assert expected in line


BROKEN_TEXT = {
    "no tab": (
        b"open\tread\njust words\n",
        "bad.txt:2: must read `label1,label2<TAB>text`, got no tab in 'just words'",
    ),
    "not UTF-8": (b"open\tread\xff\n", "bad.txt:1: must be UTF-8, got byte 0xff"),
    "NUL byte": (b"open\tread a\nopen\tb\0\n", "bad.txt:2: must be text, got a NUL byte"),
    "no label": (b"\tread a file\n\tread the file\n", "bad.txt: must have at least one label, got none"),
    "no word": (b"open\t! ?\n", "bad.txt: no word of letters or digits occurs in at least min_df=1 texts"),
}


@pytest.mark.parametrize("case", BROKEN_TEXT)
def test_a_broken_file_of_text_is_named_with_line_and_reason(case, place, capsys):
    content, expected = BROKEN_TEXT[case]
    (place / "bad.txt").write_bytes(content)
    code, line = complaint(capsys, place, "train", "{place}/bad.txt", "--format", "raw", *TRAIN)
    assert code == 2
    assert line.startswith(expected)


MEANT = {
    "command": (("tran", "x"), "train"),
    "choice": (("convert", "x", "y", "--to", "stor"), "store"),
    "flag": (("train", ROWS, "--out", "y", "--epoch-s", "3"), "--epochs"),
    "flag of a command without parameters": (("info", "--jsno", "x"), "--json"),
    "loss": (("train", ROWS, "--out", "y", "--loss", "sofmax"), "softmax"),
    "algorithm": (("train", ROWS, "--out", "y", "--algorithm", "Hogwyld"), "hogwild"),
    "optimizer": (("train", ROWS, "--out", "y", "--optimizer", "adan"), "adam"),
    "schedule": (("train", ROWS, "--out", "y", "--schedule", "lineal"), "linear"),
    "one of several algorithms": (("simulate", ROWS, "--compare", "adaptive,hogwyld"), "hogwild"),
    "option of an algorithm": (
        ("train", ROWS, "--out", "y", "--algorithm", "adaptive/stragler_timeout=3"),
        "straggler_timeout",
    ),
    "device": (("train", ROWS, "--out", "y", "--devices", "cude:0"), "cuda"),
    "precision": (("compile", "--precision", "bf16"), "bfloat16"),
    "word for a number": (("train", ROWS, "--out", "y", "--lr", "atuo"), "auto"),
    "data set": (("train", "eurlex4k", "--out", "y"), "Eurlex-4K"),
}


@pytest.mark.parametrize("case", MEANT)
def test_an_error_suggests_what_was_meant(case, capsys):
    words, meant = MEANT[case]
    assert main(list(words)) == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {meant!r}?\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("info", "m"), "arguments: m; what is known of a model is in train.json in its folder"),
        (("predict", "m", ROWS, "--json"), "--json; pass --output-format json"),
        (("tune", ROWS, "--out", "m"), "--out m; no model is written; run the train command of the last line"),
        (("tune", ROWS, "--test", "t"), "--test t; validation rows are those of TRAIN; pass test rows to train"),
        (("tune", ROWS, "t"), "arguments: t; validation rows are those of TRAIN; pass test rows to train"),
        (("evaluate", "m", ROWS, "--test", "t"), "; the test rows are the second argument, xmlsgd evaluate DIR TEST"),
        (("predict", "m", ROWS, "--threshold", "mikro"), "or micro or macro, got 'mikro'; did you mean 'micro'?"),
        (("predict", "m", "read it"), "no such file or folder; for one text: echo 'read it' | xmlsgd predict m -"),
        (("predict", "m", "read"), "; for one text: echo read | xmlsgd predict m -"),
        (("predict", "m", "none.txt"), "none.txt: no such file or folder"),
    ],
)
def test_what_other_commands_take_is_answered_with_what_to_do(words, told, capsys):
    assert main(list(words)) == 2
    assert capsys.readouterr().err.endswith(f"{told}\n")


def test_the_device_gpu_is_refused_with_the_name_of_a_gpu(capsys):
    assert main(["train", ROWS, "--out", "y", "--devices", "gpu"]) == 2
    assert capsys.readouterr().err.endswith("got 'gpu'; a GPU is 'cuda:0'\n")


def test_a_missing_gpu_is_reported_before_the_data_are_read(place, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    code, line = complaint(capsys, place, "train", "{place}/counts.txt", *TRAIN, "--devices", "cuda:0,cpu")
    assert code == 2
    assert line.startswith("device 'cuda:0': CuPy ")


BAD_CALLS = {
    "no command": ((), "the following arguments are required: COMMAND; see xmlsgd --help"),
    "unknown command": (("fly",), "argument COMMAND: invalid choice: 'fly'"),
    "no out": (GOOD_ROWS, "the following arguments are required: --out; see xmlsgd train --help"),
    "unknown flag": ((*GOOD_ROWS, *TRAIN, "--speed", "9"), "unrecognized arguments: --speed 9"),
    "abbreviated flag": ((*GOOD_ROWS, *TRAIN, "--optim", "sgd"), "unrecognized arguments: --optim sgd"),
    "value missing": ((*GOOD_ROWS, *TRAIN, "--loss"), "argument --loss: expected one argument"),
    "word for a number": (
        (*GOOD_ROWS, *TRAIN, "--lr", "fast"),
        "argument --learning-rate-init: must be a number, or auto, got 'fast'; see xmlsgd train --help",
    ),
    "fraction for a count": ((*GOOD_ROWS, *TRAIN, "--epochs", "1.5"), "argument --max-epochs: must be a whole number"),
    "words for sizes": ((*GOOD_ROWS, *TRAIN, "--hidden", "8,x"), "--hidden-layer-sizes: must be whole numbers"),
    "no epochs": ((*GOOD_ROWS, *TRAIN, "--epochs", "0"), "max_epochs: must be 'auto' or a positive integer, got 0"),
    "no epochs and a broken file": (("train", "{place}/counts.txt", *TRAIN, "--epochs", "0"), "max_epochs: must be"),
    "negative rate": ((*GOOD_ROWS, *TRAIN, "--lr=-1"), "learning_rate_init: must be 'auto' or above 0, got -1.0"),
    "dropout of all": ((*GOOD_ROWS, *TRAIN, "--dropout", "1"), "hidden_dropout: must be in [0, 1), got 1.0"),
    "unknown loss": ((*GOOD_ROWS, *TRAIN, "--loss", "l2"), "loss must be one of bce, softmax, got 'l2'"),
    "unknown optimizer": ((*GOOD_ROWS, *TRAIN, "--optimizer", "adamw"), "optimizer must be one of adagrad, "),
    "unknown schedule": ((*GOOD_ROWS, *TRAIN, "--schedule", "step"), "learning_rate must be one of constant, "),
    "unknown algorithm": ((*GOOD_ROWS, *TRAIN, "--algorithm", "magic"), "algorithm must be one of "),
    "unknown device": ((*GOOD_ROWS, *TRAIN, "--devices", "tpu"), "devices: must be of the kinds cpu, cuda, got"),
    "unknown precision": ((*GOOD_ROWS, *TRAIN, "--precision", "int4"), "precision must be one of "),
    "no threads": ((*GOOD_ROWS, *TRAIN, "--threads", "0"), "n_jobs: must be None or an integer other than 0, got 0"),
    "missing file": (("train", "{place}/none.txt", *TRAIN), "none.txt"),
    "missing test file": ((*GOOD_ROWS, "--test", "{place}/none.txt", *TRAIN), "none.txt"),
    "learning on from nothing": (("learn", "{place}/none", "{place}/good.txt"), "none: no such folder"),
    "conversion to standard output": (
        ("convert", "{place}/good.txt", "-"),
        "TARGET -: convert writes no standard output",
    ),
    "evaluate without a model": (("evaluate", "{place}/none", "{place}/good.txt"), "none: no such folder"),
    "evaluate a file as a model": (
        ("evaluate", "{place}/good.txt", "{place}/good.txt"),
        "good.txt: is not a saved model: it is a file, a saved model is a folder",
    ),
    "learn with another folder as the model": (
        ("learn", "{place}", "{place}/good.txt"),
        "is not a saved model: MANIFEST.json is missing; pass the folder of a saved model",
    ),
    "evaluate with model and data swapped": (
        ("evaluate", "{place}/good.txt", "{place}/rows"),
        "good.txt: is not a saved model, but rows is; the model comes first: xmlsgd evaluate rows good.txt",
    ),
    "learn with model and data swapped": (
        ("learn", "{place}/good.txt", "{place}/rows"),
        "good.txt: is not a saved model, but rows is; the model comes first: xmlsgd learn rows good.txt",
    ),
    "learn from a model": (("learn", "{place}/words", "{place}/words"), "DIR words: is an input of this command"),
    "predict with model and data swapped": (
        ("predict", "{place}/store", "{place}/rows"),
        "store: is not a saved model, but rows is; the model comes first: xmlsgd predict rows store",
    ),
    "predict for a model": (("predict", "{place}/words", "{place}/words"), "words: must hold data, got a saved model"),
    "train on a model": (("train", "{place}/words", *TRAIN), "words: must hold data, got a saved model"),
    "train on text without labels": (
        ("train", "{place}/unlabelled.txt", *TRAIN),
        "unlabelled.txt:1: label must be a plain integer, got 'read'; a row reads `label,label",
    ),
    "convert text without labels into a new folder": (
        ("convert", "{place}/unlabelled.txt", "{place}/new/folder/store"),
        "unlabelled.txt:1: label must be a plain integer, got 'read'; a row reads",
    ),
    "test rows without their flag": (
        (*GOOD_ROWS, "{place}/good.txt", *TRAIN),
        "unrecognized arguments: good.txt; pass test rows by --test",
    ),
    "algorithms to compare separated by spaces": (
        ("simulate", "{place}/good.txt", "--compare", "hogwild", "crossbow"),
        "unrecognized arguments: crossbow; separate the values of --compare by commas",
    ),
    "numbers of a list separated by spaces": (
        (*GOOD_ROWS, "--ngram-range", "1", "1"),
        "unrecognized arguments: 1; separate the values of --ngram-range by commas",
    ),
    "evaluate at k = 0": (
        ("evaluate", "{place}/rows", "{place}/good.txt", "-k", "0"),
        "--k: must be a whole number of at least 1, got '0'",
    ),
    "evaluate at a huge k": (
        ("evaluate", "{place}/rows", "{place}/good.txt", "-k", "1000000000000"),
        "--k: must be at most the 3 labels of the model, or 100, got 1000000000000",
    ),
    "text for a model of rows": (
        ("evaluate", "{place}/rows", "{place}/text.txt"),
        "text.txt: the model was trained on numeric features and has no words, got text",
    ),
    "predict at k = 0": (
        ("predict", "{place}/rows", "{place}/good.txt", "--k", "0"),
        "--k: must be a whole number of at least 1, got '0'",
    ),
    "out without a name": (
        (*GOOD_ROWS, "--out", ""),
        "argument --out: must be a name, got ''; see xmlsgd train --help",
    ),
    "json without a name": (("info", "--json", ""), "argument --json: must be a name, got ''"),
    "no name to train on": (("train", "", *TRAIN), "argument TRAIN: must be a name, got ''"),
    "convert rows without features into a new folder": (
        ("convert", "{place}/counts.txt", "{place}/new/folder/rows.txt"),
        "file must have at least one feature, got 2 rows without any",
    ),
    "convert nothing": (("convert", "{place}/none.txt", "{place}/new"), "none.txt: no such file or folder"),
    "unknown form": (
        ("convert", "{place}/good.txt", "{place}/new", "--to", "csv"),
        "format must be one of libsvm, npz, split, store, got 'csv'",
    ),
    "train on CSV of texts": (
        ("train", "{place}/texts.csv", *TRAIN),
        "texts.csv:1: the header must have a column 'labels', got ['text', 'label']; pass --label-column",
    ),
    "train on texts with spaces for the tab": (
        ("train", "{place}/spaces.txt", *TRAIN),
        "spaces.txt:1: label must be a plain integer, got 'open'; a row reads",
    ),
    "train on CSV of numbers": (
        ("train", "{place}/numbers.txt", *TRAIN),
        "numbers.txt:1: label must be a plain integer, got '0.5'; a row reads",
    ),
    "train on CSV of whole numbers": (
        ("train", "{place}/counts.txt", *TRAIN),
        "file must have at least one feature, got 2 rows without any; a row reads",
    ),
    "predict for rows of other words": (
        ("predict", "{place}/words", "{place}/others"),
        "others: must have the words of the model, got others; convert it with --vectorizer MODEL",
    ),
    "no file of test rows": (
        (*GOOD_ROWS, "--test", "none", *TRAIN),
        "none: no such path, and no data set of this name",
    ),
    "no rows to predict for": (("predict", "{place}/rows", "{place}/none"), "none: no such file or folder"),
    "unknown algorithm to compare": (
        ("simulate", "{place}/good.txt", "--compare", "adaptive,foo"),
        "algorithm must be one of auto, adaptive, adaptive_hogbatch, ",
    ),
    "learners of devices that have one": (
        ("simulate", "{place}/good.txt", "--fleet", "S3", "--algorithm", "crossbow/learners=4"),
        "learners: with learners=4 each device must have 4 workers, got 'gpu 0, gpu 1, gpu 2, gpu 3'; list each 4",
    ),
    "unknown fleet": (
        ("simulate", "{place}/good.txt", "--fleet", "S9"),
        "--fleet: must be a scenario, one of S1, S2, S3, S4, S5, S6, S7, S8, or NAME:SPEED, as in gpu:1*2,cpu:.1",
    ),
    "a number for the name of a schedule": (
        (*GOOD_ROWS, "--out", "{place}/new", "--learning-rate", "0.1"),
        "got '0.1'; the rate itself is learning_rate_init (--lr)",
    ),
    "unknown data set": (
        ("train", "eurlex", *TRAIN),
        "eurlex: no such path, and no data set of this name; known are Bibtex, ",
    ),
    "simulate without rows": (
        ("simulate", "{place}/good.txt", "--rows", "0"),
        "--rows: must be a whole number of at least 1",
    ),
    "a batch without rows": ((*GOOD_ROWS, *TRAIN, "--batch", "0"), "batch_size: must be 'auto' or a positive"),
    "logistic loss": ((*GOOD_ROWS, *TRAIN, "--loss", "logistic"), "loss must be one of bce, softmax"),
    "labels separated by semicolons": (
        ("train", "{place}/semicolons.txt", *TRAIN),
        "semicolons.txt:1: label must be a plain integer, got '0;1'; a row reads `label,label",
    ),
    "words of a model of rows": (
        ("convert", "{place}/text.txt", "{place}/new", "--vectorizer", "{place}/rows"),
        "--vectorizer rows: has no words; pass a model that was trained on text",
    ),
    "propensities with a negative A": (
        ("evaluate", "{place}/rows", "{place}/good.txt", "--propensity-a", "-1"),
        "--propensity-a: must be from 0 to 10, got '-1'",
    ),
    "propensities with an A above 10": (
        ("evaluate", "{place}/rows", "{place}/good.txt", "--propensity-a", "10.5"),
        "--propensity-a: must be from 0 to 10, got '10.5'",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_wrong_command_line_is_refused_with_a_remedy(case, place, capsys):
    words, expected = BAD_CALLS[case]
    code, line = complaint(capsys, place, *words)
    assert code == 2
    assert expected in line


def test_more_features_than_the_model_knows_are_refused_with_both_numbers(place, capsys):
    (place / "wide.txt").write_text("1 9 3\n0 8:1\n")
    for command in ("evaluate", "predict"):
        code, line = complaint(capsys, place, command, "{place}/rows", "{place}/wide.txt")
        assert code == 2
        assert line.startswith("wide.txt: must have the 6 features of training, got 9; give the training file a header")


@pytest.mark.parametrize("name", ["params.npy", "model.json", "MANIFEST.json"])
def test_a_damaged_model_is_refused(place, capsys, name):
    file = place / "rows" / name
    file.write_bytes(file.read_bytes()[:-20])
    code, line = complaint(capsys, place, "predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/p.txt")
    assert code == 2
    assert line.startswith(f"rows/{name}: must ")


def test_a_diverging_run_fails_with_advice_and_leaves_no_model_and_no_folder(place, capsys):
    rows = "".join(f"{i % 3} {i % 5}:3e38\n" for i in range(64))
    (place / "huge.txt").write_text(rows)
    words = ("train", "{place}/huge.txt", "--out", "{place}/new/folder/model", *TINY)
    words += ("--optimizer", "sgd", "--lr", "1e38", "--batch", "32")
    code, line = complaint(capsys, place, *words)
    assert code == 1
    assert "the loss was not finite" in line
    assert "pass a lower one" in line
    (place / "plain.txt").write_text("".join(f"{i % 3} {i % 5}:1\n" for i in range(64)))
    words = ("train", "{place}/plain.txt", "--out", "{place}/m", *TINY, "--wd", "1e30", "--batch", "8")
    code, line = complaint(capsys, place, *words)
    assert code == 1
    assert "weight_decay=1e+30; pass a weight_decay below " in line


def test_no_file_is_opened_for_flags_that_are_not_given(monkeypatch, tmp_path):
    """A pipe gives its lines once, and is no file that flags of formats could look at."""
    opened = []

    def first_lines(path):
        opened.append(str(path))
        return []

    monkeypatch.setattr("xmlsgd.cli.input_options.first_lines", first_lines)
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    InputOptions().check_inputs(pipe, None)
    with pytest.raises(
        UsageError, match="--vocabulary: needs a file read by --format raw, csv, jsonl, annif or fasttext"
    ):
        InputOptions.of_flags(vocabulary="names.tsv").check_inputs(pipe)
    assert opened == []
