"""The rules of the tuner of groups, rate and momentum, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xmlsgd.algorithms.omnivore import implicit_momentum
from xmlsgd.algorithms.omnivore_tuner import (
    CENTRE,
    DIVISORS,
    MOMENTA,
    GroupTuner,
    Phase,
    Result,
    Setting,
    best,
    divisors,
    skipped,
)


def play(tuner, loss, seconds=lambda g: 1 / g, phases=200, until_long=1):
    """Feed a tuner with results until so many stretches of training have been ordered; return all phases."""
    order = []
    while sum(not phase.trial for phase in order) < until_long and len(order) < phases:
        order.append(tuner.phase())
        tuner.results.append(Result(loss(order[-1].setting), seconds(order[-1].setting.groups)))
    return order


def flat_loss(setting):
    """Return a loss that falls with the rate and has its best total momentum at 0.9."""
    return 1 + (implicit_momentum(setting.groups) + setting.momentum - 0.9) ** 2 - 0.1 * setting.learning_rate


def trials(order, g):
    return [phase.setting for phase in order if phase.trial and phase.setting.groups == g]


def test_the_cold_start_begins_with_one_group_and_one_momentum():
    order = play(GroupTuner(4, 1.0), flat_loss)
    assert trials(order, 1) == [Setting(1, 0.9, 1 / part) for part in DIVISORS]


def test_more_groups_try_all_momenta_and_the_rate_or_a_tenth_of_it():
    order = play(GroupTuner(2, 1.0), lambda s: s.learning_rate)  # the winner of one group has the smallest rate
    least = 1 / DIVISORS[-1]
    assert trials(order, 2) == [*(Setting(2, m, least) for m in MOMENTA), Setting(2, 0.9, least / 10)]


def test_a_rate_never_rises_with_the_groups():
    """In a cold start no number of groups gets a rate above that of the number before."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tuner = GroupTuner(8, 1.0)
        order = play(tuner, lambda s: rng.random())  # noqa: B023  used at once
        winners = {}
        for phase, result in tuner.history():
            g = phase.setting.groups
            if phase.trial and result.loss < winners.get(g, (math.inf, None))[0]:
                winners[g] = result.loss, phase.setting
        assert sorted(winners) == [1, 2, 4, 8]
        for g in (2, 4, 8):
            assert all(s.learning_rate <= winners[g // 2][1].learning_rate for s in trials(order, g))


@pytest.mark.parametrize(
    ("momentum", "rate", "spared"),
    [(0.6, 2.0, True), (0.9, 1.0, True), (0.6, 1.0, False), (0.3, 1.0, False), (0.3, 0.1, True), (0.6, 0.1, False)],
)
def test_what_is_more_daring_or_more_timid_than_the_winner_of_fewer_groups_is_skipped(momentum, rate, spared):
    assert skipped(Setting(4, momentum, rate), Setting(2, 0.6, 1.0), []) == spared
    assert not skipped(Setting(4, momentum, rate), None, [])


def test_what_is_at_least_as_daring_as_a_pair_that_failed_is_skipped():
    failed = [Setting(1, 0.3, 0.1)]
    assert skipped(Setting(1, 0.3, 0.1), None, failed)
    assert skipped(Setting(1, 0.6, 1.0), None, failed)
    assert not skipped(Setting(1, 0.0, 1.0), None, failed)
    assert not skipped(Setting(1, 0.6, 0.01), None, failed)
    order = play(GroupTuner(2, 1.0), lambda s: math.nan if s.groups == 2 and s.momentum >= 0.3 else s.learning_rate)
    least = 1 / DIVISORS[-1]
    assert trials(order, 2) == [Setting(2, 0.0, least), Setting(2, 0.3, least), Setting(2, 0.9, least / 10)]


def test_groups_are_not_split_further_when_an_update_gets_hardly_faster():
    order = play(GroupTuner(8, 1.0), flat_loss, lambda g: {1: 1.0, 2: 0.5, 4: 0.46, 8: 0.1}[g])
    assert {phase.setting.groups for phase in order} == {1, 2, 4}
    order = play(GroupTuner(8, 1.0), flat_loss, lambda g: {1: 1.0, 2: 0.5, 4: 0.45, 8: 0.1}[g])
    assert {phase.setting.groups for phase in order} == {1, 2, 4, 8}


def test_the_cold_start_takes_the_groups_of_the_lowest_loss():
    for wanted in (1, 2, 4):
        order = play(GroupTuner(4, 1.0), lambda s: 1.0 - (s.groups == wanted) * s.momentum)  # noqa: B023  used at once
        assert order[-1] == Phase(Setting(wanted, 0.9, order[-1].setting.learning_rate), trial=False)


def test_the_steady_state_begins_with_the_most_groups_before_saturation():
    order = play(GroupTuner(8, 1.0), flat_loss, lambda g: max(1 / g, 0.5), until_long=2)
    assert order[-1].setting.groups == 2
    assert {phase.setting.groups for phase in order} == {1, 2, 4}
    later = order[[phase.trial for phase in order].index(False) + 1 :]
    rate = later[0].setting.learning_rate
    expected = [Setting(2, m, rate / part) for part in (1, 10) for m in MOMENTA]
    assert trials(later, 2) == expected


def test_near_the_best_loss_the_larger_rate_then_the_larger_momentum_is_preferred():
    a, b, c, d = Setting(2, 0.3, 1.0), Setting(2, 0.6, 1.0), Setting(2, 0.9, 0.1), Setting(2, 0.9, 1.0)
    tried = {a: Result(1.009, 1), b: Result(1.01, 1), c: Result(1.0, 1), d: Result(1.011, 1)}
    assert best(tried, 0.01) == b
    assert best(tried) == c
    assert best({a: Result(math.nan, 1), c: Result(math.inf, 1)}, 0.01) == c, "all failed: the least daring"


def test_the_steady_state_takes_the_larger_momentum_of_two_that_are_about_as_good():
    order = play(GroupTuner(1, 1.0), lambda s: {0.3: 1.0, 0.6: 1.005}.get(s.momentum, 2.0), until_long=2)
    assert order[-1] == Phase(Setting(1, 0.6, 1.0), trial=False)


def test_groups_are_halved_exactly_when_no_momentum_is_best():
    """Here one and two groups want momentum, four and eight want none."""
    order = play(GroupTuner(8, 1.0), lambda s: 1 + (s.momentum if s.groups > 2 else -s.momentum), until_long=2)
    later = order[[phase.trial for phase in order].index(False) + 1 :]
    assert list(dict.fromkeys(phase.setting.groups for phase in later)) == [8, 4, 2]
    assert later[-1].setting == Setting(2, 0.9, later[0].setting.learning_rate)
    assert [s.momentum for s in trials(later, 8)[:4]] == list(MOMENTA)
    assert [s.momentum for s in trials(later, 4)[:4]] == sorted(MOMENTA, key=lambda m: abs(m - CENTRE))


def test_one_group_is_not_halved():
    order = play(GroupTuner(2, 1.0), lambda s: 1 + s.momentum, until_long=3)
    assert order[-1].setting == Setting(1, 0.0, order[-1].setting.learning_rate)
    assert len(order) < 60


def test_halving_keeps_to_divisors_of_the_workers():
    order = play(GroupTuner(9, 1.0), lambda s: 1 + s.momentum, until_long=2)
    assert list(dict.fromkeys(phase.setting.groups for phase in order)) == [1, 3, 9]
    assert order[-1].setting.groups == 1
    assert divisors(9) == [1, 3, 9]


def test_a_search_in_which_all_diverges_ends_with_the_least_daring_setting():
    order = play(GroupTuner(4, 1.0), lambda s: math.nan)
    assert trials(order, 2) == []
    assert order[-1] == Phase(Setting(1, 0.9, 1 / DIVISORS[-1]), trial=False)
