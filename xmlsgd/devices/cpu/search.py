"""Exact search on a CPU: the k best of all labels, for few rows or many, with weights in float32 or int8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..base import SPARE_CANDIDATES, Layer
from ..compact import CompactLayer
from .intrinsics import bf16
from .kernels import topk
from .kernels.logits import ONE_SCALE, pair_logits
from .kernels.output_layer import CHUNK

if TYPE_CHECKING:
    from .device import CPU

PREDICT_BATCH = 256  # rows that are ranked together
LONG = 4096  # for a larger k, sort all logits: inserting into a list takes k^2 / 4 steps
SORTED = 1 << 22  # logits that are sorted at once, which bounds memory
# A logit in bfloat16 hardly ever lies further below the one in float32: this much, or this share of a large one.
LOGIT_ERROR, ERROR_SHARE = np.float32(0.25), np.float32(1 / 64)
FEW = 8  # so few rows are ranked row by row: packing would take longer (docs/decisions/prediction.md)


def weights_of(layer: Layer | CompactLayer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return W, scales and b of a layer for kernels that take weights in float32 and int8 (`logits`)."""
    return layer.W, layer.scales if isinstance(layer, CompactLayer) else ONE_SCALE, layer.b


def top_k(
    cpu: CPU, A: np.ndarray, layer: Layer | CompactLayer, k: int, floor: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and logits as `CPU.top_k` does."""
    n, L = len(A), len(layer.b)
    if min(k, L) > LONG:
        return _by_sorting(cpu, A, layer, k)
    few = n <= FEW
    wide = min(k if few or not cpu.bfloat16 else k + SPARE_CANDIDATES, L)
    scores, labels = np.full((n, wide), -np.inf, np.float32), np.full((n, wide), -1, np.int32)
    if floor is not None:  # as if all places were taken by labels with this logit, so that only larger ones enter
        lower = np.where(floor > 0, 1 - ERROR_SHARE, 1 + ERROR_SHARE) * floor  # infinite floors stay infinite
        scores[:] = np.minimum(floor - LOGIT_ERROR, lower)[:, None]
    if few:
        cpu.run(topk.top_k_few, A, *weights_of(layer), scores, labels)
    else:
        _rank(cpu, A, layer, scores, labels)
        if cpu.bfloat16:
            cpu.run(topk.rescore, A, *weights_of(layer), labels, scores)
    if floor is not None:
        scores[labels < 0] = -np.inf
    if wide < k:
        gap = ((0, 0), (0, k - wide))
        return np.pad(labels, gap, constant_values=-1), np.pad(scores, gap, constant_values=-np.inf)
    return labels[:, :k], scores[:, :k]


def _by_sorting(cpu: CPU, A: np.ndarray, layer: Layer | CompactLayer, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the best labels by sorting all logits, of some rows at a time."""
    n, L = len(A), len(layer.b)
    labels, scores = np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32)
    step = max(SORTED // L, 1)
    for first in range(0, n, step):
        rows = slice(first, first + step)
        Z = np.empty((len(A[rows]), L), np.float32)
        every = np.tile(np.arange(L, dtype=np.int32), (len(Z), 1))
        cpu.run(pair_logits, A[rows], *weights_of(layer), every, Z)
        order = np.argsort(-Z, axis=1, kind="stable")[:, :k]
        labels[rows, : order.shape[1]] = order
        scores[rows, : order.shape[1]] = np.take_along_axis(Z, order, axis=1)
    return labels, scores


def _rank(cpu: CPU, A: np.ndarray, layer: Layer | CompactLayer, scores: np.ndarray, labels: np.ndarray) -> None:
    """Write the labels with the best logits to `labels`, and the logits to `scores`, in the precision of the device."""
    compact, threads, batch = isinstance(layer, CompactLayer), cpu.n_threads, _batch(len(A))
    Hp = bf16.pad(A.shape[1]) if cpu.bfloat16 else A.shape[1]
    padded = cpu.padded("top A", A, -(-len(A) // batch) * batch, Hp)
    wide = operand = packed = pads = None
    if cpu.bfloat16:
        words = bf16.pad(len(layer.b)) * Hp // 2
        packed = cpu.buffer("labels", (threads, bf16.BLOCK * Hp // 2) if compact else (1, words), np.uint32)
        operand = cpu.buffer("operand", (threads, batch * Hp // 2 + 256), np.uint32)
        pads = cpu.buffer("pads", (threads, 2, Hp))
        if not compact:
            cpu.run(topk.pack_weights, layer.W, packed, pads)
    else:
        wide = cpu.buffer("wide", (threads, CHUNK if compact else 0, Hp))
    Z = cpu.buffer("top Z", (threads, bf16.BLOCK if cpu.bfloat16 else CHUNK, batch))
    cpu.run(
        topk.top_k_many, padded, *weights_of(layer), batch, not compact, wide, operand, packed, pads, Z,
        cpu.buffer("limits", (threads, batch)), scores, labels,
    )  # fmt: skip


def _batch(n_rows: int) -> int:
    """Return the number of rows that are ranked together, a multiple of the block size."""
    return min(PREDICT_BATCH, max(bf16.pad(n_rows), bf16.BLOCK))
