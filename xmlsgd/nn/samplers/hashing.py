"""Hash families for vectors: likely equal where the angle is small (SimHash), or where the same entries are large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...devices.cpu import CPU
from ...devices.cpu.kernels.lsh import dwta_codes

BIN_BITS = 3  # of a winner-take-all code: bins of eight columns, as SLIDE has them
BLOCK = 1 << 13  # rows hashed together
FOLD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: times it, keys are spread over their high bits


class Family(Protocol):
    """A hash family; `bits` are those of a code."""

    bits: int

    def codes(self, V: np.ndarray, device: CPU) -> np.ndarray:
        """Return the codes of the rows of V float32 (n, H), uint8 (n, N)."""
        ...


@dataclass(frozen=True, eq=False)
class SimHash:
    """Signs of projections (Charikar 2002): two vectors at an angle a have equal signs with probability 1 - a / pi.

    directions float32 (H, N) : a third of the entries of each are 1 or -1, the others 0, as in SLIDE.
    """

    directions: np.ndarray
    bits = 1

    @classmethod
    def make(cls, n_units: int, n_codes: int, rng: np.random.Generator) -> SimHash:
        """Return `n_codes` directions of `n_units`."""
        return cls(rng.choice([1, -1, 0, 0, 0, 0], (n_units, n_codes)).astype(np.float32))

    def codes(self, V: np.ndarray, device: CPU) -> np.ndarray:
        """Return the signs, 1 for those that are not negative."""
        return (V @ self.directions >= 0).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class DWTA:
    """Densified winner-take-all (Chen and Shrivastava 2018): the place of the largest entry among eight columns.

    bins int32 (N, 8) : columns, those of random permutations cut in pieces.
    """

    bins: np.ndarray
    bits = BIN_BITS

    @classmethod
    def make(cls, n_units: int, n_codes: int, rng: np.random.Generator) -> DWTA:
        """Return `n_codes` bins of `n_units` columns."""
        width = min(1 << BIN_BITS, n_units)
        a_round = n_units // width
        rounds = [rng.permutation(n_units)[: a_round * width].reshape(-1, width) for _ in range(-(-n_codes // a_round))]
        return cls(np.concatenate(rounds)[:n_codes].astype(np.int32))

    def codes(self, V: np.ndarray, device: CPU) -> np.ndarray:
        """Return the places, 0 where a row is all zeros."""
        codes = np.empty((len(V), len(self.bins)), np.uint8)
        device.run(dwta_codes, np.ascontiguousarray(V, np.float32), self.bins, codes)
        return codes


FAMILIES: dict[str, type[SimHash] | type[DWTA]] = {"simhash": SimHash, "dwta": DWTA}


def buckets(family: Family, V: np.ndarray, tables: int, width: int, device: CPU) -> np.ndarray:
    """Return the bucket of each row of V in each table, int32 (tables, n), below 2^width.

    A table has N / tables codes, written one after another; where that takes more than `width` bits they are folded.
    """
    out = np.empty((tables, len(V)), np.int32)
    for first in range(0, len(V), BLOCK):
        codes = family.codes(V[first : first + BLOCK], device)
        codes = codes.reshape(len(codes), tables, -1)
        keys = np.zeros(codes.shape[:2], np.uint64)
        for k in range(codes.shape[2]):
            keys = (keys << np.uint64(family.bits)) | codes[:, :, k]
        if codes.shape[2] * family.bits > width:
            keys = (keys * FOLD) >> np.uint64(64 - width)
        out[:, first : first + BLOCK] = keys.T
    return out
