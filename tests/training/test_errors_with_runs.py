"""Errors that end a run carry what was learned until then."""

from __future__ import annotations

import errno
import pickle

import numpy as np
import pytest

from shared import light, toy
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.errors import WorkerDied
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.base import Executor
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.worker_process import WorkerProcess
from xmlsgd.training.job import Job
from xmlsgd.training.kept_model import KeptModel
from xmlsgd.training.loop import attach_run, run_of, train

N_ROWS, BATCH = 12, 4


class Failing(Callback):
    """Raises `error` in the second epoch: when that is over, or at its first step."""

    def __init__(self, error, where):
        self.error, self.where, self.epochs = error, where, 0

    def span(self, report):
        if self.epochs == 1 and self.where == "step":
            raise self.error

    def epoch(self, record, center):
        self.epochs += 1
        if self.epochs == 2 and self.where == "epoch":
            raise self.error
        return False


def run_with(*callbacks, data=None):
    """Train for five epochs on marked rows by one worker."""
    data = data or toy.dataset(N_ROWS)
    job = Job(data, toy.counting(data), SGD())
    return train(job, Sequential(BATCH, 0.1), Serial([light.Marking()]), Schedule(5), callbacks)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyError("P@1"), MemoryError(), SystemExit(3)])
@pytest.mark.parametrize(("where", "epochs", "steps"), [("step", 1, 4), ("epoch", 2, 6)])
def test_an_error_of_a_callback_stays_what_it_is_and_carries_what_was_learned(error, where, epochs, steps):
    data = toy.dataset(N_ROWS)
    with pytest.raises(type(error)) as raised:
        run_with(Failing(error, where), data=data)
    assert raised.value is error
    run = run_of(error)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS][:epochs]
    assert run.updates == steps
    assert toy.marks(run.params, data).sum() == steps * BATCH


def test_a_disk_that_fills_up_while_a_kept_model_is_written_costs_no_model(monkeypatch):
    kept = []

    def keep(self, flat):
        kept.append(flat)
        if len(kept) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", "/tmp")

    monkeypatch.setattr(KeptModel, "keep", keep)
    data = toy.dataset(N_ROWS)
    with pytest.raises(OSError, match="No space left") as full:
        run_with(data=data)
    assert toy.marks(run_of(full.value).params, data).tolist() == [2] * N_ROWS


def test_a_device_that_is_lost_with_the_model_leaves_that_of_the_last_whole_epoch(monkeypatch):
    data = toy.dataset(N_ROWS)

    def fetch(*given):
        raise MemoryError("the GPU is gone")

    class Losing(Failing):
        def epoch(self, record, center):
            super().epoch(record, center)
            monkeypatch.setattr(Executor, "_fetch", fetch)
            return False

    with pytest.raises(KeyError) as lost:
        run_with(Losing(KeyError("device"), "step"), data=data)
    run = run_of(lost.value)
    assert toy.marks(run.params, data).tolist() == [1] * N_ROWS
    assert len(run.records) == 1
    assert run.updates == 0
    assert not run.state.any()


def test_an_error_before_anything_is_learned_carries_nothing():
    class Refusing(Callback):
        def start(self, n_rows, epochs, center):
            raise KeyError("out of order")

    with pytest.raises(KeyError) as error:
        run_with(Refusing())
    assert run_of(error.value) is None


def test_an_interrupt_while_workers_end_carries_the_whole_run_and_leaves_no_files(monkeypatch):
    wait_for_end, interrupts = WorkerProcess.wait_for_end, [KeyboardInterrupt()]

    def interrupted(process):
        if interrupts:
            raise interrupts.pop()
        return wait_for_end(process)

    monkeypatch.setattr(WorkerProcess, "wait_for_end", interrupted)
    data, executor = toy.dataset(N_ROWS), Processes([light.Marking])
    with pytest.raises(KeyboardInterrupt) as interrupt:
        train(Job(data, toy.counting(data), SGD()), Sequential(BATCH, 0.1), executor, Schedule(2))
    run = run_of(interrupt.value)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS]
    assert toy.marks(run.params, data).tolist() == [2] * N_ROWS
    assert not executor.pool.processes
    assert not executor.pool.folder.path.exists()


def test_an_attribute_of_the_name_on_an_error_of_others_is_no_run():
    error = ValueError()
    error.run = "fast"  # type: ignore[attr-defined]
    assert run_of(error) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), WorkerDied("worker 0 failed", "Traceback")])
def test_an_error_pickles_with_what_was_learned(error):
    run = run_with()
    attach_run(error, run)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    np.testing.assert_array_equal(run_of(again).params, run.params)
