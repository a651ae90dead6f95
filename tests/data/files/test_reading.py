"""Files are opened for what they hold, and nobody waits for one that is none."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

import pytest

from xmlsgd.data.files.reading import open_regular, open_text


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_known_by_their_first_bytes(tmp_path, pack):
    (tmp_path / "file").write_bytes(pack(b"text"))
    with open_text(tmp_path / "file") as stream:
        assert stream.read() == b"text"


def test_a_regular_file_is_opened_also_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as stream:
        assert stream.read() == b"text"


def test_what_is_no_regular_file_is_an_error_that_names_it_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "nothing"):
        with pytest.raises(OSError, match=name), open_regular(tmp_path / name):
            pass
