"""Any bytes, also mutated and cut files, give what the grammar of LIBSVM text says, or a data error."""

from __future__ import annotations

import bz2
import gzip
import lzma
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.libsvm_grammar import PLAIN, reference, rows_of
from xmlsgd.data.csr import Dataset
from xmlsgd.data.formats.libsvm import read_libsvm
from xmlsgd.data.parser import blocks as parser
from xmlsgd.data.parser.parse import Options, parse
from xmlsgd.errors import DataError

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
    with mock.patch.object(parser, "BLOCK_BYTES", block_bytes):
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
@pytest.mark.slow
def test_any_bytes_give_what_the_grammar_says_or_a_data_error(
    tmp_path_factory, data, block_bytes, n_threads, duplicates
):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    assert_read_as_by_the_reference(path, data, block_bytes, n_threads, duplicates)


@pytest.mark.slow
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


@pytest.mark.slow
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
        parsed = parse(block, Options(True, True, duplicates), None, None)
        try:
            rows, (n_features, n_labels) = reference(block, duplicates == "sum")
        except ValueError:
            assert parsed.error is not None
            assert 0 <= parsed.error[0] < block.count(b"\n")
            continue
        assert parsed.error is None
        X, Y = replace(parsed.rows.X, n_cols=n_features), replace(parsed.rows.Y, n_cols=n_labels)
        assert rows_of(Dataset(X, Y)) == rows
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
