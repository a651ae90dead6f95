"""One CPU, settings of a quick model, and equal weights, for tests of candidates."""

from __future__ import annotations

import numpy as np

from xmlsgd.devices.cpu import CPU

DEVICE = CPU(1, precision="float32")

SETTINGS = {"hidden_layer_sizes": (16,), "random_state": 0, "n_jobs": 1}


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)
