"""Hard negatives: labels that the current model gives the rows of a batch high scores, found through label clusters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xmlsgd.data.csr import CSR
from xmlsgd.data.random_streams import NEGATIVES
from xmlsgd.data.validation import Checked, at_least, check_instance, within
from xmlsgd.nn.samplers import Batch, Sampler

from .lsh import Refresh, Turns


@dataclass(frozen=True)
class HardNegatives(Checked, Sampler):
    """The true labels of the batch, and `negatives` more that its rows share, some of them hard, the others drawn.

    Labels with similar output weights are clustered, at most `cluster` of them together; the clusters whose mean has
    the highest score on some row of the batch take part, until their labels are the share `hard` in [0, 1] of the
    negatives. refresh : when clusters are made anew from the current weights.
    """

    negatives: int = at_least(1024, 0)
    hard: float = within(0.5, 0, 1)
    cluster: int = at_least(16, 1)
    refresh: Refresh = field(default_factory=Refresh)

    def __post_init__(self) -> None:
        """Raise `DataError` for a field of the wrong kind, or a number outside its range."""
        super().__post_init__()
        check_instance("refresh", self.refresh, Refresh, "Refresh(50)", or_none=False)

    def begin(self, Y: CSR, seed: int) -> Clusters:
        """Return the sampler of a learner, without clusters."""
        return Clusters(self, seed)


class Clusters(Sampler):
    """The label clusters of one learner.

    members int32 (C, size), filled up with -1; W float32 (C, H) and b (C,), means of the weights of their labels.
    """

    def __init__(self, settings: HardNegatives, seed: int) -> None:
        self.settings, self.seed, self.turns = settings, seed, Turns(settings.refresh)

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Return true labels, hard ones and drawn ones; clusters are made before, where that is due."""
        if self.turns.due():
            self.renew(batch.device.to_host(batch.output.W), batch.device.to_host(batch.output.b))
        n_hard = round(self.settings.hard * self.settings.negatives)
        hard = self.hardest(batch.device.to_host(batch.A), n_hard)
        rng = np.random.default_rng((batch.seed, NEGATIVES))
        drawn = rng.integers(batch.Y.n_cols, size=self.settings.negatives - n_hard)
        return batch.with_true(np.concatenate([hard, drawn]))

    def renew(self, W: np.ndarray, b: np.ndarray) -> None:
        """Cluster labels by their weights W float32 (L, H) and note the means; b float32 (L,)."""
        rng = np.random.default_rng((self.seed, NEGATIVES))
        self.members = balanced_clusters(W, self.settings.cluster, rng)
        known = self.members >= 0
        counts = known.sum(axis=1).astype(np.float32)
        self.W = np.einsum("csh,cs->ch", W[self.members], known.astype(np.float32)) / np.maximum(counts, 1)[:, None]
        self.b = np.where(counts > 0, (b[self.members] * known).sum(axis=1) / np.maximum(counts, 1), -np.inf)

    def hardest(self, A: np.ndarray, wanted: int) -> np.ndarray:
        """Return the labels of the clusters with the highest scores on a row of A float32 (B, H), at most `wanted`."""
        highest = (A @ self.W.T + self.b).max(axis=0)
        labels = self.members[np.argsort(-highest, kind="stable")].ravel()
        return labels[labels >= 0][:wanted]


def balanced_clusters(V: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of V float32 (n, H) in clusters of at most `size`, int32 (2^depth, size'), filled up with -1.

    All clusters are halved again and again, at the median along the line through two rows that are drawn from each: a
    tree of random projections (Dasgupta and Freund 2008), without a pass over the data a cluster.
    """
    depth = max(int(np.ceil(np.log2(max(len(V) / size, 1)))), 0)
    width = -(-len(V) // (1 << depth))
    order = np.full((1, width << depth), -1, np.int32)
    order[0, : len(V)] = rng.permutation(len(V))
    for _ in range(depth):
        n, half = len(order), order.shape[1] // 2
        first, second = order[:, 0], order[:, rng.integers(1, max(half, 2))]
        lines = V[first] - V[second]
        places = np.einsum("nwh,nh->nw", V[order], lines)
        places[order < 0] = np.inf
        order = np.take_along_axis(order, np.argsort(places, axis=1), axis=1).reshape(2 * n, half)
        order = rng.permuted(order, axis=1)
    return order
