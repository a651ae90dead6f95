"""The definition of a loss: functions of logits, called with arrays by the reference, with numbers by CPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError


@dataclass(frozen=True)
class Loss:
    """A loss that is a sum over the labels of a row; derivatives are by the logits.

    Parameters
    ----------
    value_and_gradient : callable
        `(z, target, log_sum) -> (value, derivative)` of a logit z. `target` is 1 for a label of the row and 0 for any
        other; if the loss is `normalized`, it is 1 / number of labels of the row, and `log_sum` is the log of the sum
        of the exponentials of the row's logits (else 0). The function must use operators and NumPy functions only,
        without branches: the reference passes float64 arrays, kernels compile it for float32 numbers.
    initial_bias : callable
        `(frequency) -> bias`: the first biases of the output layer, given the share of rows that have each label,
        float64 (L,), above 0.
    normalized : bool
        Whether the labels of a row share one probability, as in softmax. Rows without labels are skipped then. Of other
        losses, logits count as log odds of labels, which calibration corrects.
    negatives, correction : callable, optional
        Faster forms for kernels, functions that Numba has compiled. `negatives(z, bias, scale, log_sum)` turns the
        logits z (B,) of a label, without its bias, in place into the gradient as if all rows lacked the label, times
        the weights `scale` (B,) of the rows; it returns the weighted loss and the sum of the gradient.
        `correction(z, scale, target, log_sum)` returns what to add to loss and gradient of a row that has the label.
    cuda : int, optional
        The number of the loss in `devices/cuda/kernels`; None if it has no code for GPUs.
    """

    value_and_gradient: Callable[[Any, Any, Any], tuple[Any, Any]]
    initial_bias: Callable[[np.ndarray], np.ndarray]
    normalized: bool = False
    negatives: Callable[..., Any] | None = None
    correction: Callable[..., Any] | None = None
    cuda: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the loss, which is that of its module."""
        return self.value_and_gradient.__module__.rpartition(".")[2]

    def on_cuda(self) -> int:
        """Return the number of the loss in `devices/cuda/kernels`; raise `DataError` if it has none."""
        if self.cuda is None:
            raise DataError(f"loss: {self.name!r} has no code for GPUs (devices/cuda); train it with devices='cpu'")
        return self.cuda
