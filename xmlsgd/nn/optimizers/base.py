"""What an optimizer is: the numbers and the state that the update of a parameter row needs, and its equations.

The equations are functions of single numbers in CPU kernels, which compile them, and of float64 rows in the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...errors import DataError

# Indices of `hyper`. `Optimizer.update` writes the first three. `fill` writes those of the others that the equations
# take: in Adam, the decay rates of both moments, epsilon, and the factors that correct the bias of both moments.
RATE, DECAY, CLIP, FIRST, SECOND, EPSILON, FIRST_SCALE, SECOND_SCALE = range(8)


class Update(NamedTuple):
    """The update of one step: the optimizer, and its numbers at this step, `hyper`, float32 (8,).

    output_epsilon : epsilon of the output layer; None for that of the others.
    """

    optimizer: Optimizer
    hyper: np.ndarray
    output_epsilon: float | None = None

    def for_output(self) -> Update:
        """Return the update of the output layer."""
        if self.output_epsilon is None:
            return self
        hyper = self.hyper.copy()
        hyper[EPSILON] = self.output_epsilon
        return Update(self.optimizer, hyper)

    def for_input(self, scale: float) -> Update:
        """Return the update of the input layer, given the scale of its first weights over that for rows of norm 1.

        The steps of an adaptive optimizer are as long for large rows, where pre-activations then move further: its
        rate follows the scale. Weight decay does not.
        """
        if not self.optimizer.adaptive or scale in (0, 1):
            return self
        hyper = self.hyper.copy()
        hyper[RATE] *= scale
        hyper[DECAY] /= scale
        return self._replace(hyper=hyper)

    def for_biases(self) -> Update:
        """Return the update of biases: no decay, no clipping, one accumulator each."""
        hyper = self.hyper.copy()
        hyper[DECAY] = hyper[CLIP] = 0
        return Update(self.optimizer.for_biases(), hyper)

    @property
    def kind(self) -> int:
        """Return the number of the optimizer in `devices/cuda/kernels`; `DataError` where it has none."""
        if self.optimizer.cuda is None:
            raise DataError(
                f"optimizer: {self.optimizer.name!r} has no code for GPUs (devices/cuda); train it with devices='cpu'"
            )
        return self.optimizer.cuda


@dataclass(frozen=True)
class Optimizer:
    """Base of all optimizers: `step` says how a parameter moves, `state` how what it remembers changes before.

    Parameters
    ----------
    weight_decay : float
        Decoupled decay a step, times the learning rate (Loshchilov and Hutter 2019); weights, not biases.
    clip_norm : float
        Largest Euclidean norm of the gradient of one parameter row; 0 for none. By rows, not over the whole gradient,
        because a fused update never holds the whole gradient.
    """

    weight_decay: float = 0.0
    clip_norm: float = 0.0

    # Numbers that a parameter remembers, 0 to 2: s, or s and t.
    slots: ClassVar[int] = 0
    # Whether the length of a step does not depend on the scale of the gradients, as in Adam.
    adaptive: ClassVar[bool] = False
    # Whether the weights of a row share one s; `square` of `state` is then the mean of g g over the row.
    row_state: ClassVar[bool] = False
    # Learning rate that "auto" stands for, at a batch of 256; None where none is known. Those of our own were found on
    # library subject headings (13,000 to 20,000 rows, 256 units, BCE) and on scikit-learn's small sets.
    default_rate: ClassVar[float | None] = None
    # Number in `devices/cuda/kernels`; None where there is no code for GPUs.
    cuda: ClassVar[int | None] = None

    @property
    def name(self) -> str:
        """Return the name of the optimizer, which is that of its module."""
        return type(self).__module__.rpartition(".")[2]

    @staticmethod
    def state(g: Any, square: Any, s: Any, t: Any, h: Any) -> tuple[Any, Any]:
        """Return s and t after a gradient g, whose `square` is g g; h is `hyper`."""
        raise NotImplementedError

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return what the parameter decreases by, given the new state."""
        raise NotImplementedError

    def slot_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the state of a tensor of `shape`."""
        return [(shape[0], 1) if self.row_state and len(shape) == 2 else shape] * self.slots

    def for_biases(self) -> Optimizer:
        """Return the optimizer of biases, whose state is never that of a row."""
        return self

    def update(self, rate: float, steps: int) -> Update:
        """Return the update of step number `steps` (from 1) at learning rate `rate`."""
        hyper = np.zeros(8, np.float32)
        hyper[RATE], hyper[DECAY], hyper[CLIP] = rate, self.weight_decay, self.clip_norm
        self.fill(hyper, steps)
        return Update(self, hyper)

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the numbers of the optimizer itself."""
