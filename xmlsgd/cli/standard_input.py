"""Rows from standard input to predict labels for, as they arrive: a line that waits for its answer gets it.

They are never held all at once. A blank line is answered with the next one that is not: at the end it is no row.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

from ..data.csr import CSR
from ..data.files import MAGIC, READ_ERRORS
from ..data.parser.blocks import LibsvmBlocks
from ..data.text import lines_of, split_labels
from ..errors import DataError
from .exit_codes import UsageError
from .format_options import FormatOptions
from .sources import NO_VECTORIZER, Columns, check_features, check_words

NAME = "stdin"  # in errors
HEAD_BYTES = 1 << 16  # by which text is told from rows
BLOCK_CHARACTERS = 1 << 20  # of the documents that are turned into rows at once


def stdin_blocks(form: FormatOptions, columns: Columns) -> Iterator[CSR]:
    """Yield the rows of standard input, which may be compressed, in blocks of about 1 MB of text."""
    if form.format not in ("auto", "rows", "raw"):
        raise UsageError(f"-: standard input must be rows or raw text, got --format {form.format}; pass a file")
    try:
        stream = _decompressed(cast("BinaryIO", sys.stdin.buffer))
        head = _start(stream, HEAD_BYTES)
    except READ_ERRORS as error:
        raise DataError(f"{NAME}: cannot be read, got {error}") from error
    lines = head.decode(errors="replace").split("\n")
    complete = lines[:-1] or lines
    stream = _joined(head, stream)
    if not form.are_documents(complete, labelled=False):
        check_words(None, columns, NAME)
        return _blocks_of_rows(stream, form, columns)
    if columns.vectorizer is None:
        raise DataError(f"{NAME}: {NO_VECTORIZER}")
    arriving = _ArrivingLines(stream)
    texts = _texts(cast("BinaryIO", arriving), form.have_labels(complete))
    return map(columns.vectorizer.transform, _blocks_of_texts(texts, arriving))


def _decompressed(stream: BinaryIO) -> BinaryIO:
    """Return a stream through the decompressor that its first bytes ask for."""
    start = _start(stream, 6)
    whole = _joined(start, stream)
    opener: Any = next((opener for magic, opener in MAGIC if start.startswith(magic)), None)
    return whole if opener is None else cast("BinaryIO", opener(whole, "rb"))


def _blocks_of_rows(stream: BinaryIO, form: FormatOptions, columns: Columns) -> Iterator[CSR]:
    """Yield the features of rows of numbers; `DataError` for a feature that the model does not have."""
    arriving: Any = SimpleNamespace(read=cast("Any", stream).read1)  # gives what has arrived
    blocks = LibsvmBlocks(NAME, stream=arriving, labels_required=False, **form.for_rows)
    for block in blocks:
        seen = int(block.X_indices.max(initial=-1)) + 1
        check_features(blocks.n_features or seen, columns, NAME)
        yield CSR(block.X_indptr, block.X_indices, block.X_data, columns.n_features)


def _texts(stream: BinaryIO, labelled: bool) -> Iterator[str]:
    """Yield the documents of a stream of lines, without blank lines at its end."""
    n_blank = 0
    for number, line in enumerate(lines_of(stream, NAME), 1):
        if not line or line.isspace():
            n_blank += 1
            continue
        yield from itertools.repeat("", n_blank)
        n_blank = 0
        yield split_labels(line, f"{NAME}:{number}")[1] if labelled else line


def _blocks_of_texts(texts: Iterable[str], arriving: _ArrivingLines) -> Iterator[list[str]]:
    """Yield texts in lists of about 1 MB, or of those that have arrived."""
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text) + 1
        if size >= BLOCK_CHARACTERS or arriving.n_complete == 0:
            yield block
            block, size = [], 0
    if block:
        yield block


def _start(stream: BinaryIO, n_bytes: int) -> bytes:
    """Return the first bytes of a stream: a line at least, or `n_bytes`, and what came with them."""
    start = b""
    while b"\n" not in start and len(start) < n_bytes and (more := cast("Any", stream).read1(n_bytes)):
        start += more
    return start


class _ArrivingLines:
    """The lines of a stream as far as they have arrived, of which `n_complete` were not taken."""

    def __init__(self, stream: BinaryIO) -> None:
        self._read = cast("Any", stream).read1
        self._chunk, self.n_complete = io.BytesIO(), 0

    def readline(self, limit: int) -> bytes:
        """Return the next line with its end, at most `limit` bytes of it."""
        line = self._chunk.readline(limit)
        while not line.endswith(b"\n") and len(line) < limit and (more := self._read(BLOCK_CHARACTERS)):
            self._chunk, self.n_complete = io.BytesIO(more), more.count(b"\n")
            line += self._chunk.readline(limit - len(line))
        self.n_complete -= line.endswith(b"\n")
        return line


def _joined(head: bytes, rest: BinaryIO) -> BinaryIO:
    """Return a stream of bytes that were read from a stream already, followed by the rest of it."""
    return cast("BinaryIO", io.BufferedReader(_Joined(head, rest)))


class _Joined(io.RawIOBase):
    """Some bytes, then a stream."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as possible; return the number of bytes, 0 at the end."""
        return self._head.readinto(buffer) or cast("Any", self._rest).readinto1(buffer)
