"""How good a model is while it learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.csr import Dataset
from ...metrics import precision_at_k
from ...nn.network import Network
from .scorer import Scorer


@dataclass(eq=False)
class Measure:
    """Measures P@1, P@3 and P@5 in percent on held-out rows; called with parameters, float32 (n_params,).

    Parameters
    ----------
    held_out : Dataset
        The rows.
    network : Network
        What the parameters are of.
    device : Device
        Where scores are computed, such as `CPU()`.
    """

    held_out: Dataset
    network: Network
    device: Any

    def __call__(self, flat: np.ndarray) -> dict[str, float]:
        """Measure the model `flat`, float32 (n_params,)."""
        labels, _ = Scorer(self.network, flat, self.device).top_k(self.held_out.X, 5)
        values = 100 * precision_at_k(self.held_out.Y, labels, 5)
        return {f"P@{k}": float(values[k - 1]) for k in (1, 3, 5)}
