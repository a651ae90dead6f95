"""Combiners: make one array of the replicas of a parameter slice, and the weights of the replicas (`combine=`).

A combiner is a function `(params, weights)` in `COMBINERS`. It returns the combined array, by which an outer optimizer
moves the center. The weights sum to about 1. A combiner

- returns a new array of the shape of the center, which the outer optimizer may overwrite: never `params.center` itself;
- may overwrite the replicas, which become copies of the new center afterwards, but not the center;
- also gets workers that did nothing since their last merge, as at the end of an epoch; their weight is 0;
- computes with operators, ufuncs and NumPy functions of arrays, so that CuPy can run it on a GPU. A list of arrays has
  to be stacked first: `np.median(np.stack([*params.replicas.values()]), axis=0)`.

Use AdaSum if rows of the output layer are trained by few of the replicas, as those of rare labels: a plain mean would
divide their progress by the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import DataError, shorten
from ..training.merging import ParameterSlice
from .rounds import LocalWork


def equal(work: Mapping[int, LocalWork]) -> dict[int, float]:
    """Return equal weights."""
    return dict.fromkeys(work, 1 / len(work))


def by_updates(work: Mapping[int, LocalWork]) -> dict[int, float]:
    """Return each worker's share of the updates; if all made equally many, of the batch sizes (Adaptive SGD)."""
    counts = {w: done.updates for w, done in work.items()}
    if len(set(counts.values())) == 1:
        counts = {w: done.size for w, done in work.items()}
    return shares(counts)


def by_rows(work: Mapping[int, LocalWork]) -> dict[int, float]:
    """Return each worker's share of the rows trained."""
    return shares({w: done.rows for w, done in work.items()})


def shares(counts: Mapping[int, float]) -> dict[int, float]:
    """Return counts divided by their sum; equal shares if all are 0."""
    total = sum(counts.values())
    return {w: count / total for w, count in counts.items()} if total else dict.fromkeys(counts, 1 / len(counts))


def adasum(params: ParameterSlice, weights: Mapping[int, float]) -> np.ndarray:
    """Return the center plus AdaSum of the differences, row by row (Maleki et al. 2020).

    Orthogonal differences are added, parallel ones averaged. Workers are combined in pairs, in their order. A single
    worker's replica is returned to the bit. The replicas are overwritten.
    """
    if len(params.replicas) == 1:
        return next(iter(params.replicas.values())).copy()
    changes = list(params.replicas.values())
    for change in changes:
        change -= params.center
    while len(changes) > 1:
        pairs = [changes[i : i + 2] for i in range(0, len(changes), 2)]
        changes = [pair[0] if len(pair) == 1 else _adasum_pair(*pair) for pair in pairs]
    changes[0] += params.center
    return changes[0]


def _adasum_pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return (1 - a.b / 2 a.a) a + (1 - a.b / 2 b.b) b for each row, in `a`; `b` is overwritten."""
    dot = np.einsum("ij,ij->i", a, b)[:, None]
    tiny = np.finfo(np.float32).tiny
    aa, bb = (np.maximum(np.einsum("ij,ij->i", v, v), tiny)[:, None] for v in (a, b))
    a *= 1 - dot / (2 * aa)
    b *= 1 - dot / (2 * bb)
    a += b
    return a


def move_to_mean(weights: Mapping[int, float]) -> Callable[[ParameterSlice], None]:
    """Return the function that sets the center to the weighted mean of the replicas."""

    def move(params: ParameterSlice) -> None:
        params.center[:] = params.weighted_sum(weights)

    return move


Combiner = Callable[[ParameterSlice, Mapping[int, float]], np.ndarray]
COMBINERS: dict[str, Combiner] = {"mean": ParameterSlice.weighted_sum, "adasum": adasum}


def combined(name: str, params: ParameterSlice, weights: Mapping[int, float]) -> np.ndarray:
    """Return what the combiner `name` makes of the replicas; raise `DataError` unless it is a new array."""
    found, center = COMBINERS[name](params, weights), params.center
    wanted = f"{center.dtype} {center.shape}"
    got = f"{found.dtype} {found.shape}" if hasattr(found, "shape") else shorten(found)
    if found is center:
        got = "params.center"
    if got != wanted:
        raise DataError(f"combine {name!r}: must return a new array, {wanted}, got {got}")
    return found
