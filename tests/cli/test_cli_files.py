"""How the command line tells what a file holds, and where and how it writes its results."""

from __future__ import annotations

import argparse
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from xmlsgd.cli.forms import are_labelled, is_raw_text
from xmlsgd.cli.outputs import check_file, check_folder
from xmlsgd.cli.results import plain, table, text_file


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
        ("read a file\t \n", True, False),
        ("\tread a file\n", True, True),
        ("read a file\n", True, False),
        ("read a file\n", False, True),
        ("\n\nread\n", False, True),
        ("1,2 3:0.5\n", False, False),
        ("", False, False),
    ],
)
def test_raw_text_is_told_from_rows_by_its_words(tmp_path, content, labelled, expected):
    file = tmp_path / "data"
    args = argparse.Namespace(format="auto")
    file.write_text(content)
    assert is_raw_text(str(file), args, labelled) is expected
    with gzip.open(tmp_path / "data.gz", "wt") as stream:
        stream.write(content)
    assert is_raw_text(str(tmp_path / "data.gz"), args, labelled) is expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["open\tread a file", "close it"], True),
        (["open\tread a file", "close it", "write it"], False),
        (["read a file\t", "close it\t "], False),
        ([], False),
    ],
)
def test_documents_are_labelled_where_half_of_them_have_a_tab_with_words_behind(lines, expected):
    assert are_labelled(lines) is expected


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
    (tmp_path / "model" / "MANIFEST.json").write_text("{}")
    for name in ("empty", "model", "new", "several/new/folders"):
        check_folder(str(tmp_path / name))


def test_results_may_lie_beside_the_data_and_be_written_again(tmp_path):
    (tmp_path / "train.txt").write_text("0 0:1\n")
    (tmp_path / "results.json").write_text("{}")
    for given in (tmp_path, tmp_path / "train.txt"):
        check_file(str(tmp_path / "results.json"), "--json", str(given), beside=str(tmp_path / "model"))
        check_folder(str(tmp_path / "model"), str(given))


def test_a_device_may_be_read_and_written():
    check_file(os.devnull, "--json", os.devnull)


def test_json_holds_plain_numbers_and_null_for_none():
    value = {"a": np.float32(0.5), "b": (np.int64(3), float("nan")), "c": Path("x"), 1: True}
    assert plain(value) == {"a": 0.5, "b": [3, None], "c": "x", "1": True}


def test_tables_align_and_mark_what_is_missing():
    text = table([("ours", {"P@1": 50.0, "P@5": None}), ("theirs", {"P@1": 7.125, "P@5": 1.0})], ["P@1", "P@5"])
    assert text.splitlines() == ["            P@1      P@5", "ours      50.00        -", "theirs     7.12     1.00"]
