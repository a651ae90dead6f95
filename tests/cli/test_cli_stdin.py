"""Standard input: predicted as it arrives, in the formats that files have, without a copy on disk."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from shared.paths import ROOT
from xmlsgd.cli import main


@pytest.fixture
def give(monkeypatch, capsys):
    """Return a function that runs a command line with bytes as standard input: its exit code, stdout and stderr."""

    def run(content, *words):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


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
def test_standard_input_is_predicted_like_a_file(models, tmp_path, give, capsys, monkeypatch, model, content, pack):
    monkeypatch.setattr("xmlsgd.cli.standard_input.BLOCK_CHARACTERS", 1 << 10)
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
        ("rows", b"read a file\n", "stdin: the model was trained on rows of numbers and has no words, got text"),
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


@pytest.mark.parametrize("model", ["rows", "text"])
def test_predict_streams_standard_input_without_a_copy(models, tmp_path, model):
    row, text = (
        b"0" + b"".join(b" %d:1" % j for j in range(200)),
        b"read a json file and return the parsed object " * 20,
    )
    line = {"rows": row, "text": text}[model] + b"\n"
    with subprocess.Popen(
        [sys.executable, "-m", "xmlsgd", "predict", str(models / model), "-", "-k", "1", "--threads", "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        answered, n_lines = threading.Event(), (3 << 20) // len(line)

        def feed():
            process.stdin.write(line * n_lines)
            answered.wait()
            process.stdin.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        assert b":" in process.stdout.readline()
        assert list(tmp_path.iterdir()) == []
        answered.set()
        assert sum(1 for _ in process.stdout) == n_lines - 1
        feeder.join()
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["predict", "evaluate", "convert"])
def test_a_line_without_end_is_refused(models, tmp_path, give, monkeypatch, command):
    monkeypatch.setattr("xmlsgd.data.parser.blocks.MAX_LINE_BYTES", 1 << 21)
    words = {"convert": ["-", tmp_path / "store"]}.get(command, [models / "rows", "-"])
    content = b"0 1:1\n0 " + b"1:1 " * (1 << 20)
    code, out, err = give(content, command, *words)
    assert code == 2
    assert out.count("\n") == (command == "predict"), "what stood before it is answered"
    assert "line must be at most 2097152 bytes, got more" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("model", "lines"), [("text", ["read a file", "x"]), ("rows", ["0 3:1", " 5:1"])])
def test_a_line_is_answered_before_the_next_one_is_sent(models, model, lines):
    command = [sys.executable, "-m", "xmlsgd", "predict", str(models / model), "-", "-k", "1", "--threads", "1"]
    with subprocess.Popen(
        [*command, "--output-format", "json"], env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        for number, line in enumerate(lines):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(f'{{"row": {number}, "labels": [{{"label": ')
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0
