"""Losses of a GPU that trains alone: read some steps late, the same to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared import toy
from shared.apart import ReferenceApart
from shared.fake_gpu.memory import DeviceArray
from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import EXACT
from xmlsgd.devices.cuda.runtime import Runtime
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.samplers.uniform import UniformNegatives
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.messages import PENDING_SPANS
from xmlsgd.training.progress_bar import ProgressBar

N_ROWS, BATCH, STEPS = 60, 4, 15
DATA, NETWORK = toy.random_data(N_ROWS, 12, 9), Network(12, 9, (4,))


class Noting(ReferenceApart):
    """Notes when a step begins and when its loss is read; the step number `worst` has no finite loss."""

    def __init__(self, worst=None):
        self.events, self.steps, self.worst = [], 0, worst

    def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
        self.steps += 1
        self.events.append(("step", self.steps))
        value, dA = super().output_step(A, targets, layer, loss, update, rounding)
        return (np.nan if self.steps == self.worst else value), dA

    def read_later(self, value):
        step, read = self.steps, super().read_later(value)

        def noting():
            self.events.append(("read", step))
            return read()

        return noting


def run(device, callbacks=(), network=NETWORK):
    return train(Job(DATA, network, Adam()), Sequential(BATCH, 0.01), Serial([device]), Schedule(2), callbacks)


@pytest.mark.parametrize("callbacks", [(), (ProgressBar(),)], ids=["alone", "progress"])
def test_no_loss_is_read_before_later_steps_have_begun_but_at_the_end_of_an_epoch(callbacks):
    device = Noting()
    records = run(device, callbacks).records
    begun, late = 0, []
    for kind, number in device.events:
        begun = number if kind == "step" else begun
        if kind == "read":
            late.append(begun - number)
    assert len(late) == 2 * STEPS, "each is read once"
    of_epoch = [PENDING_SPANS] * (STEPS - PENDING_SPANS) + list(range(PENDING_SPANS - 1, -1, -1))
    assert late == 2 * of_epoch
    assert [record["loss"] for record in records] == [record["loss"] for record in run(Reference()).records]


@pytest.mark.parametrize("worst", [3, STEPS, STEPS + 2])
def test_a_loss_that_is_not_finite_ends_the_run_a_few_steps_late(worst):
    device = Noting(worst)
    done = run(device)
    assert done.diverged
    assert len(done.records) == (worst > STEPS)
    end = STEPS if worst <= STEPS else 2 * STEPS
    assert device.steps == min(worst + PENDING_SPANS, end)


@NEEDS_COMPILER
def test_a_batch_that_trains_no_label_has_a_loss_of_zero():
    none = CSR(np.zeros(N_ROWS + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), DATA.n_labels)
    job = Job(replace(DATA, Y=none), NETWORK, Adam(), sampler=UniformNegatives(0))
    records = train(job, Sequential(BATCH, 0.01), Serial([shim_device("float32")]), Schedule(1)).records
    assert records[0]["loss"] == 0


@NEEDS_COMPILER
def test_the_host_reads_no_number_of_the_gpu_that_is_not_yet_computed_and_losses_are_the_same_to_the_bit(monkeypatch):
    """The work of the stream is done when somebody waits for it, and no step does."""
    waits = []

    def waiting(*given):
        waits.append(given)
        raise AssertionError("the host waits for the GPU")

    class Waiting(Sequential):
        """Reads the loss of each step at once."""

        def finished(self, report):
            float(report.loss)

    def history(algorithm, callbacks=()):
        executor = Serial([shim_device("float32", late=(0,))])
        records = train(Job(DATA, NETWORK, Adam()), algorithm(BATCH, 0.01), executor, Schedule(2), callbacks).records
        return [record["loss"] for record in records]

    class Forbidding(Callback):
        """Between the first step of an epoch and its end."""

        def span(self, report):
            monkeypatch.setattr(DeviceArray, "__float__", waiting)
            monkeypatch.setattr(Runtime, "to_host", waiting)

        def epoch(self, record, center):
            monkeypatch.undo()
            return False

    class Allowing(Sequential):
        """Ends that where an epoch ends."""

        def end_epoch(self, comm):
            monkeypatch.undo()

    assert history(Allowing, [Forbidding()]) == history(Waiting)
    assert not waits
