"""Kernels of the full output layer: logits, loss, gradient and update fused over chunks of labels.

A thread takes a chunk of labels and does everything that the chunk needs while it lies in its level-2 cache:
Z = W A^T, gradient of the loss in place, dW = G A, update of W, and its part of dA = G^T W. No array of the size
(B, L) and no gradient of the size of W exists; W and its state are read and written once a step.

Logits are label-major, (labels, B), so that a label's bias, gradient row and update belong to one thread.
`output_step_bf16` and `output_step_float32` are the same step with the matrix products in bfloat16 (float32 sums,
float32 weights) and in float32 by the BLAS that SciPy ships.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from ..intrinsics import bf16
from ..intrinsics.bf16 import BLOCK, TILE_BYTES
from ..intrinsics.elementary import FAST, exp_negative
from ..intrinsics.llvm import prefetch_row
from .copying import copy_into
from .logits import ONE_SCALE, widen
from .parts import label_gradient, update_row

_ZERO = np.float32(0)
_LOWEST = np.float32(-3.0e38)


@kernel()
def gather_positives(rows, indptr, indices, keys):
    """Write label * 2^32 + batch row of every positive of the batch to `keys`, row by row."""
    n = 0
    for i in range(rows.size):
        for q in range(indptr[rows[i]], indptr[rows[i] + 1]):
            keys[n] = (np.int64(indices[q]) << 32) + i
            n += 1


@njit(nogil=True)
def positives_of(keys, at, label, out):
    """Copy the batch rows of `label` from the sorted `keys`, from place `at` on, to `out`; return the next place."""
    n = 0
    while at < keys.size and keys[at] >> 32 == label:
        out[n] = keys[at] & 0xFFFFFFFF
        n += 1
        at += 1
    return at, n


@kernel()
def pack_forward(A, forward, scratch):
    """Pack A (B, H), both multiples of 32, as the operand B of W A^T."""
    B, H = A.shape
    n_threads = scratch.shape[0]
    a, f = A.ctypes.data, forward.ctypes.data
    for thread in prange(n_threads):
        for i in range(16 * thread, B, 16 * n_threads):
            bf16.pack_b_transposed(
                f + i // 16 * (H // 32) * TILE_BYTES, a + i * H * 4, H * 4, 16, H // 32, scratch[thread].ctypes.data
            )


@kernel()
def pack_backward(A, backward, n_threads):
    """Pack A (B, H), both multiples of 32, as the operand B of G A."""
    B, H = A.shape
    a, b = A.ctypes.data, backward.ctypes.data
    for thread in prange(n_threads):
        for i in range(2 * thread, B, 2 * n_threads):
            bf16.pack_b(b + i // 2 * 64, B // 32 * TILE_BYTES, a + i * H * 4, H * 4, 1, H // 16)


@njit(nogil=True, inline="always")
def padded_row(W, scales, label, pad):
    """Return the address of row `label` of W in float32, zeros where H is no multiple of 32, and past L.

    It is that of W itself where that has such rows, else of a copy in `pad`.
    """
    L, H = W.shape
    if label < L and pad.size == H and W.itemsize == 4:
        return W.ctypes.data + label * H * 4
    pad[:] = _ZERO
    if label < L:
        widen(W, scales, label, pad[:H])
    return pad.ctypes.data


@njit(nogil=True)
def pack_labels(W, scales, label, n_labels, as_a, as_b, b_panel, pads):
    """Pack rows label .. label + n_labels of W as operand A of W A^T and as operand B of G^T W (0: leave it out)."""
    H = pads.shape[1]
    n_tiles = H // 32
    for r in range(0, n_labels, 2):
        first = padded_row(W, scales, label + r, pads[0])
        second = padded_row(W, scales, label + r + 1, pads[1])
        row = as_a + (r // 16 * n_tiles * 16 + r % 16) * 64
        for t in range(n_tiles):
            bf16.pack_pairs(row + t * TILE_BYTES, first + t * 128)
            bf16.pack_pairs(row + t * TILE_BYTES + 64, second + t * 128)
        if as_b:
            for j in range(H // 16):
                bf16.pack_interleaved(as_b + j * b_panel + r // 2 * 64, first + j * 64, second + j * 64)


@njit(nogil=True)
def block_logits(W, label, n_labels, A, forward, packed, pads, thread, z):
    """Write the logits of `n_labels` labels from `label` on, without biases, to the first rows of z (labels, B).

    The product is in float32, of A (B, H); or, where `forward` is not None, in bfloat16, of `BLOCK` labels.
    """
    if forward is None:
        np.dot(W[label : label + n_labels], A.T, z[:n_labels])
    else:
        B, as_a = z.shape[1], packed[thread].ctypes.data
        pack_labels(W, ONE_SCALE, label, BLOCK, as_a, 0, 0, pads[thread])
        bf16.multiply(as_a, forward.ctypes.data, z.ctypes.data, BLOCK, B, B * 4, pads.shape[2] // 32, 0)


@njit(nogil=True)
def pack_gradient(Z, as_a, transposed, n_chunk_tiles, tile, words):
    """Pack the gradient of 32 labels, Z (32, B), as operand A of G A and as tile `tile` of operand A of G^T W."""
    B = Z.shape[1]
    z, w = Z.ctypes.data, words.ctypes.data
    bf16.pack_a(as_a, z, B * 4, BLOCK, B // 32)
    for p in range(16):
        for j in range(B // 16):
            bf16.pack_interleaved(
                w + (p * B + j * 16) * 4, z + (2 * p * B + j * 16) * 4, z + ((2 * p + 1) * B + j * 16) * 4
            )
    for j in range(B // 16):
        bf16.transpose_tile(transposed + (j * n_chunk_tiles + tile) * TILE_BYTES, w + j * 64, B * 4)


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def softmax_block(Z, b, label, n_labels, largest, total, top):
    """Add the logits of a block of labels to the running maximum and sum of exponentials of every row, (B,) each.

    `top` (B,) is scratch. Rows of Z are labels, so the inner loops run along them.
    """
    B = Z.shape[1]
    copy_into(top, largest)
    for r in range(n_labels):
        z, bias = Z[r], b[label + r]
        for i in range(B):
            top[i] = max(top[i], z[i] + bias)
    for i in range(B):
        total[i] *= exp_negative(largest[i] - top[i])
        largest[i] = top[i]
    for r in range(n_labels):
        z, bias = Z[r], b[label + r]
        for i in range(B):
            total[i] += exp_negative(z[i] + bias - top[i])


@kernel()
def log_sums(W, b, chunk, Z, largest, total, tops, A, forward, packed, pads, configuration):
    """Run the softmax's first pass: maximum and sum of exponentials of every row, a part a thread, (threads, B)."""
    L = W.shape[0]
    n_threads, block, _ = Z.shape
    n_chunks = -(-L // chunk)
    for thread in prange(n_threads):
        bf16.tiles_on(configuration)
        largest[thread] = _LOWEST
        total[thread] = _ZERO
        z = Z[thread]
        first, last = n_chunks * thread // n_threads, n_chunks * (thread + 1) // n_threads
        for label in range(first * chunk, min(last * chunk, L), block):
            n_labels = min(block, L - label)
            block_logits(W, label, n_labels, A, forward, packed, pads, thread, z)
            softmax_block(z, b, label, n_labels, largest[thread], total[thread], tops[thread])
        bf16.tiles_off()


@njit(nogil=True)
def first_key(keys, label):
    """Return the place of the first key of `label` or of a later one."""
    return np.searchsorted(keys, np.int64(label) << 32)


@kernel()
def output_step_bf16(
    W, b, Ws, Wt, bs, bt, keys, scale, target, log_sum, loss, update, hyper, bias_update, bias_hyper,
    chunk, Z, dW, dA, db, ints, logits, losses, backward, forward, packed, pads, configuration,
):  # fmt: skip
    """Run one step of the output layer in bfloat16 products; W, b and their state are updated in place.

    The sum of dA (threads, B, H) over threads is the gradient of the activations, `losses` (threads,) that of the loss.
    """
    L, H = W.shape
    n_threads, B, Hp = dA.shape
    n_tiles, chunk_tiles = Hp // 32, chunk // 32
    panel = chunk_tiles * TILE_BYTES
    n_chunks = -(-L // chunk)
    s_rows, t_rows = Ws.shape[0], Wt.shape[0]
    for thread in prange(n_threads):
        bf16.tiles_on(configuration)
        z, g, d_bias, positives = Z[thread], dW[thread], db[thread], ints[thread]
        as_a = packed[thread].ctypes.data
        as_b = as_a + BLOCK * Hp * 2
        gradient = as_b + chunk * Hp * 2
        transposed = gradient + BLOCK * B * 2
        words = packed[thread][(BLOCK * Hp + chunk * Hp + BLOCK * B + chunk * B) // 2 :]
        first_chunk, last_chunk = n_chunks * thread // n_threads, n_chunks * (thread + 1) // n_threads
        at = first_key(keys, first_chunk * chunk)
        value = 0.0
        if first_chunk == last_chunk:
            dA[thread] = _ZERO
        for c in range(first_chunk, last_chunk):
            start, stop = c * chunk, min((c + 1) * chunk, L)
            n_blocks = -(-(stop - start) // BLOCK)
            for block in range(n_blocks):
                label = start + block * BLOCK
                n_labels = min(BLOCK, L - label)
                pack_labels(W, ONE_SCALE, label, BLOCK, as_a, as_b + block * TILE_BYTES, panel, pads[thread])
                bf16.multiply(as_a, forward.ctypes.data, z.ctypes.data, BLOCK, B, B * 4, n_tiles, 0)
                for r in range(n_labels):
                    # What comes after this loop and in the next block, asked for while there is arithmetic to do.
                    prefetch_row(Ws, label + r)
                    prefetch_row(Wt, label + r)
                    prefetch_row(W, label + BLOCK + r)
                    at, n = positives_of(keys, at, label + r, positives)
                    value += label_gradient(
                        loss, z[r], b[label + r], scale, target, log_sum, positives[:n], logits[thread],
                        d_bias[block * BLOCK + r :],
                    )  # fmt: skip
                for r in range(n_labels, BLOCK):
                    z[r] = _ZERO
                pack_gradient(z, gradient, transposed, chunk_tiles, block, words)
                bf16.multiply(gradient, backward.ctypes.data, g.ctypes.data, BLOCK, Hp, Hp * 4, B // 32, 0)
                for r in range(n_labels):
                    row = label + r
                    update_row(update, W[row], g[r, :H], Ws[min(row, s_rows - 1)], Wt[min(row, t_rows - 1)], hyper)
            for j in range(0, Hp, BLOCK):
                for i in range(0, B, BLOCK):
                    bf16.block(
                        transposed + i // 16 * panel, panel, as_b + j // 16 * panel, panel,
                        dA[thread].ctypes.data + (i * Hp + j) * 4, Hp * 4, n_blocks, c > first_chunk,
                    )  # fmt: skip
            update_row(bias_update, b[start:stop], d_bias[: stop - start], bs[start:stop], bt[start:stop], bias_hyper)
        losses[thread] = value
        bf16.tiles_off()


@kernel()
def output_step_float32(
    W, b, Ws, Wt, bs, bt, keys, scale, target, log_sum, loss, update, hyper, bias_update, bias_hyper,
    chunk, Z, dW, dA, db, ints, logits, losses, A, dA_part,
):  # fmt: skip
    """Run one step of the output layer in float32 products; as `output_step_bf16`."""
    L = W.shape[0]
    n_threads = dA.shape[0]
    n_chunks = -(-L // chunk)
    s_rows, t_rows = Ws.shape[0], Wt.shape[0]
    for thread in prange(n_threads):
        d_bias, positives = db[thread], ints[thread]
        first_chunk, last_chunk = n_chunks * thread // n_threads, n_chunks * (thread + 1) // n_threads
        at = first_key(keys, first_chunk * chunk)
        value = 0.0
        dA[thread] = _ZERO
        for c in range(first_chunk, last_chunk):
            start, stop = c * chunk, min((c + 1) * chunk, L)
            z, g = Z[thread][: stop - start], dW[thread][: stop - start]
            np.dot(W[start:stop], A.T, z)
            for r in range(stop - start):
                at, n = positives_of(keys, at, start + r, positives)
                value += label_gradient(
                    loss, z[r], b[start + r], scale, target, log_sum, positives[:n], logits[thread], d_bias[r:]
                )
            np.dot(z.T, W[start:stop], dA_part[thread])
            dA[thread] += dA_part[thread]
            np.dot(z, A, g)
            for r in range(stop - start):
                row = start + r
                update_row(update, W[row], g[r], Ws[min(row, s_rows - 1)], Wt[min(row, t_rows - 1)], hyper)
            update_row(bias_update, b[start:stop], d_bias[: stop - start], bs[start:stop], bt[start:stop], bias_hyper)
        losses[thread] = value


@kernel()
def rows_update(W, G, s, t, update, hyper, n_threads):
    """Update every row of W (R, C) by the gradient G (R, C) in place; G is clipped in place."""
    s_rows, t_rows = s.shape[0], t.shape[0]
    for thread in prange(n_threads):
        for row in range(thread, W.shape[0], n_threads):
            update_row(update, W[row], G[row], s[min(row, s_rows - 1)], t[min(row, t_rows - 1)], hyper)


@kernel()
def biases_update(b, g, s, t, update, hyper):
    """Update all biases b (m,) of a layer by their gradient g (m,)."""
    update_row(update, b, g, s, t, hyper)
