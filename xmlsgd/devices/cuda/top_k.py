"""The best k labels of each row: sorted lists, merged with chunk after chunk of logits, of keys (score, label)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import SPARE_CANDIDATES, Layer
from .chunks import LabelChunks, label_bytes, round_up, slice_layer
from .runtime import THREADS, WARP, blocks_of

RANK_THREADS = 128
MAX_ROWS = 65_535  # of a grid
MAX_RANKED = 2048  # keys of a list in shared memory; for a larger k whole rows are sorted


class TopK(LabelChunks):
    """Prediction of the best labels."""

    def top_k(self, A: Any, layer: Layer, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return labels int32 (n, k) and logits float32 (n, k), best first, ties to the smaller label.

        In bfloat16 a few more than k labels are ranked and then scored again in float32. Beyond L the label is -1 and
        the score -inf.
        """
        run, n = self.runtime, len(A)
        best = self._sorted_rows(A, layer, k) if k + SPARE_CANDIDATES > MAX_RANKED else self._lists(A, layer, k)
        width = best.shape[1]
        labels, scores = run.buffer("labels", (n, width), np.int32), run.buffer("scores", (n, width))
        run.launch("unpack_keys", blocks_of(n * width), best, n * width, labels, scores)
        return run.to_host(labels)[:, :k].copy(), run.to_host(scores)[:, :k].copy()

    def _lists(self, A: Any, layer: Layer, k: int) -> Any:
        """Return the keys of the k best labels of every row, in bfloat16 of some more, uint64, descending."""
        run, (n, H) = self.runtime, A.shape
        width = k + SPARE_CANDIDATES if run.bfloat16 else k
        best, size = run.buffer("best", (n, width), np.uint64), _power(width + RANK_THREADS)
        operand = self.operand("A operand", A)
        chunks = self.chunks(len(layer.b), label_bytes(n, H, run.bfloat16))
        stride = round_up(max(stop - start for start, stop in chunks))
        Z = run.buffer("Z", (n, stride))
        for start, stop in chunks:
            part = slice_layer(layer, start, stop)
            run.gemm(operand, self.operand("W operand", part.W), Z[:, : stop - start], tb=True)
            run.launch(
                "top_k", n, Z, stride, part.b, stop - start, start, width, size, start == 0, best,
                threads=RANK_THREADS, shared=8 * size,
            )  # fmt: skip
        if run.bfloat16:
            blocks = blocks_of(n * width, THREADS // WARP)
            run.launch("rescore", blocks, A, layer.W, layer.b, n * width, width, H, best)
            size = _power(width)
            run.launch("sort_rows", n, best, width, size, threads=RANK_THREADS, shared=8 * size)
        return best

    def _sorted_rows(self, A: Any, layer: Layer, k: int) -> Any:
        """Return the keys of the k best labels of every row by sorting all L of some rows at a time, in float32."""
        run, n, L = self.runtime, len(A), len(layer.b)
        best = run.buffer("best", (n, k), np.uint64)
        best[:, L:] = 0
        step = min(max(self.chunk_bytes // (12 * L), 1), MAX_ROWS)
        for first in range(0, n, step):
            rows = A[first : first + step]
            Z, keys = run.buffer("Z", (len(rows), L)), run.buffer("keys", (len(rows), L), np.uint64)
            run.gemm(rows, layer.W, Z, tb=True)
            run.launch("rank_keys", (blocks_of(L), len(rows)), Z, layer.b, L, keys)
            keys.sort(axis=1)
            best[first : first + step, :L] = keys[:, ::-1][:, :k]
        return best


def _power(n: int) -> int:
    """Return the next power of two."""
    return 1 << (n - 1).bit_length()
