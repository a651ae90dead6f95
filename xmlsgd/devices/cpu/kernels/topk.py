"""Kernels of top-k prediction: logits in blocks that stay in cache, and a running list of the best k per row.

Labels are visited in ascending order and enter a list only with a larger score, so that of equal scores the smaller
label is first. In bfloat16, candidates are ranked first; `rescore` then computes float32 scores and the final order.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from ..compiling import kernel_of_part, range_of_part
from ..intrinsics import bf16
from ..intrinsics.bf16 import BLOCK, TILE_BYTES
from ..intrinsics.elementary import FAST
from ..intrinsics.llvm import LANES, broadcast, f16x, i32, load
from .logits import ONE_SCALE, best_of, logit_of, rank, widen
from .output_layer import LEFT_OUT, pack_labels

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
def offer(z, bias, label, limits, scores, labels, n_rows):
    """Insert a label with logits z (B,) into the lists of the first `n_rows` rows; limits (B,) : their k-th scores."""
    k = scores.shape[1]
    for i in range(0, n_rows, LANES):
        mask = above(z.ctypes.data + 4 * i, bias, limits.ctypes.data + 4 * i)
        row = i
        while mask:
            if mask & 1 and row < n_rows:
                rank(scores[row], labels[row], z[row] + bias, label)
                limits[row] = scores[row, k - 1]
            mask >>= 1
            row += 1


@njit(nogil=True)
def offer_block(Z, bias, first, limits, scores, labels):
    """Insert m labels from `first` on, with logits Z (m, B) without `bias` (L,), into the lists of rows.

    scores, labels (rows, k) : the lists of at most B rows. limits : as in `offer`.
    """
    for r in range(Z.shape[0]):
        offer(Z[r], bias[first + r], first + r, limits, scores, labels, scores.shape[0])


@kernel_of_part()
def pack_weights(part, n_parts, W, packed, pads):
    """Pack all labels of W (L, H) as operand A to `packed` (1, words), once per call of `top_k`."""
    H, n_blocks = pads.shape[2], -(-W.shape[0] // BLOCK)
    for block in range(part, n_blocks, n_parts):
        target = packed.ctypes.data + block * 2 * (H // 32) * TILE_BYTES
        pack_labels(W, ONE_SCALE, block * BLOCK, BLOCK, target, LEFT_OUT, LEFT_OUT, pads[part])


def float_rows(W, scales, start, stop, wide):
    """Return rows start .. stop of W in float32: a view of W or, if W is int8, a copy in `wide` (labels, H)."""


@overload(float_rows)
def _float_rows(W, scales, start, stop, wide):
    if W.dtype == types.float32:
        return lambda W, scales, start, stop, wide: W[start:stop]

    def widened(W, scales, start, stop, wide):
        for r in range(stop - start):
            widen(W, scales, start + r, wide[r])
        return wide[: stop - start]

    return widened


@kernel_of_part()
def top_k_many(part, n_parts, A, W, scales, b, batch, ready, wide, operand, packed, pads, Z, limits, scores, labels):
    """Write the k best labels of every row of A (n, H), best first, by logits in bfloat16; without `operand`, float32.

    Before the call, `labels` (n, k) are -1, and a label is listed only if it exceeds the least of a row's `scores`.
    A is padded with zeros: n to a multiple of `batch`, and in bfloat16 H to a multiple of 32. ready : whether `packed`
    comes from `pack_weights`. Else W is packed for each batch in blocks of `BLOCK` labels per part, which needs no
    copy of all weights. wide (n_parts, labels, H) : scratch for weights in int8 with products in float32.
    """
    n_rows, L, H, step = scores.shape[0], b.size, A.shape[1], Z.shape[1]
    bf16.tiles_on()
    limit = limits[part]
    for i in range(part, A.shape[0] // batch, n_parts):
        first = i * batch
        rows, some = slice(first, min(first + batch, n_rows)), A[first : first + batch]
        limit[: scores[rows].shape[0]] = scores[rows, scores.shape[1] - 1]
        if operand is not None:
            right = np.int64(operand[part].ctypes.data)
            bf16.pack_b_transposed(right, np.int64(some.ctypes.data), H * 4, batch, H // 32, right + batch * H * 2)
        for label in range(0, L, step):
            z = Z[part][: min(step, L - label)]
            if wide is not None:
                np.dot(float_rows(W, scales, label, label + z.shape[0], wide[part]), some.T, z)
            if operand is not None:
                left = packed.ctypes.data + label // 16 * (H // 32) * TILE_BYTES
                if not ready:
                    left = np.int64(packed[part].ctypes.data)
                    pack_labels(W, scales, label, BLOCK, left, LEFT_OUT, LEFT_OUT, pads[part])
                bf16.multiply(left, right, z.ctypes.data, BLOCK, batch, batch * 4, H // 32, 0)
            offer_block(z, b, label, limit, scores[rows], labels[rows])
    bf16.tiles_off()


@kernel_of_part(fastmath=FAST)
def top_k_few(part, n_parts, A, W, scales, b, best, labels):
    """Write the k best labels of every row of A (n, H), and their scores `best` in float32, row by row.

    W is float32 or int8 (`logits`). `labels` and `best` begin as in `top_k_many`. For few rows, this takes about the
    time of reading all weights once per row.
    """
    n, k = best.shape
    for i in range_of_part(n, part, n_parts):
        a, scores, ranked = A[i], best[i], labels[i]
        for label in range(b.size):
            z = logit_of(a, W, scales, b, label)
            if z > scores[k - 1]:
                rank(scores, ranked, z, label)


@kernel_of_part(fastmath=FAST)
def rescore(part, n_parts, A, W, scales, b, labels, best):
    """Replace the scores `best` (n, k) of candidate `labels` by float32 logits, and sort each row, best first.

    W is float32 or int8 (`logits`). Of equal scores, the smaller label is first; labels -1 stay at the end.
    """
    n, k = labels.shape
    for i in range_of_part(n, part, n_parts):
        for c in range(k):
            label = np.int64(labels[i, c])
            if label < 0:
                continue
            best[i, c] = _NONE
            rank(best[i, : c + 1], labels[i, : c + 1], logit_of(A[i], W, scales, b, label), label)


@njit(nogil=True)
def has(labels, label):
    """Return whether a label is one of `labels`, without an array of results as `np.any` would need."""
    found = False
    for each in labels:
        found |= each == label
    return found


@kernel_of_part()
def merge_best(part, n_parts, labels, scores, others, their_scores, best, found):
    """Write the best of two lists of each row, best first, to `best` and `found` (n, k); -1 and -inf fill up.

    labels (n, m), scores : the first list, whose scores count for labels in both. others (n, r), their_scores : the
    second. Labels -1 are ignored.
    """
    n, k = best.shape
    for i in range_of_part(n, part, n_parts):
        best_of(labels[i], scores[i], best[i], found[i])
        for j in range(others.shape[1]):
            label, score = others[i, j], their_scores[i, j]
            if label >= 0 and score >= found[i, k - 1] and not has(labels[i], label):
                rank(found[i], best[i], score, np.int64(label))
