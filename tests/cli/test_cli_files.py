"""How the command line recognizes raw text, and where and how it writes results."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from shared.command_line import GOOD_ROWS, TINY, complaint
from xmlsgd.cli.exit_codes import UsageError
from xmlsgd.cli.input_options import InputOptions
from xmlsgd.cli.output_files import check_file, check_folder
from xmlsgd.cli.results import as_json, table, text_file


@pytest.mark.parametrize(
    ("content", "labelled", "expected"),
    [
        ("1,2 3:0.5\n", True, False),
        ("2 10 4\n1,2 3:0.5\n", True, False),
        ("# some rows\n1,2 3:0.5 # the first\n", False, False),
        ("1,2 3:0.5\n1,2 x:0.5\n3 1:1\n", False, False),
        ("1,2\t3:0.5\t4:1e-3\n", True, False),
        ("1,2 3:abc x\n", True, False),
        ("tag\tread a file\n", True, True),
        ("1,2\tread a file\n", True, True),
        ("read a file\t\n", False, True),
        ("read a file\t \n", True, True),
        ("\tread a file\n", True, True),
        ("read a file\n", True, False),
        ("read a file\n", False, True),
        ("\n\nread\n", False, True),
        ("1,2 3:0.5\n", False, False),
        ("", False, False),
    ],
)
def test_raw_text_is_distinguished_from_rows_by_its_words(tmp_path, content, labelled, expected):
    file = tmp_path / "data"
    file.write_text(content)
    assert (InputOptions().document_format(str(file), labelled) is not None) is expected
    with gzip.open(tmp_path / "data.gz", "wt") as stream:
        stream.write(content)
    assert (InputOptions().document_format(str(tmp_path / "data.gz"), labelled) is not None) is expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["open\tread a file", "close it"], True),
        (["open\tread a file", "close it", "write it"], False),
        (["read a file\t", "close it\t "], False),
        ([], False),
    ],
)
def test_documents_are_labelled_if_half_of_them_have_words_after_a_tab(lines, expected):
    assert InputOptions().have_labels(lines) is expected


def test_a_file_takes_its_name_when_it_is_complete(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("before")

    def write_half():
        with text_file(str(target)) as stream:
            stream.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_written_and_not_replaced():
    with text_file(os.devnull) as stream:
        stream.write("gone")
    assert not Path(os.devnull).is_file()


def test_out_may_be_new_empty_or_a_model(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "MANIFEST.json").write_text('{"format": "xmlsgd-model", "files": {}}')
    (tmp_path / "model" / "history.jsonl").write_text("")
    for name in ("empty", "model", "new", "several/new/folders"):
        check_folder(str(tmp_path / name))


def test_a_model_folder_that_holds_an_input_is_not_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "MANIFEST.json").write_text('{"format": "xmlsgd-model", "files": {}}')
    (tmp_path / "model" / "history.jsonl").write_text("")
    with pytest.raises(
        UsageError, match=r"model: holds .*history\.jsonl, an input of this command; choose another name"
    ):
        check_folder(str(tmp_path / "model"), str(tmp_path / "model" / "history.jsonl"))


def test_results_may_be_beside_the_data_and_be_written_again(tmp_path):
    (tmp_path / "train.txt").write_text("0 0:1\n")
    (tmp_path / "results.json").write_text("{}")
    for given in (tmp_path, tmp_path / "train.txt"):
        check_file(str(tmp_path / "results.json"), "--json", str(given), beside=str(tmp_path / "model"))
        check_folder(str(tmp_path / "model"), str(given))


def test_devices_and_pipes_may_be_read_and_written_also_where_their_folder_may_not(monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_dir() and access(path, mode))
    check_file(os.devnull, "--json", os.devnull)
    reader, writer = os.pipe()
    check_file(f"/dev/fd/{writer}", "--json")
    os.close(reader)
    os.close(writer)


def test_a_device_that_may_not_be_written_is_told(monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match=f"--json {os.devnull}: cannot be written; choose another name"):
        check_file(os.devnull, "--json")


def test_json_holds_plain_numbers_and_null_for_none():
    value = {"a": np.float32(0.5), "b": (np.int64(3), float("nan")), "c": Path("x"), 1: True}
    assert as_json(value) == {"a": 0.5, "b": [3, None], "c": "x", "1": True}


def test_tables_align_and_mark_what_is_missing():
    text = table({"ours": {"P@1": 50.0, "P@5": None}, "theirs": {"P@1": 7.125, "P@5": 1.0}}, ["P@1", "P@5"])
    assert text.splitlines() == ["            P@1      P@5", "ours      50.00        -", "theirs     7.12     1.00"]


TAKEN_NAMES = {
    "out is a file": (
        (*GOOD_ROWS, "--out", "{place}/good.txt"),
        "--out good.txt: exists and is not a saved model; choose another name or remove it",
    ),
    "out holds other things": ((*GOOD_ROWS, "--out", "{place}"), "exists and is not a saved model"),
    "out below a file": ((*GOOD_ROWS, "--out", "{place}/good.txt/model"), "good.txt is not a folder"),
    "convert below a file": (
        ("convert", "{place}/good.txt", "{place}/text.txt/new/store"),
        "TARGET text.txt/new/store: text.txt is not a folder",
    ),
    "json is a folder": ((*GOOD_ROWS, "--out", "{place}/new", "--json", "{place}"), "must be a file, got a folder"),
    "json in no folder": (
        (*GOOD_ROWS, "--out", "{place}/new", "--json", "{place}/no/r.json"),
        "--json no/r.json: the folder no does not exist; make it first",
    ),
    "predict into a folder": (
        ("predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/rows"),
        "--out rows: must be a file, got a folder",
    ),
    "convert onto itself": (
        ("convert", "{place}/good.txt", "{place}/good.txt"),
        "TARGET good.txt: is an input of this command; choose another name",
    ),
    "convert into what is converted": (
        ("convert", "{place}/store", "{place}/store/more"),
        "TARGET store/more: lies in the store store; choose a folder outside",
    ),
    "convert onto the words": (
        ("convert", "{place}/text.txt", "{place}/words", "--vectorizer", "{place}/words"),
        "TARGET words: is an input of this command; choose another name",
    ),
    "json onto the training rows": (
        (*GOOD_ROWS, "--out", "{place}/new", "--json", "{place}/good.txt"),
        "--json good.txt: is an input of this command; choose another name",
    ),
    "json onto the test rows": (
        (*GOOD_ROWS, "--test", "{place}/text.txt", "--out", "{place}/new", "--json", "{place}/text.txt"),
        "--json text.txt: is an input of this command; choose another name",
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
        "--json rows/model.json: lies in the saved model rows; choose a folder outside",
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
        "--json text.txt: is an input of this command; choose another name",
    ),
    "predict onto its data": (
        ("predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/good.txt"),
        "--out good.txt: is an input of this command; choose another name",
    ),
    "predict onto its data by a link": (
        ("predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/link.txt"),
        "--out link.txt: is an input of this command; choose another name",
    ),
    "train over the model that holds the rows": (
        ("train", "{place}/rows/good.txt", "--out", "{place}/rows"),
        "--out rows: holds good.txt, which is no part of the saved model; move it or choose another name",
    ),
    "convert over a model": (("convert", "{place}/good.txt", "{place}/rows"), "rows: exists and is not a store"),
    "train over an earlier model": (
        (*GOOD_ROWS, "--out", "{place}/words", *TINY),
        "--out words: exists; --overwrite replaces it, xmlsgd learn adds rows to it, or choose another name",
    ),
    "train several over an earlier model, from which they cannot go on": (
        (*GOOD_ROWS, "--out", "{place}/words", *TINY, "--n-estimators", "2"),
        "--out words: exists; --overwrite replaces it, or choose another name",
    ),
    "demo over an earlier model": (("demo", "--out", "{place}/words"), "--out words: exists; --overwrite replaces it"),
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
        "pair: exists and is not a store; choose another name or remove it",
    ),
}


@pytest.mark.parametrize("case", TAKEN_NAMES)
def test_an_output_name_in_use_is_refused_with_a_remedy(case, place, capsys):
    words, expected = TAKEN_NAMES[case]
    code, line = complaint(capsys, place, *words)
    assert code == 2
    assert expected in line


# `loop` leads to itself, `m` into a file.
LINKS = {
    "train": (*GOOD_ROWS, *TINY, "--out", "{place}/%s"),
    "learn": ("learn", "{place}/rows", "{place}/good.txt", "--out", "{place}/%s"),
    "convert": ("convert", "{place}/good.txt", "{place}/%s"),
    "convert into a file": ("convert", "{place}/store", "{place}/%s", "--to", "libsvm"),
}


@pytest.mark.parametrize("command", LINKS)
@pytest.mark.parametrize(
    ("name", "told"), [("loop", "exists and is not a s"), ("loop/m", "loop is not a folder"), ("m", "is not a folder")]
)
def test_a_link_that_leads_nowhere_is_refused_before_the_work(place, capsys, command, name, told):
    (place / "loop").symlink_to("loop")
    (place / "m").symlink_to("good.txt/m")
    code, line = complaint(capsys, place, *(word.replace("%s", name) for word in LINKS[command]))
    assert code == 2
    assert told in line


@pytest.mark.parametrize("made", [lambda file: file.symlink_to("m.history.jsonl"), Path.mkdir], ids=["loop", "folder"])
def test_what_is_in_the_way_of_the_history_is_told_before_training(place, capsys, made):
    made(place / "m.history.jsonl")
    code, line = complaint(capsys, place, *GOOD_ROWS, *TINY, "--out", "{place}/m", "--quiet")
    assert code == 2
    assert line == "--out m: m.history.jsonl is no regular file; remove it or choose another name"


def test_a_link_into_a_folder_that_is_missing_is_told_with_that_folder(place, capsys):
    (place / "p.txt").symlink_to("missing/p.txt")
    words = ("predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/p.txt", "--quiet")
    code, line = complaint(capsys, place, *words)
    assert (code, line) == (2, "--out p.txt: the folder missing does not exist; make it first")


def test_a_prediction_that_fails_midway_leaves_the_old_file(place, capsys, monkeypatch):
    (place / "p.txt").write_text("old")
    monkeypatch.setattr("xmlsgd.training.progress_bar.in_batches", lambda *_, **__: iter([None]))
    code, line = complaint(
        capsys, place, "predict", "{place}/rows", "{place}/good.txt", "--out", "{place}/p.txt", "--quiet"
    )
    assert code == 1
    assert line.startswith("internal error: ")


def test_a_model_folder_that_cannot_be_written_is_refused_before_training(place, capsys, monkeypatch):
    locked, access = place / "words", os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked and access(path, mode))
    code, line = complaint(capsys, place, *GOOD_ROWS, "--out", "{place}/words", "--overwrite", *TINY)
    assert code == 2
    assert line.startswith("--out words: cannot be written")


def test_what_another_user_has_in_a_folder_with_the_sticky_bit_is_refused(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "file").touch()
    tmp_path.chmod(0o1777)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    for check, name in ((check_folder, "model"), (check_file, "file")):
        with pytest.raises(UsageError, match=f"--out .*/{name}: belongs to another user, who alone may replace it;"):
            check(str(tmp_path / name), flag="--out")
        check(str(tmp_path / "other"), flag="--out")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    check_folder(str(tmp_path / "model"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(place, capsys):
    (place / "locked").mkdir(mode=0o500)
    code, line = complaint(capsys, place, *GOOD_ROWS, "--out", "{place}/locked/model")
    assert code == 2
    assert "cannot be written" in line


@pytest.mark.parametrize("out", [".", "..", "link"])
def test_the_current_folder_is_no_place_for_a_model_and_refused_before_work(tmp_path, monkeypatch, out):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "here", target_is_directory=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match="is the current folder and cannot be replaced"):
        check_folder(out)
