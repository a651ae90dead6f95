"""Blocks of rows: what is scored at once."""

from __future__ import annotations

import numpy as np

ROW_BLOCK_BYTES = 64 << 20  # of what is computed of a block


def row_blocks(n_rows: int, width: int) -> list[np.ndarray]:
    """Return the row numbers of blocks of which `width` floats a row take at most 64 MB."""
    size = max(ROW_BLOCK_BYTES // (4 * width), 1)
    return [np.arange(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
