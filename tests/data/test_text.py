"""Files of raw text: their forms, compressed or not, and errors that name the line."""

import bz2
import gzip
import lzma

import pytest

from xmlsgd.data.text import read_raw_text
from xmlsgd.errors import DataError


@pytest.fixture
def write(tmp_path):
    def writer(content, name="docs.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return writer


def test_one_document_a_line(write):
    raw = read_raw_text(write("one two\n\nthrée\n \n\n"))
    assert raw.texts == ["one two", "", "thrée"]
    assert raw.labels is None


def test_crlf_mark_at_the_start_and_no_newline_at_the_end_are_accepted(write):
    assert read_raw_text(write(b"\xef\xbb\xbfone\r\ntwo")).texts == ["one", "two"]


def test_a_byte_order_mark_after_the_first_line_is_text(write):
    assert read_raw_text(write("one\n\ufefftwo")).texts == ["one", "\ufefftwo"]


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_compressed_files_are_unpacked(write, suffix, pack):
    for name in (f"docs.txt.{suffix}", "docs.txt"):
        assert read_raw_text(write(pack(b"one\ntwo\n"), name)).texts == ["one", "two"]
    assert read_raw_text(write(b"not packed", f"docs.txt.{suffix}")).texts == ["not packed"]


def test_tab_form_gives_label_names_and_text(write):
    raw = read_raw_text(write("a, b c,a\tone\ttwo\n\tno labels\n"), labelled=True)
    assert raw.labels == [("a", "b c"), ()]
    assert raw.texts == ["one\ttwo", "no labels"]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("one".encode("utf-16"), "docs.txt", r"docs\.txt:1: must be UTF-8, got byte 0xff at 0; "),
        (b"one\ntw\0o\n", "docs.txt", r"docs\.txt:2: must be text, got a NUL byte"),
        (b"one\n\xff\xfe\n", "docs.txt", r"docs\.txt:2: must be UTF-8, got byte 0xff"),
        (
            gzip.compress(b"one\ntwo\n" * 999, mtime=0)[:-20],
            "docs.txt.gz",
            r"docs\.txt\.gz:\d+: file must be readable to its end",
        ),
        (b"\n\n", "docs.txt", r"docs\.txt: must hold at least one document"),
        (b"one\rtwo\r", "docs.txt", r"docs\.txt:1: lines must end with LF or CRLF, got CR alone; convert it by `tr"),
    ],
)
def test_broken_files_are_named_with_their_line(write, content, name, message):
    with pytest.raises(DataError, match=message):
        read_raw_text(write(content, name))


def test_line_without_tab_is_refused(write):
    with pytest.raises(DataError, match=r"docs\.txt:2: must read `label1,label2<TAB>text`, got no tab"):
        read_raw_text(write("a\tone\ntwo\n"), labelled=True)


def test_a_label_that_holds_a_line_end_is_named_with_its_line(write):
    with pytest.raises(DataError, match=r"docs\.txt:2: label must be without line ends, got 'b.rc'"):
        read_raw_text(write(b"a\tone\r\na,b\rc\ttwo\n", "docs.txt"), labelled=True)


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read, got No such file"):
        read_raw_text(tmp_path / "none.txt")
    with pytest.raises(DataError, match="a directory"):
        read_raw_text(tmp_path)
