"""Batches of sparse rows on the GPU: of a data set that fits, row numbers are enough; else entries are uploaded."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .runtime import THREADS, WARP, blocks_of

if TYPE_CHECKING:
    from ...data.csr import CSR
    from .runtime import Runtime

DROPPED = 0x7FFFFFFFFFFFFFFF  # key of an entry that dropout leaves out, and of no entry: sorted last
RESIDENT_SHARE = 0.25  # of the free memory that a matrix may take for good


class Batch(NamedTuple):
    """Rows of a sparse matrix on the GPU.

    `spans` int64 (4 B,): first and last entry of each row in `indices` and `data`, number of its first entry in the
    whole matrix, and in the batch. `n` rows, `nnz` entries.
    """

    spans: Any
    indices: Any
    data: Any
    n: int
    nnz: int


class BatchLoader:
    """Makes batches of the matrices that it meets; forgets a matrix with its last user."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._resident: dict[int, tuple[Any, Any] | None] = {}

    def batch(self, matrix: CSR, rows: np.ndarray, name: str) -> Batch:
        """Return the rows `rows` of a matrix; buffers are those of `name`."""
        if self._runtime.static is not None:
            found: Batch = self._runtime.static.batches[name]
            return found
        begin, end = matrix.indptr[rows], matrix.indptr[rows + 1]
        counts = end - begin
        first = np.cumsum(counts) - counts
        nnz = int(counts.sum())
        resident = self.resident(matrix, len(rows))
        if resident is not None:
            return Batch(self._runtime.upload(f"{name} spans", begin, end, begin, first), *resident, len(rows), nnz)
        entries = np.arange(nnz) + np.repeat(begin - first, counts)
        return Batch(
            self._runtime.upload(f"{name} spans", first, first + counts, begin, first),
            self._runtime.upload(f"{name} indices", matrix.indices[entries]),
            self._runtime.upload(f"{name} data", matrix.data[entries]),
            len(rows),
            nnz,
        )

    def resident(self, matrix: CSR, n_rows: int) -> tuple[Any, Any] | None:
        """Return indices and data on the GPU of a matrix that stays there; None for others. One batch does not stay."""
        if matrix.n_rows == n_rows:
            return None
        key = id(matrix.indices)
        if key not in self._resident:
            fits = matrix.indices.nbytes + matrix.data.nbytes <= RESIDENT_SHARE * self._runtime.free_bytes()
            copy = self._runtime.to_device
            self._resident[key] = (copy(matrix.indices), copy(matrix.data)) if fits else None
            weakref.finalize(matrix.indices, _forget, weakref.ref(self), key)
        return self._resident[key]


def _forget(loader: weakref.ref[BatchLoader], key: int) -> None:
    """Drop the copy of a matrix that is gone; copies of a device that is gone went with it."""
    if (alive := loader()) is not None:
        alive._resident.pop(key, None)


def write_sorted_entries(
    run: Runtime, batch: Batch, mask: tuple[int, int, float], keys: Any, rows: Any, values: Any
) -> None:
    """Write keys int64, rows int32, values float32 of a batch's entries, sorted by key; `DROPPED` where none is left.

    A key is feature * 2^32 + the entry's number in the batch, by which rows and values are ordered. `mask` : seed,
    threshold and factor of dropout.
    """
    run.launch("entry_keys", blocks_of(batch.n, THREADS // WARP), *batch[:3], batch.n, *mask, keys, rows, values)
    _fill_and_sort(keys, batch.nnz)


def write_sorted_labels(run: Runtime, batch: Batch, keys: Any) -> None:
    """Write label * 2^32 + batch row of every label of a batch, ascending, int64; `DROPPED` where none is left."""
    run.launch("label_keys", blocks_of(batch.n, THREADS // WARP), batch.spans, batch.indices, batch.n, keys)
    _fill_and_sort(keys, batch.nnz)


def sorted_labels(run: Runtime, batch: Batch) -> Any:
    """Return the keys of `write_sorted_labels`."""
    if run.static is not None:
        return run.static.sorted["Y"][0]
    keys = run.buffer("label keys", (batch.nnz,), np.int64)
    write_sorted_labels(run, batch, keys)
    return keys


def _fill_and_sort(keys: Any, n: int) -> None:
    """Sort keys of which the first n are written."""
    if n < len(keys):
        keys[n:] = DROPPED
    if n:
        keys.sort()
