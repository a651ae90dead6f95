"""Learning-rate schedules at the points where their values are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlsgd.errors import DataError
from xmlsgd.nn.schedules import SCHEDULES, Schedule


@pytest.mark.parametrize(
    ("schedule", "start", "middle", "end"),
    [
        ("constant", 1, 1, 1),
        ("linear", 1, 0.5, 0),
        ("cosine", 1, 0.5, 0),
        ("inverse_sqrt", 1, 1 / math.sqrt(50.5), 0.1),
    ],
)
def test_factors_at_start_middle_and_end(schedule, start, middle, end):
    factors = [Schedule(1, schedule, 0).factor(progress) for progress in (0, 0.5, 1)]
    assert factors == pytest.approx([start, middle, end])


def test_warm_up_rises_linearly_then_the_schedule_takes_the_rest():
    factors = [Schedule(1, "linear", 0.2).factor(progress) for progress in (0, 0.05, 0.1, 0.2, 0.6, 1)]
    assert factors == pytest.approx([0, 0.25, 0.5, 1, 0.5, 0])


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(progress=st.floats(0, 1), warm_up=st.floats(0, 1, exclude_max=True))
def test_factors_stay_between_zero_and_one(schedule, progress, warm_up):
    assert 0 <= Schedule(1, schedule, warm_up).factor(progress) <= 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(a=st.floats(0, 1), b=st.floats(0, 1))
def test_without_warm_up_factors_never_rise(schedule, a, b):
    factor = Schedule(1, schedule, 0).factor
    assert factor(max(a, b)) <= factor(min(a, b))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_begins_at_the_peak_where_warm_up_ends(schedule):
    assert Schedule(1, schedule, 0).factor(0) == 1
    assert Schedule(1, schedule, 0.25).factor(0.25) == 1


def test_a_run_that_is_all_warm_up_is_refused():
    with pytest.raises(DataError, match=r"warm_up: must be in \[0, 1\), got 1\.0"):
        Schedule(1, "linear", 1.0)


def test_an_unknown_schedule_lists_those_there_are():
    with pytest.raises(DataError, match="one of constant, linear, cosine, inverse_sqrt, got 'step'"):
        Schedule(1, "step")
