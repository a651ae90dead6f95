"""LIBSVM text: what is accepted, with which meaning, at each block size and number of threads."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest

from shared.libsvm_grammar import FLOAT32_MIN, PLAIN, PLAIN_ROWS, as_float32, assert_same, reference, rows_of
from shared.paths import ROOT
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats.libsvm import read_libsvm, read_libsvm_features
from xmlsgd.data.parser import blocks as parser
from xmlsgd.data.parser.blocks import LibsvmBlocks


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
    monkeypatch.setattr(parser, "BLOCK_BYTES", block_bytes)
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
    monkeypatch.setattr(parser, "BLOCK_BYTES", 64)
    path = tmp_path / "data.txt"
    path.write_bytes(b"\n".join(b"%d %d:1 %d:2" % (i, i, i + 1) for i in range(100)))
    blocks = LibsvmBlocks(path, n_threads=2)
    assert (blocks.n_features, blocks.n_labels) == (None, None)
    parts = list(blocks)
    assert len(parts) > 10
    assert blocks.shape == (blocks.n_features, blocks.n_labels) == (101, 100)
    np.testing.assert_array_equal(np.concatenate([part.Y.indices for part in parts]), np.arange(100))
    assert sum(part.n_rows for part in parts) == 100
    for part in parts:
        assert part.X.indptr[0] == part.Y.indptr[0] == 0
        assert part.X.indptr[-1] == len(part.X.indices) == len(part.X.data)


def test_blocks_tell_the_shape_of_the_header_with_the_first_one(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"2 40 30\n" + PLAIN)
    blocks = LibsvmBlocks(path)
    next(iter(blocks))
    assert (blocks.n_features, blocks.n_labels) == (40, 30)


PEAK = """
import sys
from xmlsgd.cli.machine import peak_memory_bytes as peak
from xmlsgd.data.parser.blocks import LibsvmBlocks

for _ in LibsvmBlocks(sys.argv[1], n_threads=2):
    pass
before, n_rows = peak(), 0
for block in LibsvmBlocks(sys.argv[2], n_threads=2):
    n_rows += block.n_rows
print(n_rows, peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak may be that of a parent")
def test_blocks_of_a_large_file_are_parsed_within_the_memory_of_a_few(tmp_path):
    line = b"1,2,3 " + b" ".join(b"%d:0.%d" % (i * 7, i + 1) for i in range(40)) + b"\n"
    n_small, n_large = (n * parser.BLOCK_BYTES // len(line) for n in (8, 100))
    (tmp_path / "small.txt").write_bytes(line * n_small)  # enough to fill every buffer once
    (tmp_path / "large.txt").write_bytes(line * n_large)
    command = [sys.executable, "-c", PEAK, str(tmp_path / "small.txt"), str(tmp_path / "large.txt")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    n_rows, more = map(int, result.stdout.split())
    assert n_rows == n_large
    assert more < 16 * parser.BLOCK_BYTES  # of 100 blocks


def test_files_of_features_alone_are_read_as_one_matrix(tmp_path):
    path = tmp_path / "trn_X_Xf.txt"
    path.write_bytes(b"3 5\n0:1 4:2\n\n3:0.5\n")
    X, declared = read_libsvm_features(path)
    assert declared
    np.testing.assert_array_equal(X.to_scipy().toarray(), [[1, 0, 0, 0, 2], [0] * 5, [0, 0, 0, 0.5, 0]])


def test_threads_and_block_sizes_change_nothing_on_real_data(real_data, monkeypatch):
    path = real_data("bibtex") / "test.txt.gz"
    expected = read_libsvm(path, n_threads=1)
    monkeypatch.setattr(parser, "BLOCK_BYTES", 10_000)
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
