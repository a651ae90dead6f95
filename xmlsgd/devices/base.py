"""What a device is: memory and the primitive operations of a sparse network on its arrays.

`reference.py` defines every operation in plain NumPy; the other devices give the same numbers, faster. A device is
found by its name: `"cpu"` is `xmlsgd.devices.cpu`.
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
SPARE_CANDIDATES = 8  # ranked in bfloat16 beyond k, so that rounding does not cost a label its place


class Layer(NamedTuple):
    """One layer's parameters and optimizer state.

    Weights W (F, H) for the input layer, (outputs, inputs) for the others; biases b. Ws, bs are the first state
    slot, Wt, bt the second, of one element where the optimizer has none.
    """

    W: np.ndarray
    b: np.ndarray
    Ws: np.ndarray
    bs: np.ndarray
    Wt: np.ndarray
    bt: np.ndarray


class Dropout(NamedTuple):
    """Share of entries left out and the seed of this step's mask.

    An entry is kept where its hash, 32 bits, is at least `threshold`; what is kept is multiplied by `factor`, which
    keeps the expected value of a sum.
    """

    share: float
    seed: int

    @property
    def threshold(self) -> np.uint32:
        """Return the share of the range of the hash."""
        return np.uint32(self.share * 4294967295.0)

    @property
    def factor(self) -> np.float32:
        """Return one over the share that is kept."""
        return np.float32(1 / (1 - self.share))


class Targets(NamedTuple):
    """What a batch is to learn: labels Y (n, L) of its `rows`, int64 (B,), and what these weigh, `scale`, float32 (B,).

    A row weighs what it weighs by itself, over the batch size.
    """

    Y: CSR
    rows: np.ndarray
    scale: np.ndarray

    def of_softmax(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the target of each label of a row, float32 (B,), and what the row weighs in softmax.

        The labels of a row share 1 evenly; of the weights those of rows without labels become 0.
        """
        counts = self.Y.indptr[self.rows + 1] - self.Y.indptr[self.rows]
        target = np.zeros(len(self.rows), np.float32)
        np.divide(1, counts, out=target, where=counts > 0)
        return target, np.where(counts > 0, self.scale, np.float32(0))


class Rounding(NamedTuple):
    """Stochastic sparsification of the output layer's gradients: the threshold and the seed of this step's draws.

    A pair of a row and a label that it does not have, whose gradient is below `limit`, the threshold times the row's
    weight, keeps `limit` with chance gradient / limit, to 2^-24, else nothing: where u limit < gradient, u drawn from
    hash(seed, label) + row GOLDEN (`round_loops` of the CPU's kernels; labels are numbered as in the step). A label
    that keeps none, and that no row of a weight above 0 has, is not updated, but for its bias, whose gradient stays
    exact. 0: nothing is dropped, all are updated.
    """

    threshold: float
    seed: int


EXACT = Rounding(0.0, 0)


class Device(ABC):
    """The operations. Arrays are float32; A and dA are (B, H). Layers are changed in place, results are returned.

    Layers, A, dA and the loss lie in the device's memory; rows, labels, weights of rows and answers in the process's.
    What is not abstract is for devices that compute in the process's memory.
    """

    memory: str | None = None  # the name of the memory that arrays lie in; None for that of the process
    n_threads = 1  # of this process, that compute

    @abstractmethod
    def start(self) -> AbstractContextManager[None]:
        """Return the context in which one Python thread at a time calls the operations."""

    def load_kernels(
        self, losses: Collection[Loss], optimizers: Collection[Optimizer] = (), deep: bool = True,
        dropout: bool = True, rounding: bool = False,
    ) -> None:  # fmt: skip
        """Compile or load every kernel of such networks before a run's clock starts, by running each operation once.

        `deep`: also those of a second hidden layer; `dropout`: also that of dropped activations; `rounding`: those of
        sparsified gradients in place of exact ones. Sizes and k choose no kernel; prediction, of few rows and of many,
        and steps on some of the labels are always included.
        """
        # Two rows, of which a batch has one many times: a GPU keeps a matrix of more rows than the batch.
        X = CSR(np.array([0, 1, 2]), np.zeros(2, np.int32), np.ones(2, np.float32), 1)
        rows, update, none = np.zeros(16, np.int64), SGD().update(0.0, 1), Dropout(0.0, 0)
        with self.start():
            one, two = (self.to_device(np.zeros(n, np.float32)) for n in (1, 2))
            layer, pair = (Layer(*([flat.reshape(-1, 1), flat] * 3)) for flat in (one, two))
            A = self.input_forward(X, rows, layer, none)
            if dropout:
                self.drop(A, none)
            targets = Targets(X, rows, np.ones(len(rows), np.float32))
            for loss in losses:
                value, _ = self.output_step(A, targets, layer, loss, update, Rounding(0.5 * rounding, 0))
                float(0.0 + value * len(rows))  # as losses are added up
            if deep:
                self.dense_step(self.dense_forward(A, layer), A, layer, update)
            self.input_step(X, rows, self.through_relu(A, A, 1.0), layer, update, none)
            self.top_k(A[:1], layer, 1)
            self.top_k(A, layer, 1)
            active = np.zeros(1, np.int32)
            self.put(self.take(pair, active), pair, active)

    def to_device(self, flat: np.ndarray) -> Any:
        """Return a copy of a vector in the device's memory, the vector itself where that is the process's."""
        return flat

    def copy_to_device(self, placed: Any, flat: np.ndarray) -> None:  # noqa: B027  in the process's memory they are one
        """Copy `flat` over what `to_device` returned."""

    def to_host(self, placed: Any, flat: np.ndarray | None = None) -> np.ndarray:
        """Copy an array of the device over `flat`, contiguous, or to a new one where the memories differ; return it."""
        return placed

    def read_later(self, value: Any) -> Callable[[], float]:
        """Return a function that waits until a number in the device's memory is computed, and returns it."""
        return lambda: float(value)

    @abstractmethod
    def input_forward(self, X: CSR, rows: np.ndarray, layer: Layer, dropout: Dropout) -> np.ndarray:
        """Return A (B, H) = relu(X[rows] W + b), a share of the entries of X left out and the rest scaled up."""

    @abstractmethod
    def dense_forward(self, A: np.ndarray, layer: Layer) -> np.ndarray:
        """Return relu(A W^T + b)."""

    def through_relu(self, dA: np.ndarray, A: np.ndarray, factor: float) -> np.ndarray:
        """Return `factor` dA where A > 0 and 0 elsewhere; dA is used up."""
        np.multiply(dA, A > 0, out=dA)  # many times as fast as `np.where`, which branches
        if factor != 1:
            dA *= np.float32(factor)
        return dA

    def take(self, layer: Layer, active: np.ndarray) -> Layer:
        """Return a copy of the outputs `active`, int32, of a layer; slots of one element stay as they are."""
        return Layer(*(part if part.shape[0] == 1 else part[active] for part in layer))

    def put(self, part: Layer, layer: Layer, active: np.ndarray) -> None:
        """Write the outputs `active` of a layer back."""
        for new, old in zip(part, layer, strict=True):
            if new is not old:
                old[active] = new

    @abstractmethod
    def drop(self, A: np.ndarray, dropout: Dropout) -> None:
        """Leave out a share of A in place and scale the rest up."""

    @abstractmethod
    def output_step(
        self, A: np.ndarray, targets: Targets, layer: Layer, loss: Loss, update: Update, rounding: Rounding = EXACT
    ) -> tuple[float, np.ndarray]:
        """Update the output layer on one batch; return the loss, weighed by row, and dA.

        dA is taken at the weights before the update.
        """

    @abstractmethod
    def dense_step(self, A: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update) -> np.ndarray:
        """Update a dense layer given the gradient dZ of its pre-activations; return the gradient of its input A."""

    @abstractmethod
    def input_step(
        self, X: CSR, rows: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update, dropout: Dropout
    ) -> None:
        """Update the rows of the input layer that the batch touches, given the gradient dZ of its pre-activations."""

    @abstractmethod
    def top_k(self, A: np.ndarray, layer: Layer, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return labels int32 (B, k) and logits float32 (B, k), best first, ties to the smaller label."""
