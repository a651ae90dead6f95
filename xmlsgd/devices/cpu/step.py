"""The step of the output layer on the CPU: which kernels run, on which buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .intrinsics import bf16
from .kernels import output_layer, sparsified_layer
from .kernels.parts import loss_address, update_address

if TYPE_CHECKING:
    from ...nn.losses import Loss
    from ...nn.optimizers import Update
    from ..base import Layer, Rounding, Targets
    from .device import CPU

CHUNK = 256  # labels: at B = H = 256 a chunk's operands and weights take 1.2 MB, inside a level-2 cache of 2 MB


def output_step(
    cpu: CPU, A: np.ndarray, targets: Targets, layer: Layer, loss: Loss, update: Update, rounding: Rounding
) -> tuple[float, np.ndarray]:
    """Update the output layer on one batch; return the loss, weighed by row, and dA. As `Device.output_step`."""
    B, H = A.shape
    Bp, Hp = bf16.pad(B), bf16.pad(H) if cpu.bfloat16 else H
    n = cpu.n_threads
    # Less where there would be too few chunks for the threads.
    chunk = min(CHUNK, bf16.pad(-(-len(layer.b) // n)))
    scales, target, log_sum = np.zeros((3, Bp), np.float32)
    if loss.normalized:
        target[:B], scales[:B] = targets.of_softmax()
    else:
        target[:B], scales[:B] = 1, targets.scale
    padded = cpu.padded("A", A, Bp, Hp)
    Z = cpu.buffer("Z", (n, bf16.BLOCK if cpu.bfloat16 else chunk, Bp))
    dA, db = cpu.buffer("dA", (n, Bp, Hp)), cpu.buffer("db", (n, chunk))
    ints, logits = cpu.buffer("ints", (n, Bp), np.int64), cpu.buffer("logits", (n, Bp))
    losses = np.zeros(n)
    operands = _operands(cpu, padded, chunk)
    if loss.normalized:
        log_sum[:] = _log_sum(cpu, layer, chunk, Z, logits, padded, operands)
    layer_arrays, pairs = (layer.W, layer.b, layer.Ws, layer.Wt, layer.bs, layer.bt), _positives(targets)
    of_biases = update.for_biases()
    head = (
        *layer_arrays, pairs, scales, target, log_sum, loss_address(loss), update_address(update.optimizer),
        update.hyper, update_address(of_biases.optimizer), of_biases.hyper,
    )  # fmt: skip
    if rounding.threshold > 0:
        kept, g = cpu.buffer("kept", (n, Bp), np.int64), cpu.buffer("g", (n, H))
        cpu.call(
            sparsified_layer.sparsified_step, *head, np.float32(rounding.threshold), rounding.seed, padded, Z, g, dA,
            db, ints, kept, logits, losses, *operands,
        )  # fmt: skip
    else:
        part = backward = None
        if cpu.bfloat16:
            backward = cpu.buffer("backward", (Bp * Hp // 2,), np.uint32)
            cpu.run(output_layer.pack_backward, padded, backward, n)
        else:
            part = cpu.buffer("dA_part", (n, Bp, Hp))
        cpu.run(
            output_layer.output_step, *head, chunk, Z, cpu.buffer("dW", (n, Z.shape[1], Hp)), dA, part, db, ints,
            logits, losses, padded, backward, *operands,
        )  # fmt: skip
    return float(losses.sum()), np.ascontiguousarray(dA.sum(axis=0)[:B, :H])  # kernels are compiled for this layout


def _operands(cpu: CPU, padded: np.ndarray, chunk: int) -> tuple[np.ndarray | None, ...]:
    """Return packed activations, room for packed labels and padding, each None in float32."""
    if not cpu.bfloat16:
        return None, None, None
    n, (Bp, Hp) = cpu.n_threads, padded.shape
    words = (bf16.BLOCK * Hp + chunk * Hp + bf16.BLOCK * Bp + chunk * Bp) // 2 + 16 * Bp
    packed, pads = cpu.buffer("packed", (n, words), np.uint32), cpu.buffer("pads", (n, 2, Hp))
    forward = cpu.buffer("forward", (Bp * Hp // 2,), np.uint32)
    cpu.run(output_layer.pack_forward, padded, forward, packed)
    return forward, packed, pads


def _log_sum(
    cpu: CPU, layer: Layer, chunk: int, Z: np.ndarray, logits: np.ndarray, padded: np.ndarray, operands: Any
) -> np.ndarray:
    """Return log sum exp of each row's logits (B,), by way of each thread's part of its maximum and sum."""
    largest, total = cpu.buffer("largest", logits.shape), cpu.buffer("total", logits.shape)
    cpu.run(output_layer.log_sums, layer.W, layer.b, chunk, Z, largest, total, logits, padded, *operands)
    top: np.ndarray = largest.max(axis=0)
    with np.errstate(invalid="ignore"):  # the loss tells of a diverged run
        return top + np.log((total * np.exp(largest - top)).sum(axis=0))


def _positives(targets: Targets) -> np.ndarray:
    """Return the batch's (label, row) pairs as sorted keys, int64."""
    Y, rows, _ = targets
    of_row = np.repeat(np.arange(len(rows)), Y.indptr[rows + 1] - Y.indptr[rows])
    keys: np.ndarray = (Y.row_entries(rows).astype(np.int64) << 32) + of_row
    keys.sort(kind="stable")  # merges the rows: a quicksort took 3 s where one has a million labels, this takes 0.6 ms
    return keys
