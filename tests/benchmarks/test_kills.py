"""The campaign of kills sees a rule that loses rows; `test_reliability` runs a short one."""

from __future__ import annotations

import inspect
import itertools
import os
import random
import signal
import time

import pytest

from benchmarks import kills
from shared.processes import HANG
from xmlsgd.algorithms import get_algorithm
from xmlsgd.algorithms.base import Algorithm
from xmlsgd.training import loop as engine
from xmlsgd.training.executors.shared_files import RunFolder
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


@pytest.mark.slow
def test_coordinators_that_leave_files_are_found_out(monkeypatch):
    monkeypatch.setattr(kills, "OPTIMIZERS", {"SGD": kills.OPTIMIZERS["SGD"]})
    monkeypatch.setattr(kills, "ALGORITHMS", ["synchronous"])
    monkeypatch.setattr(kills, "orphans_left", lambda: 0)
    monkeypatch.setattr(RunFolder, "close", lambda self: None)
    found = {}
    kills.kill_coordinators(found, 1, time.monotonic() + HANG)
    assert found["coordinators: synchronous"]["kills"] >= 1
    assert kills.wrong(found) == ["coordinators: synchronous: files left: wrong"]


def test_workers_that_outlive_their_coordinator_are_found_out(monkeypatch):
    """In a process of its own, whose only child waits at a pipe."""
    monkeypatch.setattr(kills, "ORPHANED", 0.1)
    if not (child := os.fork()):
        ours, theirs = os.pipe()
        if not os.fork():
            os.close(theirs)
            os.read(ours, 1)
            os._exit(0)
        found = [kills.orphans_left()]
        os.close(theirs)
        kills.ORPHANED = HANG
        found.append(kills.orphans_left())
        os._exit(found != [1, 0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_coordinators_of_each_optimizer_are_killed_where_one_run_is_killed_often(monkeypatch):
    codes = itertools.cycle([0, *[-signal.SIGKILL] * 3])  # the first run of each measures the time

    def in_a_fork(run, place, seconds):
        (place / "model").write_bytes(b"made")
        return next(codes)

    monkeypatch.setattr(kills, "ALGORITHMS", ["sequential"])
    monkeypatch.setattr(kills, "model_of_one", lambda *_: b"made")
    monkeypatch.setattr(kills, "in_a_fork", in_a_fork)
    monkeypatch.setattr(kills, "orphans_left", lambda: 0)
    found = {}
    kills.kill_coordinators(found, 2, time.monotonic() + HANG)
    assert [counts["kills"] for counts in found.values()] == [3, 2]
    assert kills.wrong(found) == []
