"""Kernels of top-k prediction by weights in int8: these are widened a few labels at a time.

No other copy of the weights is made, so that what a mapped model takes in memory are the pages that it was asked for.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from ..intrinsics import bf16
from ..intrinsics.bf16 import BLOCK, TILE_BYTES
from ..intrinsics.elementary import FAST
from .topk import offer_block

_NONE, _ZERO = np.float32(-np.inf), np.float32(0)


@njit(nogil=True, fastmath=FAST)
def widen(W, scales, label, out):
    """Write row `label` of W (L, H), int8, times its scale into `out` float32; zeros past H, and past L."""
    L, H = W.shape
    out[:] = _ZERO
    if label < L:
        w, scale = W[label], scales[label]
        for h in range(H):
            out[h] = scale * np.float32(w[h])


@kernel()
def top_k_bf16_int8(A, W, scales, b, batch, operand, packed, pads, Z, limits, configuration, best, labels):
    """Write the k best labels of every row of A (n, H) and their scores, as `topk.top_k_bf16` does.

    W (L, H) int8 is packed for each `batch` of rows; `packed` has room for `BLOCK` labels a thread.
    """
    n, H = A.shape
    n_threads, n_tiles, n_rows, L = Z.shape[0], H // 32, best.shape[0], b.size
    for thread in prange(n_threads):
        bf16.tiles_on(configuration)
        z, limit, pad = Z[thread], limits[thread], pads[thread]
        left, right = packed[thread].ctypes.data, operand[thread].ctypes.data
        first_pad, second_pad = pad[0].ctypes.data, pad[1].ctypes.data
        for i in range(thread, n // batch, n_threads):
            first = i * batch
            rows = slice(first, min(first + batch, n_rows))
            limit[:] = _NONE
            bf16.pack_b_transposed(
                right, A.ctypes.data + first * H * 4, H * 4, batch, n_tiles, right + batch * H * 2
            )  # fmt: skip
            for label in range(0, L, BLOCK):
                for r in range(0, BLOCK, 2):
                    widen(W, scales, label + r, pad[0])
                    widen(W, scales, label + r + 1, pad[1])
                    row = left + (r // 16 * n_tiles * 16 + r % 16) * 64
                    for t in range(n_tiles):
                        bf16.pack_pairs(row + t * TILE_BYTES, first_pad + t * 128)
                        bf16.pack_pairs(row + t * TILE_BYTES + 64, second_pad + t * 128)
                bf16.multiply(left, right, z.ctypes.data, BLOCK, batch, batch * 4, n_tiles, 0)
                offer_block(z[: min(BLOCK, L - label)], b, label, limit, best[rows], labels[rows])
        bf16.tiles_off()


@kernel()
def top_k_float32_int8(A, W, scales, b, batch, wide, Z, limits, best, labels):
    """Write the k best labels of every row of A (n, H) and their scores, as `topk.top_k_float32` does.

    `wide` float32 (threads, chunk, H) holds the weights of a chunk of labels.
    """
    n_threads, chunk, _ = wide.shape
    n_rows, L = best.shape[0], b.size
    for thread in prange(n_threads):
        limit, weights = limits[thread], wide[thread]
        for i in range(thread, A.shape[0] // batch, n_threads):
            first = i * batch
            rows = slice(first, min(first + batch, n_rows))
            limit[:] = _NONE
            for start in range(0, L, chunk):
                stop = min(start + chunk, L)
                z = Z[thread][: stop - start]
                for r in range(stop - start):
                    widen(W, scales, start + r, weights[r])
                np.dot(weights[: stop - start], A[first : first + batch].T, z)
                offer_block(z, b, start, limit, best[rows], labels[rows])
