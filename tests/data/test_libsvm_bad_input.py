"""Malformed files: each gives one line that names the file, the line, what was wrong and what was got."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

import pytest

from xmlsgd.data.formats.libsvm import read_libsvm, read_libsvm_features
from xmlsgd.data.parser import blocks as parser
from xmlsgd.errors import NUL_BYTE, TO_UTF8, DataError

GOOD = b"0,2 0:1 3:-0.5\n1 1:2\n"
MAX = 2**31 - 1
CUT = "EOFError: Compressed file ended before the end-of-stream marker was reached"


COMPLETE = "complete the file, or correct its header"
NO_QUERY_IDS = "remove the query ids, as by `sed 's/ qid:[0-9]*//'`"
OMIT = "(--no-one-based"
FORMS = "; a row reads `label,label feature:value ...`, a text `label1,label2<TAB>text`; see docs/data.md"


def damaged(got: str) -> str:
    return f": file must be readable to its end, got {got}; get a complete copy"


FILES = [
    # labels
    ("a word as label", b"0 1:1\nx 1:1\n", {}, ":2: label must be a plain integer, got 'x'"),
    ("a word as label before a tab", b"x\t1:1\n", {}, ":1: label must be a plain integer, got 'x'"),
    ("raw text", b"0,open\tread a file\n", {}, f":1: label must be a plain integer, got 'open'{FORMS}"),
    ("a negative label", b"0 1:1\n-3 1:1\n", {}, f":2: label must be in [0, {MAX}), got -3"),
    ("a label with a sign", b"+1 1:1\n", {}, ":1: label must be a plain integer, got '+1'"),
    ("a label with a fraction", b"1.0 1:1\n", {}, ":1: label must be a plain integer, got '1.0'"),
    (
        "a label outside the header",
        b"1 9 3\n0,3 1:1\n",
        {},
        ":2: label must be in [0, 3), got 3; pass zero_based_labels=False (--one-based-labels) if indices start at 1",
    ),
    ("a label far outside the header", b"1 9 3\n0,40 1:1\n", {}, ":2: label must be in [0, 3), got 40"),
    ("a label outside n_labels", b"0,40 1:1\n", {"n_labels": 3}, ":1: label must be in [0, 3), got 40"),
    ("a label of 2**31 - 1", b"2147483647 1:1\n", {}, f":1: label must be in [0, {MAX}), got 2147483647"),
    (
        "a label above int64",
        b"99999999999999999999 1:1\n",
        {},
        f":1: label must be in [0, {MAX}), got 99999999999999999999",
    ),
    (
        "label zero where they start at one",
        b"0 1:1\n",
        {"zero_based_labels": False},
        f":1: label must be in [1, {MAX}], got 0; pass zero_based_labels=True {OMIT}-labels) if indices start at 0",
    ),
    ("a comma at the end of the labels", b"1, 1:1\n", {}, ":1: label must be a plain integer, got ''"),
    ("two commas", b"1,,2 1:1\n", {}, ":1: label must be a plain integer, got ''"),
    ("a blank after a comma", b"0 1:1\n\n1, 2 1:1\n", {}, ":3: label must be a plain integer, got ''"),
    ("labels after a blank", b" 1,2 1:1\n", {}, ":1: feature must be 'index:value', got '1,2'"),
    # features
    ("no colon", b"0 1:1 2\n", {}, ":1: feature must be 'index:value', got '2'"),
    ("a blank before the colon", b"0 1 :1\n", {}, ":1: feature must be 'index:value', got '1'"),
    ("a blank after the colon", b"0 1: 1\n", {}, ":1: feature value must be a number, got ''"),
    ("a word as index", b"0 1:1\n0 x:1\n", {}, ":2: feature index must be a plain integer, got 'x'"),
    ("no index", b"0 :1\n", {}, ":1: feature index must be a plain integer, got ''"),
    ("a query id", b"0 qid:1 2:1\n", {}, f":1: feature index must be a plain integer, got 'qid'; {NO_QUERY_IDS}"),
    ("a comma in an index", b"1,2:3\n", {}, ":1: feature index must be a plain integer, got '1,2'"),
    ("a negative index", b"0 -3:1\n", {}, f":1: feature index must be in [0, {MAX}), got -3"),
    ("a negative index first in the row", b"-3:1\n", {}, f":1: feature index must be in [0, {MAX}), got -3"),
    (
        "an index outside the header",
        b"1 4 3\n0 4:1\n",
        {},
        ":2: feature index must be in [0, 4), got 4; pass zero_based=False (--one-based) if indices start at 1",
    ),
    ("an index outside n_features", b"0 9:1\n", {"n_features": 4}, ":1: feature index must be in [0, 4), got 9"),
    (
        "a one-based index outside n_features",
        b"0 5:1\n",
        {"n_features": 4, "zero_based": False},
        ":1: feature index must be in [1, 4], got 5",
    ),
    (
        "index zero where they start at one",
        b"0 0:1\n",
        {"zero_based": False},
        f":1: feature index must be in [1, {MAX}], got 0; pass zero_based=True {OMIT}) if indices start at 0",
    ),
    ("an index of 2**31 - 1", b"0 2147483647:1\n", {}, f":1: feature index must be in [0, {MAX}), got 2147483647"),
    (
        "an index above int64",
        b"0 18446744073709551617:1\n",
        {},
        f":1: feature index must be in [0, {MAX}), got 18446744073709551617",
    ),
    (
        "a feature twice",
        b"0 1:1\n0 2:1 1:1 2:1\n",
        {},
        ':2: feature must come once in a row, got 2 twice; pass duplicates="sum" (--duplicates sum) to add them up',
    ),
    (
        "a feature twice, one-based",
        b"0 2:1 2:1\n",
        {"zero_based": False},
        ':1: feature must come once in a row, got 2 twice; pass duplicates="sum" (--duplicates sum) to add them up',
    ),
    (
        "a sum outside float32",
        b"0 2:3e38 2:3e38\n",
        {"duplicates": "sum"},
        ":1: sum of the values of feature 2 must fit float32, got more",
    ),
    # values
    ("no value", b"0 1:\n", {}, ":1: feature value must be a number, got ''"),
    ("a word as value", b"0 1:one\n", {}, ":1: feature value must be a number, got 'one'"),
    ("NaN", b"0 1:1\n\n0 1:nan\n", {}, ":3: feature value must be finite, got 'nan'"),
    ("infinity", b"0 1:-Inf\n", {}, ":1: feature value must be finite, got '-Inf'"),
    ("a value above float32", b"0 1:1e60\n", {}, ":1: feature value must fit float32, got '1e60'"),
    (
        "a value that rounds above float32",
        b"0 1:-3.4028236e38\n",
        {},
        ":1: feature value must fit float32, got '-3.4028236e38'",
    ),
    ("a value above float64", b"0 1:1e999\n", {}, ":1: feature value must fit float32, got '1e999'"),
    ("two points", b"0 1:1.2.3\n", {}, ":1: feature value must be a number, got '1.2.3'"),
    ("a comma for the point", b"0 1:0,5\n", {}, ":1: feature value must be a number, got '0,5'"),
    ("a point alone", b"0 1:.\n", {}, ":1: feature value must be a number, got '.'"),
    ("no digits in the exponent", b"0 1:1e\n", {}, ":1: feature value must be a number, got '1e'"),
    ("a hexadecimal value", b"0 1:0x10\n", {}, ":1: feature value must be a number, got '0x10'"),
    ("an underscore in a value", b"0 1:1_000\n", {}, ":1: feature value must be a number, got '1_000'"),
    ("two colons", b"0 1:2:3\n", {}, ":1: feature value must be a number, got '2:3'"),
    ("a long token", b"0 1:" + b"x" * 1000, {}, ":1: feature value must be a number, got '" + "x" * 36 + "..."),
    ("terminal codes in a token", b"0 1:\x1b[31m\n", {}, r":1: feature value must be a number, got '\x1b[31m'"),
    # lines and the header
    (
        "lines count with header and comments",
        b"# c\n2 4 3\n# d\n0 1:1\n0 1:x\n",
        {},
        ":5: feature value must be a number, got 'x'",
    ),
    ("the first of several", b"0 1:1\n0 1:x\n0 1:nan\n", {}, ":2: feature value must be a number, got 'x'"),
    ("lines count with CRLF", b"0 1:1\r\n0 1:x\r\n", {}, ":2: feature value must be a number, got 'x'"),
    ("fewer rows than the header", b"3 4 3\n" + GOOD, {}, f":1: header promises 3 rows, got 2; {COMPLETE}"),
    ("more rows than the header", b"# c\n1 4 3\n" + GOOD, {}, f":2: header promises 1 rows, got 2; {COMPLETE}"),
    ("a second header", b"2 4 3\n2 4 3\n" + GOOD, {}, f":2: feature must be 'index:value', got '4'{FORMS}"),
    ("a header of four numbers", b"2 4 3 1\n" + GOOD, {}, f":1: feature must be 'index:value', got '4'{FORMS}"),
    ("a header with no features", b"2 0 3\n" + GOOD, {}, f":1: header must promise 1 to {MAX} features, got 0"),
    ("a header with no labels", b"2 4 0\n" + GOOD, {}, f":1: header must promise 1 to {MAX} labels, got 0"),
    (
        "a header above int32",
        b"2 4 2147483648\n" + GOOD,
        {},
        f":1: header must promise 1 to {MAX} labels, got 2147483648",
    ),
    (
        "a header against n_features",
        b"2 4 3\n" + GOOD,
        {"n_features": 5},
        ":1: header promises 4 features, got n_features=5; leave it out",
    ),
    (
        "a header against n_labels",
        b"2 4 3\n" + GOOD,
        {"n_labels": 5},
        ":1: header promises 3 labels, got n_labels=5; leave it out",
    ),
    # whole files
    ("an empty file", b"", {}, ": file must have at least one row, got none"),
    ("blank lines alone", b"\n \n\r\n", {}, ": file must have at least one row, got none"),
    ("comments alone", b"# a\n# b", {}, ": file must have at least one row, got none"),
    ("a header alone", b"2 4 3\n", {}, f":1: header promises 2 rows, got 0; {COMPLETE}"),
    (
        "no label in the file",
        b" 1:1\n2:1\n",
        {},
        ": file must have at least one label, got 2 rows without any; labels stand at the start of the line",
    ),
    ("no feature in the file", b"1\n2\n", {}, ": file must have at least one feature, got 2 rows without any"),
    (
        "numbers with commas",
        b"1,0,5\n2,0,4\n",
        {},
        f": file must have at least one feature, got 2 rows without any{FORMS}",
    ),
    # what is no text
    ("a NUL byte", b"0 1:1\n0 1:1\0\n", {}, f":2: file must be text, {NUL_BYTE}"),
    ("a NUL byte in a comment", b"0 1:1\n# \0\n", {}, f":2: file must be text, {NUL_BYTE}"),
    ("a NUL byte behind another error", b"0 1:x\n\0\n", {}, ":1: feature value must be a number, got 'x'"),
    ("a NUL byte before bytes that are not UTF-8", b"0 1:1\n\0\n# caf\xe9\n", {}, f":2: file must be text, {NUL_BYTE}"),
    ("bytes that are not UTF-8", b"0 1:1\n# caf\xe9\n", {}, f":2: file must be UTF-8 text, got byte 0xe9; {TO_UTF8}"),
    ("UTF-16", "0 1:1\n".encode("utf-16"), {}, f":1: file must be UTF-8 text, got byte 0xff; {TO_UTF8}"),
    ("a line without end", b"0 1:1\n0 " + b"1:1 " * 50, {}, ":2: line must be at most 100 bytes, got more"),
    ("gzip cut short", gzip.compress(GOOD, mtime=0)[:-9], {}, damaged(CUT)),
    (
        "gzip with something behind",
        gzip.compress(GOOD, mtime=0) + b"more",
        {},
        damaged("BadGzipFile: Not a gzipped file (b'mo')"),
    ),
    ("gzip that is no gzip", b"\x1f\x8bno method", {}, damaged("BadGzipFile: Unknown compression method")),
    ("bzip2 cut short", bz2.compress(GOOD)[:-4], {}, damaged(CUT)),
    (
        "xz with a changed byte",
        lzma.compress(GOOD)[:30] + b"\xff" + lzma.compress(GOOD)[31:],
        {},
        damaged("LZMAError: Corrupt input data"),
    ),
]


@pytest.mark.parametrize(("data", "options", "message"), [pytest.param(*case[1:], id=case[0]) for case in FILES])
def test_a_malformed_file_gives_one_line(tmp_path, monkeypatch, data, options, message):
    if "line must be at most" in message:
        monkeypatch.setattr(parser, "BLOCK_BYTES", 10)
        monkeypatch.setattr(parser, "MAX_LINE_BYTES", 100)
    path = tmp_path / "train.txt"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_libsvm(path, **options)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize("block_bytes", [1, 9, 50])
def test_line_numbers_do_not_depend_on_blocks_and_threads(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(parser, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "train.txt"
    path.write_bytes(b"# c\n60 4 3\n" + GOOD * 20 + b"\n# d\n\n0 1:x\n" + GOOD * 10 + b"0 1:nan\n")
    with pytest.raises(DataError) as caught:
        read_libsvm(path, n_threads=2)
    assert str(caught.value) == f"{path}:46: feature value must be a number, got 'x'"


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(DataError) as caught:
        read_libsvm(tmp_path)
    assert str(caught.value) == f"{tmp_path}: path must name a regular file, got a directory"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(DataError) as caught:
        read_libsvm(path)
    assert str(caught.value) == f"{path}: path must name a regular file, got a device or a pipe"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        read_libsvm(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1 5\n3 1:1\n", ":2: feature must be 'index:value', got '3'"),
        (
            b"1 5\n1:1 5:1\n",
            ":2: feature index must be in [0, 5), got 5; pass zero_based=False (--one-based) if indices start at 1",
        ),
        (b"2 5\n1:1\n", f":1: header promises 2 rows, got 1; {COMPLETE}"),
    ],
)
def test_a_malformed_file_of_features_alone_gives_one_line(tmp_path, data, message):
    path = tmp_path / "trn_X_Xf.txt"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_libsvm_features(path)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duplicates": "drop"}, 'duplicates must be "error" or "sum", got \'drop\''),
        ({"n_features": 0}, f"n_features must be in [1, {MAX}] or None, got 0"),
        ({"n_features": "4"}, "n_features must be a whole number or None, got '4'"),
        ({"n_labels": 2**31}, f"n_labels must be in [1, {MAX}] or None, got {2**31}"),
        ({"n_threads": 0}, "n_threads must be at least 1 or None, got 0"),
    ],
)
def test_an_impossible_option_is_refused(tmp_path, options, message):
    path = tmp_path / "train.txt"
    path.write_bytes(GOOD)
    with pytest.raises(DataError) as caught:
        read_libsvm(path, **options)
    assert str(caught.value) == message
