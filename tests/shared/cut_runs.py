"""Runs that are killed after some steps, and go on from a checkpoint."""

from __future__ import annotations

import itertools

import numpy as np

from shared import light
from shared.failing import Failing
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

N_ROWS, BATCH, EPOCHS = 53, 10, 3
STEPS = 6  # an epoch
NETWORK = Network(12, 9, (8,), hidden_dropout=0.2, gradient_rounding=0.1)
SCHEDULE = Schedule(EPOCHS, "cosine", 0.1)


class Killed(Exception):
    """Stands for the end of a process."""


class Late(Callback):
    """Kills a run when it has trained on some rows."""

    def __init__(self, rows):
        self.left = rows

    def span(self, report):
        self.left -= report.rows
        if self.left <= 0:
            raise Killed


def job_of(dataset, **more):
    """Return a job with all that is random."""
    weight = np.random.default_rng(1).uniform(0.5, 2, dataset.n_rows).astype(np.float32)
    return Job(dataset, NETWORK, Adam(weight_decay=0.01), seed=4, sample_weight=weight, **more)


def go(job, checkpoint=None, steps=0, callbacks=(), schedule=SCHEDULE, algorithm=None, device=None):
    """Train by one worker, killed after some steps; return the run, None of one that was killed."""
    killing = [Failing(Killed(), steps)] if steps else []
    executor = Serial([device or Reference()])
    try:
        return train(job, algorithm or Sequential(BATCH, 0.05), executor, schedule, [*callbacks, *killing], checkpoint)
    except Killed:
        return None


def diverging(at, then=lambda: None):
    """Return a device whose loss is no number at a step, counted from 1, which calls `then` first."""
    device, steps = light.Marking(), itertools.count(1)

    def output_step(*given):
        if next(steps) != at:
            return 0.5, given[0]
        then()
        return np.nan, given[0]

    device.output_step = output_step
    return device


def overflowing(at):
    """Return a device whose update at a step, counted from 1, is not finite; its loss is no number from the next on."""
    device, steps = light.Marking(), itertools.count(1)

    def output_step(A, targets, layer, *given):
        step = next(steps)
        if step == at:
            layer.W[:] = np.inf
        return (np.nan if step > at else 0.5), A

    device.output_step = output_step
    return device


def assert_same(run, whole):
    """Assert that two runs ended with the same bits and tell the same, but for the time."""
    np.testing.assert_array_equal(run.params, whole.params)
    np.testing.assert_array_equal(run.state, whole.state)
    assert run.updates == whole.updates
    without = [{name: value for name, value in record.items() if name != "seconds"} for record in run.records]
    assert without == [{name: value for name, value in record.items() if name != "seconds"} for record in whole.records]
