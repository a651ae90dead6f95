"""LIBSVM text: what is accepted, with which meaning, at each block size and number of threads."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import subprocess
import sys
from decimal import Decimal
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from xmlsgd.csr import CSR, INT32_MAX, Dataset
from xmlsgd.datasets import libsvm_blocks, libsvm_write
from xmlsgd.datasets.libsvm import read_blocks, read_features, read_libsvm, write_libsvm
from xmlsgd.datasets.libsvm_parse import Options, parse
from xmlsgd.errors import DataError

FLOAT32_MIN = np.finfo(np.float32).tiny
Row = tuple[list[int], dict[int, np.float32]]  # labels, features
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def as_float32(text: str) -> np.float32:
    with np.errstate(over="ignore", under="ignore"):
        value = np.float32(float(text))
    return value if abs(value) >= FLOAT32_MIN else np.copysign(np.float32(0), value)


def index_below(text: str, size: int) -> int:
    if not re.fullmatch("[0-9]+", text) or int(text) >= size:
        raise ValueError(text)
    return int(text)


def reference(data: bytes, sum_duplicates: bool = False) -> tuple[list[Row], tuple[int, int]]:
    """Return the rows and the shape of a text, or raise ValueError: the grammar once more, with Python's own tools."""
    if b"\0" in data:
        raise ValueError("NUL")
    lines = data.decode().removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    promised, n_features, n_labels = None, None, None
    rows: list[Row] = []
    n_full, first = 0, True
    for line in lines:
        body, mark, _ = line.partition("#")
        tokens = [token for token in re.split("[ \t\r]+", body) if token]
        if mark and not tokens:
            continue
        if first and 2 <= len(tokens) <= 3 and all(re.fullmatch("[0-9]{1,18}", token) for token in tokens):
            promised, n_features, n_labels = [*map(int, tokens), None][:3]
            if not (1 <= n_features <= INT32_MAX) or (n_labels is not None and not (1 <= n_labels <= INT32_MAX)):
                raise ValueError("header")
            first = False
            continue
        first = False
        labels: set[int] = set()
        features: dict[int, np.float32] = {}
        if tokens and body[0] not in " \t\r" and ":" not in tokens[0]:
            labels = {index_below(label, n_labels or INT32_MAX) for label in tokens.pop(0).split(",")}
            n_full = len(rows) + 1
        for token in tokens:
            index, _, text = token.partition(":")
            feature = index_below(index, n_features or INT32_MAX)
            if not NUMBER.fullmatch(text) or not np.isfinite(as_float32(text)):
                raise ValueError(text)
            if feature in features:
                if not sum_duplicates:
                    raise ValueError("twice")
                features[feature] += as_float32(text)
            else:
                features[feature] = as_float32(text)
            n_full = len(rows) + 1
        rows.append((sorted(labels), dict(sorted(features.items()))))
    rows = rows[: max(n_full, min(len(rows), promised or 0))]
    if not any(labels for labels, _ in rows) or not any(features for _, features in rows):
        raise ValueError("empty")
    if promised is not None and promised != len(rows):
        raise ValueError("rows")
    n_features = n_features or 1 + max(max(features, default=-1) for _, features in rows)
    n_labels = n_labels or 1 + max(max(labels, default=-1) for labels, _ in rows)
    return rows, (n_features, n_labels)


def rows_of(dataset: Dataset) -> list[Row]:
    X, Y = dataset.X, dataset.Y
    return [
        (Y.row(i)[0].tolist(), dict(zip(X.row(i)[0].tolist(), X.row(i)[1], strict=True))) for i in range(dataset.n_rows)
    ]


def assert_same(dataset: Dataset, expected: Dataset) -> None:
    for got, wanted in ((dataset.X, expected.X), (dataset.Y, expected.Y)):
        assert got.shape == wanted.shape
        assert got.indptr.dtype == np.int64
        assert got.indices.dtype == np.int32
        assert got.data.dtype == np.float32
        np.testing.assert_array_equal(got.indptr, wanted.indptr)
        np.testing.assert_array_equal(got.indices, wanted.indices)
        np.testing.assert_array_equal(got.data.view(np.int32), wanted.data.view(np.int32))


@pytest.fixture
def read(tmp_path):
    """Return a function that reads bytes as a file."""

    def read_bytes(data: bytes, **options) -> Dataset:
        path = tmp_path / "data.txt"
        path.write_bytes(data)
        return read_libsvm(path, **options)

    return read_bytes


PLAIN = b"0,2 0:1 3:-0.5\n1 1:2\n"
PLAIN_ROWS = [([0, 2], {0: 1.0, 3: -0.5}), ([1], {1: 2.0})]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param(PLAIN, PLAIN_ROWS, id="no header"),
        pytest.param(b"2 4 3\n" + PLAIN, PLAIN_ROWS, id="header"),
        pytest.param(b"2 4\n" + PLAIN, PLAIN_ROWS, id="header without labels"),
        pytest.param(b" 2\t4  3 # rows features labels\n" + PLAIN, PLAIN_ROWS, id="header with blanks and comment"),
        pytest.param(PLAIN[:-1], PLAIN_ROWS, id="no newline at the end"),
        pytest.param(PLAIN.replace(b"\n", b"\r\n"), PLAIN_ROWS, id="CRLF"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN, PLAIN_ROWS, id="byte order mark"),
        pytest.param(b"\xef\xbb\xbf2 4 3\r\n" + PLAIN, PLAIN_ROWS, id="byte order mark and header"),
        pytest.param(PLAIN.replace(b" ", b" \t  "), PLAIN_ROWS, id="tabs and several blanks"),
        pytest.param(PLAIN.replace(b"\n", b" \t\n"), PLAIN_ROWS, id="blanks at the end of lines"),
        pytest.param(PLAIN + b"\n \n\t\r\n", PLAIN_ROWS, id="blank lines at the end"),
        pytest.param(b"# one\n  # two\n" + PLAIN + b"#\n", PLAIN_ROWS, id="lines of comments are no rows"),
        pytest.param(b"# first\n2 4 3\n# second\n" + PLAIN, PLAIN_ROWS, id="comments around the header"),
        pytest.param(b"0,2 0:1 3:-0.5# 1:2, \xc3\xa4\n1 #0:1\n", [PLAIN_ROWS[0], ([1], {})], id="comments after rows"),
        pytest.param(b"1#\n2 3:1", [([1], {}), ([2], {3: 1.0})], id="comment right after the labels"),
        pytest.param(b"2,0 3:-0.5 0:1\n1 1:2", PLAIN_ROWS, id="indices not ascending"),
        pytest.param(b"2,0,2,0 0:1 3:-.5\n1,1 1:+2.", PLAIN_ROWS, id="a label twice counts once"),
        pytest.param(b" 0:1\n0 1:1", [([], {0: 1.0}), ([0], {1: 1.0})], id="no labels, with a blank"),
        pytest.param(b"0:1\n0 1:1", [([], {0: 1.0}), ([0], {1: 1.0})], id="no labels, without a blank"),
        pytest.param(b"5 1:1\n3", [([5], {1: 1.0}), ([3], {})], id="no features"),
        pytest.param(b"0 0:1\n\n1 1:2", [([0], {0: 1.0}), ([], {}), ([1], {1: 2.0})], id="a blank line is a row"),
        pytest.param(b"\n\r\n0 0:1", [([], {}), ([], {}), ([0], {0: 1.0})], id="blank lines at the start are rows"),
        pytest.param(b"3 1 1\n0 0:1\n\n\n\n", [([0], {0: 1.0}), ([], {}), ([], {})], id="blank rows the header counts"),
        pytest.param(b"0 0:0 1:-0.0", [([0], {0: 0.0, 1: -0.0})], id="zeros are kept"),
        pytest.param(b"0 00:1 01:1 0002:1", [([0], {0: 1.0, 1: 1.0, 2: 1.0})], id="leading zeros"),
        pytest.param(b"0 0:1e-46 1:-1e-39 2:1.1754944e-38", [([0], {0: 0.0, 1: 0.0, 2: FLOAT32_MIN})], id="subnormals"),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 20])
def test_text_is_read_as_the_grammar_says(read, monkeypatch, text, rows, block_bytes):
    monkeypatch.setattr(libsvm_blocks, "BLOCK_BYTES", block_bytes)
    assert rows_of(read(text, n_threads=2)) == rows
    assert reference(text)[0] == rows


def test_shape_comes_from_the_header_the_arguments_or_the_largest_index(read):
    assert [read(PLAIN).X.shape, read(PLAIN).Y.shape] == [(2, 4), (2, 3)]
    assert [read(b"2 9 8\n" + PLAIN).X.shape, read(b"2 9 8\n" + PLAIN).Y.shape] == [(2, 9), (2, 8)]
    given = read(PLAIN, n_features=7, n_labels=6)
    assert (given.n_features, given.n_labels) == (7, 6)
    half = read(b"2 9\n" + PLAIN, n_features=9, n_labels=6)
    assert (half.n_features, half.n_labels) == (9, 6)


def test_indices_may_start_at_one_for_features_and_by_a_flag_for_labels(read):
    text = b"1,3 1:1 4:-0.5\n2 2:2\n"
    assert rows_of(read(text, zero_based=False)) == [([1, 3], {0: 1.0, 3: -0.5}), ([2], {1: 2.0})]
    assert_same(read(text, zero_based=False, zero_based_labels=False), read(PLAIN))
    assert_same(read(b"2 4 3\n" + text, zero_based=False, zero_based_labels=False), read(PLAIN))


def test_features_that_come_twice_are_added_up_on_request(read):
    dataset = read(b"0 7:1 2:0.5 7:2 2:-0.5 7:4", duplicates="sum")
    assert rows_of(dataset) == [([0], {2: 0.0, 7: 7.0})]


def test_duplicates_are_added_in_the_order_of_the_file(read):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1000).astype(np.float32)
    text = b"0 " + b" ".join(b"%d:%r" % (i % 3, float(v)) for i, v in enumerate(values))
    expected = {f: np.add.accumulate(values[f::3])[-1] for f in range(3)}
    assert rows_of(read(text, duplicates="sum")) == [([0], expected)]


def test_header_can_be_demanded(read):
    assert rows_of(read(b"2 4 3\n" + PLAIN, header=True)) == PLAIN_ROWS


@pytest.mark.parametrize("n", [2, 47, 48, 49, 50, 1000, 4097])
def test_long_rows_are_sorted(read, n):
    order = np.random.default_rng(n).permutation(n)
    text = ",".join(map(str, order)) + " " + " ".join(f"{i}:{i}" for i in order)
    dataset = read(text.encode())
    np.testing.assert_array_equal(dataset.X.indices, np.arange(n))
    np.testing.assert_array_equal(dataset.X.data, np.arange(n, dtype=np.float32))
    np.testing.assert_array_equal(dataset.Y.indices, np.arange(n))


def test_values_are_those_that_python_reads_rounded_to_float32(read):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x7F800000, 3000, dtype=np.uint32).view(np.float32)
    unit = rng.random(3000)
    with np.errstate(over="ignore"):
        above = np.nextafter(bits, np.float32(np.inf))
    middle = (bits.astype(np.float64) + above.astype(np.float64)) / 2
    middle = middle[middle < 3.4e38]
    texts = [f"{v:.{digits}g}" for digits in (1, 6, 9, 12, 15, 17, 20) for v in (*bits.tolist(), *unit.tolist())]
    texts += [f"{v:.{digits}f}" for digits in (1, 5, 18, 25, 60) for v in unit.tolist()]
    texts += [str(Decimal(v)) for v in middle.tolist()]
    texts += [str(Decimal(v)) + "00000000000000000001" for v in middle.tolist() if "E" not in str(Decimal(v))]
    texts += ["123456789012345678901234567890", "0." + "0" * 30 + "1", "00000000000000000000000000001.5", "1e0", "1E+5"]
    texts += ["9007199254740993e-3", "1e-300", "0e999999999", "1e-999999999999999999", "0" * 400 + "1", "3.4028235e38"]
    expected = np.array([as_float32(text) for text in texts])
    finite = np.isfinite(expected)
    texts = [text for text, keep in zip(texts, finite, strict=True) if keep]
    signs = rng.choice(["", "-", "+"], len(texts)).tolist()
    text = "\n".join(f"0 0:{sign}{text}" for sign, text in zip(signs, texts, strict=True))
    expected = np.array([as_float32(sign + text) for sign, text in zip(signs, texts, strict=True)])
    np.testing.assert_array_equal(read(text.encode()).X.data.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_compressed_files_are_known_by_their_first_bytes(read, compress):
    assert_same(read(compress(PLAIN)), read(PLAIN))
    assert_same(read(compress(PLAIN[:9]) + compress(PLAIN[9:])), read(PLAIN))


def test_blocks_hold_all_rows_and_tell_the_shape_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(libsvm_blocks, "BLOCK_BYTES", 64)
    path = tmp_path / "data.txt"
    path.write_bytes(b"\n".join(b"%d %d:1 %d:2" % (i, i, i + 1) for i in range(100)))
    blocks = read_blocks(path, n_threads=2)
    assert (blocks.n_features, blocks.n_labels) == (None, None)
    with pytest.raises(RuntimeError, match="once all blocks were taken"):
        _ = blocks.shape
    parts = list(blocks)
    assert len(parts) > 10
    assert blocks.shape == (blocks.n_features, blocks.n_labels) == (101, 100)
    np.testing.assert_array_equal(np.concatenate([part.Y_indices for part in parts]), np.arange(100))
    assert sum(len(part.X_indptr) - 1 for part in parts) == 100
    for part in parts:
        assert part.X_indptr[0] == part.Y_indptr[0] == 0
        assert part.X_indptr[-1] == len(part.X_indices) == len(part.X_data)
    assert list(blocks) == []


def test_blocks_tell_the_shape_of_the_header_with_the_first_one(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"2 40 30\n" + PLAIN)
    blocks = read_blocks(path)
    next(blocks)
    assert (blocks.n_features, blocks.n_labels) == (40, 30)


PEAK = """
import sys
from xmlsgd.cli.machine import peak_memory_bytes as peak
from xmlsgd.datasets.libsvm import read_blocks

for _ in read_blocks(sys.argv[1], n_threads=2):
    pass
before, n_rows = peak(), 0
for block in read_blocks(sys.argv[2], n_threads=2):
    n_rows += len(block.X_indptr) - 1
print(n_rows, peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak may be that of a parent")
def test_blocks_of_a_large_file_are_parsed_within_the_memory_of_a_few(tmp_path):
    line = b"1,2,3 " + b" ".join(b"%d:0.%d" % (i * 7, i + 1) for i in range(40)) + b"\n"
    n_small, n_large = (n * libsvm_blocks.BLOCK_BYTES // len(line) for n in (8, 100))
    (tmp_path / "small.txt").write_bytes(line * n_small)  # enough to fill every buffer once
    (tmp_path / "large.txt").write_bytes(line * n_large)
    command = [sys.executable, "-c", PEAK, str(tmp_path / "small.txt"), str(tmp_path / "large.txt")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    n_rows, more = map(int, result.stdout.split())
    assert n_rows == n_large
    assert more < 16 * libsvm_blocks.BLOCK_BYTES  # of 100 blocks


def test_files_of_features_alone_are_read_as_one_matrix(tmp_path):
    path = tmp_path / "trn_X_Xf.txt"
    path.write_bytes(b"3 5\n0:1 4:2\n\n3:0.5\n")
    X = read_features(path)
    np.testing.assert_array_equal(X.to_scipy().toarray(), [[1, 0, 0, 0, 2], [0] * 5, [0, 0, 0, 0.5, 0]])


PIECES = (
    b" |\t|\n|\r\n|,|:|#|-|+|.|e|0|1|7|12|3:1| 2:0.5|2,1|nan|inf|1e60|\0|\xff|\xc3\xa4|2147483647|\xef\xbb\xbf|2 3 4\n"
)
TOKENS = st.sampled_from(PIECES.split(b"|"))
TEXTS = st.lists(TOKENS, max_size=40).map(b"".join) | st.binary(max_size=60)


def assert_read_as_by_the_reference(path, data: bytes, block_bytes: int, n_threads: int, duplicates: str) -> bool:
    """Compare one text, and return whether it was accepted."""
    path.write_bytes(data)
    try:
        rows, shape = reference(data, duplicates == "sum")
    except ValueError:
        rows = None
    with mock.patch.object(libsvm_blocks, "BLOCK_BYTES", block_bytes):
        if rows is None:
            with pytest.raises(DataError) as caught:
                read_libsvm(path, n_threads=n_threads, duplicates=duplicates)
            assert str(caught.value).startswith(str(path) + ":")
            assert "\n" not in str(caught.value)
            assert str(caught.value).isprintable()
        else:
            dataset = read_libsvm(path, n_threads=n_threads, duplicates=duplicates)
            assert rows_of(dataset) == rows
            assert (dataset.n_features, dataset.n_labels) == shape
    return rows is not None


@settings(max_examples=600, deadline=None)
@given(TEXTS, st.sampled_from([1, 3, 16, 1 << 20]), st.sampled_from([1, 2]), st.sampled_from(["error", "sum"]))
def test_any_bytes_give_what_the_grammar_says_or_a_data_error(
    tmp_path_factory, data, block_bytes, n_threads, duplicates
):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    assert_read_as_by_the_reference(path, data, block_bytes, n_threads, duplicates)


def test_mutated_files_give_what_the_grammar_says_or_a_data_error(tmp_path):
    rng = np.random.default_rng(0)
    original = b"6 9 5\n0,3 0:1.25 4:-2e-3 8:7\n\n 1:0.5\n# x\n4 7:1 2:3.5\n2,1\n1 8:123456789012345678\n"
    alphabet = np.frombuffer(b"0123456789,,::  \t\n\r#.-+eE\0\xffna", np.uint8)
    accepted = 0
    for k in range(1000):
        data = bytearray(original if k % 2 else original[6:])
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(0, len(data)))
            kind = rng.integers(0, 3)
            if kind == 0:
                data[place] = rng.choice(alphabet)
            elif kind == 1:
                data.insert(place, rng.choice(alphabet))
            else:
                del data[place]
        accepted += assert_read_as_by_the_reference(tmp_path / "m.txt", bytes(data), 1 << (k % 8), 1 + k % 2, "error")
    assert 100 < accepted < 900  # both outcomes were seen


def test_ten_thousand_mutated_blocks_are_parsed_as_the_grammar_says_or_refused():
    rng = np.random.default_rng(1)
    first = b"0 0:1\n"  # no header, and a label and a feature whatever follows
    lines = [b"0,3 0:1.25 4:-2e-3 8:7", b" 1:0.5", b"# x", b"4 7:1 2:3.5", b"2,1", b"", b"1 8:1e-46 9:.5", b" 3:1e39"]
    alphabet = np.frombuffer(b"0123456789,,::  \t\n\r#.-+eE\0\xffna", np.uint8)
    accepted = 0
    for k in range(10_000):
        data = bytearray(b"\n".join(lines[i] for i in rng.integers(0, len(lines), 3)) + b" ")
        for place in rng.integers(0, len(data), 1 + k % 3).tolist():
            data[place : place + int(rng.integers(0, 3))] = rng.choice(alphabet, int(rng.integers(0, 3))).tobytes()
        block = first + bytes(data).removesuffix(b"\n") + b"\n"
        duplicates = ("error", "sum")[k % 2]
        parsed = parse(block, Options(True, True, False, duplicates), None, None)
        try:
            rows, (n_features, n_labels) = reference(block, duplicates == "sum")
        except ValueError:
            assert parsed.error is not None
            assert 0 <= parsed.error[0] < block.count(b"\n")
            continue
        assert parsed.error is None
        X_indptr, X_indices, X_data, Y_indptr, Y_indices = parsed.rows
        X = CSR(X_indptr, X_indices, X_data, n_features)
        Y = CSR(Y_indptr, Y_indices, np.ones(len(Y_indices), np.float32), n_labels)
        found = rows_of(Dataset(X, Y))
        assert found[: len(found) - parsed.blank_tail] == rows
        accepted += 1
    assert 1000 < accepted < 9000  # both outcomes were seen


@pytest.mark.parametrize("make", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_a_compressed_file_cut_or_changed_anywhere_is_read_right_or_refused(tmp_path, make):
    whole = make(PLAIN * 20)
    expected = reference(PLAIN * 20)[0]
    path = tmp_path / "data.bin"
    for place in range(1, len(whole)):
        for data in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]):
            path.write_bytes(data)
            try:
                rows = rows_of(read_libsvm(path, n_threads=1))
            except DataError:
                continue
            assert rows == expected


@st.composite
def datasets(draw):
    """Return a data set with at least one feature and one label."""
    n_rows, n_features, n_labels = draw(st.integers(1, 8)), draw(st.integers(1, 12)), draw(st.integers(1, 6))
    value = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
    rows = draw(st.lists(st.dictionaries(st.integers(0, n_features - 1), value), min_size=n_rows, max_size=n_rows))
    labels = draw(st.lists(st.sets(st.integers(0, n_labels - 1)), min_size=n_rows, max_size=n_rows))
    rows[draw(st.integers(0, n_rows - 1))][0] = draw(value)
    labels[draw(st.integers(0, n_rows - 1))].add(n_labels - 1)
    X_indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    Y_indptr = np.cumsum([0, *map(len, labels)], dtype=np.int64)
    X_indices = np.array([f for row in rows for f in sorted(row)], np.int32)
    X_data = np.array([row[f] for row in rows for f in sorted(row)], np.float32)
    Y_indices = np.array([label for row in labels for label in sorted(row)], np.int32)
    X = CSR(X_indptr, X_indices, X_data, n_features)
    return Dataset(X, CSR(Y_indptr, Y_indices, np.ones(len(Y_indices), np.float32), n_labels))


@settings(max_examples=200, deadline=None)
@given(datasets(), st.sampled_from(["", ".gz", ".bz2", ".xz"]), st.sampled_from([1, 5, 1 << 16]))
def test_what_is_written_is_read_back_bit_for_bit(tmp_path_factory, dataset, suffix, entries):
    path = tmp_path_factory.getbasetemp() / f"round.txt{suffix}"
    with mock.patch.object(libsvm_write, "WRITE_ENTRIES", entries):
        write_libsvm(dataset, path)
    assert_same(read_libsvm(path), dataset)


def test_without_a_header_what_is_written_is_read_back_with_the_shape_given(read, tmp_path):
    dataset = read(b"0 0:1\n\n2 3:0.1\n", n_features=9, n_labels=5)
    write_libsvm(dataset, tmp_path / "out.txt", header=False)
    assert (tmp_path / "out.txt").read_bytes() == b"0 0:1\n\n2 3:0.1\n"
    assert_same(read_libsvm(tmp_path / "out.txt", n_features=9, n_labels=5), dataset)


@pytest.mark.parametrize(
    ("suffix", "magic"), [("", b"2 4 3\n"), (".gz", b"\x1f\x8b"), (".bz2", b"BZh"), (".xz", b"\xfd7zXZ\0")]
)
def test_the_name_says_how_the_output_is_compressed(read, tmp_path, suffix, magic):
    path = tmp_path / f"out.txt{suffix}"
    write_libsvm(read(PLAIN), path)
    assert path.read_bytes().startswith(magic)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(read, tmp_path, monkeypatch):
    dataset = read(PLAIN)
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "data.txt.gz"
    write_libsvm(dataset, path)
    before = path.read_bytes()
    monkeypatch.setattr(libsvm_write, "_format_rows", mock.Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_libsvm(dataset, path)
    assert [p.name for p in folder.iterdir()] == ["data.txt.gz"]
    assert path.read_bytes() == before


def test_rows_that_could_not_be_read_back_are_not_written(tmp_path):
    empty = CSR(np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 4)
    full = CSR(np.array([0, 1, 1]), np.array([2], np.int32), np.ones(1, np.float32), 4)
    nan = CSR(np.array([0, 0, 1]), np.array([2], np.int32), np.full(1, np.nan, np.float32), 4)
    path = tmp_path / "out.txt"
    with pytest.raises(DataError, match="at least one feature, got 2 rows without any"):
        write_libsvm(Dataset(empty, full), path)
    with pytest.raises(DataError, match="at least one label, got 2 rows without any"):
        write_libsvm(Dataset(full, empty), path)
    with pytest.raises(DataError, match="X: row 1: values must be finite float32, got nan"):
        write_libsvm(Dataset(nan, full), path)
    with pytest.raises(DataError, match="row 1: last row must not be empty without a header; pass header=True"):
        write_libsvm(Dataset(full, full), path, header=False)
    assert not list(tmp_path.iterdir())


def test_threads_and_block_sizes_change_nothing_on_real_data(real_data, monkeypatch):
    path = real_data("bibtex") / "test.txt.gz"
    expected = read_libsvm(path, n_threads=1)
    monkeypatch.setattr(libsvm_blocks, "BLOCK_BYTES", 10_000)
    assert_same(read_libsvm(path, n_threads=2), expected)


def test_real_data_are_what_scikit_learn_reads(real_data):
    from sklearn.datasets import load_svmlight_file

    path = real_data("delicious") / "test.txt.gz"
    dataset = read_libsvm(path)
    _, body = gzip.decompress(path.read_bytes()).split(b"\n", 1)
    X, y = load_svmlight_file(
        io.BytesIO(body), n_features=dataset.n_features, multilabel=True, zero_based=True, dtype=np.float64
    )
    np.testing.assert_array_equal(dataset.X.indptr, X.indptr)
    np.testing.assert_array_equal(dataset.X.indices, X.indices)
    np.testing.assert_array_equal(dataset.X.data, X.data.astype(np.float32))
    assert [dataset.Y.row(i)[0].tolist() for i in range(dataset.n_rows)] == [sorted(map(int, labels)) for labels in y]


def test_what_scikit_learn_writes_is_read(tmp_path):
    import scipy.sparse as sp
    from sklearn.datasets import dump_svmlight_file

    rng = np.random.default_rng(0)
    X = sp.random_array((30, 20), density=0.2, rng=rng, format="csr")
    Y = sp.csr_matrix((rng.random((30, 6)) < 0.3).astype(int))
    path = tmp_path / "data.svm"
    dump_svmlight_file(X, Y, str(path), multilabel=True, zero_based=False)
    dataset = read_libsvm(path, zero_based=False, n_features=20, n_labels=6)
    assert_same(dataset, Dataset(CSR.from_scipy(X), CSR.from_scipy(Y.astype(np.float32), "Y")))


def test_rows_to_predict_for_may_do_without_labels_where_that_is_asked_for(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(" 0:1 2:0.5\n1:2\n")
    dataset = read_libsvm(path, labels_required=False)
    assert (dataset.X.shape, dataset.Y.shape) == ((2, 3), (2, 0))
    assert read_libsvm(path, labels_required=False, n_labels=4).Y.shape == (2, 4)
