"""Memory of the steps of a learner on a GPU, for `estimators.memory`, which adds its model, its state and the data."""

from __future__ import annotations

import itertools
from typing import Any

from .chunks import CHUNK_BYTES, label_bytes, labels_per_chunk, parts_of_sum, round_up
from .softmax import PILOT
from .staging import SLOTS

LIBRARY_BYTES = 100_000_000  # an allowance for cuBLAS's workspace, loaded kernels and CuPy's rounding; not measured
SHARE_OF_STEP = 1.1  # small buffers that are not counted, and buffers that grow ahead of the batch
BYTES_PER_ENTRY = 32  # sorted key, its copy during the sort, row, value, and growth
BYTES_PER_ROW = 128 * SLOTS  # spans of X and Y, weights, sums


def step_bytes(
    network: Any, batch: int, entries: int, travels: bool, bfloat16: bool, chunk_bytes: int = CHUNK_BYTES
) -> int:
    """Return the bytes of the arrays of a training step of a `Network` on `batch` rows.

    entries : features and labels of a large batch. travels : whether they are uploaded with every batch.
    """
    B, H, L, itemsize = batch, network.hidden[-1], network.n_labels, 2 if bfloat16 else 4
    n = min(labels_per_chunk(label_bytes(B, H, bfloat16), chunk_bytes), L)
    if network.loss == "softmax":  # which keeps (batch, labels), and float32 logits of the first labels
        logits = B * (round_up(L, 128) * itemsize + 4 * min(L, PILOT))
        output = logits + min(L * round_up(H) * (4 + itemsize), chunk_bytes)
    else:
        output = round_up(n) * (B * (4 + itemsize) + H * (4 + itemsize))
    activations = 4 * B * (2 * sum(network.hidden) + (3 + parts_of_sum(B, H, L)) * H) + BYTES_PER_ROW * B
    gradients = 4 * max((a * b for a, b in itertools.pairwise(network.hidden)), default=0)
    sparse = entries * (BYTES_PER_ENTRY + (8 * SLOTS if travels else 0))
    return int(SHARE_OF_STEP * (output + activations + gradients + sparse))
