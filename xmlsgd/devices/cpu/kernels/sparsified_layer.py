"""Kernels of the output layer with stochastic gradient sparsification: all logits, but few gradients.

Most pairs of a row and a label have a gradient near 0. Yet they cost most of a step: two of its three matrix products,
reading and writing the optimizer's state, and updating every label. So the gradient of a negative pair, if it is below
a threshold, is rounded at random, up to the threshold or down to 0, with probabilities that keep its expected value
(J. Wangni, J. Wang, J. Liu, T. Zhang, Gradient sparsification for communication-efficient distributed optimization,
NeurIPS 2018). A few dozen pairs per row are left, and labels without any are not updated.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic

from ...base import GOLDEN
from ..compiling import kernel
from ..intrinsics import bf16
from ..intrinsics.avx512 import HAS_AVX512
from ..intrinsics.elementary import FAST, HALF, ZERO
from ..intrinsics.llvm import LANES, broadcast, f16x, i32, i32x, i64, load
from .loss_and_update import label_gradient, update_row
from .output_layer import block_logits, first_key, positives_of
from .random import hashed

_DRAW_UNIT = np.float32(2.0**-23)


@njit(nogil=True)
def round_loops(z, scale, threshold, start, out):
    """Round the gradients z (B,) of a label in place; write the rows that keep one to `out`, return their number.

    Let u = (k + 1/2) / 2^23, with k the upper 23 bits of (start + i GOLDEN) mod 2^32, and limit = threshold scale[i].
    Row i keeps max(z, limit) if z > u limit: with probability z / limit if z is below limit, else always.
    """
    n = 0
    for i in range(z.size):
        draw = (np.float32(np.uint32(start + i * GOLDEN) >> np.uint32(9)) + HALF) * _DRAW_UNIT
        limit = threshold * scale[i]
        if z[i] > draw * limit:
            z[i] = max(z[i], limit)
            out[n] = i
            n += 1
    return n


@intrinsic
def above_draws_avx512(typingctx, z, scale, threshold, start):
    """Return for 16 gradients at address z whether row i keeps its gradient, as bit i; u and limit as in `round_loops`.

    scale : address of the weights of the rows.
    """

    def codegen(context, builder, signature, args):
        z, scale, threshold, start = args
        steps = ir.Constant(i32x, [i * GOLDEN % 2**32 for i in range(LANES)])
        words = builder.add(broadcast(builder, builder.trunc(start, i32)), steps)
        drawn = builder.sitofp(builder.lshr(words, ir.Constant(i32x, [9] * LANES)), f16x)
        limit = builder.fmul(broadcast(builder, threshold, f16x), load(builder, scale))
        u = builder.fmul(builder.fadd(drawn, ir.Constant(f16x, [0.5] * LANES)), ir.Constant(f16x, [2.0**-23] * LANES))
        level = builder.fmul(u, limit)
        above = builder.fcmp_ordered(">", load(builder, z), level)
        return builder.zext(builder.bitcast(above, ir.IntType(LANES)), i64)

    return types.int64(types.uintp, types.uintp, types.float32, types.int64), codegen


@njit(nogil=True)
def round_vectors(z, scale, threshold, start, out):
    """Do the same as `round_loops`, 16 rows at a time; B is a multiple of 16, and rows of padding have scale 0."""
    n = 0
    for i in range(0, z.size, LANES):
        above = above_draws_avx512(z.ctypes.data + 4 * i, scale.ctypes.data + 4 * i, threshold, start + i * GOLDEN)
        if above:
            for row in range(i, i + LANES):
                if above >> (row - i) & 1:
                    z[row] = max(z[row], threshold * scale[row])
                    out[n] = row
                    n += 1
    return n


# The choice is made once, at import: code for an instruction set that the processor lacks does not compile.
round_gradient = round_vectors if HAS_AVX512 else round_loops


@njit(nogil=True)
def keep_pairs(z, scale, threshold, start, positives, out, values):
    """Round the gradients z (B,) of a label, except for the rows `positives` that have it.

    Writes the rows that keep a gradient to `out`, with all `positives` of a weight above 0; returns their number.
    `values` is scratch.
    """
    # In softmax, some positives have a gradient above zero, too: as zeros, they are never kept by rounding.
    for p in range(positives.size):
        values[p] = z[positives[p]]
        z[positives[p]] = ZERO
    n = round_gradient(z, scale, threshold, start, out)
    for p in range(positives.size):
        i = positives[p]
        z[i] = values[p]
        if scale[i] > 0:
            out[n] = i
            n += 1
    return n


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def add_pairs(z, rows, A, w, g, dA):
    """Write the gradient g (H,) of a label's weights from these rows, and add its part to dA (B, H)."""
    g[:] = ZERO
    for i in rows:
        a, d, weight = A[i], dA[i], z[i]
        for j in range(w.size):
            g[j] += weight * a[j]
            d[j] += weight * w[j]


@njit(nogil=True)
def train_block(
    Z, label, n_labels, W, b, Ws, Wt, bs, bt, keys, scale, target, log_sum, loss, update, hyper, bias_update,
    bias_hyper, threshold, seed,
    A, g, dA, db, ints, kept, logits,
):  # fmt: skip
    """Train `n_labels` labels from `label` on, given their logits Z without biases; return their part of the loss."""
    s_rows, t_rows = Ws.shape[0], Wt.shape[0]
    at = first_key(keys, label)
    value = 0.0
    for r in range(n_labels):
        row, z = label + r, Z[r]
        at, n_positives = positives_of(keys, at, row, ints)
        positives = ints[:n_positives]
        value += label_gradient(loss, z, b[row], scale, target, log_sum, positives, logits, db[r:])
        n = keep_pairs(z, scale, threshold, np.int64(hashed(seed, row)), positives, kept, logits)
        if n:
            add_pairs(z, kept[:n], A, W[row], g, dA)
            update_row(update, W[row], g, Ws[min(row, s_rows - 1)], Wt[min(row, t_rows - 1)], hyper)
    stop = label + n_labels
    update_row(bias_update, b[label:stop], db[:n_labels], bs[label:stop], bt[label:stop], bias_hyper)
    return value


@kernel()
def sparsified_step(
    W, b, Ws, Wt, bs, bt, keys, scale, target, log_sum, loss, update, hyper, bias_update,
    bias_hyper, threshold, seed,
    A, Z, g, dA, db, ints, kept, logits, losses, forward, packed, pads,
):  # fmt: skip
    """Run one step of the output layer: update W, b and their state in place (`block_logits` for products).

    dA (threads, B, H) and `losses` (threads,) get the parts of each thread; their sums are the gradient of the
    activations A (B, H) and the loss.
    """
    L = W.shape[0]
    n_threads, block, _ = Z.shape
    for t in prange(n_threads):
        thread = np.int64(t)
        bf16.tiles_on()
        dA[thread] = ZERO
        value = 0.0
        z = Z[thread]
        # Threads take blocks in turn: if labels are sorted by frequency, those that keep many pairs are neighbors.
        for label in range(block * thread, L, block * n_threads):
            n_labels = min(block, L - label)
            block_logits(W, label, n_labels, A, forward, packed, pads, thread, z, 0, 0)
            value += train_block(
                z, label, n_labels, W, b, Ws, Wt, bs, bt, keys, scale, target, log_sum, loss, update,
                hyper, bias_update, bias_hyper, threshold, seed, A, g[thread], dA[thread], db[thread], ints[thread],
                kept[thread], logits[thread],
            )  # fmt: skip
        losses[thread] = value
        bf16.tiles_off()
