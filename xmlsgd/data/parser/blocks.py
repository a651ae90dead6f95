"""Read LIBSVM text in blocks that end at a line end, parse them in several threads, return their rows in order."""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from ...errors import DataError
from ..cores import usable_cores
from ..csr import CSR, INT32_MAX, Dataset
from ..files.reading import MAX_LINE_BYTES, READ_ERRORS, damage_of, open_text
from ..validation import check_choice
from .parse import FORMS, Options, Parsed, parse

BLOCK_BYTES = 1 << 20  # of text in one task: fits the cache of a core, and gives each thread many tasks
MAX_THREADS = 8  # more do not help: reading and collecting, by one thread, takes a third of parsing by one
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # in UTF-8
COMMENT = re.compile(rb"[ \t\r]*#[^\n]*\n")
HEADER = re.compile(rb"[ \t\r]*(\d{1,18})[ \t\r]+(\d{1,18})(?:[ \t\r]+(\d{1,18}))?[ \t\r]*(?:#[^\n]*)?\n?")
EMPTY = CSR(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 0)


class LibsvmBlocks:
    """The rows of a LIBSVM file, block by block, for data larger than memory; can be iterated over once.

    `n_features` and `n_labels` are None until the last block was returned, unless a header or the caller gives them;
    `declared` says for each whether one of them does. Errors in the file are raised when the iteration reaches them.

    Parameters
    ----------
    path : str or path
        The file.
    **options
        Those of `Options`.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        known = [each.name for each in fields(Options) if each.name != "labelled"]
        for name in options.keys() - {"labelled"}:
            check_choice("option", name, known)
        self.path, self._options = Path(path), Options(**options)
        self.n_features, self.n_labels = self._options.n_features, self._options.n_labels
        self.declared = self.n_features is not None, self.n_labels is not None
        self._threads = self._options.n_threads or min(usable_cores(), MAX_THREADS)
        self._line = 1  # the first line of the next block
        self._header_line = 0
        self._header_rows: int | None = None
        self._counts = np.zeros(3, dtype=np.int64)  # rows, entries, labels
        self._largest = np.array([-1, -1])  # feature, label

    @property
    def shape(self) -> tuple[int, int]:
        """Return (F, L); valid after the last block."""
        return cast("int", self.n_features), cast("int", self.n_labels)

    def __iter__(self) -> Iterator[Dataset]:
        """Yield the rows of each block, parsed by `n_threads` threads; raise errors in the order of lines."""
        with open_text(self.path) as stream, ThreadPoolExecutor(self._threads) as pool:
            blank = 0
            for parsed in self._parse_all(stream, pool):
                if parsed.error is not None:
                    raise self._error(*parsed.error)
                np.maximum(self._largest, parsed.largest, out=self._largest)
                self._line += parsed.n_lines
                if parsed.rows.n_rows:
                    yield self._count(parsed.rows, blank)
                    blank = 0
                blank += parsed.blank_tail  # blank lines are rows only if a row follows, or the header counts them
            if self._header_rows is not None and (missing := min(blank, self._header_rows - int(self._counts[0]))) > 0:
                yield self._count(Dataset(EMPTY, EMPTY), missing)
        self._finish()

    def _parse_all(self, stream: BinaryIO, pool: ThreadPoolExecutor) -> Iterator[Parsed]:
        """Yield the parsed blocks in order, while a few later ones are being parsed."""
        waiting: deque[Future[Parsed]] = deque()
        broken: DataError | None = None  # raised after the blocks before it are yielded
        try:
            for block in self._blocks_of_lines(stream):
                waiting.append(pool.submit(parse, block, self._options, self.n_features, self.n_labels))
                if len(waiting) > self._threads + 1:
                    yield waiting.popleft().result()
        except DataError as error:
            broken = error
        except READ_ERRORS as error:
            broken = damage_of(self.path, error)
        yield from (future.result() for future in waiting)
        if broken is not None:
            raise broken

    def _blocks_of_lines(self, stream: BinaryIO) -> Iterator[bytes]:
        """Yield the text after the header in blocks of whole lines, each ending with a newline."""
        first = stream.readline(MAX_LINE_BYTES).removeprefix(BYTE_ORDER_MARK)
        while COMMENT.fullmatch(first):
            first = stream.readline(MAX_LINE_BYTES)
            self._line += 1
        if header := HEADER.fullmatch(first):
            self._take_header(header)
            first = b""
        rest, line = b"", self._line
        for data in itertools.chain([first], iter(partial(stream.read, BLOCK_BYTES), b"")):
            end = data.rfind(b"\n") + 1
            if end:
                yield b"".join((rest, memoryview(data)[:end]))
                rest, line = b"", line + data.count(b"\n")
            rest += data[end:]
            if len(rest) > MAX_LINE_BYTES:
                raise DataError(f"{self.path}:{line}: line must be at most {MAX_LINE_BYTES} bytes, got more")
        if rest:
            yield rest + b"\n"

    def _take_header(self, found: re.Match[bytes]) -> None:
        """Take the numbers of rows, features and labels from the header."""
        self._header_rows, n_features = int(found[1]), int(found[2])
        self._header_line = self._line
        self.n_features = self._agree("features", n_features, self.n_features)
        if found[3] is not None:
            self.n_labels = self._agree("labels", int(found[3]), self.n_labels)
        self.declared = True, self.n_labels is not None
        self._line += 1

    def _agree(self, what: str, promised: int, given: int | None) -> int:
        """Return the size in the header; raise `DataError` if it is out of range, or if the caller gave another one."""
        if not 1 <= promised <= INT32_MAX:
            raise self._error(0, f"header must promise 1 to {INT32_MAX} {what}, got {promised}")
        if given is not None and given != promised:
            raise self._error(0, f"header promises {promised} {what}, got n_{what}={given}; leave it out")
        return promised

    def _count(self, rows: Dataset, n_blank: int) -> Dataset:
        """Return `n_blank` empty rows, then `rows`; add all of them to the counts."""
        if n_blank:
            X, Y = (replace(part, indptr=np.pad(part.indptr, (n_blank, 0))) for part in (rows.X, rows.Y))
            rows = Dataset(X, Y)
        self._counts += (rows.n_rows, rows.X.nnz, rows.Y.nnz)
        return rows

    def _finish(self) -> None:
        """Check the counts of the whole file, and set the shape."""
        n_rows, n_entries, n_labels = self._counts.tolist()
        if self._header_rows is not None and n_rows != self._header_rows:
            place = f"{self.path}:{self._header_line}"
            remedy = "complete the file, or correct its header"
            raise DataError(f"{place}: header promises {self._header_rows} rows, got {n_rows}; {remedy}")
        if n_rows == 0:
            raise DataError(f"{self.path}: file must have at least one row, got none")
        if n_entries == 0:
            hint = FORMS if n_labels > n_rows else ""  # its numbers were read as labels
            raise DataError(f"{self.path}: file must have at least one feature, got {n_rows} rows without any{hint}")
        if n_labels == 0 and self._options.labelled and self._options.labels_required:
            raise DataError(
                f"{self.path}: file must have at least one label, got {n_rows} rows without any; "
                "labels stand at the start of the line"
            )
        self.n_features = int(self._largest[0]) + 1 if self.n_features is None else self.n_features
        self.n_labels = int(self._largest[1]) + 1 if self.n_labels is None else self.n_labels

    def _error(self, lines_before: int, message: str) -> DataError:
        return DataError(f"{self.path}:{self._line + lines_before}: {message}")
