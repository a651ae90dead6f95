"""Workers in processes: killed, stopped, replaced, or gone for good; what they see and leave behind."""

from __future__ import annotations

import pickle
import signal
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import Pipe
from typing import ClassVar

import numpy as np
import pytest

from shared.ended import ended_run
from shared.every_executor import N_ROWS, NETWORK, SIZE, broken, span
from shared.light import Light
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import WorkerDied
from xmlsgd.nn.network import state_layout
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors import processes
from xmlsgd.training.executors.liveness import Liveness
from xmlsgd.training.executors.processes import OUT_OF_MEMORY, Processes, WorkerPool
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.job import Job, Start
from xmlsgd.training.learner import Learner
from xmlsgd.training.loop import train
from xmlsgd.training.messages import Left, Report, Sharing


def test_a_killed_worker_is_replaced_and_its_rows_are_trained_again(job):
    executor = Processes([Light] * 2)
    killed = []

    class Killing(Synchronous):
        def finished(self, report):
            super().finished(report)
            if not killed:
                process = executor.pool.processes[1].process
                process.kill()
                process.wait()
                killed.append(process.pid)

    seen = []

    class Rows(Callback):
        def span(self, report):
            seen.append(report.rows)

    text = "worker 1 is lost: killed by SIGKILL; what it had not merged is trained again; it is replaced"
    with pytest.warns(UserWarning, match=text):
        run = train(job, Killing(2, 0.1), executor, Schedule(3), callbacks=[Rows()])
    assert killed
    assert executor.pool.failures == ["worker 1: killed by SIGKILL"]
    assert [record.get("left", []) for record in run.records] == [
        [{"worker": 1, "reason": "killed by SIGKILL"}], [], []
    ]  # fmt: skip
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]


class Suspended(Liveness):
    """Reports the suspended workers as overdue, as soon as another worker was heard; nothing depends on the clock."""

    workers: ClassVar[set[int]] = set()
    others_heard = False

    def heard(self, w, report):
        super().heard(w, report)
        self.others_heard = True

    def overdue(self):
        return sorted(self.workers & self._due.keys()) if self.others_heard else []


@pytest.fixture
def suspend(monkeypatch):
    """A function that suspends a worker's process; it is overdue from then on, until it is replaced."""
    monkeypatch.setattr(Suspended, "workers", set())
    monkeypatch.setattr(processes, "Liveness", Suspended)

    def send_stop(executor, w):
        executor.pool.processes[w].process.send_signal(signal.SIGSTOP)
        Suspended.workers.add(w)
        replace_worker = executor.pool.replace

        def replace_and_forget(w, reason):
            Suspended.workers.discard(w)
            return replace_worker(w, reason)

        monkeypatch.setattr(executor.pool, "replace", replace_and_forget)

    return send_stop


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_replacement_that_dies_before_it_joins_is_reported_too(job, restarts):
    executor = Processes([Light] * 2, restarts=restarts)
    launch = executor.pool.launch

    class Killing(Hogwild):
        def start(self, workers, n_rows):
            super().start(workers, n_rows)
            executor.pool.launch = launch_and_kill
            kill(executor.pool.processes[1])

    def launch_and_kill(w):
        launch(w)
        if len(executor.pool.failures) == 1:
            kill(executor.pool.processes[w])

    def kill(worker):
        worker.process.kill()
        worker.process.wait()  # so that the next message to be heard is of its death

    with pytest.warns(UserWarning, match="worker 1 is lost: killed by SIGKILL") as told:
        run = train(job, Killing(2, 0.1), executor, Schedule(5))
    outcomes = [str(warning.message).rpartition("; ")[2] for warning in told]
    assert outcomes == ["it is replaced", "it is replaced" if restarts == 2 else "it is not replaced"]
    assert run.records[-1]["rows"] == 5 * N_ROWS


def test_a_run_does_not_wait_for_ever_if_its_last_replacement_dies_while_others_have_no_rows(job, monkeypatch):
    executor = Processes([Light] * 2, restarts=1, liveness_timeout=0.1)
    launch, listen, listened = executor.pool.launch, executor._listen, []

    class Partial(Hogwild):
        def start(self, workers, n_rows):
            super().start(workers, n_rows)
            executor.pool.launch = launch_and_kill
            kill(executor.pool.processes[1])

        def batch_size(self, w, now):
            return 0 if w == 0 else self.batch

    def launch_and_kill(w):
        launch(w)
        kill(executor.pool.processes[w])

    def kill(worker):
        worker.process.kill()
        worker.process.wait()

    def listen_for_a_while(seconds):
        if len(executor.pool.failures) == 2:
            listened.append(seconds)
            assert len(listened) < 20, "nobody is left who could say anything"
        return listen(seconds)

    monkeypatch.setattr(executor, "_listen", listen_for_a_while)
    text = r"^Partial assigned no rows to any live worker, \[0\]"
    with pytest.warns(UserWarning, match="worker 1 is lost"), pytest.raises(WorkerDied, match=text):
        train(job, Partial(2, 0.1), executor, Schedule(1))


@pytest.mark.parametrize(("restarts", "first"), [(0, True), (0, False), (1, False)])
def test_a_suspended_worker_is_lost_and_its_rows_are_trained_by_the_others(job, suspend, restarts, first):
    """Before its first step or later."""
    executor = Processes([Light] * 2, restarts=restarts, liveness_timeout=0.1)

    class Suspending(Synchronous):
        def start(self, workers, n_rows):
            super().start(workers, n_rows)
            if first:
                suspend(executor, 1)

        def finished(self, report):
            super().finished(report)
            if not (executor.pool.failures or Suspended.workers):
                suspend(executor, 1)

    with pytest.warns(UserWarning, match="worker 1 is lost: sent nothing for too long, killed by SIGKILL"):
        run = train(job, Suspending(2, 0.1), executor, Schedule(2))
    assert executor.pool.failures == ["worker 1: sent nothing for too long, killed by SIGKILL"]
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS]
    (left,) = (entry for record in run.records for entry in record.get("left", []))
    assert left == {"worker": 1, "reason": "sent nothing for too long, killed by SIGKILL"}


@pytest.mark.filterwarnings("ignore:worker 1 is lost")
def test_an_executor_whose_worker_died_has_it_again_in_the_next_run(job):
    executor = Processes([Light] * 2, restarts=0)

    class Killing(Hogwild):
        def start(self, workers, n_rows):
            super().start(workers, n_rows)
            assert workers == [0, 1]
            executor.pool.processes[1].process.kill()

    for _ in range(2):
        run = train(job, Killing(2, 0.1), executor, Schedule(1))
        assert [entry["worker"] for entry in run.records[0]["left"]] == [1]
        assert executor.pool.failures == ["worker 1: killed by SIGKILL"]


def test_workers_that_do_not_start_in_time_end_the_run(job, monkeypatch):
    executor = Processes([Light] * 2, liveness_timeout=1000.0)
    monkeypatch.setattr(executor, "_listen", lambda seconds: [])
    monkeypatch.setattr(Liveness, "overdue", lambda self: [1])
    with pytest.raises(WorkerDied, match=r"worker 1 did not start within 1000 s"):
        train(job, Synchronous(2, 0.1), executor, Schedule(5))
    assert not executor.pool.processes


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_worker_that_hangs_while_it_starts_is_lost_after_another_has_started(job, monkeypatch, suspend, restarts):
    """Whichever it is: the first is not waited for before the others are checked."""
    executor = Processes([Light] * 2, restarts=restarts, liveness_timeout=0.1)
    launch = executor.pool.launch

    def launch_and_suspend(w):
        launch(w)
        if w == 0 and not executor.pool.failures:
            suspend(executor, w)

    monkeypatch.setattr(executor.pool, "launch", launch_and_suspend)
    reason = "sent nothing for too long, killed by SIGKILL"
    with nullcontext() if restarts else pytest.raises(WorkerDied, match=f"^worker 0 did not start: {reason}$"):
        run = train(job, Synchronous(2, 0.1), executor, Schedule(1))
        assert run.records[0]["rows"] == N_ROWS
    assert executor.pool.failures == [f"worker 0: {reason}"]
    assert not executor.pool.processes


def test_a_worker_of_fast_steps_does_not_keep_the_others_waiting(job):
    """Both have three reports ready: they are heard in turn."""

    class Ready:
        def __init__(self, worker):
            self.worker = worker
            self.pipe, self.theirs = Pipe()
            for rows in (1, 2, 3):
                self.theirs.send(Report(worker, rows, 0, 0.0, 0.0))

        def receive(self):
            return self.pipe.recv()

    executor = Processes([Light] * 2)
    for w in (0, 1):
        executor.pool.processes[w] = Ready(w)  # type: ignore[assignment]
    heard = [executor._next(None) for _ in range(6)]
    reports = [(report.worker, report.rows) for report in heard if isinstance(report, Report)]
    assert reports == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]


def test_a_run_ends_when_no_worker_is_left(job):
    executor = Processes([Light], restarts=0)
    executor.start(job, Sharing.REPLICAS)
    executor.pool.processes[0].process.kill()
    executor.submit(span(0, 0, 4))
    with pytest.warns(UserWarning, match="worker 0 is lost"):
        assert isinstance(executor.wait(), Left)
    with pytest.raises(WorkerDied, match="no worker is left: worker 0: killed by SIGKILL"):
        executor.wait()
    executor.close()


def test_a_run_leaves_nothing_in_shared_memory_and_the_model_stays_readable(job):
    executor = Processes([Light])
    executor.start(job, Sharing.REPLICAS)
    folder = executor.pool.folder.path
    assert {"parameters", "X_indices"} <= {file.name for file in folder.iterdir()}
    executor.close()
    assert not folder.exists()
    assert np.isfinite(executor.center).all()


def test_each_failure_is_listed_once_with_the_usual_cause_of_a_kill():
    pool = WorkerPool([Light])
    pool.failures += ["worker 0: killed by SIGKILL", "worker 1: exit code 3", "worker 0: killed by SIGKILL"]
    assert pool.describe_failures() == f"worker 0: killed by SIGKILL, 2 times; worker 1: exit code 3; {OUT_OF_MEMORY}"
    pool.failures[:] = ["worker 1: sent nothing for too long, killed by SIGKILL"]
    assert pool.describe_failures() == "worker 1: sent nothing for too long, killed by SIGKILL"


def test_a_run_raises_when_all_its_workers_are_dead(job):
    executor = Processes([Light], restarts=0)

    class Killing(Synchronous):
        def submitted(self, w, rows, now):
            super().submitted(w, rows, now)
            executor.pool.processes[0].process.kill()

    with (
        pytest.warns(UserWarning, match="worker 0 is lost"),
        pytest.raises(WorkerDied, match="no worker is left: worker 0: killed by SIGKILL"),
    ):
        train(job, Killing(12, 0.1), executor, Schedule(500))


@pytest.mark.parametrize("make", [Synchronous, Hogwild], ids=["replicas", "in place"])
def test_what_was_learned_until_all_workers_were_killed_is_kept(job, make):
    merged = []

    class Merging(Processes):
        def merge(self, *given):
            super().merge(*given)
            merged.append(self.center.copy())

    class Killing(Callback):
        """In the first round of the third epoch."""

        epochs = 0

        def span(self, report):
            if self.epochs == 2:
                for process in executor.pool.processes.values():
                    process.process.kill()

        def epoch(self, record, center):
            self.epochs += 1
            return False

    executor = Merging([Light] * 2, restarts=0)
    with (
        pytest.warns(UserWarning, match="is lost: killed by SIGKILL"),
        pytest.raises(WorkerDied, match="no worker is left") as lost,
    ):
        train(Job(job.dataset, NETWORK, Adam()), make(2, 0.1), executor, Schedule(5), callbacks=[Killing()])
    run = ended_run(lost.value)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS]
    assert not isinstance(run.params, np.memmap)
    if make is Synchronous:
        np.testing.assert_array_equal(run.params, merged[-1])
    assert run.updates >= (6 if make is Synchronous else 12)
    again = pickle.loads(pickle.dumps(lost.value))
    assert str(again) == str(lost.value)
    np.testing.assert_array_equal(again.run.params, run.params)
    assert not executor.pool.folder.path.exists()


def test_the_state_that_is_kept_is_that_of_the_steps_it_has_seen(job):
    """The first worker, which came back at the end, has made no step since."""
    executor = Processes([Light] * 2)
    executor.start(replace(job, optimizer=Adam()), Sharing.REPLICAS)
    for w in (0, 1, 1):
        executor.submit(span(w, 0, 4))
        executor.wait()
    executor._initialize(0)
    _, state, steps = executor.result()
    executor.close()
    assert steps == 2
    assert state.any()


@pytest.mark.parametrize("made", [Processes([broken] * 2), Threads([Reference()])])
def test_a_run_that_cannot_start_leaves_neither_processes_nor_files(job, monkeypatch, made):
    monkeypatch.setattr(Learner, "load_kernels", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        train(job, Synchronous(2, 0.1), made, Schedule(5))
    if isinstance(made, Processes):
        assert not made.pool.processes
        assert not made.pool.folder.path.exists()


def test_a_worker_that_is_ended_by_a_signal_without_a_name_is_reported(job):
    executor = Processes([Light], restarts=0)
    executor.start(job, Sharing.REPLICAS)
    executor.pool.processes[0].process.send_signal(signal.SIGRTMIN + 3)
    with pytest.warns(UserWarning, match="worker 0 is lost: killed by signal"):
        assert executor.wait() == Left(0, f"killed by signal {signal.SIGRTMIN + 3}")
    executor.close()


def test_workers_import_nothing_from_the_current_folder_and_see_no_interrupt(job, tmp_path, monkeypatch):
    for name in ("numpy", "xmlsgd", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    executor = Processes([Light])
    launch = executor.pool.launch

    def interrupted(w):
        launch(w)
        executor.pool.processes[w].process.send_signal(signal.SIGINT)  # while it imports

    monkeypatch.setattr(executor.pool, "launch", interrupted)
    executor.start(job, Sharing.REPLICAS)
    executor.submit(span(0, 0, 4))
    assert isinstance(executor.wait(), Report)
    executor.close()


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_result_of_processes_is_in_memory_of_this_process(job, goes_on):
    optimizer = Adam()
    start = Start(
        np.full(SIZE, 0.1, np.float32), np.zeros(state_layout(NETWORK.layout, optimizer).size, np.float32), updates=7
    )
    executor = Processes([Light])
    again = Job(job.dataset, NETWORK, optimizer, start=start if goes_on else None)
    run = train(again, Synchronous(6, 0.1), executor, Schedule(1))
    for array, before in ((run.params, start.params), (run.state, start.state)):
        assert not isinstance(array, np.memmap)
        assert array.flags.writeable
        assert np.shares_memory(array, before) == goes_on
    assert run.updates == (9 if goes_on else 2)
