"""Losses of a row of logits z (L,) against its labels; devices compute value and gradient from logits.

- `bce`: sum over labels of log(1 + exp(z)) - y z, y in {0, 1}: independent sigmoid decisions.
- `softmax`: -sum_l t_l log softmax(z)_l with t_l = 1 / |labels of the row| on its labels
  (normalised multi-label targets; rows without labels are skipped).
- `squared_hinge`: sum over labels of max(0, 1 - s z)^2, s in {-1, 1}.
"""

from __future__ import annotations

from ..data.validation import check_choice

BCE, SOFTMAX, SQUARED_HINGE = range(3)
LOSSES = {"bce": BCE, "softmax": SOFTMAX, "squared_hinge": SQUARED_HINGE}


def get_loss(name: str) -> int:
    """Return the number by which kernels know the loss `name`."""
    check_choice("loss", name, LOSSES)
    return LOSSES[name]
