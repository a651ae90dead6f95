"""Kernels of the full output layer: logits, loss, gradient and update fused over chunks of labels.

A thread takes a chunk of labels and computes everything for it while it is in the level-2 cache: Z = W A^T, the
gradient of the loss in place, dW = G A, the update of W, and its part of dA = G^T W. There is no array of size (B, L)
and no gradient of the size of W; W and its state are read and written once per step.

Logits are label-major, (labels, B), so that a label's bias, gradient row and update belong to one thread.
Matrix products are in bfloat16 (with float32 sums and weights) or, if `forward` is None, in float32 by the BLAS of
SciPy. If an argument is None, Numba compiles the kernel without the code for it.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from ..compiling import kernel
from ..intrinsics import bf16
from ..intrinsics.bf16 import BLOCK, TILE_BYTES
from ..intrinsics.elementary import FAST, ONE, ZERO, exp_negative
from ..intrinsics.llvm import prefetch_row
from .copying import copy_into
from .logits import ONE_SCALE, widen
from .loss_and_update import label_gradient, update_row

CHUNK = 256  # labels: with B = H = 256, operands and weights of a chunk take 1.2 MB of a level-2 cache of 2 MB
_LOWEST = np.float32(-3.0e38)
LEFT_OUT = np.int64(0)  # in place of the address of an operand


@njit(nogil=True)
def positives_of(keys, at, label, out):
    """Copy the batch rows of `label`, from index `at` of sorted `keys` on, to `out`; return next index and number."""
    n = 0
    while at < keys.size and keys[at] >> 32 == label:
        out[n] = keys[at] & 0xFFFFFFFF
        n += 1
        at += 1
    return at, n


@kernel()
def pack_forward(A, forward, one_tile):
    """Pack A (B, H), both multiples of 32, as the operand B of W A^T; `one_tile` is scratch."""
    B, H = A.shape
    a, f, scratch = A.ctypes.data, forward.ctypes.data, np.int64(one_tile.ctypes.data)
    for i in range(0, B, 16):
        target = f + i // 16 * (H // 32) * TILE_BYTES
        bf16.pack_b_transposed(target, a + i * H * 4, H * 4, np.int64(16), H // 32, scratch)


@kernel()
def pack_backward(A, backward):
    """Pack A (B, H), both multiples of 32, as the operand B of G A."""
    B, H = A.shape
    a, b = A.ctypes.data, backward.ctypes.data
    for i in range(0, B, 2):
        bf16.pack_b(b + i // 2 * 64, B // 32 * TILE_BYTES, a + i * H * 4, H * 4, 1, H // 16)


@njit(nogil=True, inline="always")
def padded_row(W, scales, label, pad):
    """Return the address of row `label` of W in float32, padded with zeros to a multiple of 32; zeros if label >= L.

    If the row needs no padding and W is float32, it is in W itself, else it is a copy in `pad`.
    """
    L, H = W.shape
    if label < L and pad.size == H and W.itemsize == 4:
        return W.ctypes.data + label * H * 4
    pad[:] = ZERO
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
def block_logits(W, label, n_labels, A, forward, packed, pads, thread, z, chunk, tile):
    """Write the logits of `n_labels` labels from `label` on, without biases, to the first rows of z (labels, B).

    If `forward` is None, the product is in float32, with A (B, H); else in bfloat16, of `BLOCK` labels. Then, if
    `chunk` is not 0, they are also packed as tile `tile` of the operand B of a chunk of labels (`chunk_operands`).
    """
    if forward is None:
        np.dot(W[label : label + n_labels], A.T, z[:n_labels])
    else:
        B, H, as_a = z.shape[1], pads.shape[2], np.int64(packed[thread].ctypes.data)
        as_b = chunk_operands(as_a, chunk, B, H)[0] + tile * TILE_BYTES if chunk else LEFT_OUT
        pack_labels(W, ONE_SCALE, label, BLOCK, as_a, as_b, chunk // 32 * TILE_BYTES, pads[thread])
        bf16.multiply(as_a, forward.ctypes.data, z.ctypes.data, BLOCK, B, B * 4, H // 32, 0)


@njit(nogil=True, inline="always")
def chunk_operands(as_a, chunk, B, H):
    """Return the addresses of four operands of a chunk, which follow operand A of a block at `as_a`.

    They are the weights as operand B, the gradient of a block, the transposed gradient of the chunk, and scratch.
    """
    as_b = as_a + BLOCK * H * 2
    gradient = as_b + chunk * H * 2
    transposed = gradient + BLOCK * B * 2
    return as_b, gradient, transposed, transposed + chunk * B * 2


@njit(nogil=True)
def pack_gradient(Z, as_a, transposed, n_chunk_tiles, tile, words):
    """Pack the gradient of 32 labels, Z (32, B), as operand A of G A and as tile `tile` of operand A of G^T W."""
    B = Z.shape[1]
    z = Z.ctypes.data
    bf16.pack_a(as_a, z, B * 4, BLOCK, B // 32)
    for p in range(16):
        for j in range(B // 16):
            bf16.pack_interleaved(
                words + (p * B + j * 16) * 4, z + (2 * p * B + j * 16) * 4, z + ((2 * p + 1) * B + j * 16) * 4
            )
    for j in range(B // 16):
        bf16.transpose_tile(transposed + (j * n_chunk_tiles + tile) * TILE_BYTES, words + j * 64, B * 4)


@njit(nogil=True)
def block_gradients(z, label, n_labels, W, A, backward, packed, thread, chunk, tile, g, dA, part):
    """Write dW of a block to g (labels, H), given its gradient z (labels, B); in float32, add its part to dA (B, H).

    In bfloat16, the gradient is kept for `chunk_gradient`, which adds the parts of all blocks of a chunk.
    """
    if part is not None:
        np.dot(z[:n_labels].T, W[label : label + n_labels], part[thread])
        dA += part[thread]
        np.dot(z[:n_labels], A, g[:n_labels])
    if backward is not None:
        for r in range(n_labels, BLOCK):
            z[r] = ZERO
        B, H = dA.shape
        _, gradient, transposed, words = chunk_operands(np.int64(packed[thread].ctypes.data), chunk, B, H)
        pack_gradient(z, gradient, transposed, chunk // 32, tile, words)
        bf16.multiply(gradient, backward.ctypes.data, g.ctypes.data, BLOCK, H, H * 4, B // 32, 0)


@njit(nogil=True)
def chunk_gradient(backward, packed, thread, chunk, n_blocks, dA):
    """Add the part of a chunk of `n_blocks` blocks to dA (B, H); in float32, its blocks have done so already."""
    if backward is not None:
        (B, H), panel = dA.shape, chunk // 32 * TILE_BYTES
        as_b, _, transposed, _ = chunk_operands(np.int64(packed[thread].ctypes.data), chunk, B, H)
        for j in range(0, H, BLOCK):
            for i in range(0, B, BLOCK):
                bf16.block(
                    transposed + i // 16 * panel, panel, as_b + j // 16 * panel, panel,
                    dA.ctypes.data + (i * H + j) * 4, H * 4, n_blocks, 1,
                )  # fmt: skip


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def softmax_block(Z, b, label, n_labels, largest, total, top):
    """Add the logits of a block of labels to the running maximum and sum of exponentials of every row, (B,) each.

    `total` is float64, and the block has a sum of its own: in float32, small terms would vanish beside a large sum,
    although many labels have them. `top` (B,) is scratch. Rows of Z are labels; inner loops run over the rows of the
    batch.
    """
    B = Z.shape[1]
    copy_into(top, largest)
    for r in range(n_labels):
        z, bias = Z[r], b[label + r]
        for i in range(B):
            top[i] = max(top[i], z[i] + bias)
    for i in range(B):
        scale = exp_negative(largest[i] - top[i]) if top[i] > largest[i] else ONE  # e^0 is not exactly 1
        total[i] *= scale
        largest[i] = top[i]
        top[i] = ZERO  # from here on, the sum of this block
    for r in range(n_labels):
        z, bias = Z[r], b[label + r]
        for i in range(B):
            top[i] += exp_negative(z[i] + bias - largest[i])
    for i in range(B):
        total[i] += top[i]


@kernel()
def log_sums(W, b, chunk, Z, largest, total, tops, A, forward, packed, pads):
    """Run the first pass of softmax.

    Write the maximum, float32, and the sum of exponentials, float64, of every row, (threads, B).
    """
    L = W.shape[0]
    n_threads, block, _ = Z.shape
    n_chunks = -(-L // chunk)
    for t in prange(n_threads):
        thread = np.int64(t)
        bf16.tiles_on()
        largest[thread] = _LOWEST
        total[thread] = ZERO
        z = Z[thread]
        first, last = n_chunks * thread // n_threads, n_chunks * (thread + 1) // n_threads
        for label in range(first * chunk, min(last * chunk, L), block):
            n_labels = min(block, L - label)
            block_logits(W, label, n_labels, A, forward, packed, pads, thread, z, 0, 0)
            softmax_block(z, b, label, n_labels, largest[thread], total[thread], tops[thread])
        bf16.tiles_off()


@njit(nogil=True)
def first_key(keys, label):
    """Return the index of the first key of `label` or of a later label."""
    return np.searchsorted(keys, np.int64(label) << 32)


@kernel()
def output_step(
    W, b, Ws, Wt, bs, bt, keys, scale, target, log_sum, loss, update, hyper, bias_update, bias_hyper,
    chunk, seed, Z, dW, dA, part, db, ints, logits, losses, A, backward, forward, packed, pads,
):  # fmt: skip
    """Run one step of the output layer: update W, b and their state in place.

    dA (threads, B, H) and `losses` (threads,) get the parts of each thread; their sums are the gradient of the
    activations and the loss. `part` (threads, B, H) is scratch of products in float32, `backward` an operand of
    products in bfloat16; the other one is None.

    The seed of a batch decides with which of its chunks a thread begins. If two processes that share W began with the
    same one, they would write the same cache lines at the same time in every step.
    """
    L, H = W.shape
    n_threads, block, _ = Z.shape
    n_chunks = -(-L // chunk)
    s_rows, t_rows = Ws.shape[0], Wt.shape[0]
    for t in prange(n_threads):
        thread = np.int64(t)
        bf16.tiles_on()
        z, g, d_bias, positives = Z[thread], dW[thread], db[thread], ints[thread]
        first_chunk, last_chunk = n_chunks * thread // n_threads, n_chunks * (thread + 1) // n_threads
        n_own = last_chunk - first_chunk
        value = 0.0
        dA[thread] = ZERO
        for c in range(n_own):
            start = (first_chunk + (c + seed) % n_own) * chunk
            stop, at = min(start + chunk, L), first_key(keys, start)
            for label in range(start, stop, block):
                n_labels, tile = min(block, stop - label), (label - start) // block
                block_logits(W, label, n_labels, A, forward, packed, pads, thread, z, chunk, tile)
                for r in range(n_labels):
                    row = label + r
                    # Prefetch what is read after this loop and in the next block, during the arithmetic.
                    prefetch_row(Ws, row)
                    prefetch_row(Wt, row)
                    prefetch_row(W, row + block)
                    at, n = positives_of(keys, at, row, positives)
                    value += label_gradient(
                        loss, z[r], b[row], scale, target, log_sum, positives[:n], logits[thread],
                        d_bias[row - start :],
                    )  # fmt: skip
                block_gradients(z, label, n_labels, W, A, backward, packed, thread, chunk, tile, g, dA[thread], part)
                for r in range(n_labels):
                    row = label + r
                    update_row(update, W[row], g[r, :H], Ws[min(row, s_rows - 1)], Wt[min(row, t_rows - 1)], hyper)
            chunk_gradient(backward, packed, thread, chunk, -(-(stop - start) // block), dA[thread])
            update_row(bias_update, b[start:stop], d_bias[: stop - start], bs[start:stop], bt[start:stop], bias_hyper)
        losses[thread] = value
        bf16.tiles_off()


@kernel()
def add_parts(parts, total):
    """Write the sum of `parts` (threads, B, H) over threads, in their order, to `total` (B, H)."""
    for i in prange(total.shape[0]):
        row = total[i]
        copy_into(row, parts[0, i])
        for thread in range(1, parts.shape[0]):
            part = parts[thread, i]
            for j in range(row.size):
                row[j] += part[j]


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
