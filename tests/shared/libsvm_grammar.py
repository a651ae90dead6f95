"""The grammar of LIBSVM text once more, with Python's own tools."""

from __future__ import annotations

import re

import numpy as np

from xmlsgd.data.csr import INT32_MAX, Dataset

FLOAT32_MIN = np.finfo(np.float32).tiny
Row = tuple[list[int], dict[int, np.float32]]  # labels, features
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def as_float32(text: str) -> np.float32:
    with np.errstate(over="ignore", under="ignore"):
        value = np.float32(float(text))
    return value if abs(value) >= FLOAT32_MIN else np.copysign(np.float32(0), value)


def index_below(text: str, size: int) -> int:
    if not re.fullmatch("[0-9]+", text) or int(text) >= size:
        raise ValueError(text)
    return int(text)


def reference(data: bytes, sum_duplicates: bool = False) -> tuple[list[Row], tuple[int, int]]:
    """Return the rows and the shape of a text, or raise ValueError: the grammar once more, with Python's own tools."""
    if b"\0" in data:
        raise ValueError("NUL")
    lines = data.decode().removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    promised, n_features, n_labels = None, None, None
    rows: list[Row] = []
    n_full, first = 0, True
    for line in lines:
        body, mark, _ = line.partition("#")
        tokens = [token for token in re.split("[ \t\r]+", body) if token]
        if mark and not tokens:
            continue
        if first and 2 <= len(tokens) <= 3 and all(re.fullmatch("[0-9]{1,18}", token) for token in tokens):
            promised, n_features, n_labels = [*map(int, tokens), None][:3]
            if not (1 <= n_features <= INT32_MAX) or (n_labels is not None and not (1 <= n_labels <= INT32_MAX)):
                raise ValueError("header")
            first = False
            continue
        first = False
        labels: set[int] = set()
        features: dict[int, np.float32] = {}
        if tokens and body[0] not in " \t\r" and ":" not in tokens[0]:
            labels = {index_below(label, n_labels or INT32_MAX) for label in tokens.pop(0).split(",")}
            n_full = len(rows) + 1
        for token in tokens:
            index, _, text = token.partition(":")
            feature = index_below(index, n_features or INT32_MAX)
            if not NUMBER.fullmatch(text) or not np.isfinite(as_float32(text)):
                raise ValueError(text)
            if feature in features:
                if not sum_duplicates:
                    raise ValueError("twice")
                features[feature] += as_float32(text)
            else:
                features[feature] = as_float32(text)
            n_full = len(rows) + 1
        rows.append((sorted(labels), dict(sorted(features.items()))))
    rows = rows[: max(n_full, min(len(rows), promised or 0))]
    if not any(labels for labels, _ in rows) or not any(features for _, features in rows):
        raise ValueError("empty")
    if promised is not None and promised != len(rows):
        raise ValueError("rows")
    n_features = n_features or 1 + max(max(features, default=-1) for _, features in rows)
    n_labels = n_labels or 1 + max(max(labels, default=-1) for labels, _ in rows)
    return rows, (n_features, n_labels)


def rows_of(dataset: Dataset) -> list[Row]:
    X, Y = dataset.X, dataset.Y
    return [
        (Y.row(i)[0].tolist(), dict(zip(X.row(i)[0].tolist(), X.row(i)[1], strict=True))) for i in range(dataset.n_rows)
    ]


def assert_same(dataset: Dataset, expected: Dataset) -> None:
    for got, wanted in ((dataset.X, expected.X), (dataset.Y, expected.Y)):
        assert got.shape == wanted.shape
        assert got.indptr.dtype == np.int64
        assert got.indices.dtype == np.int32
        assert got.data.dtype == np.float32
        np.testing.assert_array_equal(got.indptr, wanted.indptr)
        np.testing.assert_array_equal(got.indices, wanted.indices)
        np.testing.assert_array_equal(got.data.view(np.int32), wanted.data.view(np.int32))


PLAIN = b"0,2 0:1 3:-0.5\n1 1:2\n"
PLAIN_ROWS = [([0, 2], {0: 1.0, 3: -0.5}), ([1], {1: 2.0})]
