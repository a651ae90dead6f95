"""Optimizers as updates of parameter rows: which state a row keeps and which numbers a step needs.

Only rows with a gradient are updated ("lazy" rows): a feature that a batch lacks keeps its weights and its state, and
so does a label whose gradients are all rounded away. With rare features this is what makes a step cost what its batch
costs. Devices carry out the updates; their kernels read `kind` and the vector of `hyper`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..data.validation import check_choice
from ..errors import DataError

SGD_KIND, MOMENTUM_KIND, ADAGRAD_KIND, ROW_ADAGRAD_KIND, ADAM_KIND = range(5)
# Places in `hyper`.
RATE, DECAY, CLIP, FIRST, SECOND, EPSILON, FIRST_SCALE, SECOND_SCALE = range(8)


class Update(NamedTuple):
    """The update of one step: `kind` selects the rule, `hyper` float32 (8,) holds its numbers.

    output_epsilon : epsilon of the output layer; None for that of the others.
    """

    kind: int
    hyper: np.ndarray
    output_epsilon: float | None = None

    def for_output(self) -> Update:
        """Return the update of the output layer."""
        if self.output_epsilon is None:
            return self
        hyper = self.hyper.copy()
        hyper[EPSILON] = self.output_epsilon
        return Update(self.kind, hyper)


@dataclass(frozen=True)
class Optimizer:
    """Common numbers of all rules.

    weight_decay : decoupled decay a step, times the learning rate (Loshchilov and Hutter 2019); weights, not biases.
    clip_norm : largest Euclidean norm of the gradient of one parameter row; 0 for none. By rows, not over the whole
        gradient, because a fused update never holds the whole gradient.
    """

    weight_decay: float = 0.0
    clip_norm: float = 0.0

    kind = SGD_KIND
    slots = 0  # state vectors of the parameters' size

    def slot_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the state of a tensor of `shape`."""
        return [shape] * self.slots

    def update(self, rate: float, steps: int) -> Update:
        """Return the update of step number `steps` (from 1) at learning rate `rate`."""
        hyper = np.zeros(8, np.float32)
        hyper[RATE], hyper[DECAY], hyper[CLIP] = rate, self.weight_decay, self.clip_norm
        self.fill(hyper, steps)
        return Update(self.kind, hyper)

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the numbers of the rule itself."""


@dataclass(frozen=True)
class SGD(Optimizer):
    """w <- w - rate g (Robbins and Monro 1951)."""


@dataclass(frozen=True)
class Momentum(Optimizer):
    """v <- momentum v + g; w <- w - rate v (heavy ball, Polyak 1964)."""

    momentum: float = 0.9
    kind = MOMENTUM_KIND
    slots = 1

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the momentum."""
        hyper[FIRST] = self.momentum


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """s <- s + g g; w <- w - rate g / (sqrt(s) + epsilon) (Duchi, Hazan and Singer 2011)."""

    epsilon: float = 1e-8
    kind = ADAGRAD_KIND
    slots = 1

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write epsilon."""
        hyper[EPSILON] = self.epsilon


@dataclass(frozen=True)
class RowAdagrad(Adagrad):
    """Adagrad with one accumulator a row, the mean of g g over it: 1/H of the state; biases keep their own."""

    kind = ROW_ADAGRAD_KIND

    def slot_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return one number a row of a matrix, and one a bias."""
        return [(shape[0], 1)] if len(shape) == 2 else [shape]


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1) with lazy rows; the bias correction counts the steps of the whole run.

    output_epsilon : epsilon of the output layer. A rare label's gradient is mostly that of its negatives, 1e-5 to 1e-4
        a step; with a small epsilon Adam blows it up to full steps of noise, and labels seen a hundred times are not
        learned (docs/decisions/training.md). In units of the mean gradient of a batch.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    output_epsilon: float = 4e-4
    kind = ADAM_KIND
    slots = 2

    def update(self, rate: float, steps: int) -> Update:
        """Return the update of a step, with the epsilon of the output layer."""
        return super().update(rate, steps)._replace(output_epsilon=self.output_epsilon)

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the decays and their corrections at this step."""
        hyper[FIRST], hyper[SECOND], hyper[EPSILON] = self.beta1, self.beta2, self.epsilon
        hyper[FIRST_SCALE] = 1.0 / (1.0 - self.beta1**steps)
        hyper[SECOND_SCALE] = 1.0 / math.sqrt(1.0 - self.beta2**steps)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "row_adagrad": RowAdagrad,
    "adam": Adam,
}


def get_optimizer(optimizer: str | Optimizer, **numbers: float) -> Optimizer:
    """Return the optimizer of a name, built with `numbers`; an `Optimizer` is returned as it is.

    Raises `DataError` for unknown names, and for numbers other than 0 beside an `Optimizer`, which has its own.
    """
    if isinstance(optimizer, Optimizer):
        if given := [name for name, number in numbers.items() if number]:
            raise DataError(f"{given[0]}: is part of the optimizer, got it beside {optimizer}; leave it out")
        return optimizer
    check_choice("optimizer", optimizer, OPTIMIZERS, " or an Optimizer")
    return OPTIMIZERS[optimizer](**numbers)
