"""The network: its shape and loss, initialization, and a training step, as a value without parameters.

It has a sparse input layer, dense hidden layers, and a full output layer: A = relu(X W0 + b0); A <- relu(A Wi^T + bi)
for each further hidden layer; Z = A Wn^T + bn. The loss is a function of Z.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from ..data.csr import CSR
from ..data.random_streams import WEIGHTS
from ..data.validation import FLOAT32_MAX, Checked, at_least, below_one, within
from ..devices.base import Device, Dropout, Layer, Rounding, Targets
from ..errors import DataError
from .losses import find_loss
from .optimizers import Optimizer, Update
from .parameters import Layout
from .samplers import ALL_LABELS, Batch, Sampler, true_among

INPUT_SCALE = 0.2  # suits rows of norm 1 (docs/decisions/training.md)


@dataclass(frozen=True)
class Network(Checked):
    """The shape of the model and its loss.

    The activation is ReLU by design, as kernels fuse it with products. Another one would change this module, all
    devices with their kernels, the ONNX export and explanations.

    Parameters
    ----------
    n_features, n_labels : int
        F and L.
    hidden : tuple of int
        Units of the hidden layers, at least one.
    loss : str
        Name of the loss.
    hidden_dropout : float
        Share in [0, 1) of the activations left out in training.
    input_scale : float
        Standard deviation of the initial W0. For rows of L2 norm 1, pre-activations have the same standard deviation,
        whatever the number of features. An adaptive optimizer scales its learning rate for W0 by it.
    gradient_rounding : float
        Threshold in [0, 1) below which gradients of the output layer are rounded at random (`devices.base.Rounding`);
        0 for exact ones.
    """

    n_features: int = at_least(MISSING, 0)
    n_labels: int = at_least(MISSING, 0)
    hidden: tuple[int, ...] = at_least((256,), 1)
    loss: str = "bce"
    hidden_dropout: float = below_one(0.0)
    input_scale: float = within(INPUT_SCALE, 0, FLOAT32_MAX)
    gradient_rounding: float = below_one(0.0)

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers out of range, and for no hidden layer."""
        super().__post_init__()
        if not self.hidden:
            raise DataError("hidden must have at least one layer, got none")

    @property
    def layout(self) -> Layout:
        """Return names and shapes of the parameters: W0 (F, H), b0, then W (outputs, inputs) and b of each layer."""
        shapes: dict[str, tuple[int, ...]] = {"W0": (self.n_features, self.hidden[0]), "b0": (self.hidden[0],)}
        widths = [*self.hidden, self.n_labels]
        for i in range(1, len(widths)):
            shapes[f"W{i}"], shapes[f"b{i}"] = (widths[i], widths[i - 1]), (widths[i],)
        return Layout(shapes)

    def initialize(self, flat: np.ndarray, Y: CSR, seed: int, weight: np.ndarray | None = None) -> None:
        """Write the starting parameters: random W0, He-scaled hidden layers, zero output weights.

        Output biases follow from the frequencies of labels (`Loss.initial_bias`), so that the first steps need not
        learn that most labels are rare. weight : sample weights, float32 (n,); None for ones.
        """
        rng = np.random.default_rng((seed, WEIGHTS))
        views = self.layout.views(flat)
        for name, view in views.items():
            if name == "W0":
                self._draw_inputs(view, rng)
            elif name.startswith("W") and name != f"W{len(self.hidden)}":
                rng.standard_normal(out=view, dtype=np.float32)
                view *= np.float32(np.sqrt(2.0 / view.shape[1]))
            else:
                view[:] = 0
        views[self.output_bias][:] = self.initial_biases(Y, weight)

    def initialize_features(self, flat: np.ndarray, first: int, seed: int) -> None:
        """Write the starting input weights of the features from `first` on."""
        self._draw_inputs(self.layout.views(flat)["W0"][first:], np.random.default_rng((seed, WEIGHTS)))

    def _draw_inputs(self, view: np.ndarray, rng: np.random.Generator) -> None:
        rng.standard_normal(out=view, dtype=np.float32)
        view *= np.float32(self.input_scale)

    @property
    def output_bias(self) -> str:
        """Return the name of the output layer's biases."""
        return f"b{len(self.hidden)}"

    def initial_biases(self, Y: CSR, weight: np.ndarray | None) -> np.ndarray:
        """Return the initial output biases, float32 (L,), for labels Y with weights as in `initialize`."""
        n_rows, shares = Y.n_rows, None
        if weight is not None:
            n_rows = np.count_nonzero(weight)
            mean = weight.sum(dtype=np.float64) / max(n_rows, 1)
            shares = np.repeat(weight / (mean or 1.0), np.diff(Y.indptr))
        return self.biases_of(np.bincount(Y.indices, shares, self.n_labels), n_rows)

    def biases_of(self, counts: np.ndarray, n_rows: int) -> np.ndarray:
        """Return the initial output biases of labels that `counts` of `n_rows` rows have, float32."""
        biases: np.ndarray = find_loss(self.loss).initial_bias((counts + 1e-2) / (n_rows + 1))
        return biases.astype(np.float32)

    def layers(
        self, flat: np.ndarray, slots: dict[str, np.ndarray] | None = None, none: np.ndarray | None = None
    ) -> list[Layer]:
        """Return the layers as views of the parameters and of the optimizer's `slots` (see `state_layout`).

        none : float32 (1, 1), in the same memory, stands for slots that the optimizer does not have.
        """
        views = self.layout.views(flat)
        none = np.zeros((1, 1), np.float32) if none is None else none

        def slot(name: str, i: int) -> np.ndarray:
            return (slots or {}).get(f"{name}:{i}", none if name.startswith("W") else none[0])

        return [
            Layer(
                views[f"W{i}"], views[f"b{i}"], slot(f"W{i}", 0), slot(f"b{i}", 0), slot(f"W{i}", 1), slot(f"b{i}", 1)
            )
            for i in range(len(self.hidden) + 1)
        ]

    def step(
        self, device: Device, layers: list[Layer], X: CSR, targets: Targets, update: Update, seed: int,
        sampler: Sampler = ALL_LABELS,
    ) -> float:  # fmt: skip
        """Train `layers` in place on the rows of X in `targets`; return the loss, summed over rows with their weights.

        seed : of the batch, for dropout masks, rounding of gradients, and labels if they are drawn. sampler : chooses
        the labels that take part.
        """
        rows = targets.rows
        activations = [device.input_forward(X, rows, layers[0])]
        for i, layer in enumerate(layers[1:-1], 1):
            self._drop(device, activations[-1], seed + i)
            activations.append(device.dense_forward(activations[-1], layer))
        self._drop(device, activations[-1], seed + len(layers))
        batch = Batch(targets.Y, rows, seed, activations[-1], layers[-1], device)
        if (drawn := sampler.draw(batch)) is not None:
            batch.check(drawn)
        rounding = Rounding(self.gradient_rounding, seed + len(layers) + 1)
        value, dA = self.output_step(device, activations[-1], targets, layers[-1], update.for_output(), rounding, drawn)
        kept = 1 / (1 - self.hidden_dropout)  # the factor by which dropout has scaled kept entries
        for i in range(len(layers) - 2, 0, -1):
            dZ = device.through_relu(dA, activations[i], kept)
            dA = device.dense_step(activations[i - 1], dZ, layers[i], update)
        of_input = update.for_input(self.input_scale / INPUT_SCALE)
        device.input_step(X, rows, device.through_relu(dA, activations[0], kept), layers[0], of_input)
        return value

    def hidden_activations(self, device: Device, layers: list[Layer], X: CSR, rows: np.ndarray) -> np.ndarray:
        """Return the last hidden activations A (B, H) of `rows`, without dropout."""
        A = device.input_forward(X, rows, layers[0])
        for layer in layers[1:-1]:
            A = device.dense_forward(A, layer)
        return A

    def output_step(
        self, device: Device, A: np.ndarray, targets: Targets, output: Layer, update: Update, rounding: Rounding,
        labels: np.ndarray | None,
    ) -> tuple[float, np.ndarray]:  # fmt: skip
        """Train some labels of the output layer, or all for None; return the loss and dA."""
        loss = find_loss(self.loss)
        if labels is None:
            return device.output_step(A, targets, output, loss, update, rounding)
        Y, rows, scale = targets
        own = Targets(true_among(Y, rows, labels), np.arange(len(rows)), scale)
        if not len(labels):
            dA = 0 * A
            return dA[0, 0], dA  # zero on the device: elsewhere, it would be read at once
        part = device.take(output, labels)
        value, dA = device.output_step(A, own, part, loss, update, rounding)
        device.put(part, output, labels)
        return value, dA

    def _drop(self, device: Device, A: np.ndarray, seed: int) -> None:
        if self.hidden_dropout > 0:
            device.drop(A, Dropout(self.hidden_dropout, seed))


def state_layout(layout: Layout, optimizer: Optimizer) -> Layout:
    """Return the layout of the optimizer's state: slot i of parameter `name` is `name:i`."""
    return Layout(
        {
            f"{name}:{i}": shape
            for name, parameter in layout.shapes.items()
            for i, shape in enumerate(optimizer.slot_shapes(parameter))
        }
    )
