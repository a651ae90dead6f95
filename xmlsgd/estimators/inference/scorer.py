"""Score labels with a network, a block of rows at a time: the best labels, or all logits; and check the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from ...data.csr import CSR, Dataset
from ...data.label_names import columns_by_name
from ...data.validation import FLOAT32_MAX, as_vector, check_no_index, check_unmasked
from ...devices.base import Layer
from ...devices.compact import CompactLayer, widened
from ...errors import DataError, MemoryEstimateError, ModelFileError, shorten
from ...metrics import precision_at_k
from ...nn.network import Network
from .compact import CompactParams

# Layers with at most this many weights are multiplied in float64, so that scores do not depend on the other rows: BLAS
# sums one row in another order than many rows.
SMALL_LAYER = 1 << 20
# Labels per row that are reweighted; half of the candidates. With inverse propensities as weights, PSP@1/3/5 of the
# artworks is 36.82/39.03/40.02 with 8, 37.61/40.73/42.17 with 16, 37.70/40.91/42.68 with 32, and 37.70/40.91/42.67 with
# 64, in four times the time.
N_REWEIGHTED = 32
# The largest k for which the network's best labels are searched to fill up candidates: the search inserts into a sorted
# list of 2 k. For larger k, all labels are scored.
FILLED_K = 256
ROW_BLOCK_BYTES = 64 << 20  # most memory for the results of a block of rows
DENSE_LIMIT = 1 << 30  # most bytes of a dense (n, L) result; a larger one is refused in favor of `predict_topk`
LARGE_VALUE = 1e6  # a feature with a larger value may be the reason if a score is not finite


class Ranker(Protocol):
    """The interface of objects that rank labels: scorers, their means, and rankers that weight or exclude labels."""

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels, int32 (n, k), and their scores, float32 (n, k); only of `columns` if given."""


@dataclass(eq=False)
class Scorer:
    """Ranks labels by the logits of a network.

    Parameters
    ----------
    network : Network
        Shape of the network.
    params : ndarray of float32 (n_params,) or CompactParams
        Parameters of the network.
    device : Device
        Device that computes the scores, such as `CPU()`.

    Raises
    ------
    DataError
        If the parameters do not fit the network. `top_k` and `logits` raise it if the number of features does not.
    """

    network: Network
    params: np.ndarray | CompactParams
    device: Any

    # Least labels per row that each model ranks if the scores of several are averaged. Without candidates and with one
    # class per row, the best class was wrong in 8 of 100 rows with 2 labels, in one with 8, and in none with 32.
    min_k: ClassVar[int] = 32

    def __post_init__(self) -> None:
        shape = self.params.shape if isinstance(self.params, np.ndarray) else (self.params.layout.size,)
        if shape != (self.network.layout.size,):
            raise DataError(f"params: must be the network's, of shape ({self.network.layout.size},), got {shape}")

    @property
    def max_k(self) -> int:
        """Return the largest k for which `top_k` need not compute the full scores of all labels."""
        return self.network.n_labels

    @property
    def n_reweighted(self) -> int:
        """Return how many labels per row can be ranked, in order to reweight them, in hardly more time than one."""
        return min(N_REWEIGHTED, self.max_k)

    def layers(self) -> list[Any]:
        """Return the layers in the memory of the device; they are copied there at each call if that is its own."""
        if not self.device.memory:
            return self.host_layers
        flat = self.params.expanded() if isinstance(self.params, CompactParams) else self.params
        none = self.device.to_device(np.zeros((1, 1), np.float32))
        return self.network.layers(self.device.to_device(flat), none=none)

    @cached_property
    def host_layers(self) -> list[Any]:
        """The layers in the memory of the process, as arrays that kernels accept."""
        from ...devices.cpu.compiling import for_kernels  # here, so that creating an estimator does not import Numba

        if isinstance(self.params, CompactParams):
            return [type(layer)(*map(for_kernels, layer)) for layer in self.params.layers()]
        return self.network.layers(for_kernels(self.params))

    @property
    def output(self) -> Layer | CompactLayer:
        """Return the output layer in the memory of the process."""
        return self.host_layers[-1]

    def top_k(self, X: CSR, k: int, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k >= 1 labels, int32 (n, k), and their scores, float32 (n, k); padded with -1 and -inf.

        columns : the labels to rank, int (m,); None for all.
        """
        if k < 1:
            raise DataError(f"k: must be at least 1, got {k}")
        return self._best_logits(X, k, columns)

    def _best_logits(
        self, X: CSR, k: int, columns: np.ndarray | None = None, floor: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the best k labels and their logits as `top_k` does; floor : as of `Device.top_k`, float32 (n,)."""
        self._check_rows(X)
        network, device, layers = self.network, self.device, self.layers()
        output = layers[-1]
        labels, scores = np.full((X.n_rows, k), -1, np.int32), np.full((X.n_rows, k), -np.inf, np.float32)
        with device.start():
            if columns is not None:
                columns = np.unique(columns).astype(np.int32)
                output = device.take(output, columns)
            for rows in row_ranges(X.n_rows, max(network.hidden)):
                A = self._hidden(X, rows, layers)
                labels[rows], scores[rows] = device.top_k(A, output, k, None if floor is None else floor[rows])
        if columns is not None:
            labels = np.where(labels >= 0, columns[labels], -1).astype(np.int32)
        return labels, scores

    def logits(self, X: CSR, columns: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of row indices and their logits (rows, L), or (rows, m) for m columns."""
        self._check_rows(X)
        product = product_with(self.output, columns)
        n_columns = self.network.n_labels if columns is None else len(columns)
        for rows, A in self.activations(X, n_columns):
            with np.errstate(invalid="ignore", over="ignore"):  # `check_finite` raises an error instead
                Z = product(A)
            yield rows, Z

    def _hidden(self, X: CSR, rows: np.ndarray, layers: list[Any]) -> Any:
        """Return the last hidden activations of consecutive rows.

        The device gets a matrix of only these rows: a GPU may keep a copy of a larger one, which the caller may change.
        """
        part = X.span(int(rows[0]), int(rows[-1]) + 1)
        return self.network.hidden_activations(self.device, layers, part, np.arange(len(rows)))

    def _check_rows(self, X: CSR) -> None:
        """Raise `DataError` for a wrong number of features, with which kernels would read beyond the weights."""
        if X.n_cols != self.network.n_features:
            raise DataError(f"X: must have the {self.network.n_features} features of the network, got {X.n_cols}")

    def activations(self, X: CSR, width: int = 1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of row indices and their last hidden activations (rows, H).

        width : floats that the caller computes per row, which the size of the blocks takes into account.
        """
        device, layers = self.device, self.layers()
        for rows in row_ranges(X.n_rows, max(width, *self.network.hidden)):
            with device.start():
                A = device.to_host(self._hidden(X, rows, layers))
            yield rows, A


@dataclass(eq=False)
class Measure:
    """Measures P@1, P@3 and P@5 in percent on validation rows; call it with parameters, float32 (n_params,).

    Parameters
    ----------
    rows : Dataset
        The rows.
    network : Network
        Shape of the network.
    device : Device
        Device that computes the scores, such as `CPU()`.
    """

    rows: Dataset
    network: Network
    device: Any

    def __call__(self, flat: np.ndarray) -> dict[str, float]:
        """Measure the model `flat`, float32 (n_params,)."""
        labels, _ = Scorer(self.network, flat, self.device).top_k(self.rows.X, 5)
        values = 100 * precision_at_k(self.rows.Y, labels, 5)
        return {f"P@{k}": float(values[k - 1]) for k in (1, 3, 5)}


def some_rows(X: CSR) -> list[CSR]:
    """Return the first row, and the first 16: devices have different kernels for few and for many rows."""
    return [X.span(0, min(n_rows, X.n_rows)) for n_rows in (1, 16)]


def weight_rows(layer: Layer | CompactLayer, rows: Any) -> np.ndarray:
    """Return rows of the weights of a layer, given by a slice or their numbers, float32."""
    return widened(layer, rows) if isinstance(layer, CompactLayer) else layer.W[rows]


def product_with(layer: Layer | CompactLayer, columns: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that computes A W^T + b (rows, L), or some columns; compact weights are expanded in parts."""
    b = layer.b if columns is None else layer.b[columns]
    n, width = len(b), layer.W.shape[1]
    is_small = n * width <= SMALL_LAYER
    size = max(SMALL_LAYER // width, 1) if isinstance(layer, CompactLayer) and not is_small else n

    def product(A: np.ndarray) -> np.ndarray:
        Z = np.empty((len(A), n), np.float64 if is_small else np.float32)
        for part in (slice(first, first + size) for first in range(0, n, size)):
            W = weight_rows(layer, part if columns is None else columns[part])
            np.matmul(A, W.T.astype(Z.dtype, copy=False), out=Z[:, part])
        Z += b
        return Z

    return product


def row_ranges(n_rows: int, width: int) -> list[np.ndarray]:
    """Return the row indices of blocks; `width` floats per row of a block take at most 64 MB."""
    size = max(ROW_BLOCK_BYTES // (4 * width), 1)
    return [np.arange(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def check_finite(scores: np.ndarray, X: CSR, rows: np.ndarray | None = None, counted: np.ndarray | None = None) -> None:
    """Raise an error unless scores (n, m) are finite in float32.

    The error is a `DataError` if the row has values too large to multiply, else a `ModelFileError`, as training never
    leaves such a model. rows : the rows of X that were scored; None for all. counted : bool (n, m), which scores to
    check; None for all.
    """
    if scores.max(initial=0) <= FLOAT32_MAX and scores.min(initial=0) >= -FLOAT32_MAX:
        return
    bad = ~(np.abs(scores) <= FLOAT32_MAX) & (True if counted is None else counted)
    if not bad.any():
        return
    row = int(bad.any(axis=1).argmax())
    row = row if rows is None else int(rows[row])
    features, values = X.row(row)
    if np.abs(values).max(initial=0) > LARGE_VALUE:
        largest = features[np.abs(values).argmax()]  # not the value, which may be damped
        text = f"X: row {row}: scores must be finite, got too large a value in column {largest}"
        raise DataError(f"{text}; scale X as for training")
    raise ModelFileError("the model's folder is damaged: its scores are not finite; copy it again")


def columns_of(labels: Any, fitted: Any, name: str = "labels") -> np.ndarray:
    """Return the columns of labels, int32 (m,), checked; `labels` are columns, or names that are strings.

    fitted : the `FittedModel` of which they are labels.
    """
    if isinstance(labels, list | tuple | np.ndarray) and all(isinstance(label, str) for label in labels):
        columns = columns_by_name(fitted.classes.tolist(), labels, name, "pass column numbers")
        unknown = [label for label in labels if label not in columns]
        if unknown:
            raise DataError(f"{name}: must be of classes_, got {shorten(unknown[0])}")
        labels = [columns[label] for label in labels]
    check_unmasked(labels, name)
    numbers, n_labels = np.asarray(labels), fitted.network.n_labels
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) == 0:
        wanted = "must be a list of column numbers, or of names that are strings"
        raise DataError(f"{name}: {wanted}, got {shorten(labels)}")
    bad = numbers[(numbers < 0) | (numbers >= n_labels)]
    if len(bad):
        raise DataError(f"{name}: must be columns in [0, {n_labels}), got {bad[0]}")
    return numbers.astype(np.int32, copy=False)  # the type that kernels are compiled for


def checked_weight(weight: Any, n_labels: int) -> np.ndarray:
    """Return the weights of labels as float64 (L,), checked."""
    check_no_index(weight, "label_weight", "series[model.classes_].tolist()")
    checked = as_vector(weight, n_labels, "label_weight")
    bad = np.flatnonzero(~((checked > 0) & np.isfinite(checked)))
    if len(bad):
        got = f"got {checked[bad[0]]} for label {bad[0]}"
        raise DataError(f"label_weight: must be finite and above 0, {got}; exclude=[{bad[0]}] leaves a label out")
    return checked


def check_dense(n_rows: int, n_labels: int, size: int) -> None:
    """Raise `MemoryEstimateError` for a dense result (n_rows, n_labels) above `DENSE_LIMIT`; size : bytes per entry."""
    needed = n_rows * n_labels * size
    if needed > DENSE_LIMIT:
        raise MemoryEstimateError(
            f"a dense answer of {n_rows} rows and {n_labels} labels needs {needed / 1e9:.1f} GB, more than "
            f"{DENSE_LIMIT / 1e9:.1f} GB; use predict_topk, or fewer rows at a time"
        )
