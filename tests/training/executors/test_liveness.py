"""Liveness timeouts: when a worker that sends nothing counts as lost."""

from __future__ import annotations

import subprocess

import pytest

from shared.light import Light
from xmlsgd.training.executors.liveness import Liveness
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.messages import Left, Report, Sharing


def test_a_span_is_overdue_after_ten_times_the_slowest_one_and_the_minimum_timeout():
    liveness = Liveness(timeout=1.0, now=0.0)
    liveness.heard(0, Report(0, 10, 0, 0.0, 2.0))
    liveness.heard(0, Report(0, 10, 0, 0.0, 0.01))
    liveness.heard(1, Report(1, 10, 0, 0.0, 0.01))
    for w in (0, 1):
        liveness.works(w, 5)
    lost = {}
    for tick in range(1, 1200):
        liveness.tick(tick / 100)
        for w in liveness.overdue():
            lost.setdefault(w, tick / 100)
    assert lost == {0: pytest.approx(10.0, abs=0.02), 1: pytest.approx(1.0, abs=0.02)}
    liveness.heard(0, Report(0, 5, 0, 0.0, 1.0))
    liveness.lost(1)
    assert liveness.overdue() == []


def test_starting_and_a_first_span_have_a_timeout_of_ten_minutes():
    liveness = Liveness(timeout=1.0, now=0.0)
    liveness.works(0, 5)
    liveness.starts(1)
    for second in range(10 * 599):
        liveness.tick(second / 10)
    assert liveness.overdue() == []
    liveness.heard(1, None)
    for second in range(10 * 599, 10 * 602):
        liveness.tick(second / 10)
    assert liveness.overdue() == [0]


@pytest.mark.parametrize(("took", "limit"), [(2.0, 60.0), (20.0, 200.0), (300.0, 600.0)])
def test_a_start_is_overdue_after_ten_times_the_slowest_other_one_between_one_and_ten_minutes(took, limit):
    liveness = Liveness(timeout=10.0, now=0.0)
    for w in (0, 1, 2):
        liveness.starts(w)
    lost = []
    for second in range(1, 700):
        liveness.tick(second)
        if second == took / 2:
            liveness.heard(0, None)
        if second == took:
            liveness.heard(1, None)
        lost += [(second, w) for w in liveness.overdue()]
    assert lost[0] == (limit + 1, 2)
    assert liveness.start_timeout == limit


def test_a_first_span_is_overdue_after_a_hundred_times_the_slowest_one_of_others():
    """Also if the others report only after that span began."""
    liveness = Liveness(timeout=1.0, now=0.0)
    liveness.works(0, 10)
    liveness.works(1, 10)
    liveness.heard(1, Report(1, 10, 0, 0.0, 0.02))
    lost = []
    for tick in range(1, 300):
        liveness.tick(tick / 100)
        lost += [tick / 100 for w in liveness.overdue()]
    assert lost[0] == pytest.approx(100 * 0.02, abs=0.02)
    liveness.heard(1, Report(1, 1, 0, 0.0, 1e-9))
    liveness.lost(0)
    liveness.works(2, 1)
    liveness.tick(3.05)
    assert liveness.overdue() == [], "never before the minimum timeout"


def test_a_process_is_not_measured_by_the_slow_one_that_it_replaces():
    liveness = Liveness(timeout=1.0, now=0.0)
    liveness.heard(0, Report(0, 1, 0, 0.0, 20.0))
    liveness.heard(1, Report(1, 1, 0, 0.0, 0.01))
    liveness.heard(0, None)
    liveness.works(0, 2)
    for tick in range(30):
        liveness.tick(tick / 10)
    assert liveness.overdue() == [0], "after a hundred times the span of the other"


def test_time_in_which_the_coordinator_did_not_listen_does_not_count():
    """As when a whole job is suspended for an hour."""
    liveness = Liveness(timeout=30.0, now=0.0)
    liveness.heard(0, Report(0, 1, 0, 0.0, 0.1))
    liveness.works(0, 1)
    liveness.tick(3600.0)
    assert liveness.overdue() == []


def test_a_worker_that_cannot_even_be_killed_is_not_replaced(job):
    class Stuck:
        returncode = None

        def poll(self):
            return None

        def wait(self, seconds):
            raise subprocess.TimeoutExpired("stuck", seconds)

        def kill(self):
            pass

    executor = Processes([Light], restarts=3)
    executor.start(job, Sharing.REPLICAS)
    process = executor.pool.processes[0]
    living, process.process = process.process, Stuck()  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="worker 0 is lost: sent nothing for too long, cannot be killed"):
        assert executor._replace_lost(0, executor._kill_overdue(0)) == Left(
            0, "sent nothing for too long, cannot be killed"
        )
    assert not executor.pool.processes
    living.wait()
    executor.close()
