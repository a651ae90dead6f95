"""Staleness: what counts, what is weighed, dropped or kept waiting, and for whom it is unfair."""

from __future__ import annotations

import numpy as np
import pytest

from shared import light, toy
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.staleness import Bounded, Dropped, Staleness
from xmlsgd.errors import DataError


@pytest.mark.parametrize(
    ("rule", "weights"),
    [(Staleness(), [1, 1, 1, 1]), (Dropped(4), [1, 1, 0, 0]), (Bounded(2), [1, 1, 1, 1])],
    ids=lambda value: type(value).__name__ if isinstance(value, Staleness) else "",
)
def test_updates_are_weighed_by_their_staleness(rule, weights):
    assert [rule.weight(s) for s in (0, 1, 4, 9)] == pytest.approx(weights)


def test_staleness_counts_the_updates_of_others_between_reading_and_writing():
    """Worker 1 makes seven updates, each of a staleness of 0, while worker 0 makes one."""
    _, executor = toy.run(Hogwild(10, 0.1, staleness=Staleness()), toy.fleet(0.1, 0.75), n_rows=80)
    seen = [(report.worker, report.staleness) for report in executor.of("done")]
    assert seen == [(1, 0)] * 7 + [(0, 7)]


def test_a_weighed_update_is_worked_by_hand():
    """w <- w + (1 + s)^-1 (copy after - copy read)."""

    class Damped(Staleness):
        def weight(self, staleness):
            return 1 / (1 + staleness)

    done, executor = toy.run(Hogwild(10, 0.3, staleness=Damped()), toy.fleet(1, 0.7, 0.2))
    w, flying = 0.0, {}
    for kind, what in executor.log:
        if kind == "issue":
            flying[what.worker] = toy.after(w, what) - w
        else:
            w += flying.pop(what.worker) / (1 + what.staleness)
    assert toy.weight(done) == pytest.approx(w, rel=1e-4)
    assert max(report.staleness for report in executor.of("done")) >= 3


def test_dropped_updates_make_no_model_older():
    """Five equal workers: of each five updates as many are kept as are not staler than the limit, run after run."""
    data = toy.dataset(500)
    done, executor = toy.run(
        Hogwild(1, 0.1, staleness=Dropped(3)), toy.fleet(*[1] * 5), data=data, device=light.Marking()
    )
    kept = sum(report.staleness < 3 for report in executor.of("done"))
    assert toy.marks(done.params, data).sum() == kept
    assert max(report.staleness for report in executor.of("done")) <= 5
    assert kept > 200, "were dropped updates counted, all would soon be too old"


def test_a_bounded_run_lets_nobody_get_further_ahead_than_the_slack():
    slack = 2
    _, executor = toy.run(Hogwild(10, 0.1, staleness=Bounded(slack)), toy.fleet(1, 0.1), n_rows=300)
    done = {0: 0, 1: 0}
    for kind, what in executor.log:
        if kind == "issue":
            assert done[what.worker] - min(done.values()) <= slack
        else:
            done[what.worker] += what.updates
    assert abs(done[0] - done[1]) <= slack + 1
    _, free = toy.run(Hogwild(10, 0.1), toy.fleet(1, 0.1), n_rows=300)
    assert executor.now() > 1.5 * free.now()


def test_who_waits_for_a_worker_that_leaves_goes_on():
    fleet = toy.fleet(1, 0.01)
    fleet[1] = type(fleet[1])(0, 1e-3, speed=0.01, absent=((0.5, np.inf),))
    done, executor = toy.run(Hogwild(10, 0.1, staleness=Bounded(1)), fleet, n_rows=100)
    assert executor.of("left") == [1]
    assert done.records[0]["rows"] == 100
    assert {report.worker for report in executor.of("done")} == {0}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Dropped(0), "limit must be at least 1, got 0"),
        (lambda: Bounded(-1), "slack must be at least 0, got -1"),
    ],
)
def test_bad_numbers_are_refused_at_construction(make, complaint):
    with pytest.raises(DataError, match=complaint):
        make()
