"""A matrix of labels on a GPU in chunks: how many labels at a time, and the operands of their products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .runtime import THREADS, WARP, Runtime, blocks_of

if TYPE_CHECKING:
    from ..base import Layer

ALIGNMENT = 8  # operands of a row: 16 bytes of bfloat16, which tensor cores want
CHUNK_BYTES = 1 << 30  # a step of 1024 rows on 670,000 labels takes five chunks: some fifty launches, a third of a ms


class Chunks:
    """Operations that go over the labels in chunks whose arrays take at most about `chunk_bytes`."""

    def __init__(self, runtime: Runtime, chunk_bytes: int) -> None:
        self.runtime, self.chunk_bytes = runtime, chunk_bytes

    def chunks(self, B: int, H: int, L: int) -> list[tuple[int, int]]:
        """Return the first label of each chunk and the one after its last, for B rows of H numbers and L labels."""
        size = labels_of_chunk(B, H, self.runtime.bfloat16, self.chunk_bytes)
        return [(start, min(start + size, L)) for start in range(0, L, size)]

    def operand(self, name: str, matrix: Any, seed: int = 0) -> Any:
        """Return a float32 matrix as an operand of products: itself, or bfloat16 in the buffer `name`.

        That has columns of zeros up to a multiple of `ALIGNMENT`; it is rounded to nearest, or at random by a `seed`.
        """
        run, (n, H) = self.runtime, matrix.shape
        if not run.bfloat16:
            return matrix
        out = run.buffer(name, (n, padded(H)), run.operand)
        run.launch("pack", blocks_of(n, THREADS // WARP), matrix, n, H, out.shape[1], seed, out)
        return out


def labels_of_chunk(B: int, H: int, bfloat16: bool, chunk_bytes: int) -> int:
    """Return how many labels have logits and gradient (B,), operand and gradient (H,) in `chunk_bytes` bytes."""
    a_label = B * (4 + (2 if bfloat16 else 4)) + H * (4 + 2 * bfloat16)
    return max(chunk_bytes // a_label // ALIGNMENT * ALIGNMENT, ALIGNMENT)


def part_of(layer: Layer, start: int, stop: int) -> Layer:
    """Return the outputs [start, stop) of a layer; slots of one element stay as they are."""
    return type(layer)(*(part if part.shape[0] == 1 else part[start:stop] for part in layer))


def padded(n: int, to: int = ALIGNMENT) -> int:
    """Return the next multiple of `to`."""
    return -(-n // to) * to
