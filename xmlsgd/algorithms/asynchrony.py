"""What the asynchrony of compute groups amounts to: momentum.

Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487): with g groups a gradient is on average g - 1 updates old,
which moves the expected model like momentum of 1 - 1/g; as long as that is below the best momentum, it costs next to
nothing.
"""

from __future__ import annotations


def divisors(n: int) -> list[int]:
    """Return the divisors of n, ascending: the numbers of groups that n workers make equal."""
    return [g for g in range(1, n + 1) if n % g == 0]


def implicit_momentum(g: int) -> float:
    """Return what the asynchrony of g groups amounts to, if who finishes next is random: 1 - 1/g."""
    return 1 - 1 / g


def explicit_momentum(g: int, best: float) -> float:
    """Return the momentum that g groups lack, given the `best` at one group."""
    return max(0.0, best - implicit_momentum(g))
