"""Kernels of steps on copies of a shared model: rows of W0 that are pulled, differences that are pushed.

Vectors are float32 (n_params,): W0, `width` floats a feature, and behind it, from `dense` on, what every step changes.
"""

from __future__ import annotations

from numba import prange

from ..compiling import kernel


@kernel()
def pull_rows(center, copy, base, features, width, n_threads):
    """Copy rows of W0 from the center to `copy` and `base`; features are all different."""
    for t in prange(n_threads):
        for k in range(features.size * t // n_threads, features.size * (t + 1) // n_threads):
            for i in range(features[k] * width, (features[k] + 1) * width):
                value = center[i]
                copy[i] = value
                base[i] = value


@kernel()
def push(center, copy, base, features, width, dense, factor, alone, n_threads):
    """Add `factor` times what changed in `copy` since it was `base` to the center; `alone`: take the copy as it is.

    Behind W0 both become the center on the way, which is a pull for two vectors more written, and none read.
    """
    n = center.size - dense
    for t in prange(n_threads):
        first, last = dense + n * t // n_threads, dense + n * (t + 1) // n_threads
        if alone:
            for i in range(first, last):
                value = copy[i]
                center[i] = value
                base[i] = value
        else:
            for i in range(first, last):
                value = center[i] + factor * (copy[i] - base[i])
                center[i] = value
                copy[i] = value
                base[i] = value
        for k in range(features.size * t // n_threads, features.size * (t + 1) // n_threads):
            for i in range(features[k] * width, (features[k] + 1) * width):
                center[i] = copy[i] if alone else center[i] + factor * (copy[i] - base[i])
