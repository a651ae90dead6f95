"""Batches of sparse rows on the GPU: rows of a matrix that is kept there if it fits, else uploaded entries."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from ...data.csr import CSR
from .runtime import THREADS, WARP, Runtime, blocks_of, free_bytes

RESIDENT_SHARE = 0.25  # a matrix that takes at most this share of the free memory is kept on the GPU


class DeviceRows(NamedTuple):
    """Rows of a sparse matrix on the GPU.

    `spans` int64 (3 B,): first and last entry of each row in `indices` and `data`, and number of its first entry in the
    batch. `n` rows, `nnz` entries.
    """

    spans: Any
    indices: Any
    data: Any
    n: int
    nnz: int


class BatchLoader:
    """Makes batches of rows of matrices; frees the copy of a matrix when the matrix itself is freed."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._resident: dict[int, tuple[Any, Any] | None] = {}
        self._last: dict[str, tuple[weakref.ref[np.ndarray], np.ndarray, DeviceRows]] = {}

    def batch(self, matrix: CSR, rows: np.ndarray, name: str) -> DeviceRows:
        """Return the rows `rows` of a matrix; buffers are those of `name`."""
        upload, begin = self._runtime.upload, matrix.indptr[rows]
        counts = matrix.indptr[rows + 1] - begin
        first = np.cumsum(counts) - counts
        arrays = self.resident(matrix, len(rows))
        if arrays is None:
            entries, begin = matrix.positions_of(rows), first
            arrays = upload(f"{name} indices", matrix.indices[entries]), upload(f"{name} data", matrix.data[entries])
        spans = upload(f"{name} spans", begin, begin + counts, first)
        batch = DeviceRows(spans, *arrays, len(rows), int(counts.sum()))
        self._last[name] = weakref.ref(matrix.indices), rows, batch
        return batch

    def again(self, matrix: CSR, rows: np.ndarray, name: str) -> DeviceRows:
        """Return a batch again, without an upload if the last batch of this name was of the same arrays."""
        if (last := self._last.pop(name, None)) and last[0]() is matrix.indices and last[1] is rows:
            return last[2]
        return self.batch(matrix, rows, name)

    def resident(self, matrix: CSR, n_rows: int) -> tuple[Any, Any] | None:
        """Return indices and data on the GPU of a matrix that is kept there; None for others, or a single batch."""
        if matrix.n_rows == n_rows:
            return None
        key = id(matrix.indices)
        if key not in self._resident:
            fits = matrix.indices.nbytes + matrix.data.nbytes <= RESIDENT_SHARE * free_bytes(self._runtime.cupy)
            copy = self._runtime.to_device
            self._resident[key] = (copy(matrix.indices), copy(matrix.data)) if fits else None
            weakref.finalize(matrix.indices, _forget, weakref.ref(self), key)
        return self._resident[key]


def _forget(loader: weakref.ref[BatchLoader], key: int) -> None:
    """Free the copy of a matrix that was freed, unless its loader was freed before."""
    if (alive := loader()) is not None:
        alive._resident.pop(key, None)
        alive._last.clear()


def sorted_labels(run: Runtime, batch: DeviceRows) -> Any:
    """Return label * 2^32 + batch row of every label of a batch, ascending, int64; they come `ahead("labels")`."""
    with run.ahead("labels"):
        keys = run.buffer("label keys", (batch.nnz,), np.int64)
        run.launch("label_keys", blocks_of(batch.n, THREADS // WARP), batch.spans, batch.indices, batch.n, keys)
        run.sort(keys)
    return keys
