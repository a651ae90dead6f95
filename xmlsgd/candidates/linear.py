"""Linear classifiers: a one-vs-rest SVM for each label, trained on its rows, hard negatives and random negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..data.csr import CSR, pointers
from ..devices.cpu import CPU
from ..devices.cpu.compiling import for_kernels
from ..devices.cpu.intrinsics.llvm import CACHE_LINE
from ..devices.cpu.kernels.copying import copy_spans
from ..devices.cpu.kernels.linear_margins import SLOTS, hash_weights, margins
from ..devices.cpu.kernels.linear_pairs import count_drawn, count_pairs, write_drawn, write_pairs
from ..devices.cpu.kernels.linear_training import solve
from ..devices.cpu.kernels.logits import ONE_SCALE
from .knn import check_sound
from .splicing import with_replaced

COST = 1.0  # cost of the squared hinge loss, C of LIBLINEAR, unless `choose_cost_and_features` chooses another
TOLERANCE = 0.1  # training of a label stops when the largest step of a pass is smaller
# Passes over the rows of a label: PASSES from weights 0; MORE_PASSES from the solution without held-out rows; and
# TRIAL_PASSES if only held-out rows are scored (docs/decisions/stacking.md).
PASSES, MORE_PASSES, TRIAL_PASSES = 10, 4, 6
MIN_WEIGHT = 0.05  # smaller weights are dropped, which are half of all, without a difference in P@k
SLOTS_PER_WEIGHT = 2  # size of a hash table (docs/decisions/prediction.md)
LABELS = 1 << 12  # labels that are calibrated at a time
# Labels are solved in at least CHUNKS calls of a kernel, each of at most CHUNK entries of their pairs. A call keeps the
# threads that it begins with; only the next one also uses threads that the network has left meanwhile.
CHUNKS, CHUNK = 8, 1 << 23
# Limit of the number of weights, per stored feature of the rows, and its minimum (512 MB): labels with few rows have
# weights for nearly every feature of these, most of which add little.
WEIGHTS_PER_ENTRY, MIN_LIMIT = 2, 1 << 26
# Most random negatives of a label. In all there are at most RANDOM_SHARE of the other pairs, or MIN_RANDOM if more.
RANDOM_NEGATIVES, RANDOM_SHARE, MIN_RANDOM = 64, 1 / 16, 1 << 18
MARGIN_WITHOUT_ROWS = np.float32(-1)  # margin of a label without rows
# Resistance of bias and weights to new rows, for each row that the label had before (docs/decisions/stacking.md).
STIFFNESS = np.float32([10, 3])
LEAST_FACTOR = np.float32(1e-3)  # least factor of a calibration that is inverted

FactorAndShift = tuple[np.ndarray, np.ndarray]  # of each label's margin (`MarginCalibration.factor_and_shift`)


class Tables(NamedTuple):
    """Weights by label, for the kernel `margins`: hash tables, or a dense matrix if that is no larger.

    starts int (L + 1,) : the first bucket of each label. keys int : feature + 1, or 0 for a free slot. values : float32
    are a view of the memory of `keys`, in which eight keys and their eight values alternate; int8 are an array of their
    own. scales float32 : one per label, or one for all. A dense matrix is `values` (L * F,), without starts and keys.
    """

    starts: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    scales: np.ndarray = ONE_SCALE


class LinearPredictor:
    """Linear classifiers for prediction: weights as `tables`, and `bias`, float32 (L,)."""

    bias: np.ndarray
    tables: Tables

    def margins(self, X: CSR, labels: np.ndarray, device: CPU) -> np.ndarray:
        """Return the margins, float32 (n, M), of rows of norm 1 and their labels, int32 (n, M); -1 for label -1."""
        out, sound = np.empty(labels.shape, np.float32), np.empty(len(labels), np.bool_)
        device.run(margins, X.indptr, X.indices, X.data, labels, *self.tables, self.bias, out, sound)
        check_sound(sound)
        return out


@dataclass(frozen=True, eq=False)
class LinearClassifiers(LinearPredictor):
    """Trained classifiers. weights : CSR (L, F). bias : float32 (L,). cost : cost of the hinge loss."""

    weights: CSR
    bias: np.ndarray
    cost: float

    @classmethod
    def fit_and_score(
        cls, pairs: Pairs, cost: float, held_out: HeldOutLabels, device: CPU
    ) -> tuple[LinearClassifiers, np.ndarray]:
        """Train on all pairs; return the classifiers, and out-of-fold margins of held-out rows, float32 (h, m).

        Margins of a fold are those of classifiers that have not learned its rows; NaN if a row and a label are no pair,
        or if all rows of a label are in the fold. A fold should have at most a tenth of the rows.
        """
        found, margins = _train(pairs, _from_zero(pairs, cost), max_weights(pairs.X), device, held_out)
        return replace(found, bias=np.where(np.diff(pairs.starts) > 0, found.bias, MARGIN_WITHOUT_ROWS)), margins

    def with_rows(
        self, pairs: Pairs, frequency: np.ndarray, calibrations: Sequence[FactorAndShift], device: CPU
    ) -> LinearClassifiers:
        """Return classifiers that have also learned these rows, which may have new features and labels.

        A label starts from its weights. The more rows it had, the less it moves, as these rows are not seen again
        (elastic weight consolidation). New weights are only for features of the label's own rows. The device
        must have been started.

        Parameters
        ----------
        pairs
            The rows, and the labels that learn each.
        frequency
            Number of rows that each label had before, float32 (L,).
        calibrations
            `FactorAndShift` of the margins of all labels, before and after.
        """
        n_known, n_labels = len(self.bias), len(pairs.starts) - 1
        touched = np.flatnonzero(np.diff(pairs.starts))
        known = touched[touched < n_known]
        (factor, shift), after = calibrations
        factor = np.maximum(factor, LEAST_FACTOR)
        sizes, bias = np.zeros(n_labels, np.int64), np.zeros(n_labels, np.float32)
        weights = self.weights.take(known)
        sizes[known], bias[known] = np.diff(weights.indptr), (self.bias[known] - shift[known]) / factor[known]
        data = weights.data / np.repeat(factor, sizes)
        known_weights = CSR(pointers(sizes), weights.indices, data, pairs.X.n_cols)
        ease = 1 / np.sqrt(1 + np.outer(frequency, STIFFNESS))
        start = InitialClassifiers(LinearClassifiers(known_weights, bias, self.cost), ease)
        moved, _ = _train(pairs, start, pairs.entries[-1] + weights.nnz, device)
        found = moved.calibrate_in_place(*after)
        bias = np.concatenate([self.bias, MARGIN_WITHOUT_ROWS * after[0][n_known:] + after[1][n_known:]])
        return LinearClassifiers(self.weights, bias, self.cost).with_labels(touched, found, device)

    def with_labels(self, labels: np.ndarray, found: LinearClassifiers, device: CPU) -> LinearClassifiers:
        """Return classifiers in which those of some labels are those in `found`; the device must be started."""
        bias = self.bias.copy()
        bias[labels] = found.bias[labels]
        weights = with_replaced(self.weights, labels, found.weights.take(labels), len(bias), device)
        return LinearClassifiers(weights, bias, self.cost)

    def calibrate_in_place(self, factor: np.ndarray, shift: np.ndarray) -> LinearClassifiers:
        """Return classifiers whose margins are factor[l] * margin + shift[l], float32 (L,).

        They take over the weights, scaled in place, as a copy might not fit memory: do not use this object again.
        """
        weights = self.weights
        for first in range(0, weights.n_rows, LABELS):
            part = slice(first, first + LABELS)
            span = slice(weights.indptr[first], weights.indptr[min(first + LABELS, weights.n_rows)])
            weights.data[span] *= np.repeat(factor[part], np.diff(weights.indptr[first : first + LABELS + 1]))
        return LinearClassifiers(weights, factor * self.bias + shift, self.cost)

    @cached_property
    def tables(self) -> Tables:  # type: ignore[override]
        """Return the weights as hash tables, which take twice their memory, or as a dense matrix."""
        return to_tables(self.weights, SLOTS_PER_WEIGHT, np.int32)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the tables, which are built again when needed."""
        return {"weights": self.weights, "bias": self.bias, "cost": self.cost}


def held_out_margins(pairs: Pairs, cost: float, held_out: HeldOutLabels, device: CPU, labels: np.ndarray) -> np.ndarray:
    """Return out-of-fold margins of held-out rows for some labels, float32 (h, m), after `TRIAL_PASSES` passes.

    NaN if a row and a label are no pair, and for labels other than `labels`.
    """
    return _train(pairs, _from_zero(pairs, cost), 0, device, held_out, scored_labels=labels)[1]


class InitialClassifiers(NamedTuple):
    """Where training starts.

    classifiers : the initial ones. ease : how freely their bias and weights move away from there, (L, 2); 1 if nothing
    was learned before.
    """

    classifiers: LinearClassifiers
    ease: np.ndarray


def _from_zero(pairs: Pairs, cost: float) -> InitialClassifiers:
    """Return classifiers without weights to start from."""
    n_labels = len(pairs.starts) - 1
    weights = CSR(np.zeros(n_labels + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), pairs.X.n_cols)
    bias, ease = np.zeros(n_labels, np.float32), np.ones((n_labels, 2), np.float32)
    return InitialClassifiers(LinearClassifiers(weights, bias, cost), ease)


def to_tables(weights: CSR, slots_per_weight: float, key_type: type) -> Tables:
    """Return weights, CSR (L, F), float32 or int8, as tables; each hash table has at least one free slot.

    key_type : of the keys of int8 weights; float32 ones have int32 keys.
    """
    kind = weights.data.dtype
    starts = pointers((slots_per_weight * np.diff(weights.indptr)).astype(np.int64) // SLOTS + 1)
    n_slots = SLOTS * int(starts[-1])
    if np.prod(weights.shape) <= 2 * n_slots:  # a slot has a key and a value, each at least as large as a cell
        return Tables(starts[:0], np.empty(0, key_type), weights.to_scipy().toarray().ravel())
    if kind == np.float32:  # with the keys of their bucket in a cache line
        keys = _cache_lines(starts[-1])
        values = keys.view(np.float32)
    else:
        keys, values = np.zeros(n_slots, key_type), np.zeros(n_slots, kind)
    hash_weights.alone(*map(for_kernels, (weights.indptr, weights.indices, weights.data)), starts, keys, values)
    return Tables(starts, keys, values)


def _cache_lines(n: int) -> np.ndarray:
    """Return int32 zeros, aligned to cache lines, that fill `n` of them."""
    size = CACHE_LINE // 4
    zeros = np.zeros((n + 1) * size, np.int32)
    first = -zeros.ctypes.data % CACHE_LINE // 4
    return zeros[first : first + n * size]


def max_weights(X: CSR) -> int:
    """Return the most weights that are learned from these rows."""
    return max(WEIGHTS_PER_ENTRY * X.nnz, MIN_LIMIT)


def _limited(
    found: tuple[np.ndarray, np.ndarray], room: np.ndarray, counts: np.ndarray, limit: int, device: CPU
) -> tuple[np.ndarray, np.ndarray]:
    """Return features and weights of all labels without gaps, and only the largest if there are more than `limit`.

    Label l has counts[l] weights in `found`, beginning at room[l]; `counts` is updated.
    """
    indptr = pointers(counts)
    features, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    device.run(copy_spans, room[:-1], counts, *found, indptr[:-1], features, weights)
    if indptr[-1] <= limit:
        return features, weights
    sizes = np.abs(weights)
    large = sizes > np.partition(sizes, -limit - 1)[-limit - 1]
    counts[:] = np.diff(pointers(large)[indptr])
    return features[large], weights[large]


class Pairs(NamedTuple):
    """The rows that the classifier of each label learns (`write_pairs`).

    X : rows of norm 1. weight : their sample weights, float32 (n,). rows : those of all labels, int32. starts : where
    those of each label begin in `rows`, int64 (L + 1,). entries : number of stored features of the rows of all labels
    before, int64 (L + 1,). all_features : whether a label may have weights for all features of these rows, not only for
    those of its own rows.
    """

    X: CSR
    weight: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    entries: np.ndarray
    all_features: bool = False


class HeldOutLabels(NamedTuple):
    """Held-out rows, and the labels of each that are scored.

    rows : intp (h,), ascending. labels : int32 (h, m), -1 for none. fold : number of each row's fold, whose rows are
    left out together, int32 (h,).
    """

    rows: np.ndarray
    labels: np.ndarray
    fold: np.ndarray


NONE_HELD_OUT = HeldOutLabels(np.empty(0, np.intp), np.empty((0, 0), np.int32), np.empty(0, np.int32))


def _train(
    pairs: Pairs, start: InitialClassifiers, limit: int, device: CPU, held_out: HeldOutLabels = NONE_HELD_OUT,
    scored_labels: np.ndarray | None = None,
) -> tuple[LinearClassifiers, np.ndarray]:  # fmt: skip
    """Train the classifiers of all labels that have pairs; return them, and the margins of held-out rows.

    limit : the most weights that are kept. scored_labels : only score held-out rows by classifiers of these labels, and
    keep none: those returned mean nothing. None to train all labels.
    """
    X, starts, (initial, ease) = pairs.X, pairs.starts, start
    known, cost = initial.weights, initial.cost
    n_labels, bias = len(initial.bias), initial.bias.copy()
    is_trained = np.ones(n_labels, np.bool_) if scored_labels is None else np.isin(np.arange(n_labels), scored_labels)
    entries = pointers(np.where(is_trained, np.diff(pairs.entries), 0))
    counts, learns_all = np.zeros(n_labels, np.int64), scored_labels is None
    margins = np.full(held_out.labels.shape, np.nan, np.float32)
    held_out_index = _held_out_index(held_out, X.n_rows)
    folds = np.full(len(held_out_index), -1, np.int32)
    folds[held_out.rows] = held_out.fold
    n_folds = int(held_out.fold.max(initial=-1)) + 1
    # The system allocates memory page by page as it is written; the unused rest is freed at the end.
    possible = entries + known.indptr  # at least as many as the weights of all labels before
    features, weights = (np.empty(min(limit, possible[-1]), kind) for kind in (np.int32, np.float32))
    first, n, chunk = 0, 0, min(entries[-1] // CHUNKS + 1, CHUNK)
    while first < n_labels:
        last = max(int(np.searchsorted(entries, entries[first] + chunk, side="right")) - 1, first + 1)
        labels, sizes = np.arange(first, last), np.diff(entries[first : last + 1])
        labels = labels[np.argsort(-sizes, kind="stable")]
        room = np.zeros(n_labels + 1, np.int64)
        room[first + 1 : last + 1] = np.cumsum(np.minimum(sizes + np.diff(known.indptr[first : last + 1]), X.n_cols))
        found = np.empty(room[last], np.int32), np.empty(room[last], np.float32)
        n_pairs = np.diff(starts[first : last + 1])
        device.run(
            solve, labels[is_trained[labels]], starts, pairs.rows, X.indptr, X.indices, X.data, pairs.weight,
            known.indptr, known.indices, known.data, ease, pairs.all_features, np.float32(cost), np.float32(TOLERANCE),
            PASSES if learns_all else TRIAL_PASSES, MORE_PASSES, learns_all, np.float32(MIN_WEIGHT), X.n_cols,
            int(n_pairs.max()), int((sizes + n_pairs).max()), room, *found, counts, bias, folds,
            n_folds, held_out_index, held_out.labels, margins,
        )  # fmt: skip
        share = limit * int(possible[last] - possible[first]) // max(int(possible[-1]), 1)
        kept = _limited(found, room[first : last + 1], counts[first:last], share, device)
        features[n : n + len(kept[0])], weights[n : n + len(kept[1])] = kept
        first, n = last, n + len(kept[0])
    features.resize(n, refcheck=False)
    weights.resize(n, refcheck=False)
    return LinearClassifiers(CSR(pointers(counts), features, weights, X.n_cols), bias, cost), margins


def with_random_negatives(pairs: Pairs, n_rows: int, device: CPU) -> Pairs:
    """Return the pairs with random negatives added to each label that has pairs, the same in each run.

    Hard negatives are similar to the label's own rows; random ones represent most rows. They are drawn from the first
    `n_rows` rows, but for those of weight 0.
    """
    n_draws = n_random_negatives(len(pairs.rows), np.count_nonzero(np.diff(pairs.starts)))
    counts, entries = np.zeros((2, len(pairs.starts) - 1), np.int64)
    chosen = pairs.starts, pairs.rows, pairs.weight[:n_rows]
    device.run(count_drawn, *chosen, pairs.X.indptr, n_draws, counts, entries)
    starts, entries = (pointers(np.diff(old) + new) for old, new in ((pairs.starts, counts), (pairs.entries, entries)))
    rows = np.empty(starts[-1], np.int32)
    device.run(write_drawn, *chosen, n_draws, starts, rows)
    return pairs._replace(rows=rows, starts=starts, entries=entries)


def n_random_negatives(n_pairs: int, n_labels: int) -> int:
    """Return the most random negatives per label if `n_labels` labels have `n_pairs` other pairs together."""
    return min(RANDOM_NEGATIVES, int(max(RANDOM_SHARE * n_pairs, MIN_RANDOM)) // max(n_labels, 1))


def find_pairs(
    X: CSR, Y: CSR, weight: np.ndarray, candidates: np.ndarray, device: CPU, held_out: HeldOutLabels = NONE_HELD_OUT
) -> Pairs:
    """Return the rows that the classifier of each label learns.

    A row is paired with its true labels and its candidates, int32 (n, M), in which its true labels become -1. A
    held-out row is paired with the labels that are scored for it instead of its candidates.
    """
    listed = candidates, _held_out_index(held_out, X.n_rows), held_out.labels.copy()
    counts = np.zeros((2, device.n_threads, Y.n_cols), np.int64)
    device.run(count_pairs, Y.indptr, Y.indices, *listed, weight, X.indptr, *counts)
    starts, entries = (pointers(each.sum(axis=0)) for each in counts)
    places = starts[:-1] + np.cumsum(counts[0], axis=0) - counts[0]
    rows = np.empty(starts[-1], np.int32)
    device.run(write_pairs, Y.indptr, Y.indices, *listed, weight, places, rows)
    return Pairs(X, weight, rows, starts, entries)


def _held_out_index(held_out: HeldOutLabels, n_rows: int) -> np.ndarray:
    """Return the number of each row among the held-out rows, int32 (n,), -1 for others; (0,) if none is held out."""
    held_out_index = np.full(n_rows if len(held_out.rows) else 0, -1, np.int32)
    held_out_index[held_out.rows] = np.arange(len(held_out.rows))
    return held_out_index
