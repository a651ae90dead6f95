"""SLIDE's sampler: labels whose weights hash to the bucket of a row's activations (Chen et al. 2020, MLSys).

Tables of labels, keyed by locality-sensitive hashes of their output weights, are asked with the last hidden activations
of each row: labels with large inner products come up most often. In SLIDE each row trains labels of its own; here the
rows of a batch share theirs, so all of them train the union.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from xmlsgd.data.csr import CSR
from xmlsgd.data.random_streams import NEGATIVES
from xmlsgd.data.validation import Checked, at_least, check_choice, check_instance, ranged
from xmlsgd.devices.cpu import CPU, cpu_of
from xmlsgd.errors import DataError, shorten
from xmlsgd.nn.samplers import Batch, Sampler

from .lsh_kernels import dwta_codes, fill_tables, retrieve

BIN_BITS = 3  # of a winner-take-all code: bins of eight columns, as SLIDE has them
BLOCK = 1 << 13  # rows hashed together
FOLD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: times it, keys are spread over their high bits
RULES = ("reservoir", "fifo")
MOST_BITS = 18  # of a bucket's number, as in SLIDE


class Family(Protocol):
    """A hash family; `bits` are those of a code."""

    bits: int

    def codes(self, V: np.ndarray, device: CPU) -> np.ndarray:
        """Return the codes of the rows of V float32 (n, H), uint8 (n, N)."""


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


@dataclass(frozen=True)
class Refresh(Checked):
    """Refresh number t, from 1, comes after sum_{i < t} first e^(growth i) batches (Chen et al. 2020, section 4.2).

    An index of the labels is made anew often in the beginning, when weights move fast, ever more seldom later.
    first : batches before the first one, at least 1. growth : finite, at least 0.
    """

    first: int = at_least(50, 1)
    growth: float = ranged(0.1, "finite and at least 0", lambda growth: 0 <= growth < math.inf)

    def batches(self, t: int) -> int:
        """Return how many batches lie before refresh number t, rounded."""
        rate = math.expm1(self.growth)
        return round(self.first * (math.expm1(self.growth * t) / rate if rate else t))


class Turns:
    """Counts the batches of a learner and says before which of them a refresh is due; before the first one is."""

    def __init__(self, refresh: Refresh) -> None:
        self._refresh, self._batches, self._refreshes = refresh, 0, 0

    def due(self) -> bool:
        """Count a batch; return whether a refresh goes before it."""
        due = self._batches >= self._refresh.batches(self._refreshes)
        self._batches += 1
        self._refreshes += due
        return due


@dataclass(frozen=True)
class LSH(Checked, Sampler):
    """The true labels of the batch, and for each row up to `per_row` labels from the buckets of its activations.

    family : "simhash" or "dwta". hashes : K, codes of a table's key. tables : how many. capacity : labels of a bucket
    at most; `rule` says which: "reservoir" for an even sample, "fifo" for those rehashed last. frequent : take the
    labels that most tables name, in place of those of the first tables asked (SLIDE's top-k and vanilla sampling).
    negatives : of a batch at least; where fewer are found, others are drawn evenly, as in SLIDE. refresh : when
    labels are rehashed; only those that this learner trained since the last time are.
    """

    family: str = "simhash"
    hashes: int = at_least(9, 1)
    tables: int = at_least(50, 1)
    per_row: int = at_least(32, 1)
    capacity: int = at_least(128, 1)
    rule: str = "reservoir"
    frequent: bool = False
    negatives: int = at_least(1024, 0)
    refresh: Refresh = field(default_factory=Refresh)

    def __post_init__(self) -> None:
        """Raise `DataError` for a field of the wrong kind, a name that is none, or a number below its least."""
        super().__post_init__()
        check_instance("refresh", self.refresh, Refresh, "Refresh(50)", or_none=False)
        for name, known in (("family", tuple(FAMILIES)), ("rule", RULES)):
            check_choice(name, getattr(self, name), known)
        most = 64 // FAMILIES[self.family].bits
        if self.hashes > most:
            raise DataError(f"hashes must be at most {most} for {self.family}, got {shorten(self.hashes)}")

    def begin(self, Y: CSR, seed: int) -> Tables:
        """Return the sampler of a learner, with empty tables."""
        return Tables(self, Y.n_cols, seed)


class Tables(Sampler):
    """The tables of one learner.

    buckets int32 (T, L) : each label's. starts, members : labels by bucket, see `fill_tables`. sequence int32 (L,) :
    the labels in the order in which they were hashed last.
    """

    def __init__(self, settings: LSH, n_labels: int, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.device: CPU | None = None  # that hashes, from the first batch on
        self.turns, self.changed = Turns(settings.refresh), np.ones(n_labels, bool)
        self.width = min(settings.hashes * FAMILIES[settings.family].bits, MOST_BITS)
        self.sequence = np.random.default_rng((seed, NEGATIVES)).permutation(n_labels).astype(np.int32)
        self.buckets = np.zeros((settings.tables, n_labels), np.int32)
        self.members = np.empty_like(self.buckets)
        self.starts = np.empty((settings.tables, (1 << self.width) + 1), np.int32)

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Return the true labels and those found, rehashing first where that is due."""
        if self.device is None:
            self.device = cpu_of(batch.device, 1)
        device = self.device
        if self.turns.due():
            self.rehash(batch.device.to_host(batch.output.W), device)
        found = self.find(batch.device.to_host(batch.A), device, batch.seed)
        found = np.setdiff1d(found[found >= 0], batch.true())
        missing = max(self.settings.negatives - len(found), 0)
        rng = np.random.default_rng((batch.seed, NEGATIVES))
        drawn = batch.with_true(np.concatenate([found, rng.integers(batch.Y.n_cols, size=missing)]))
        self.changed[slice(None) if drawn is None else drawn] = True
        return drawn

    def rehash(self, W: np.ndarray, device: CPU) -> None:
        """Put the labels whose weights changed into the buckets where they belong now; W float32 (L, H)."""
        chosen = self.settings
        if not hasattr(self, "family"):
            rng = np.random.default_rng((self.seed, NEGATIVES, W.shape[1]))
            self.family = FAMILIES[chosen.family].make(W.shape[1], chosen.hashes * chosen.tables, rng)
        anew = self.sequence[self.changed[self.sequence]]
        self.sequence = np.concatenate([self.sequence[~self.changed[self.sequence]], anew])
        self.buckets[:, anew] = buckets(self.family, W[anew], chosen.tables, self.width, device)
        self.changed[:] = False
        reservoir = chosen.rule == "reservoir"
        device.run(
            fill_tables, self.buckets, self.sequence, chosen.capacity, reservoir, self.seed, self.starts, self.members
        )

    def find(self, A: np.ndarray, device: CPU, seed: int) -> np.ndarray:
        """Return the labels found for each row of A float32 (B, H), int32 (B, per_row), filled up with -1."""
        chosen, found = self.settings, np.empty((len(A), self.settings.per_row), np.int32)
        asked = buckets(self.family, A, chosen.tables, self.width, device)
        n_labels = len(self.sequence)
        device.run(
            retrieve, asked, self.starts, self.members, n_labels, chosen.frequent, seed & 0x7FFFFFFF,
            device.n_threads, found,
        )  # fmt: skip
        return found
