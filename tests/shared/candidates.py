"""One CPU, settings of a quick model, and equal weights, for tests of candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xmlsgd.candidates import CandidateModel
from xmlsgd.candidates.boosted_trees import BoostedTrees
from xmlsgd.devices.cpu import CPU

DEVICE = CPU(1, precision="float32")

SETTINGS = {"hidden_layer_sizes": (16,), "random_state": 0, "n_jobs": 1}


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


def with_trees(model: CandidateModel, trees: BoostedTrees | None) -> CandidateModel:
    """Return the model with other trees behind its regression, None for none."""
    return replace(model, stacking=model.stacking._replace(trees=trees))
