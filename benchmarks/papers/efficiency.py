"""What compute groups cost and bring, by the paper's models: seconds of an update, and how asynchrony moves a mean.

Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487): the time to a loss is hardware efficiency, seconds of an
update, times statistical efficiency, updates (`xmlsgd.algorithms.omnivore`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmlsgd.algorithms.omnivore_tuner import divisors
from xmlsgd.data.random_streams import NOISE
from xmlsgd.data.validation import check_fields
from xmlsgd.errors import DataError


@dataclass(frozen=True)
class HardwareEfficiency:
    """Seconds of an update by `n_workers` equal workers in g groups, which share one server. All times are >= 0.

    compute : t_conv_compute(1), of a whole batch on one worker. network : t_conv_network, of a group's exchange of its
    models or activations, which overlaps with computing. overhead : of a member's step, whatever its rows.
    server, exchange : t_fc is server + exchange * members, during which the server works for one group.
    """

    n_workers: int
    compute: float
    network: float = 0.0
    overhead: float = 0.0
    server: float = 0.0
    exchange: float = 0.0

    def __post_init__(self) -> None:
        """Raise `DataError` for numbers outside their ranges."""
        check_fields(self)
        if self.n_workers < 1:
            raise DataError(f"n_workers must be at least 1, got {self.n_workers}")
        times = self.compute, self.network, self.overhead, self.server, self.exchange
        if not all(0 <= t < float("inf") for t in times) or sum(times) == 0:
            raise DataError(f"times must be finite, at least 0 and not all 0, got {times}")

    def group_seconds(self, g: int) -> float:
        """Return t_conv(k) of a group of k = n_workers / g."""
        return self.overhead + max(self.compute / self._members(g), self.network)

    def server_seconds(self, g: int) -> float:
        """Return t_fc for a group of k = n_workers / g."""
        return self.server + self.exchange * self._members(g)

    def update_seconds(self, g: int) -> float:
        """Return T(g) = max(t_fc, (t_conv(k) + t_fc) / g), the time from one update to the next."""
        server = self.server_seconds(g)
        return max(server, (self.group_seconds(g) + server) / g)

    def relative(self, g: int) -> float:
        """Return HE(g) = T(g) / T(1)."""
        return self.update_seconds(g) / self.update_seconds(1)

    def saturation(self) -> int:
        """Return the fewest groups that keep the server busy, all workers apart if none do: more only add staleness."""
        full = (g for g in divisors(self.n_workers) if self.update_seconds(g) <= self.server_seconds(g))
        return next(full, self.n_workers)

    def _members(self, g: int) -> float:
        """Return the workers of a group."""
        if g not in divisors(self.n_workers):
            raise DataError(f"groups must divide the {self.n_workers} workers, got {g}")
        return self.n_workers / g


def quadratic_path(
    g: int, rate: float, steps: int, replicas: int = 200_000, seed: int = 0, in_turn: bool = False
) -> np.ndarray:
    """Return E[w_t], float64 (steps + 1,), of g groups that descend w**2 / 2 from 1, one update after the other.

    Who updates next is drawn at random, or, if `in_turn`, goes round. The mean is over `replicas` runs.
    """
    draw = np.random.default_rng((seed, NOISE))
    w, read, runs = np.ones(replicas), np.ones((replicas, g)), np.arange(replicas)
    path = [1.0]
    for t in range(steps):
        group = np.full(replicas, t % g) if in_turn else draw.integers(0, g, replicas)
        w = w - rate * read[runs, group]
        read[runs, group] = w
        path.append(float(w.mean()))
    return np.array(path)


def fit_momentum(path: np.ndarray, gradients: np.ndarray) -> tuple[float, float]:
    """Return (momentum, rate) that explain a mean path best, by least squares.

    path[t] = E[w_t] moves by momentum * (path[t] - path[t - 1]) - rate * gradients[t], both float64 (steps + 1,).
    """
    moves = np.diff(path)
    known = np.stack([moves[:-1], -gradients[1:-1]], axis=1)
    (momentum, rate), *_ = np.linalg.lstsq(known, moves[1:], rcond=None)
    return float(momentum), float(rate)
