"""The definition of an optimizer: the numbers and the state for updating a row of parameters, and its equations.

CPU kernels compile the equations for single numbers; the reference calls them with rows of float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getattr_static, isfunction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...data.validation import Checked, at_least
from ...errors import DataError

# Indices of `hyper`. `Optimizer.update` writes the first three. `fill` writes the others that the equations use: in
# Adam, the decay rates of both moments, epsilon, and the factors that correct the bias of both moments.
RATE, DECAY, CLIP, FIRST, SECOND, EPSILON, FIRST_SCALE, SECOND_SCALE = range(8)


class Update(NamedTuple):
    """The update of one step: the optimizer, and its numbers in this step, `hyper`, float32 (8,).

    output_epsilon : epsilon of the output layer; None for the same as in other layers. of_biases : the numbers for
    biases if these do not follow the scale of the weights (`for_input`), float32 (8,); None for `hyper`.
    """

    optimizer: Optimizer
    hyper: np.ndarray
    output_epsilon: float | None = None
    of_biases: np.ndarray | None = None

    def for_output(self) -> Update:
        """Return the update of the output layer."""
        if self.output_epsilon is None:
            return self
        hyper = self.hyper.copy()
        hyper[EPSILON] = self.output_epsilon
        return Update(self.optimizer, hyper)

    def for_input(self, scale: float) -> Update:
        """Return the update of the input layer; scale : of its initial weights, relative to that for rows of norm 1.

        Steps of an adaptive optimizer do not depend on the size of rows, so that pre-activations of large rows, for
        which the scale is small, would change more. So the rate is multiplied by the scale; weight decay is not.
        Gradients of weights, and so epsilon, are divided by it. Biases do not depend on the size of rows.
        """
        if not self.optimizer.adaptive or scale in (0, 1):
            return self
        hyper = self.hyper.copy()
        hyper[RATE] *= scale
        hyper[[DECAY, EPSILON]] /= np.float32(scale)
        return self._replace(hyper=hyper, of_biases=self.hyper)

    def for_biases(self) -> Update:
        """Return the update of biases: without decay and clipping, with state of their own."""
        hyper = (self.hyper if self.of_biases is None else self.of_biases).copy()
        hyper[DECAY] = hyper[CLIP] = 0
        return Update(self.optimizer.for_biases(), hyper)

    @property
    def kind(self) -> int:
        """Return the number of the optimizer in `devices/cuda/kernels`; raise `DataError` if it has none."""
        if self.optimizer.cuda is None:
            raise DataError(
                f"optimizer: {self.optimizer.name!r} has no code for GPUs (devices/cuda); train it with devices='cpu'"
            )
        return self.optimizer.cuda


@dataclass(frozen=True)
class Optimizer(Checked):
    """Base of all optimizers: first `state` updates what is remembered of a parameter, then `step` changes it.

    Parameters
    ----------
    weight_decay : float
        Decoupled decay per step, times the learning rate (Loshchilov and Hutter 2019); of weights, not of biases; >= 0.
    clip_norm : float
        Largest Euclidean norm of the gradient of one parameter row; 0 for no limit. It is not the norm of the whole
        gradient, which a fused update never computes.
    """

    weight_decay: float = at_least(0.0, 0)
    clip_norm: float = at_least(0.0, 0)

    # How many numbers are remembered of each parameter: 0, 1 (s) or 2 (s and t).
    slots: ClassVar[int] = 0
    # Whether the length of a step does not depend on the scale of the gradients, as in Adam.
    adaptive: ClassVar[bool] = False
    # Whether the weights of a row share one s; `square` of `state` is then the mean of g g over the row.
    row_state: ClassVar[bool] = False
    # Learning rate for "auto" with a batch of 256; None if none is known. Those of the package were found on library
    # subject headings (13,000 to 20,000 rows, 256 units, BCE) and on the small sets of scikit-learn.
    default_rate: ClassVar[float | None] = None
    # Number in `devices/cuda/kernels`; None if there is no code for GPUs.
    cuda: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        """Raise `DataError` for wrong fields and for a class that is incomplete."""
        super().__post_init__()
        self.check_methods()

    @property
    def name(self) -> str:
        """Return the name of the optimizer, which is that of its module."""
        return type(self).__module__.rpartition(".")[2]

    @classmethod
    def check_methods(cls) -> None:
        """Raise `DataError` unless `step`, and `state` just where there are slots, are static methods of the class."""
        optimizer = f"optimizer {cls.__module__.rpartition('.')[2]!r}: {cls.__name__}"
        for name in ("step", "state"):
            method, defined = getattr_static(cls, name), getattr(cls, name) is not getattr(Optimizer, name)
            if not defined and (name == "step" or cls.slots):
                raise DataError(f"{optimizer} does not define {name}; see Optimizer.{name}")
            if not (isinstance(method, staticmethod) and isfunction(method.__func__)):
                raise DataError(f"{optimizer}.{name} must be a static method, got {method!r}; see Optimizer.{name}")
        if cls.state is not Optimizer.state and not cls.slots:
            raise DataError(f"{optimizer} defines state, but slots is 0; set it to 1 (s) or 2 (s and t)")

    @staticmethod
    def state(g: Any, square: Any, s: Any, t: Any, h: Any) -> tuple[Any, Any]:
        """Return s and t after a gradient g, whose `square` is g g; h is `hyper`."""
        raise NotImplementedError

    @staticmethod
    def step(g: Any, s: Any, t: Any, h: Any) -> Any:
        """Return the number to subtract from the parameter, given the new state."""
        raise NotImplementedError

    def slot_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the state of a tensor of `shape`."""
        return [(shape[0], 1) if self.row_state and len(shape) == 2 else shape] * self.slots

    def for_biases(self) -> Optimizer:
        """Return the optimizer of biases, each of which has state of its own."""
        return self

    def update(self, rate: float, steps: int) -> Update:
        """Return the update of step number `steps` (from 1) at learning rate `rate`."""
        hyper = np.zeros(8, np.float32)
        hyper[RATE], hyper[DECAY], hyper[CLIP] = rate, self.weight_decay, self.clip_norm
        self.fill(hyper, steps)
        return Update(self, hyper)

    def fill(self, hyper: np.ndarray, steps: int) -> None:
        """Write the numbers that only this optimizer uses to `hyper`."""
