"""The base class of devices: memory, and the operations of a sparse network on arrays in it.

`reference.py` defines every operation in plain NumPy; other devices compute the same numbers faster. A device is found
by its name: "cpu" is `xmlsgd.devices.cpu`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from ..data.csr import CSR
from ..nn.losses import Loss
from ..nn.optimizers import SGD, Optimizer, Update

PRECISIONS = ("auto", "float32", "bfloat16")
GOLDEN = 0x9E3779B1  # a prime near 2^32 over the golden ratio: its multiples are spread evenly over 32 bits
SPARE_CANDIDATES = 8  # labels beyond k that are ranked in bfloat16, as rounding may exchange labels near rank k


class Layer(NamedTuple):
    """The parameters and the optimizer state of a layer.

    W : weights, (F, H) of the input layer, (outputs, inputs) of others. b : biases. Ws, bs and Wt, bt : the first and
    second number that the optimizer remembers of each parameter; arrays of one element if it does not need them.
    """

    W: np.ndarray
    b: np.ndarray
    Ws: np.ndarray
    bs: np.ndarray
    Wt: np.ndarray
    bt: np.ndarray


class Dropout(NamedTuple):
    """The share of entries to drop, and the seed of the mask of a step.

    An entry is kept if its hash, 32 bits, is at least `threshold`. Kept entries are multiplied by `factor`, so that
    the expected value of a sum does not change.
    """

    share: float
    seed: int

    @property
    def threshold(self) -> np.uint32:
        """Return the hash below which entries are dropped: the share times its range."""
        return np.uint32(self.share * 4294967295.0)

    @property
    def factor(self) -> np.float32:
        """Return 1 / (1 - share)."""
        return np.float32(1 / (1 - self.share))


class Targets(NamedTuple):
    """The targets of a batch.

    Y : labels (n, L) of all rows. rows : numbers of the batch's rows, int64 (B,). scale : sample weight of each row
    over the batch size, float32 (B,).
    """

    Y: CSR
    rows: np.ndarray
    scale: np.ndarray

    def of_softmax(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets and weights of softmax, float32 (B,): 1 / number of labels of each row, and `scale`.

        Both are 0 for rows without labels.
        """
        counts = self.Y.indptr[self.rows + 1] - self.Y.indptr[self.rows]
        target = np.zeros(len(self.rows), np.float32)
        np.divide(1, counts, out=target, where=counts > 0)
        return target, np.where(counts > 0, self.scale, np.float32(0))


class Rounding(NamedTuple):
    """Stochastic sparsification of the output layer's gradients: the threshold, and the seed of the draws of a step.

    Let limit be the threshold times the weight of a row. The gradient of a pair of a row and a label that it does not
    have, if it is below limit, is rounded at random: to limit with probability gradient / limit (to 2^-24), else to 0.
    It becomes limit if u limit < gradient, with u drawn from hash(seed, label) + row GOLDEN (`round_loops` of the CPU's
    kernels; labels are numbered as in the step).

    A label without a gradient left, that no row with a weight above 0 has, is not updated, except for its bias: the
    gradients of biases stay exact. Threshold 0: nothing is rounded, and all labels are updated; the
    seed may decide in which order.
    """

    threshold: float
    seed: int


EXACT = Rounding(0.0, 0)


class Device(ABC):
    """The operations of a network. They change layers in place and return results; A and dA are float32 (B, H).

    Layers, A, dA and the loss are in the memory of the device; rows, labels, sample weights and predictions in that of
    the process. Methods that are not abstract suit devices that compute in the memory of the process.
    """

    memory: str | None = None  # name of the memory of the device; None if it is that of the process
    n_threads = 1  # threads of this process that compute
    bfloat16 = False  # whether matrix products are in bfloat16

    def __init__(self, n_threads: int = 1, precision: str = "auto") -> None:
        """Make a device of `n_threads` threads; `precision`, of `PRECISIONS`, is for those with bfloat16 products."""
        self.n_threads = n_threads

    @abstractmethod
    def start(self) -> AbstractContextManager[None]:
        """Return the context in which one Python thread at a time calls the operations."""

    def load_kernels(
        self, losses: Collection[Loss], optimizers: Collection[Optimizer] = (), deep: bool = True,
        dropout: bool = True, rounding: bool = False,
    ) -> None:  # fmt: skip
        """Compile or load the kernels of networks with these parts, by running each operation once.

        deep : also those of a second hidden layer. dropout : also that of dropped activations. rounding : those of
        sparsified gradients instead of exact ones. Kernels of prediction, of few rows and of many, and of steps on some
        of the labels are always included. No kernel depends on sizes or k.
        """
        # Two rows, of which a batch has one many times: a GPU keeps a matrix of more rows than the batch.
        X = CSR(np.array([0, 1, 2]), np.zeros(2, np.int32), np.ones(2, np.float32), 1)
        rows, update = np.zeros(16, np.int64), SGD().update(0.0, 1)
        with self.start():
            one, two = (self.to_device(np.zeros(n, np.float32)) for n in (1, 2))
            layer, pair = (Layer(*([flat.reshape(-1, 1), flat] * 3)) for flat in (one, two))
            A = self.input_forward(X, rows, layer)
            if dropout:
                self.drop(A, Dropout(0.0, 0))
            targets = Targets(X, rows, np.ones(len(rows), np.float32))
            for loss in losses:
                value, _ = self.output_step(A, targets, layer, loss, update, Rounding(0.5 * rounding, 0))
                float(0.0 + value * len(rows))  # as losses are added up
            if deep:
                self.dense_step(self.dense_forward(A, layer), A, layer, update)
            self.input_step(X, rows, self.through_relu(A, A, 1.0), layer, update)
            self.top_k(A[:1], layer, 1)
            self.top_k(A, layer, 1)
            active = np.zeros(1, np.int32)
            self.put(self.take(pair, active), pair, active)
            for optimizer in optimizers:
                self.load_optimizer(optimizer)

    def load_optimizer(self, optimizer: Optimizer) -> None:  # noqa: B027  most compile them with other kernels
        """Compile or load the functions of an optimizer."""

    def to_device(self, flat: np.ndarray) -> Any:
        """Return a copy of a vector in the device's memory; the vector itself if the memory is that of the process."""
        return flat

    def copy_to_device(self, placed: Any, flat: np.ndarray) -> None:  # noqa: B027  nothing to copy within one memory
        """Copy `flat` to `placed`, which `to_device` has returned."""

    def to_host(self, placed: Any, flat: np.ndarray | None = None) -> np.ndarray:
        """Copy an array of the device to `flat`, which is contiguous, or to a new array, and return that array.

        Within one memory, return the array itself.
        """
        return placed

    def read_later(self, value: Any) -> Callable[[], float]:
        """Return a function that waits until a number on the device is computed, and returns the number."""
        return lambda: float(value)

    @abstractmethod
    def input_forward(self, X: CSR, rows: np.ndarray, layer: Layer) -> np.ndarray:
        """Return A (B, H) = relu(X[rows] W + b)."""

    @abstractmethod
    def dense_forward(self, A: np.ndarray, layer: Layer) -> np.ndarray:
        """Return relu(A W^T + b)."""

    def through_relu(self, dA: np.ndarray, A: np.ndarray, factor: float) -> np.ndarray:
        """Return `factor` dA where A > 0, and 0 elsewhere (NaN if dA is not finite), in the array dA."""
        np.multiply(dA, A > 0, out=dA)  # many times as fast as `np.where`, which branches
        if factor != 1:
            dA *= np.float32(factor)
        return dA

    def take(self, layer: Layer, active: np.ndarray) -> Layer:
        """Return a copy of the outputs `active`, int32, of a layer; state arrays of one element are not copied."""
        return Layer(*(part if part.shape[0] == 1 else part[active] for part in layer))

    def put(self, part: Layer, layer: Layer, active: np.ndarray) -> None:
        """Write `part`, from `take`, back to the outputs `active` of a layer."""
        for new, old in zip(part, layer, strict=True):
            if new is not old:
                old[active] = new

    @abstractmethod
    def drop(self, A: np.ndarray, dropout: Dropout) -> None:
        """Apply dropout to A in place."""

    @abstractmethod
    def output_step(
        self, A: np.ndarray, targets: Targets, layer: Layer, loss: Loss, update: Update, rounding: Rounding = EXACT
    ) -> tuple[float, np.ndarray]:
        """Update the output layer on one batch; return the loss, summed over rows with their weights, and dA.

        dA is computed with the weights before the update.
        """

    @abstractmethod
    def dense_step(self, A: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update) -> np.ndarray:
        """Update a dense layer, given the gradient dZ of its pre-activations; return the gradient of its input A."""

    @abstractmethod
    def input_step(self, X: CSR, rows: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update) -> None:
        """Update the rows of W for the features of the batch, and b, given the gradient dZ of the pre-activations."""

    @abstractmethod
    def top_k(
        self, A: np.ndarray, layer: Layer, k: int, floor: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return labels int32 (B, k) and logits float32 (B, k), best first; of equal logits, smaller label first.

        floor : a logit per row, float32 (B,); a device may leave out labels below it, or ignore it.
        """
