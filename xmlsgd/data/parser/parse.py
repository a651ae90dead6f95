"""Parse one block of LIBSVM text into rows, or find the line and the description of its first error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from ...errors import NUL_BYTE, TO_UTF8, shorten
from ..csr import CSR, INT32_MAX, Dataset
from ..validation import Checked, at_least, ranged

TOKEN = re.compile(rb"[^ \t\r\n#]*")
ENTRY = re.compile(rb":[-+.\d]")
FORMS = "; a row reads `label,label feature:value ...`, a text `label1,label2<TAB>text`; see docs/data.md"
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


NUMBER = f"in [1, {INT32_MAX}]", lambda n: 1 <= n <= INT32_MAX


@dataclass(frozen=True)
class Options(Checked):
    """Options of `read_libsvm`. labelled : False for files with only `index:value` entries."""

    zero_based: bool = True
    zero_based_labels: bool = True
    duplicates: str = ranged("error", '"error" or "sum"', lambda word: word in ("error", "sum"))
    n_features: int | None = ranged(None, *NUMBER)
    n_labels: int | None = ranged(None, *NUMBER)
    labels_required: bool = True
    n_threads: int | None = at_least(None, 1)
    labelled: bool = True


class Parsed(NamedTuple):
    """The result of parsing a block of text.

    rows : without blank lines at the end; `blank_tail` is their number. Their numbers of columns are upper bounds, as
    only all blocks together tell them. largest : feature and label. error : number of
    lines before the first error, and its message; None if there is none.
    """

    rows: Dataset
    n_lines: int
    blank_tail: int
    largest: np.ndarray
    error: tuple[int, str] | None


def parse(block: bytes, options: Options, n_features: int | None, n_labels: int | None) -> Parsed:
    """Parse one block. The numbers of its newlines, colons and commas give the largest sizes of the arrays."""
    from . import kernels

    text = np.frombuffer(block, dtype=np.uint8)
    n_lines = int(np.count_nonzero(text == kernels.NEWLINE))
    most_entries = int(np.count_nonzero(text == kernels.COLON))
    most_labels = int(np.count_nonzero(text == kernels.COMMA)) + n_lines
    first_feature, first_label = int(not options.zero_based), int(not options.zero_based_labels)
    sizes = n_features or INT32_MAX, n_labels or INT32_MAX
    switches = options.labelled, options.duplicates == "sum"
    limits = np.array([first_feature, sizes[0], first_label, sizes[1], *switches], dtype=np.int64)
    X_indptr, X_indices = np.empty(n_lines + 1, np.int64), np.empty(most_entries, np.int32)
    X_data = np.empty(most_entries, np.float32)
    Y_indptr, Y_indices = np.empty(n_lines + 1, np.int64), np.empty(most_labels, np.int32)
    inexact_positions, values = np.empty(most_entries, np.int64), np.empty(most_entries, np.float32)
    keys = np.empty(max(most_entries, most_labels), np.int64)
    out, inexact_values = np.zeros(kernels.N_SLOTS, np.int64), np.empty(0, np.float32)
    while True:
        kernels.parse_block(
            text, limits, inexact_values,
            X_indptr, X_indices, X_data, Y_indptr, Y_indices,
            inexact_positions, keys, values, out,
        )  # fmt: skip
        if out[kernels.INEXACT] <= len(inexact_values):
            break
        inexact_values = _read_exactly(block, inexact_positions[: out[kernels.INEXACT]])
    code, position, got = out[: kernels.GOT + 1].tolist()
    error = _describe(block, code, position, got, limits, n_features, n_labels) if code else None
    not_text = _not_text(block)
    if not_text is not None and (error is None or not_text[0] < block.index(b"\n", position)):
        position, error = not_text
    blank_tail, ends = int(out[kernels.BLANK_TAIL]), slice(out[kernels.ROWS] - out[kernels.BLANK_TAIL] + 1)
    entries, labels = slice(out[kernels.ENTRIES]), slice(out[kernels.LABELS])
    X = CSR(X_indptr[ends], X_indices[entries], X_data[entries], sizes[0])
    Y = CSR(Y_indptr[ends], Y_indices[labels], np.ones(out[kernels.LABELS], np.float32), sizes[1])
    before = None if error is None else (block.count(b"\n", 0, position), error)
    return Parsed(Dataset(X, Y), n_lines, blank_tail, out[[kernels.MAX_FEATURE, kernels.MAX_LABEL]], before)


def _read_exactly(block: bytes, positions: np.ndarray) -> np.ndarray:
    """Return the magnitudes, float32, of the values of the `index:value` tokens at `positions`."""
    values = np.empty(len(positions), np.float32)
    with np.errstate(over="ignore", under="ignore"):
        for k, position in enumerate(positions.tolist()):
            values[k] = abs(float(_token(block, position).partition(":")[2]))
    return values


def _token(block: bytes, position: int, limit: int | None = None) -> str:
    found = TOKEN.match(block, position, len(block) if limit is None else position + limit)
    return cast("re.Match[bytes]", found)[0].decode(errors="backslashreplace")


def _not_text(block: bytes) -> tuple[int, str] | None:
    """Return the position of a NUL byte, or of bytes that are not UTF-8, and a message; None for sound text."""
    zero = block.find(b"\0")
    found = None if zero < 0 else (zero, f"file must be text, {NUL_BYTE}")
    if not block.isascii():
        try:
            block[: zero if zero >= 0 else None].decode()
        except UnicodeDecodeError as error:
            found = error.start, f"file must be UTF-8 text, got byte 0x{block[error.start]:02x}; {TO_UTF8}"
    return found


def _describe(
    block: bytes, code: int, position: int, got: int, limits: np.ndarray, n_features: int | None, n_labels: int | None
) -> str:
    """Return the message for an error at the position where the kernel stopped."""
    from . import kernels

    token = _token(block, position, 400)
    first_feature, first_label = int(limits[0]), int(limits[2])
    hint = FORMS if re.search("[;|]", token) or not ENTRY.search(_line_at(block, position)) else ""
    if code in (kernels.DUPLICATE, kernels.SUM):
        if code == kernels.SUM:
            return f"sum of the values of feature {got + first_feature} must fit float32, got more"
        remedy = 'pass duplicates="sum" (--duplicates sum) to add them up'
        return f"feature must come once in a row, got {got + first_feature} twice; {remedy}"
    if code in (kernels.LABEL, kernels.LABEL_RANGE) and ":" not in token:
        text = _describe_index("label", token.partition(",")[0], first_label, n_labels, "zero_based_labels")
        return text + (hint if code == kernels.LABEL else "")
    index, colon, value = token.partition(":")
    if not colon:
        return f"feature must be 'index:value', got {shorten(token)}{hint}"
    if code in (kernels.VALUE, kernels.FLOAT32):
        if NOT_FINITE.fullmatch(value):
            return f"feature value must be finite, got {shorten(value)}"
        if code == kernels.FLOAT32:
            return f"feature value must fit float32, got {shorten(value)}"
        return f"feature value must be a number, got {shorten(value)}"
    return _describe_index("feature index", index, first_feature, n_features, "zero_based")


def _line_at(block: bytes, position: int) -> bytes:
    """Return the line around a position."""
    return block[block.rfind(b"\n", 0, position) + 1 :].partition(b"\n")[0]


def _describe_index(what: str, token: str, first: int, size: int | None, flag: str) -> str:
    """Return the message for a `token` that is no valid index of a feature or a label."""
    if not re.fullmatch(r"-?[0-9]+", token):
        remedy = "; remove the query ids, as by `sed 's/ qid:[0-9]*//'`" if token == "qid" else ""
        return f"{what} must be a plain integer, got {shorten(token)}{remedy}"
    limit = size or INT32_MAX
    allowed = f"[1, {limit}]" if first else f"[0, {limit})"
    number = token if len(token) <= 30 else shorten(token)
    remedy, option = "", flag.replace("zero_based", "--one-based").replace("_", "-")
    if first and token.strip("0") == "":
        remedy = f"; pass {flag}=True (--no{option[1:]}) if indices start at 0"
    elif not first and size is not None and token.lstrip("0") == str(size):
        remedy = f"; pass {flag}=False ({option}) if indices start at 1"
    return f"{what} must be in {allowed}, got {number}{remedy}"
