"""Learning rate as a function of the share of the run that is done.

A schedule maps progress in [0, 1] to a factor of the initial rate. Warm-up rises linearly over the first rows, which
keeps Adam's first, badly estimated steps small.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .kinds import check_choice

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "inverse_sqrt": lambda done: 1.0 / math.sqrt(1.0 + 99.0 * done),  # falls to a tenth
}


def learning_rate_factor(schedule: str, progress: float, warm_up: float = 0.0) -> float:
    """Return the factor of the initial rate after a share `progress` of all rows, `warm_up` of them for the rise."""
    check_choice("learning_rate", schedule, SCHEDULES)
    if progress < warm_up:
        return progress / warm_up
    rest = (progress - warm_up) / (1.0 - warm_up) if warm_up < 1 else 1.0
    return SCHEDULES[schedule](min(rest, 1.0))
