"""Workers that raise errors: each counts as a death of that worker, unless all raise one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shared import light, toy
from shared.marked_runs import N_ROWS
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.errors import WorkerDied
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

pytestmark = pytest.mark.usefixtures("forked")

LOST = "worker 1 is lost: MemoryError: no room left; what it had not merged is trained again"
DATA = toy.dataset(N_ROWS)


class Waiting(Hogwild):
    """Worker 0 gets no rows before worker 1 has been lost or has trained some."""

    def start(self, workers, n_rows):
        super().start(workers, n_rows)
        self.heard = False

    def batch_size(self, w, now):
        return self.batch if self.heard or w == 1 else 0

    def finished(self, report):
        super().finished(report)
        self.heard = True

    def worker_left(self, w):
        super().worker_left(w)
        self.heard = True


def trained(executor, algorithm=Waiting):
    """Train two epochs; return the run and how often each row is in the model."""
    job = Job(DATA, toy.counting(DATA), SGD())
    run = train(job, algorithm(10, 0.1, copies=True), executor, Schedule(2))
    return run, toy.marks(run.params, DATA)


def test_a_process_that_raises_an_error_is_replaced_and_its_rows_are_trained_again(tmp_path):
    executor = Processes([light.Marking, partial(light.Failing, tmp_path)])
    with pytest.warns(UserWarning, match=LOST):
        run, marks = trained(executor)
    assert executor.pool.failures == ["worker 1: MemoryError: no room left"]
    left = [entry for record in run.records for entry in record.get("left", [])]
    assert left == [{"worker": 1, "reason": "MemoryError: no room left"}]
    np.testing.assert_array_equal(marks, 2)


def test_a_process_that_raises_errors_again_and_again_is_given_up_and_the_others_go_on():
    executor = Processes([light.Marking, light.Failing], restarts=1)

    class Patient(Waiting):
        def worker_joined(self, w):
            super().worker_joined(w)
            self.heard = False  # worker 1 is back and gets rows first

    with pytest.warns(UserWarning, match=LOST):
        _, marks = trained(executor, Patient)
    assert 1 <= len(executor.pool.failures) <= 2
    np.testing.assert_array_equal(marks, 2)


def test_an_error_of_all_processes_ends_the_run_with_its_traceback_at_once():
    """No worker is started again and again."""
    executor = Processes([light.Failing] * 2, restarts=100)
    with (
        pytest.warns(UserWarning, match="is lost: MemoryError: no room left"),
        pytest.raises(
            WorkerDied, match=r"^worker [01] failed:\nTraceback(.|\n)*output_step(.|\n)*MemoryError: no room"
        ),
    ):
        trained(executor, Hogwild)
    assert len(executor.pool.failures) <= 3
    assert not executor.pool.processes


def test_the_error_is_told_where_no_worker_is_left():
    executor = Processes([light.Marking, light.Failing], restarts=0)

    class Killing(Waiting):
        def worker_left(self, w):
            super().worker_left(w)
            if w == 1:
                executor.pool.processes[0].process.kill()

    text = r"no worker is left: worker 1: MemoryError: no room left; worker 0: killed by SIGKILL(.|\n)*output_step"
    with pytest.warns(UserWarning, match="is lost"), pytest.raises(WorkerDied, match=text):
        trained(executor, Killing)


def test_the_other_threads_go_on_where_one_raises_an_error():
    executor = Threads([light.Marking(), light.Failing()])
    with pytest.warns(UserWarning, match=LOST):
        run, marks = trained(executor)
    assert [entry["worker"] for record in run.records for entry in record.get("left", [])] == [1]
    np.testing.assert_array_equal(marks, 2)


def test_an_error_of_all_threads_ends_the_run_as_it_is():
    with (
        pytest.warns(UserWarning, match="is lost: MemoryError: no room left"),
        pytest.raises(MemoryError, match="no room"),
    ):
        trained(Threads([light.Failing(), light.Failing()]), Hogwild)
