"""How much memory the steps of a learner take on a GPU, beside its model, its state and the data that stay there."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from ..base import SPARE_CANDIDATES
from .chunks import CHUNK_BYTES, labels_of_chunk, padded
from .output import PER_LANE, ROWS_A_PART
from .runtime import THREADS
from .sender import GROWTH, SLOTS

LIBRARY_BYTES = 100_000_000  # an allowance for cuBLAS's workspace, loaded kernels and CuPy's rounding; not measured
AN_ENTRY = 8 + 8 + 4 + 4  # key, its place in a sort, row, value
A_LABEL = 8 + 8 + 4  # key, its place in a sort, loss
SENT = 8  # of an entry or a label: index and value
A_ROW = 2 * 32 + 8  # spans of X and Y, weights


class Sizes(NamedTuple):
    """What decides the memory of a step.

    batch : rows. entries, labels : of a large batch. travels : whether these go to the GPU with every batch.
    hidden : units of the hidden layers. n_labels : of the output layer. fused : whether its update is part of a
    product, as plain descent without clipping is.
    """

    batch: int
    entries: int
    labels: int
    hidden: tuple[int, ...]
    n_labels: int
    travels: bool
    fused: bool


def step_bytes(sizes: Sizes, bfloat16: bool, chunk_bytes: int = CHUNK_BYTES) -> int:
    """Return the bytes of the arrays of a training step."""
    B, H, parts = sizes.batch, sizes.hidden[-1], -(-sizes.batch // ROWS_A_PART)
    n = min(labels_of_chunk(B, H, bfloat16, chunk_bytes), sizes.n_labels)
    chunk = padded(n) * (B * (4 + (2 if bfloat16 else 4)) + 4 * parts)
    operands = 2 * padded(H) * (B + n) if bfloat16 else 0
    gradients = [a * b for a, b in itertools.pairwise(sizes.hidden)] + ([] if sizes.fused else [n * H])
    losses = parts * (-(-sizes.n_labels // (THREADS * PER_LANE)) + sizes.n_labels // n)
    sent = SLOTS * (A_ROW * B + (SENT * (sizes.entries + sizes.labels) if sizes.travels else 0))
    sparse = GROWTH * (AN_ENTRY * sizes.entries + A_LABEL * sizes.labels + sent)
    return chunk + operands + 4 * (max(gradients, default=0) + losses + B * (2 * sum(sizes.hidden) + H)) + int(sparse)


def top_k_bytes(n_rows: int, k: int, sizes: Sizes, bfloat16: bool, chunk_bytes: int = CHUNK_BYTES) -> int:
    """Return the bytes of the arrays of ranking a block of `n_rows` rows."""
    H = sizes.hidden[-1]
    n = min(labels_of_chunk(n_rows, H, bfloat16, chunk_bytes), sizes.n_labels)
    operands = 2 * padded(H) * (n_rows + n) if bfloat16 else 0
    lists = 16 * n_rows * (k + SPARE_CANDIDATES)
    entries = 8 * n_rows * sizes.entries // sizes.batch
    return 4 * n_rows * (padded(n) + sum(sizes.hidden)) + operands + lists + entries + 32 * n_rows
