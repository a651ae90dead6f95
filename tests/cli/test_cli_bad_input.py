"""Wrong calls and broken files: one line on stderr that says where and what, and nothing left behind."""

from __future__ import annotations

import gzip
import os

import pytest

from shared.command_line import TINY
from xmlsgd.cli import main


def files_below(folder):
    """Return name and content of all files."""
    return {str(f.relative_to(folder)): f.read_bytes() if f.is_file() else None for f in folder.rglob("*")}


@pytest.fixture
def place(place):
    """The folder with good files, and files that are good for something else."""
    (place / "texts.csv").write_text("text,label\nread a file,open\nclose the file,close\n")
    (place / "numbers.csv").write_text("0.5,1.5,2\n0.25,1.75,1\n")
    (place / "counts.csv").write_text("5,1,2\n2,7,1\n")
    (place / "others.txt").write_text("a\tsome other words\na\tof other words\n")
    assert main(["convert", str(place / "others.txt"), str(place / "others"), "--quiet"]) == 0
    return place


def complaint(capsys, place, *words):
    """Run a call that must fail and leave all files as they are; return its exit code and its one line."""
    before = files_below(place)
    capsys.readouterr()
    code = main([word.format(place=place) for word in words])
    out, err = capsys.readouterr()
    assert out == ""
    assert files_below(place) == before
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert err.startswith("xmlsgd: ")
    return code, err[len("xmlsgd: ") : -1].replace(f"{place}/", "")


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
    "truncated gzip": (gzip.compress(b"0 1:1\n" * 999)[:40], "file must be readable to its end"),
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
    "no word twice": (b"open\tread a file\n", "texts: no word occurs in at least min_df=2 texts"),
}


@pytest.mark.parametrize("case", BROKEN_TEXT)
def test_a_broken_file_of_text_is_named_with_line_and_reason(case, place, capsys):
    content, expected = BROKEN_TEXT[case]
    (place / "bad.txt").write_bytes(content)
    code, line = complaint(capsys, place, "train", "{place}/bad.txt", "--format", "raw", *TRAIN)
    assert code == 2
    assert line.startswith(expected)


MEANT = {
    "verb": (("tran", "x"), "train"),
    "choice": (("convert", "x", "y", "--to", "stor"), "store"),
    "flag": (("train", "x", "--out", "y", "--epoch-s", "3"), "--epochs"),
    "flag of a verb without parameters": (("info", "--jsno", "x"), "--json"),
    "loss": (("train", "x", "--out", "y", "--loss", "sofmax"), "softmax"),
    "algorithm": (("train", "x", "--out", "y", "--algorithm", "Hogwyld"), "hogwild"),
    "optimizer": (("train", "x", "--out", "y", "--optimizer", "adan"), "adam"),
    "schedule": (("train", "x", "--out", "y", "--schedule", "lineal"), "linear"),
    "blend": (("train", "x", "--out", "y", "--blend", "boost"), "boosted"),
    "device": (("train", "x", "--out", "y", "--devices", "cude:0"), "cuda"),
    "precision": (("warmup", "--precision", "bf16"), "bfloat16"),
    "word for a number": (("train", "x", "--out", "y", "--lr", "atuo"), "auto"),
    "data set": (("train", "eurlex4k", "--out", "y"), "Eurlex-4K"),
}


@pytest.mark.parametrize("case", MEANT)
def test_what_was_meant_is_told(case, capsys):
    words, meant = MEANT[case]
    assert main(list(words)) == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {meant!r}?\n")


def test_who_asks_for_a_gpu_is_told_its_name(capsys):
    assert main(["train", "x", "--out", "y", "--devices", "gpu"]) == 2
    assert capsys.readouterr().err.endswith("got 'gpu'; a GPU is 'cuda:0'\n")


GOOD_ROWS = ("train", "{place}/good.txt")
BAD_CALLS = {
    "no verb": ((), "the following arguments are required: VERB; see xmlsgd --help"),
    "unknown verb": (("fly",), "argument VERB: invalid choice: 'fly'"),
    "no out": (GOOD_ROWS, "the following arguments are required: --out; see xmlsgd train --help"),
    "unknown flag": ((*GOOD_ROWS, *TRAIN, "--speed", "9"), "unrecognized arguments: --speed 9"),
    "abbreviated flag": ((*GOOD_ROWS, *TRAIN, "--optim", "sgd"), "unrecognized arguments: --optim sgd"),
    "value missing": ((*GOOD_ROWS, *TRAIN, "--loss"), "argument --loss: expected one argument"),
    "word for a number": (
        (*GOOD_ROWS, *TRAIN, "--lr", "fast"),
        "argument --learning-rate-init: must be a number, got 'fast'; see xmlsgd train --help",
    ),
    "fraction for a count": ((*GOOD_ROWS, *TRAIN, "--epochs", "1.5"), "argument --max-epochs: must be a whole number"),
    "words for sizes": ((*GOOD_ROWS, *TRAIN, "--hidden", "8,x"), "argument --hidden-layer-sizes: must be numbers"),
    "no epochs": ((*GOOD_ROWS, *TRAIN, "--epochs", "0"), "max_epochs: must be 'auto' or a positive integer, got 0"),
    "no epochs and no file": (("train", "{place}/none.txt", *TRAIN, "--epochs", "0"), "max_epochs: must be"),
    "negative rate": ((*GOOD_ROWS, *TRAIN, "--lr=-1"), "learning_rate_init: must be 'auto' or above 0, got -1.0"),
    "dropout of all": ((*GOOD_ROWS, *TRAIN, "--dropout", "1"), "hidden_dropout: must be in [0, 1), got 1.0"),
    "unknown loss": ((*GOOD_ROWS, *TRAIN, "--loss", "l2"), "loss must be one of bce, softmax, squared_hinge, got 'l2'"),
    "unknown optimizer": ((*GOOD_ROWS, *TRAIN, "--optimizer", "adamw"), "optimizer must be one of sgd, "),
    "unknown schedule": ((*GOOD_ROWS, *TRAIN, "--schedule", "step"), "learning_rate: must be one of constant, "),
    "unknown algorithm": ((*GOOD_ROWS, *TRAIN, "--algorithm", "magic"), "algorithm must be one of "),
    "unknown device": ((*GOOD_ROWS, *TRAIN, "--devices", "tpu"), "devices: must be of the kinds cpu, cuda, got"),
    "unknown precision": ((*GOOD_ROWS, *TRAIN, "--precision", "int4"), "precision must be one of "),
    "no threads": ((*GOOD_ROWS, *TRAIN, "--threads", "0"), "n_jobs: must be None or an integer other than 0, got 0"),
    "missing file": (("train", "{place}/none.txt", *TRAIN), "none.txt"),
    "missing test file": ((*GOOD_ROWS, "--test", "{place}/none.txt", *TRAIN), "none.txt"),
    "out is a file": (
        (*GOOD_ROWS, "--out", "{place}/good.txt"),
        "--out good.txt: exists and is not a saved model; choose another name or remove it",
    ),
    "out holds other things": ((*GOOD_ROWS, "--out", "{place}"), "exists and is not a saved model"),
    "out below a file": ((*GOOD_ROWS, "--out", "{place}/good.txt/model"), "good.txt is not a folder"),
    "json is a folder": ((*GOOD_ROWS, "--out", "{place}/new", "--json", "{place}"), "must be a file, got a folder"),
    "json in no folder": (
        (*GOOD_ROWS, "--out", "{place}/new", "--json", "{place}/no/r.json"),
        "--json no/r.json: the folder no does not exist; make it first",
    ),
    "warm start of nothing": (
        (*GOOD_ROWS, *TRAIN, "--warm-start"),
        "new: no such folder",
    ),
    "evaluate without a model": (("evaluate", "{place}/none", "{place}/good.txt"), "none: no such folder"),
    "evaluate a file as a model": (
        ("evaluate", "{place}/good.txt", "{place}/good.txt"),
        "good.txt: is not a saved model: it is a file, a model is a folder",
    ),
    "evaluate with model and data swapped": (
        ("evaluate", "{place}/good.txt", "{place}/rows"),
        "good.txt: is not a saved model, but rows is; the model comes first: xmlsgd evaluate rows good.txt",
    ),
    "predict with model and data swapped": (
        ("predict", "{place}/store", "{place}/rows"),
        "store: is not a saved model, but rows is; the model comes first: xmlsgd predict rows store",
    ),
    "predict for a model": (("predict", "{place}/words", "{place}/words"), "words: must hold data, got a saved model"),
    "train on a model": (("train", "{place}/words", *TRAIN), "words: must hold data, got a saved model"),
    "train on text without labels": (
        ("train", "{place}/unlabelled.txt", *TRAIN),
        "or labels and a tab before each text, `label1,label2<TAB>text`, got texts without labels",
    ),
    "convert text without labels": (
        ("convert", "{place}/unlabelled.txt", "{place}/new"),
        "unlabelled.txt: must hold rows of numbers, or labels and a tab before each text",
    ),
    "test rows without their flag": (
        (*GOOD_ROWS, "{place}/good.txt", *TRAIN),
        "unrecognized arguments: good.txt; test rows go behind --test",
    ),
    "evaluate at k = 0": (
        ("evaluate", "{place}/rows", "{place}/good.txt", "-k", "0"),
        "--k: must be at least 1, got 0",
    ),
    "evaluate at a huge k": (
        ("evaluate", "{place}/rows", "{place}/good.txt", "-k", "1000000000000"),
        "--k: must be at most the 3 labels of the model, got 1000000000000",
    ),
    "text for a model of rows": (
        ("evaluate", "{place}/rows", "{place}/text.txt"),
        "text.txt: the model was trained on rows of numbers and has no words, got text",
    ),
    "predict at k = 0": (("predict", "{place}/rows", "{place}/good.txt", "--k", "0"), "--k: must be at least 1, got 0"),
    "predict into a folder": (
        ("predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/rows"),
        "--out rows: must be a file, got a folder",
    ),
    "convert onto itself": (
        ("convert", "{place}/good.txt", "{place}/good.txt"),
        "TARGET good.txt: is what this call reads; choose another name",
    ),
    "convert into what is converted": (
        ("convert", "{place}/store", "{place}/store/more"),
        "TARGET store/more: lies in the store store; choose a place outside",
    ),
    "convert onto the words": (
        ("convert", "{place}/text.txt", "{place}/words", "--vectorizer", "{place}/words"),
        "TARGET words: is what this call reads; choose another name",
    ),
    "json onto the training rows": (
        (*GOOD_ROWS, "--out", "{place}/new", "--json", "{place}/good.txt"),
        "--json good.txt: is what this call reads; choose another name",
    ),
    "json onto the test rows": (
        (*GOOD_ROWS, "--test", "{place}/text.txt", "--out", "{place}/new", "--json", "{place}/text.txt"),
        "--json text.txt: is what this call reads; choose another name",
    ),
    "json onto a file of the training folder": (
        ("train", "{place}/pair", "--out", "{place}/new", "--json", "{place}/pair/test.txt"),
        "--json pair/test.txt: is a data file of pair; choose another name",
    ),
    "json as the model": (
        (*GOOD_ROWS, "--out", "{place}/new", "--json", "{place}/new"),
        "--json new: must not lie in --out new, which is written as a whole; choose another",
    ),
    "json in the model": (
        ("evaluate", "{place}/rows", "{place}/good.txt", "--json", "{place}/rows/model.json"),
        "--json rows/model.json: lies in the saved model rows; choose a place outside",
    ),
    "json in any model": (("info", "--json", "{place}/words/info.json"), "lies in the saved model words; choose"),
    "json in a store": (("info", "--json", "{place}/store/info.json"), "lies in the store store; choose"),
    "json onto the rows of the propensities": (
        (
            "evaluate",
            "{place}/rows",
            "{place}/good.txt",
            "--propensity",
            "{place}/text.txt",
            "--json",
            "{place}/text.txt",
        ),
        "--json text.txt: is what this call reads; choose another name",
    ),
    "predict onto its data": (
        ("predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/good.txt"),
        "--out good.txt: is what this call reads; choose another name",
    ),
    "predict onto its data by a link": (
        ("predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/link.txt"),
        "--out link.txt: is what this call reads; choose another name",
    ),
    "train over the model that holds the rows": (
        ("train", "{place}/rows/good.txt", "--out", "{place}/rows"),
        "--out rows: holds rows/good.txt, which this call reads; choose another name",
    ),
    "out without a name": (
        (*GOOD_ROWS, "--out", ""),
        "argument --out: must be a name, got ''; see xmlsgd train --help",
    ),
    "json without a name": (("info", "--json", ""), "argument --json: must be a name, got ''"),
    "no name to train on": (("train", "", *TRAIN), "argument TRAIN: must be a name, got ''"),
    "convert nothing": (
        ("convert", "{place}/none.txt", "{place}/new"),
        "none.txt: no such file or folder",
    ),
    "convert over a model": (("convert", "{place}/good.txt", "{place}/rows"), "rows: exists and is not a store"),
    "unknown form": (
        ("convert", "{place}/good.txt", "{place}/new", "--to", "csv"),
        "argument --to: invalid choice: 'csv'",
    ),
    "train on CSV of texts": (
        ("train", "{place}/texts.csv", *TRAIN),
        "got texts without labels; it looks like CSV: a row reads `label,label feature:value ...`, a text `label1,",
    ),
    "train on CSV of numbers": (
        ("train", "{place}/numbers.csv", *TRAIN),
        "numbers.csv:1: label must be a plain integer, got '0.5'; it looks like CSV: a row reads",
    ),
    "train on CSV of whole numbers": (
        ("train", "{place}/counts.csv", *TRAIN),
        "file must have at least one feature, got 2 rows without any; it looks like CSV: a row reads",
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
        "eurlex: no such path, and no data set of this name; known are python-functions, ",
    ),
    "bench without rows": (("bench", "--rows", "0", *TINY), "--rows: must be at least 1, got 0"),
    "bench of a batch without rows": (("bench", "--batch", "0", *TINY), "batch_size: must be 'auto' or a positive"),
    "train over an earlier model": (
        (*GOOD_ROWS, "--out", "{place}/rows", *TINY),
        "--out rows: exists; --overwrite replaces it, --warm-start goes on from it, or choose another name",
    ),
    "demo over an earlier model": (("demo", "--out", "{place}/rows"), "--out rows: exists; --overwrite replaces it"),
    "convert over a store": (
        ("convert", "{place}/good.txt", "{place}/store"),
        "TARGET store: exists; --overwrite replaces it, or choose another name",
    ),
    "convert over a file": (
        ("convert", "{place}/store", "{place}/good.txt"),
        "TARGET good.txt: exists; --overwrite replaces it, or choose another name",
    ),
    "convert over other things, whatever is asked": (
        ("convert", "{place}/good.txt", "{place}/pair", "--overwrite"),
        "pair: exists and is not a store; remove it or choose another name",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_wrong_call_is_answered_with_what_would_do(case, place, capsys):
    words, expected = BAD_CALLS[case]
    code, line = complaint(capsys, place, *words)
    assert code == 2
    assert expected in line


def test_more_features_than_the_model_knows_are_refused_with_both_numbers(place, capsys):
    (place / "wide.txt").write_text("1 9 3\n0 8:1\n")
    for verb in ("evaluate", "predict"):
        code, line = complaint(capsys, place, verb, "{place}/rows", "{place}/wide.txt")
        assert code == 2
        assert line.startswith("wide.txt: must have the 6 features of training, got 9; give the training file a header")


@pytest.mark.parametrize("name", ["params.npy", "model.json", "MANIFEST.json"])
def test_a_damaged_model_is_refused(place, capsys, name):
    file = place / "rows" / name
    file.write_bytes(file.read_bytes()[:-20])
    code, line = complaint(capsys, place, "predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/p.txt")
    assert code == 2
    assert line.startswith(f"rows/{name}: must ")


def test_a_prediction_that_fails_midway_leaves_the_old_file(place, capsys, monkeypatch):
    (place / "p.txt").write_text("old")
    monkeypatch.setattr("xmlsgd.progress.in_batches", lambda *_, **__: iter([None]))
    code, line = complaint(
        capsys, place, "predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/p.txt", "--quiet"
    )
    assert code == 1
    assert line.startswith("internal error: ")


def test_convert_lists_as_many_broken_lines_as_asked_for(place, capsys):
    (place / "bad.txt").write_text("6 5 3\n0 1:1\n7 1:1\n0 9:1\n# comment\n0 1:x\n1 2:1\n1 2\n")
    before = files_below(place)
    assert main(["convert", str(place / "bad.txt"), str(place / "new"), "--max-errors", "3"]) == 2
    lines = capsys.readouterr().err.replace(f"{place}/", "").splitlines()
    assert lines == [
        "xmlsgd: bad.txt:3: label must be in [0, 3), got 7",
        "xmlsgd: bad.txt:4: feature index must be in [0, 5), got 9",
        "xmlsgd: bad.txt:6: feature value must be a number, got 'x'",
    ]
    assert files_below(place) == before


def test_a_diverging_run_fails_with_advice_and_leaves_no_model(place, capsys):
    rows = "".join(f"{i % 3} {i % 5}:3e38\n" for i in range(64))
    (place / "huge.txt").write_text(rows)
    words = ("train", "{place}/huge.txt", *TRAIN, "--optimizer", "sgd", "--lr", "1e38", "--batch", "32")
    code, line = complaint(capsys, place, *words)
    assert code == 1
    assert "the loss was not finite" in line
    assert "pass a lower one" in line


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(place, capsys):
    (place / "locked").mkdir(mode=0o500)
    code, line = complaint(capsys, place, "train", "{place}/good.txt", "--out", "{place}/locked/model")
    assert code == 2
    assert "cannot be written" in line
