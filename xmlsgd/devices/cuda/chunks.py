"""The output layer in chunks of labels: how many labels at a time, and the operands of their matrix products."""

from __future__ import annotations

from typing import Any

from ..base import Layer
from .runtime import THREADS, WARP, Runtime, blocks_of

ALIGNMENT = 8  # operands of a row: 16 bytes of bfloat16, which tensor cores want
CHUNK_BYTES = 1 << 30  # a step of 1,024 rows on 670,000 labels takes five chunks: some fifty launches, a third of a ms


class LabelChunks:
    """Operations on the output layer, in chunks of labels whose arrays take at most about `chunk_bytes`."""

    def __init__(self, runtime: Runtime, chunk_bytes: int) -> None:
        self.runtime, self.chunk_bytes = runtime, chunk_bytes

    def chunks(self, B: int, H: int, L: int) -> list[tuple[int, int]]:
        """Return (start, stop) of each chunk of L labels, for B rows of H hidden units."""
        size = labels_per_chunk(B, H, self.runtime.bfloat16, self.chunk_bytes)
        return [(start, min(start + size, L)) for start in range(0, L, size)]

    def operand(self, name: str, matrix: Any) -> Any:
        """Return a float32 matrix as an operand of matrix products: itself, or its bfloat16 copy in buffer `name`.

        The copy is rounded to nearest and padded with columns of zeros to a multiple of `ALIGNMENT`.
        """
        run, (n, H) = self.runtime, matrix.shape
        if not run.bfloat16:
            return matrix
        out = run.buffer(name, (n, round_up(H)), run.operand)
        run.launch("pack", blocks_of(n, THREADS // WARP), matrix, n, H, out.shape[1], out)
        return out


def labels_per_chunk(B: int, H: int, bfloat16: bool, chunk_bytes: int) -> int:
    """Return how many labels fit: logits and gradient (B,), weights as an operand and their gradient (H,)."""
    bytes_per_label = B * (4 + (2 if bfloat16 else 4)) + H * (4 + 2 * bfloat16)
    return max(chunk_bytes // bytes_per_label // ALIGNMENT * ALIGNMENT, ALIGNMENT)


def slice_layer(layer: Layer, start: int, stop: int) -> Layer:
    """Return the outputs [start, stop) of a layer; state arrays of one element stay as they are."""
    return type(layer)(*(array if array.shape[0] == 1 else array[start:stop] for array in layer))


def round_up(n: int, multiple: int = ALIGNMENT) -> int:
    """Return the next multiple of `multiple`."""
    return -(-n // multiple) * multiple
