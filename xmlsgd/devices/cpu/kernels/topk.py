"""Kernels of top-k prediction: logits in blocks that stay in cache, a running list of the best k a row.

Labels are visited in ascending order and enter a list only with a larger score, so ties go to the smaller label.
The bfloat16 kernel ranks `k` candidates a row; `rescore` then gives them float32 scores and the final order.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic

from ..compiling import kernel
from ..intrinsics import bf16
from ..intrinsics.bf16 import BLOCK, TILE_BYTES
from ..intrinsics.elementary import FAST
from ..intrinsics.llvm import LANES, broadcast, f16x, i32, load
from .logits import logit_of
from .output_layer import pack_labels

_NONE = np.float32(-np.inf)


@intrinsic
def above(typingctx, values, offset, limits):
    """Return a 16-bit mask of the lanes with value + offset > limit; `values` and `limits` are addresses of floats."""

    def codegen(context, builder, signature, args):
        values, offset, limits = args
        sums = builder.fadd(load(builder, values), broadcast(builder, offset, f16x))
        greater = builder.fcmp_ordered(">", sums, load(builder, limits))
        return builder.zext(builder.bitcast(greater, ir.IntType(LANES)), i32)

    return types.uint32(types.uintp, types.float32, types.uintp), codegen


@njit(nogil=True)
def insert(scores, labels, score, label):
    """Insert (score, label) into the descending list `scores` (k,), whose last entry drops out."""
    j = scores.size - 1
    while j > 0 and scores[j - 1] < score:
        scores[j] = scores[j - 1]
        labels[j] = labels[j - 1]
        j -= 1
    scores[j] = score
    labels[j] = label


@njit(nogil=True)
def offer(z, bias, label, limits, scores, labels, n_rows):
    """Offer one label's logits z (B,) to the lists of the first `n_rows` rows; `limits` (B,) are their k-th scores."""
    k = scores.shape[1]
    for i in range(0, n_rows, LANES):
        mask = above(z.ctypes.data + 4 * i, bias, limits.ctypes.data + 4 * i)
        row = i
        while mask:
            if mask & 1 and row < n_rows:
                insert(scores[row], labels[row], z[row] + bias, label)
                limits[row] = scores[row, k - 1]
            mask >>= 1
            row += 1


@njit(nogil=True)
def offer_block(Z, bias, first, limits, scores, labels):
    """Offer the logits Z (m, B), still without `bias` (L,), of m labels from `first` on to the lists of the first rows.

    `scores` and `labels` (rows, k) are the lists, at most B of them; `limits` as in `offer`.
    """
    for r in range(Z.shape[0]):
        offer(Z[r], bias[first + r], first + r, limits, scores, labels, scores.shape[0])


@kernel()
def pack_weights(W, packed, pads):
    """Pack all labels of W (L, H) as operand A, once a call of predict."""
    n_threads, _, H = pads.shape
    n_blocks = -(-W.shape[0] // BLOCK)
    for thread in prange(n_threads):
        for block in range(thread, n_blocks, n_threads):
            target = packed.ctypes.data + block * 2 * (H // 32) * TILE_BYTES
            pack_labels(W, block * BLOCK, BLOCK, target, 0, 0, pads[thread])


@kernel()
def top_k_bf16(A, packed, b, batch, operand, Z, limits, configuration, scores, labels):
    """Write the k best labels of every row of A (n, H), best first, by bfloat16 logits.

    A is padded to whole multiples of 32 in H and of `batch` in n; `packed` comes from `pack_weights`.
    """
    n, H = A.shape
    n_threads = Z.shape[0]
    n_tiles = H // 32
    L = b.size
    n_batches = n // batch
    n_rows = scores.shape[0]
    for thread in prange(n_threads):
        bf16.tiles_on(configuration)
        z, limit = Z[thread], limits[thread]
        right = operand[thread].ctypes.data
        scratch = right + batch * H * 2
        for i in range(thread, n_batches, n_threads):
            first = i * batch
            rows = slice(first, min(first + batch, n_rows))
            limit[:] = _NONE
            bf16.pack_b_transposed(right, A.ctypes.data + first * H * 4, H * 4, batch, n_tiles, scratch)
            for label in range(0, L, BLOCK):
                left = packed.ctypes.data + label // 16 * n_tiles * TILE_BYTES
                bf16.multiply(left, right, z.ctypes.data, BLOCK, batch, batch * 4, n_tiles, 0)
                offer_block(z[: min(BLOCK, L - label)], b, label, limit, scores[rows], labels[rows])
        bf16.tiles_off()


@kernel()
def top_k_float32(A, W, b, batch, chunk, Z, limits, scores, labels):
    """Write the k best labels of every row of A (n, H), best first, by float32 logits; n is a multiple of `batch`."""
    n = A.shape[0]
    n_threads = Z.shape[0]
    L = b.size
    n_rows = scores.shape[0]
    for thread in prange(n_threads):
        limit = limits[thread]
        for i in range(thread, n // batch, n_threads):
            first = i * batch
            rows = slice(first, min(first + batch, n_rows))
            limit[:] = _NONE
            for start in range(0, L, chunk):
                stop = min(start + chunk, L)
                z = Z[thread][: stop - start]
                np.dot(W[start:stop], A[first : first + batch].T, z)
                offer_block(z, b, start, limit, scores[rows], labels[rows])


@kernel(fastmath=FAST)
def top_k_few(A, W, scales, b, best, labels):
    """Write the k best labels of every row of A (n, H) and their scores in float32, row by row.

    W is float32 or int8 (`logits`). Of few rows this takes as long as reading the weights once a row.
    """
    k = best.shape[1]
    for i in prange(A.shape[0]):
        for label in range(b.size):
            z = logit_of(A[i], W, scales, b, label)
            if z > best[i, k - 1]:
                insert(best[i], labels[i], z, label)


@kernel(fastmath=FAST)
def rescore(A, W, scales, b, labels, best):
    """Replace the scores `best` (n, k) of candidate `labels` by float32 logits and sort each row, best first.

    W is float32 or int8 (`logits`). Ties go to the smaller label; entries with label -1 stay at the end.
    """
    n, k = labels.shape
    for i in prange(n):
        for c in range(k):
            label = labels[i, c]
            if label < 0:
                continue
            z = logit_of(A[i], W, scales, b, label)
            at = c
            while at > 0 and (best[i, at - 1] < z or (best[i, at - 1] == z and labels[i, at - 1] > label)):
                best[i, at] = best[i, at - 1]
                labels[i, at] = labels[i, at - 1]
                at -= 1
            best[i, at] = z
            labels[i, at] = label
