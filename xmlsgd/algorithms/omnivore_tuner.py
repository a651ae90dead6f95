"""The optimizer of Omnivore: it finds groups, momentum and learning rate by short trials that begin at one model.

Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487), as in the released code: a cold start with one group, then
more and more; and a grid of momenta and learning rates before each long phase of training.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# All numbers are those of the released code.
BEST_MOMENTUM = 0.9  # of one group with SGD; with Adam, too, it was better than 0 (docs/decisions/workers.md)
MOMENTA = (0.0, 0.3, 0.6, 0.9)  # the momenta of a grid
# Divisors of the given learning rate: all are tried with one group, the first two with more.
DIVISORS = (1, 10, 100, 1000)
SATURATION = 0.10  # groups are not split further if the seconds per update fall by less than this share
TIE = 0.01  # losses that differ by less are equal: then the larger learning rate, then the larger momentum wins
CENTRE = 0.6  # after groups were halved, momenta near this one are tried first


class Setting(NamedTuple):
    """The settings that are tuned: number of groups, explicit momentum, learning rate."""

    groups: int
    momentum: float
    learning_rate: float


class Result(NamedTuple):
    """The result of a phase: mean of the last losses (not finite if it diverged), and seconds per update."""

    loss: float
    seconds: float


class Phase(NamedTuple):
    """A setting to train with: as a trial, which begins at the snapshot of the model, or for good."""

    setting: Setting
    trial: bool


Tried = dict[Setting, Result]
Search = Generator[Phase, Result, Tried]


@dataclass
class GroupTuner:
    """Decides the phases of a run. Its only state are the results so far, so that it can be copied and pickled.

    n_workers : workers that are grouped. learning_rate : the largest that is tried, > 0. results : of the phases that
    are over.
    """

    n_workers: int
    learning_rate: float
    results: list[Result] = field(default_factory=list)

    def phase(self) -> Phase:
        """Return the current phase."""
        return self._phases()[-1]

    def history(self) -> list[tuple[Phase, Result]]:
        """Return the phases that are over, with their results."""
        return list(zip(self._phases(), self.results, strict=False))

    def last_trials(self) -> list[tuple[Setting, Result]]:
        """Return the trials since the last phase of training for good, with their results."""
        found: list[tuple[Setting, Result]] = []
        for phase, result in self.history():
            found = [*found, (phase.setting, result)] if phase.trial else []
        return found

    def _phases(self) -> list[Phase]:
        """Return all phases so far, including the current one, by replaying the results."""
        program = self.program()
        return [next(program), *(program.send(result) for result in self.results)]

    def program(self) -> Generator[Phase, Result, None]:
        """Yield the phases, and receive the result of each."""
        setting, g = yield from self.cold_start()
        yield Phase(setting, trial=False)
        while True:
            setting = yield from self.steady_state(g, setting.learning_rate)
            g = setting.groups
            yield Phase(setting, trial=False)

    def cold_start(self) -> Generator[Phase, Result, tuple[Setting, int]]:
        """Return the setting of the lowest loss, and the most groups before saturation."""
        pairs = [(BEST_MOMENTUM, self.learning_rate / divisor) for divisor in DIVISORS]
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
            return Setting(1, BEST_MOMENTUM, self.learning_rate / DIVISORS[-1]), 1
        return best(winners), most

    def steady_state(self, g: int, learning_rate: float) -> Generator[Phase, Result, Setting]:
        """Return the best momentum and learning rate; while momentum 0 is best, search with half as many groups."""
        tried = yield from search(g, grid(learning_rate))
        while (setting := best(tried, TIE)).momentum == 0 and g > 1:
            g = max(d for d in divisors(self.n_workers) if d <= g // 2)
            tried = yield from search(g, grid(setting.learning_rate, CENTRE))
        return setting


def grid(learning_rate: float, centre: float = 0.0) -> list[tuple[float, float]]:
    """Return pairs (momentum, learning rate), the larger rate first, then the momentum nearest to `centre`."""
    momenta = sorted(MOMENTA, key=lambda m: abs(m - centre))
    return [(m, learning_rate / divisor) for divisor in DIVISORS[:2] for m in momenta]


def search(g: int, pairs: Sequence[tuple[float, float]], previous: Setting | None = None) -> Search:
    """Try pairs (momentum, learning rate) with g groups, but for those that `skipped` rules out; return the results.

    previous : the best setting with fewer groups.
    """
    tried: Tried = {}
    for momentum, rate in pairs:
        setting = Setting(g, momentum, rate)
        failed = [s for s, result in tried.items() if not math.isfinite(result.loss)]
        if not skipped(setting, previous, failed):
            tried[setting] = yield Phase(setting, trial=True)
    return tried


def skipped(setting: Setting, previous: Setting | None, failed: Sequence[Setting]) -> bool:
    """Return whether a trial is not worth its time.

    It is not if a setting with no larger learning rate and momentum has diverged (`failed`). More groups mean more
    staleness, so it is not worth it either if it is more daring than the best setting with fewer groups (`previous`),
    or smaller in both numbers.
    """
    _, m, rate = setting
    if any(rate >= f.learning_rate and m >= f.momentum for f in failed):
        return True
    if previous is None:
        return False
    daring = rate > previous.learning_rate or (rate == previous.learning_rate and m > previous.momentum)
    timid = rate < previous.learning_rate and m < previous.momentum
    return daring or timid


def best(tried: Tried, tie: float = 0.0) -> Setting:
    """Return the setting of the lowest loss, or the one of the smallest rate, then momentum, if all have diverged.

    Among losses within the share `tie` of the lowest, the largest rate wins, then the largest momentum.
    """
    losses = {setting: result.loss for setting, result in tried.items() if math.isfinite(result.loss)}
    if not losses:
        return min(tried, key=lambda s: (s.learning_rate, s.momentum))
    bound = min(losses.values()) * (1 + tie)
    return max((s for s, loss in losses.items() if loss <= bound), key=lambda s: (s.learning_rate, s.momentum))


def divisors(n: int) -> list[int]:
    """Return the divisors of n, ascending: the numbers of equal groups that n workers can form."""
    return [g for g in range(1, n + 1) if n % g == 0]
