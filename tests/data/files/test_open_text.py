"""What is no text, or packed so that it cannot be read, is refused by every reader with what would do."""

from __future__ import annotations

import errno
import io
import os
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from xmlsgd.data import text
from xmlsgd.data.datasets import load_dataset
from xmlsgd.data.document_formats import first_lines
from xmlsgd.data.formats.libsvm import read_libsvm
from xmlsgd.data.loading import load_file
from xmlsgd.data.parser import blocks
from xmlsgd.data.text import read_raw_text
from xmlsgd.errors import DataError


def zipped(content):
    """Return an archive of one file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("train.txt", content)
    return made.getvalue()


# A frame of zstandard with the text in one raw block: magic, one byte of flags, length, block header.
ZSTANDARD = b"\x28\xb5\x2f\xfd\x20\x06\x31\x00\x000 1:1\n"


@pytest.mark.parametrize("read", [read_libsvm, read_raw_text])
@pytest.mark.parametrize(
    ("content", "got"),
    [
        (ZSTANDARD, "zstandard; unpack it first"),
        (zipped("0 1:1\n"), "zip; unpack it first, or save a spreadsheet as CSV"),
        (b"\x04\x22\x4d\x18\x40\x40\xc0", "lz4; unpack it first"),
        (b"7z\xbc\xaf\x27\x1c\0\x04", "7-zip; unpack it first"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old Office document; save a spreadsheet as CSV"),
        (b"%PDF-1.7", "PDF; extract its text, as by pdftotext"),
        (b"PAR1\x15\x04", "Parquet; write it as CSV or JSON lines"),
        (b"\x93NUMPY", "a NumPy array; save sparse rows by scipy.sparse.save_npz, see docs/data.md"),
    ],
)
def test_a_file_that_is_no_text_is_told_to_be_converted(tmp_path, read, content, got):
    (tmp_path / "train.txt").write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(tmp_path / "train.txt")
    wanted = f"must be text, plain or packed by gzip, bzip2 or xz, got {got}"
    assert str(caught.value) == f"{tmp_path / 'train.txt'}: {wanted}"


@pytest.mark.parametrize("read", [read_libsvm, read_raw_text, load_file, load_dataset])
def test_a_path_with_a_nul_character_is_refused(read):
    with pytest.raises(DataError, match=r"path must not hold a NUL character, got 'a.x00b'"):
        read("a\0b")


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc/self/mem on this system")
@pytest.mark.parametrize("read", [read_libsvm, read_raw_text, load_file, lambda path: first_lines(Path(path))])
def test_a_file_that_opens_but_that_the_disk_does_not_read_is_named_and_not_called_bad(read):
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):
        read("/proc/self/mem")


@pytest.mark.parametrize("read", [read_libsvm, read_raw_text])
def test_an_error_of_the_disk_in_the_middle_of_a_file_names_it(tmp_path, monkeypatch, read):
    (tmp_path / "train.txt").write_text("0 0:1\n")

    @contextmanager
    def failing(path):
        stream = Mock()
        stream.read = stream.readline = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
        yield stream

    for module in (blocks, text):
        monkeypatch.setattr(module, "open_text", failing)
    with pytest.raises(OSError, match=r"Input/output error: '.*train\.txt'"):
        read(tmp_path / "train.txt")


@pytest.mark.parametrize("read", [read_libsvm, read_raw_text, load_file, load_dataset])
def test_a_device_is_refused(read):
    with pytest.raises(DataError, match="path must name a regular file, got a device or a pipe"):
        read(os.devnull)
