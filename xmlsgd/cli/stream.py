"""Standard input, taken as it comes: rows to predict labels for, block by block, without ever holding all of them."""

from __future__ import annotations

import io
import itertools
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ..data.csr import CSR
from ..data.files import BROKEN_STREAM, MAGIC
from ..data.libsvm import read_blocks
from ..data.text import lines_of, split_labels
from ..errors import DataError
from .format_options import are_labelled, is_document, row_options
from .sources import NO_VECTORIZER, check_features, check_words

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from .sources import Known

NAME = "stdin"  # in errors
SEEN_BYTES = 1 << 16  # looked at to tell text from rows
BLOCK_CHARACTERS = 1 << 20  # of the documents that are turned into rows at once


def stdin_blocks(args: Namespace, known: Known) -> Iterator[CSR]:
    """Yield the rows of standard input, which may be packed, in blocks of about 1 MB of text."""
    try:
        stream = unpacked(cast("BinaryIO", sys.stdin.buffer))
        head = stream.read(SEEN_BYTES)
    except BROKEN_STREAM as error:
        raise DataError(f"{NAME}: cannot be read, got {error}") from error
    lines = head.decode(errors="replace").split("\n")
    whole = lines[:-1] or lines
    stream = joined(head, stream)
    if not is_document(whole, args, labelled=False):
        check_words(None, known, NAME)
        return rows_of(stream, args, known)
    if known.vectorizer is None:
        raise DataError(f"{NAME}: {NO_VECTORIZER}")
    labelled = args.format == "auto" and are_labelled(whole)
    return map(known.vectorizer.transform, in_blocks(texts_of(stream, labelled)))


def unpacked(stream: BinaryIO) -> BinaryIO:
    """Return a stream through the decompressor that its first bytes ask for."""
    start = stream.read(6)
    whole = joined(start, stream)
    opener: Any = next((opener for magic, opener in MAGIC if start.startswith(magic)), None)
    return whole if opener is None else cast("BinaryIO", opener(whole, "rb"))


def rows_of(stream: BinaryIO, args: Namespace, known: Known) -> Iterator[CSR]:
    """Yield the features of rows of numbers; `DataError` for a feature that `known` has not."""
    blocks = read_blocks(NAME, stream=stream, labels_required=False, **row_options(args))
    for block in blocks:
        seen = int(block.X_indices.max(initial=-1)) + 1
        check_features(blocks.n_features or seen, known, NAME)
        yield CSR(block.X_indptr, block.X_indices, block.X_data, known.n_features)


def texts_of(stream: BinaryIO, labelled: bool) -> Iterator[str]:
    """Yield the documents of a stream of lines; blank ones at the end are none."""
    n_blank = 0
    for number, line in enumerate(lines_of(stream, NAME), 1):
        if not line or line.isspace():
            n_blank += 1
            continue
        yield from itertools.repeat("", n_blank)
        n_blank = 0
        yield split_labels(line, f"{NAME}:{number}")[1] if labelled else line


def in_blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in lists of about 1 MB."""
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text) + 1
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def joined(head: bytes, rest: BinaryIO) -> BinaryIO:
    """Return a stream of what has been read of another one and of what comes after it."""
    return cast("BinaryIO", io.BufferedReader(_Joined(head, rest)))


class _Joined(io.RawIOBase):
    """Some bytes, then a stream."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as possible; return the number of bytes, 0 at the end."""
        return self._head.readinto(buffer) or cast("Any", self._rest).readinto(buffer)
