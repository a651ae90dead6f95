"""Read documents from standard input as they arrive, so that `predict` answers a line before the next one comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BufferedReader
from typing import cast

from ..data.files.reading import BLOCK_BYTES, COMPRESSIONS, MAX_LINE_BYTES
from ..data.text import decode_line, labels_and_text
from .input_options import InputOptions
from .messages import STDIN, STDIN_NAME
from .sources import Columns, UnlabelledRows, read_unlabelled

HEAD_BYTES = 1 << 16  # read to tell documents from numeric features, if no line ends before


def feature_blocks(path: str, options: InputOptions, columns: Columns) -> Iterator[UnlabelledRows]:
    """Yield the rows of a file or of standard input to predict labels for.

    Documents on standard input, one per line, come in blocks of the lines that have arrived; everything else is one
    block. A blank line is yielded with the next line that is not blank; blank lines at the end are no documents.
    """
    head = b""
    if path == STDIN and columns.vectorizer is not None:
        stream = cast("BufferedReader", sys.stdin.buffer)
        while b"\n" not in head and len(head) < HEAD_BYTES and (more := stream.read1(BLOCK_BYTES)):
            head += more
        lines = head.decode(errors="replace").split("\n")
        lines = lines[:-1] or lines
        is_packed = head.startswith(tuple(magic for magic, _ in COMPRESSIONS))
        if not is_packed and options.format_of_lines(lines, labelled=False) == "raw":
            labelled = options.have_labels(lines)
            for texts in _documents(head, stream, labelled):
                yield UnlabelledRows(columns.vectorizer.rows_of(texts))
            return
    yield read_unlabelled(path, options, columns, head)


def _documents(head: bytes, stream: BufferedReader, labelled: bool) -> Iterator[list[str]]:
    """Yield the documents of lines that arrive together; head : the bytes that were read from the stream already."""
    number = n_blank = 0
    for lines in _arriving_lines(head, stream):
        texts: list[str] = []
        for line in lines:
            number += 1
            text = decode_line(line, where := f"{STDIN_NAME}:{number}")
            if not text or text.isspace():
                n_blank += 1
                continue
            texts += [*[""] * n_blank, labels_and_text(text, where)[1] if labelled else text]
            n_blank = 0
        if texts:
            yield texts


def _arriving_lines(head: bytes, stream: BufferedReader) -> Iterator[list[bytes]]:
    """Yield the lines that arrive together, one or more; the last line of all may have no line end."""
    chunk, rest = head, b""
    while chunk and len(rest) <= MAX_LINE_BYTES:
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
        chunk = stream.read1(BLOCK_BYTES)  # what has arrived, at least a byte unless the stream ends
    if rest:
        yield [rest]
