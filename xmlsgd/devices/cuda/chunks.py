"""The output layer in chunks of labels: how many labels at a time, and the operands of their matrix products."""

from __future__ import annotations

from typing import Any

from ..base import Layer
from .runtime import THREADS, WARP, Runtime, Scalars, blocks_of

ALIGNMENT = 8  # operands of a row: 16 bytes of bfloat16, which tensor cores want
CACHE_BYTES = 64_000_000  # operands of a part of a product, for the level-2 cache: best on an H200
BLOCKS = 264  # of 128 x 128 results: two for each multiprocessor of an H200
LEAST_LABELS = 4096  # of a part of a sum
CHUNK_BYTES = 1 << 30  # a step of BCE on 1,024 rows and 670,000 labels takes five chunks: some fifty launches


class LabelChunks:
    """Operations on the output layer, in chunks of labels whose arrays take at most about `chunk_bytes`."""

    unit = ALIGNMENT  # chunks begin on multiples of it

    def __init__(self, runtime: Runtime, chunk_bytes: int) -> None:
        self.runtime, self.chunk_bytes = runtime, chunk_bytes

    def chunks(self, L: int, bytes_per_label: int) -> list[tuple[int, int]]:
        """Return (start, stop) of each chunk of L labels."""
        size = labels_per_chunk(bytes_per_label, self.chunk_bytes, self.unit)
        return [(start, min(start + size, L)) for start in range(0, L, size)]

    def operand(self, name: str, matrix: Any) -> Any:
        """Return a float32 matrix as an operand of matrix products: itself, or its bfloat16 copy in buffer `name`.

        The copy is rounded to nearest and padded with columns of zeros to a multiple of `ALIGNMENT`. Its buffer has
        such a number of rows, too, the last ones undefined.
        """
        run, (n, H) = self.runtime, matrix.shape
        if not run.bfloat16:
            return matrix
        out = run.buffer(name, (round_up(n), round_up(H)), run.operand)[:n]
        run.launch("pack", blocks_of(n, THREADS // WARP), matrix, n, H, out.shape[1], out)
        return out

    def hidden_parts(self, B: int, H: int, n: int) -> Any:
        """Return a buffer for `add_hidden` (parts, B, H), for chunks of up to n labels."""
        return self.runtime.buffer("dA parts", (parts_of_sum(B, H, n), B, H))

    def add_hidden(self, G: Any, W: Any, parts: Any, begun: int) -> int:
        """Add G W, of the gradients G (B, n) and weights W (n, H) of a chunk, to `parts`, whose sum it is.

        The sum over the labels is long, the result small: one product would keep few of a GPU's multiprocessors busy,
        and cuBLAS does not split it well. `begun` parts have a value; return how many have one now.
        """
        n = G.shape[1]
        size = round_up(blocks_of(n, len(parts)), 64)
        count, old = blocks_of(n, size), min(begun, blocks_of(n, size))
        if old:
            self.runtime.gemm_parts(G[:, : old * size], W[: old * size], size, parts[:old], beta=1.0)
        if old < count:
            self.runtime.gemm_parts(G[:, old * size :], W[old * size :], size, parts[old:count])
        return max(begun, count)

    def multiply_into(self, W: Any, G: Any, A: Any, scalars: Scalars) -> None:
        """Write W (n, H) = alpha G^T A + beta W, of a chunk's gradients G (B, n) and the activations A (B, H)."""
        self.runtime.gemm_rows(G, A, labels_in_cache(*A.shape), W, scalars)


def labels_per_chunk(bytes_per_label: int, chunk_bytes: int, unit: int = ALIGNMENT) -> int:
    """Return how many labels fit, a multiple of `unit`, at least one."""
    return max(chunk_bytes // bytes_per_label // unit * unit, unit)


def label_bytes(B: int, H: int, bfloat16: bool) -> int:
    """Return the bytes of a label: logits and gradient (B,), weights as an operand and their gradient (H,)."""
    return B * (4 + (2 if bfloat16 else 4)) + H * (4 + 2 * bfloat16)


def parts_of_sum(B: int, H: int, n: int) -> int:
    """Return into how many parts to split a product (B, n) (n, H), to keep a GPU busy and its operands in the cache."""
    busy = min(BLOCKS // max(blocks_of(B, 128) * blocks_of(H, 128), 1), n // LEAST_LABELS)
    return max(busy, blocks_of(n, labels_in_cache(B, H)), 1)


def labels_in_cache(B: int, H: int) -> int:
    """Return how many labels' gradients (B,) and weights (H,) the level-2 cache holds, as bfloat16 operands."""
    return max(CACHE_BYTES // (2 * (B + H)) // 64, 1) * 64


def slice_layer(layer: Layer, start: int, stop: int) -> Layer:
    """Return the outputs [start, stop) of a layer; state arrays of one element stay as they are."""
    return type(layer)(*(array if array.shape[0] == 1 else array[start:stop] for array in layer))


def round_up(n: int, multiple: int = ALIGNMENT) -> int:
    """Return the next multiple of `multiple`."""
    return -(-n // multiple) * multiple
