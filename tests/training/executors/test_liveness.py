"""How long a worker may be silent before it counts as lost."""

from __future__ import annotations

import subprocess

import pytest

from shared.every_executor import cpu
from xmlsgd.errors import DataError
from xmlsgd.training.executors.liveness import Silence
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.messages import Left, Report, Sharing


def test_a_silence_is_too_long_after_ten_times_the_slowest_pace_and_at_least_what_is_asked_for():
    silence = Silence(least=1.0, now=0.0)
    silence.heard(0, Report(0, 10, 0, 0.0, 2.0))
    silence.heard(0, Report(0, 10, 0, 0.0, 0.01))
    silence.heard(1, Report(1, 10, 0, 0.0, 0.01))
    for w in (0, 1):
        silence.works(w, 5)
    lost = {}
    for tick in range(1, 1200):
        silence.look(tick / 100)
        for w in silence.overdue():
            lost.setdefault(w, tick / 100)
    assert lost == {0: pytest.approx(10.0, abs=0.02), 1: pytest.approx(1.0, abs=0.02)}
    silence.heard(0, Report(0, 5, 0, 0.0, 1.0))
    silence.gone(1)
    assert silence.overdue() == []


def test_who_starts_or_takes_a_first_step_is_given_ten_minutes():
    silence = Silence(least=1.0, now=0.0)
    silence.works(0, 5)
    silence.starts(1)
    for second in range(10 * 599):
        silence.look(second / 10)
    assert silence.overdue() == []
    silence.heard(1, None)
    for second in range(10 * 599, 10 * 602):
        silence.look(second / 10)
    assert silence.overdue() == [0]


@pytest.mark.parametrize(("took", "limit"), [(2.0, 60.0), (20.0, 200.0), (300.0, 600.0)])
def test_a_start_beside_others_is_due_after_ten_times_the_slowest_of_theirs_between_one_minute_and_ten(took, limit):
    silence = Silence(least=10.0, now=0.0)
    for w in (0, 1, 2):
        silence.starts(w)
    lost = []
    for second in range(1, 700):
        silence.look(second)
        if second == took / 2:
            silence.heard(0, None)
        if second == took:
            silence.heard(1, None)
        lost += [(second, w) for w in silence.overdue()]
    assert lost[0] == (limit + 1, 2)
    assert silence.start == limit


def test_a_first_step_beside_others_is_due_after_a_hundred_times_their_slowest_pace():
    """Also where they have shown it only after that step began."""
    silence = Silence(least=1.0, now=0.0)
    silence.works(0, 10)
    silence.works(1, 10)
    silence.heard(1, Report(1, 10, 0, 0.0, 0.02))
    lost = []
    for tick in range(1, 300):
        silence.look(tick / 100)
        lost += [tick / 100 for w in silence.overdue()]
    assert lost[0] == pytest.approx(100 * 0.02, abs=0.02)
    silence.heard(1, Report(1, 1, 0, 0.0, 1e-9))
    silence.gone(0)
    silence.works(2, 1)
    silence.look(3.05)
    assert silence.overdue() == [], "never before the least silence"


def test_time_in_which_nobody_looked_is_no_silence():
    """A job that is stopped as a whole, and goes on an hour later."""
    silence = Silence(least=30.0, now=0.0)
    silence.heard(0, Report(0, 1, 0, 0.0, 0.1))
    silence.works(0, 1)
    silence.look(3600.0)
    assert silence.overdue() == []


def test_a_worker_that_cannot_even_be_killed_is_not_replaced(job):
    class Stuck:
        returncode = None

        def poll(self):
            return None

        def wait(self, seconds):
            raise subprocess.TimeoutExpired("stuck", seconds)

        def kill(self):
            pass

    executor = Processes([cpu], restarts=3)
    executor.start(job, Sharing.REPLICAS)
    process = executor.team.processes[0]
    living, process.process = process.process, Stuck()  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="worker 0 is lost: silent for too long, cannot be killed"):
        assert executor._bury(process, silent=True) == Left(0, "silent for too long, cannot be killed")
    assert not executor.team.processes
    living.wait()
    executor.close()


@pytest.mark.parametrize("silence", [0.0, -1.0, float("nan"), "3"])
def test_a_silence_that_is_no_number_above_zero_is_refused(silence):
    with pytest.raises(DataError, match="silence must be above 0, got"):
        Processes([cpu], silence=silence)
