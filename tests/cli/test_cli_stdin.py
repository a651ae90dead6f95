"""Standard input: predicted like a file, in the formats that files have; documents as they arrive."""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys

import pytest

from shared.command_line import QUICK, run
from shared.paths import ROOT
from xmlsgd.cli import main

ROWS = b"# rows\n4 1378 643\n0,1 0:1 2:0.5\n\n 7:1\n\n"
TEXTS = b"\xef\xbb\xbfread a json file\n\n  \nopen a socket\n\n\n"
TABS = b"read a file\t\nopen\ta json file \t \nclose the socket\nwrite a file \xc2\xa0\nclose\t \n"
LABELLED = b"read\tread a json file\n\tno label\nopen\topen a socket\n"


@pytest.mark.parametrize(
    ("model", "content"),
    [
        ("rows", ROWS),
        ("rows", b"0 3:1\r\n 5:1"),
        ("rows", b"0 3:1\t\n 5:1 \t \n4\t\n"),
        ("text", TEXTS),
        ("text", TABS),
        ("text", LABELLED),
        ("text", b"read\n" * 600),
    ],
    ids=[
        "header, comment, blank rows",
        "no newline at the end",
        "rows with stray tabs",
        "texts",
        "texts with stray tabs",
        "labelled texts",
        "several blocks",
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress], ids=["plain", "gzip", "bzip2"])
def test_standard_input_is_predicted_like_a_file(models, tmp_path, give, capsys, model, content, pack):
    (tmp_path / "file").write_bytes(pack(content))
    assert main(["predict", str(models / model), str(tmp_path / "file"), "-k", "2"]) == 0
    expected = capsys.readouterr().out
    assert give(pack(content), "predict", models / model, "-", "-k", "2") == (0, expected, "")


@pytest.mark.parametrize(
    ("model", "content", "expected"),
    [
        ("rows", b"0 1:1\n0 x:1\n", "stdin:2: feature index must be a plain integer, got 'x'"),
        ("rows", b"0 1:1\n0 1378:1\n", "stdin: must have the 1378 features of training, got 1379; give"),
        ("rows", b"1 2000 643\n0 1:1\n", "stdin: must have the 1378 features of training, got 2000; give"),
        ("rows", b"3 1378 643\n0 1:1\n", "stdin:1: header promises 3 rows, got 1"),
        ("rows", b"", "stdin: file must have at least one row, got none"),
        ("rows", b"read a file\n", "stdin: the model was trained on numeric features and has no words, got text"),
        ("rows", gzip.compress(b"0 1:1\n" * 99, mtime=0)[:30], "stdin: file must be readable to its end, got EOFError"),
        ("text", b"read a file\nre\xffad\n", "stdin:2: must be UTF-8, got byte 0xff at 2"),
        ("text", b"open\tread a file\nread\n", "stdin:2: must read `label1,label2<TAB>text`, got no tab in 'read'"),
    ],
)
def test_errors_in_standard_input_name_the_line(models, give, model, content, expected):
    code, _, err = give(content, "predict", models / model, "-")
    assert code == 2
    assert err.startswith(f"xmlsgd: {expected}")
    assert err.count("\n") == 1


def test_rows_to_predict_need_no_labels(models, tmp_path, give):
    (tmp_path / "rows.txt").write_text(" 1:1\n 2:1\n")
    assert main(["predict", str(models / "rows"), str(tmp_path / "rows.txt")]) == 0
    assert give(b" 1:1\n 2:1\n", "predict", models / "rows", "-")[0] == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("file.csv", b"\xef\xbb\xbftext,labels\r\nread a json file,read\r\nopen a socket,open\r\n"),
        ("file", b"labels\ttext\nread\tread a json file\nopen\topen a socket\n"),
        ("file.jsonl", b'{"text": "read a json file"}\n{"text": "open a socket"}\n'),
        ("file", b"read a json file\t<http://x/1> <http://x/2>\nopen a socket\t<http://x/3>\n"),
    ],
    ids=["CSV", "table with tabs", "JSON lines", "Annif corpus"],
)
def test_tables_json_and_corpora_on_standard_input_are_read_as_in_files(models, tmp_path, give, capsys, name, content):
    (tmp_path / name).write_bytes(content)
    assert main(["predict", str(models / "text"), str(tmp_path / name)]) == 0
    expected = capsys.readouterr().out
    assert expected.count("\n") == 2
    assert give(content, "predict", models / "text", "-") == (0, expected, "")


def test_a_column_that_training_has_named_tells_a_table_without_labels(tmp_path, give):
    (tmp_path / "train.csv").write_text("title,labels\nread a file,read\nclose the door,close\n" * 5)
    run("train", tmp_path / "train.csv", "--text-column", "title", "--out", tmp_path / "m", *QUICK, "--quiet")
    _, expected, _ = give(b"close the door\n", "predict", tmp_path / "m", "-")
    assert give(b"id;title\n1;close the door\n", "predict", tmp_path / "m", "-") == (0, expected, "")


@pytest.mark.parametrize("command", ["predict", "evaluate", "convert"])
def test_a_line_without_end_is_refused(models, tmp_path, give, monkeypatch, command):
    monkeypatch.setattr("xmlsgd.data.parser.blocks.MAX_LINE_BYTES", 1 << 21)
    words = {"convert": ["-", tmp_path / "store"]}.get(command, [models / "rows", "-"])
    content = b"0 1:1\n0 " + b"1:1 " * (1 << 20)
    code, out, err = give(content, command, *words)
    assert code == 2
    assert out == ""
    assert "line must be at most 2097152 bytes, got more" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["auto", "raw"])
def test_a_document_is_answered_before_the_next_one_is_sent(models, form):
    command = [sys.executable, "-m", "xmlsgd", "predict", str(models / "text"), "-", "-k", "1", "--threads", "1"]
    with subprocess.Popen(
        [*command, "--format", form, "--output-format", "json"], env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        for number, line in enumerate(["read a file", "x", "open a socket"]):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(f'{{"row": {number}, "labels": [{{"label": ')
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0


def test_a_document_without_end_is_refused(models, give, monkeypatch):
    for module in ("xmlsgd.data.text", "xmlsgd.cli.standard_input"):
        monkeypatch.setattr(f"{module}.MAX_LINE_BYTES", 1 << 17)
    monkeypatch.setattr("xmlsgd.cli.standard_input.BLOCK_BYTES", 1 << 10)
    code, out, err = give(b"read a file\n" + b"read " * (1 << 16), "predict", models / "text", "-")
    assert (code, out.count("\n")) == (2, 1)
    assert "stdin:2: a line must be at most 131072 bytes, got more; shorten the text" in err
