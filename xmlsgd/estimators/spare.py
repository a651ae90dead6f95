"""Double buffering of `partial_fit`: the next model is written over the last but one, which nobody holds any more.

A model never changes, so each call needs a copy of it, which for a few rows takes longer than all the rest. The model
before differs from it only in the rows of its tensors that the last call has trained: copying these is enough.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..nn.samplers import Sampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..data.csr import CSR
    from ..nn.network import Network
    from ..nn.parameters import Layout
    from ..nn.samplers import Batch

FEW = 0.5  # share of the features, or labels, up to which copying only these is faster


class Spare:
    """Parameters and optimizer state of the model before another one, and the rows in which the two differ.

    params, state : float32, to be written over. rows : int (n,), by name of a tensor; other tensors may differ in all
    rows. A copy in another process has nothing.
    """

    def __init__(self, params: NDArray[np.float32], state: NDArray[np.float32], rows: dict[str, np.ndarray]) -> None:
        self._kept, self._rows = [(params, state)], rows

    def take(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Return the arrays for the caller to write, None where anybody else refers to them; only once."""
        try:
            found = [*self._kept.pop()]
        except IndexError:  # another model that goes on from the same one has them
            return None
        if not all(_is_alone(found, i) for i in range(len(found))):
            return None
        return found[0], found[1]

    def update(self, layout: Layout, source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
        """Copy what differs from `source`, the newer model's parameters or state, to the `target` that was taken."""
        views = layout.views(target)
        for name, tensor in layout.views(source).items():
            rows: Any = self._rows.get(name.partition(":")[0], slice(None))
            views[name][rows] = tensor[rows]

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": [], "_rows": {}}


def _references(arrays: list[Any], i: int) -> tuple[int, int]:
    """Return how many references there are to an array, and to the one whose memory it views."""
    return sys.getrefcount(arrays[i]), sys.getrefcount(arrays[i].base)


# Those of an array in a list alone, on this Python: newer ones count references on the stack in other ways.
_ALONE = _references([np.empty(2)[1:]], 0)


def _is_alone(arrays: list[Any], i: int) -> bool:
    """Return whether an array may be written, and nobody but the list can read it."""
    return bool(arrays[i].flags.writeable) and _references(arrays, i) == _ALONE


@dataclass(frozen=True)
class TrainedLabels(Sampler):
    """Another sampler, with a note of all labels that it has drawn; None among them stands for all."""

    sampler: Sampler
    drawn: list[np.ndarray | None] = field(default_factory=list)

    def begin(self, Y: CSR, seed: int) -> TrainedLabels:
        """Return the sampler of one learner, with the same notes."""
        return TrainedLabels(self.sampler.begin(Y, seed), self.drawn)

    def draw(self, batch: Batch) -> np.ndarray | None:
        """Return the labels of the other sampler."""
        labels = self.sampler.draw(batch)
        self.drawn.append(labels)
        return labels


def changed_rows(network: Network, X: CSR, drawn: list[np.ndarray | None]) -> dict[str, np.ndarray] | None:
    """Return the rows of W0 and of the output weights that training on X has changed; None where these are many.

    drawn : the labels of each batch, of `TrainedLabels`.
    """
    labels = [each for each in drawn if each is not None]
    if len(labels) < len(drawn):
        return None
    features, trained = np.unique(X.indices), np.unique(np.concatenate([np.empty(0, np.int32), *labels]))
    if len(features) > FEW * network.n_features or len(trained) > FEW * network.n_labels:
        return None
    return {"W0": features, f"W{len(network.hidden)}": trained}
