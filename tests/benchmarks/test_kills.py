"""The campaign of kills sees a rule that loses rows; `test_reliability` runs a short one."""

from __future__ import annotations

import inspect
import itertools
import random
import signal
import time

import pytest

from benchmarks import kills
from shared.processes import HANG
from xmlsgd.algorithms import get_algorithm
from xmlsgd.algorithms.base import Algorithm
from xmlsgd.training import loop as engine
from xmlsgd.training.messages import Sharing
from xmlsgd.training.router import Router


class Naive(Router):
    """What was answered counts as done, merged or not."""

    def give_back(self, worker):
        self.returned += self.leases.pop(worker, [])[-1:]


def test_there_is_an_algorithm_of_each_kind_of_sharing():
    kinds = {get_algorithm(text, 10, 0.1).sharing for text in kills.ALGORITHMS}
    assert kinds == set(Sharing)


def test_marks_are_added_wherever_an_algorithm_may_merge():
    """The rules of an algorithm would take marks for a model, and average them."""
    merging = {
        name
        for name, method in vars(Algorithm).items()
        if inspect.isfunction(method) and "comm" in inspect.signature(method).parameters
    }
    algorithm = kills.with_kills(get_algorithm("crossbow", 10, 0.1), kills.Kills(None, random.Random(0), 0), True)
    assert {"merge", "overlap", "end_epoch"} <= merging <= vars(type(algorithm)).keys()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:worker . is lost")
def test_a_rule_that_loses_rows_is_found_out(monkeypatch):
    monkeypatch.setattr(kills, "FROM_OUTSIDE", 0)
    monkeypatch.setattr(kills, "IN_STEPS", 3)
    monkeypatch.setattr(engine, "Router", Naive)
    found = kills.count_rows("local_sgd/steps=8", "SGD", 0)
    assert found["kills"] >= 1
    assert kills.wrong({"found": found}) == ["found: rows lost: wrong"]


def test_coordinators_of_each_optimizer_are_killed_where_one_run_is_killed_often(monkeypatch):
    codes = itertools.cycle([0, *[-signal.SIGKILL] * 3])  # the first run of each measures the time

    def in_a_fork(optimizer, seed, place, seconds):
        (place / "model").write_bytes(b"made")
        return next(codes)

    monkeypatch.setattr(kills, "whole_run", lambda *_: b"made")
    monkeypatch.setattr(kills, "in_a_fork", in_a_fork)
    found = {}
    kills.kill_coordinators(found, 2, time.monotonic() + HANG)
    assert [counts["kills"] for counts in found.values()] == [3, 2]
    assert kills.wrong(found) == []
