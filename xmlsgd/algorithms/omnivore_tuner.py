"""The optimizer of Omnivore: which number of groups, momentum and rate, found by short trials from one checkpoint.

Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487), in the form of the released code: a cold start that goes
from one group to many, then, before every long stretch of training, a grid of momentum and rate.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# All of these are the released code's.
BEST_MOMENTUM = 0.9  # of one group, by SGD; it did better than 0 with Adam, too (docs/decisions/workers.md)
MOMENTA = (0.0, 0.3, 0.6, 0.9)  # tried wherever a group may wait for another
# The given learning rate is divided by them: all are tried with one group, the first two with more.
FRACTIONS = (1, 10, 100, 1000)
SATURATION = 0.10  # relative gain in seconds an update below which groups are not split further
TIE = 0.01  # relative difference of losses within which the larger learning rate, then momentum is preferred
CENTRE = 0.6  # momentum from which a search begins anew after groups were halved


class Setting(NamedTuple):
    """What is tuned: the number of groups, the explicit momentum, the learning rate of an update."""

    groups: int
    momentum: float
    learning_rate: float


class Result(NamedTuple):
    """What a phase came to: the mean of the last losses, NaN or infinite if one was, and the seconds an update."""

    loss: float
    seconds: float


class Phase(NamedTuple):
    """A setting to run: as a trial, from the model set aside, or for good."""

    setting: Setting
    trial: bool


Tried = dict[Setting, Result]
Search = Generator[Phase, Result, Tried]


@dataclass
class GroupTuner:
    """A program of phases. Its state are the `results` of those that are over, so that it can be copied and pickled.

    n_workers : workers that are grouped. learning_rate : the largest tried, > 0.
    """

    n_workers: int
    learning_rate: float
    results: list[Result] = field(default_factory=list)

    def phase(self) -> Phase:
        """Return what is to be run now."""
        return self._phases()[-1]

    def history(self) -> list[tuple[Phase, Result]]:
        """Return the phases that are over, and what each came to."""
        return list(zip(self._phases(), self.results, strict=False))

    def last_trials(self) -> list[tuple[Setting, Result]]:
        """Return the trials since the last stretch of training that is over, and what each came to."""
        found: list[tuple[Setting, Result]] = []
        for phase, result in self.history():
            found = [*found, (phase.setting, result)] if phase.trial else []
        return found

    def _phases(self) -> list[Phase]:
        """Run the program through all results."""
        program = self.program()
        return [next(program), *(program.send(result) for result in self.results)]

    def program(self) -> Generator[Phase, Result, None]:
        """Yield phase after phase, each told the result of the one before."""
        setting, g = yield from self.cold_start()
        yield Phase(setting, trial=False)
        while True:
            setting = yield from self.steady_state(g, setting.learning_rate)
            g = setting.groups
            yield Phase(setting, trial=False)

    def cold_start(self) -> Generator[Phase, Result, tuple[Setting, int]]:
        """Return the setting of the lowest loss, and the most groups before saturation."""
        pairs = [(BEST_MOMENTUM, self.learning_rate / part) for part in FRACTIONS]
        winners: Tried = {}
        previous, before, most = None, math.inf, 1
        for g in divisors(self.n_workers):
            tried = yield from search(g, pairs, previous)
            if not any(math.isfinite(result.loss) for result in tried.values()):
                break
            previous = best(tried)
            winners[previous] = tried[previous]
            seconds = sum(result.seconds for result in tried.values()) / len(tried)
            if seconds > before / (1 + SATURATION):
                break
            before, most = seconds, g
            pairs = grid(previous.learning_rate)
        if not winners:
            return Setting(1, BEST_MOMENTUM, self.learning_rate / FRACTIONS[-1]), 1
        return best(winners), most

    def steady_state(self, g: int, learning_rate: float) -> Generator[Phase, Result, Setting]:
        """Return the best momentum and rate; where no momentum is best, for half as many groups."""
        tried = yield from search(g, grid(learning_rate))
        while (setting := best(tried, TIE)).momentum == 0 and g > 1:
            g = max(d for d in divisors(self.n_workers) if d <= g // 2)
            tried = yield from search(g, grid(setting.learning_rate, CENTRE))
        return setting


def grid(learning_rate: float, centre: float = 0.0) -> list[tuple[float, float]]:
    """Return pairs (momentum, rate), the larger learning rate and the momentum nearest to `centre` first."""
    momenta = sorted(MOMENTA, key=lambda m: abs(m - centre))
    return [(m, learning_rate / part) for part in FRACTIONS[:2] for m in momenta]


def search(g: int, pairs: Sequence[tuple[float, float]], previous: Setting | None = None) -> Search:
    """Try the pairs (momentum, rate) that are worth it with g groups, `previous` being the winner of fewer groups."""
    tried: Tried = {}
    for momentum, rate in pairs:
        setting = Setting(g, momentum, rate)
        failed = [s for s, result in tried.items() if not math.isfinite(result.loss)]
        if not skipped(setting, previous, failed):
            tried[setting] = yield Phase(setting, trial=True)
    return tried


def skipped(setting: Setting, previous: Setting | None, failed: Sequence[Setting]) -> bool:
    """Return whether a trial can be spared: too daring after what failed or for more staleness, or too timid."""
    _, m, rate = setting
    if any(rate >= f.learning_rate and m >= f.momentum for f in failed):
        return True
    if previous is None:
        return False
    daring = rate > previous.learning_rate or (rate == previous.learning_rate and m > previous.momentum)
    timid = rate < previous.learning_rate and m < previous.momentum
    return daring or timid


def best(tried: Tried, tie: float = 0.0) -> Setting:
    """Return the setting of the lowest loss; within `tie` of it that of the largest rate, then momentum.

    The least daring one if all have failed.
    """
    losses = {setting: result.loss for setting, result in tried.items() if math.isfinite(result.loss)}
    if not losses:
        return min(tried, key=lambda s: (s.learning_rate, s.momentum))
    bound = min(losses.values()) * (1 + tie)
    return max((s for s, loss in losses.items() if loss <= bound), key=lambda s: (s.learning_rate, s.momentum))


def divisors(n: int) -> list[int]:
    """Return the divisors of n, ascending: the numbers of groups that n workers make equal."""
    return [g for g in range(1, n + 1) if n % g == 0]
