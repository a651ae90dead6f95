"""Executors: where steps run, who writes which replica, how replicas are merged."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.csr import CSR, ORDER, Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.engine import train
from xmlsgd.errors import DataError, WorkerDied
from xmlsgd.executors import processes, run_folder
from xmlsgd.executors.costs import VirtualDevice
from xmlsgd.executors.lockstep import Lockstep
from xmlsgd.executors.mapped import ArrayFile, MappedJob
from xmlsgd.executors.processes import Processes
from xmlsgd.executors.run_folder import RunFolder
from xmlsgd.executors.serial import Serial
from xmlsgd.executors.silence import Silence
from xmlsgd.executors.simulated import Simulated
from xmlsgd.executors.threads import Threads
from xmlsgd.history import Monitor
from xmlsgd.learner import Job, Learner, Start
from xmlsgd.network import Network, state_layout
from xmlsgd.optimizers import SGD, Adam
from xmlsgd.records import Left, Report, Sharing, Step

N_ROWS = 12
NETWORK = Network(6, 5, (4,))
SIZE = NETWORK.layout.size


@pytest.fixture
def job():
    rng = np.random.default_rng(0)
    X, Y = (CSR.from_scipy(sp.csr_array(rng.random((N_ROWS, n)) * (rng.random((N_ROWS, n)) < 0.5))) for n in (6, 5))
    return Job(Dataset(X, Y), NETWORK, SGD(), seed=3)


def broken(*arguments):
    raise RuntimeError("out of order")


def cpu():
    return CPU(1, precision="float32")


KINDS = {
    "serial": lambda: Serial([cpu(), cpu(), cpu()]),
    "threads": lambda: Threads([cpu(), cpu(), cpu()]),
    "simulated": lambda: Simulated(cpu(), [VirtualDevice(speed=speed) for speed in (1.0, 0.9, 0.8)]),
    "processes": lambda: Processes([cpu] * 3),
}


@pytest.fixture(params=KINDS)
def executor(request):
    made = KINDS[request.param]()
    yield made
    made.close()


def step(worker, start, stop, epoch=0, rate=0.1):
    return Step(worker, epoch, start, stop, rate)


# --- every executor ----------------------------------------------------------------------------------------------


def test_replicas_start_as_copies_of_the_center(executor, job):
    executor.start(job, Sharing.REPLICAS)
    expected = np.zeros(SIZE, np.float32)
    NETWORK.initialize(expected, job.dataset.Y, job.seed)
    np.testing.assert_array_equal(executor.table.params, np.tile(expected, (4, 1)))
    assert executor.table.params.ctypes.data % 4 == 0


@pytest.mark.parametrize("sharing", [Sharing.IN_PLACE, Sharing.DELTA])
def test_every_worker_of_a_shared_model_changes_the_center(executor, job, sharing):
    executor.start(job, sharing)
    for worker in executor.workers:
        before = executor.center.copy()
        executor.submit(step(worker, 4 * worker, 4 * worker + 4))
        report = executor.wait()
        executor.push(worker, 1.0)
        assert np.any(executor.center != before)
        assert report.staleness == 0


def test_a_worker_writes_its_replica_and_nothing_else(executor, job):
    executor.start(job, Sharing.REPLICAS)
    before = executor.table.params.copy()
    executor.submit(step(1, 0, 4))
    executor.wait()
    changed = np.flatnonzero(np.any(executor.table.params != before, axis=1))
    assert changed.tolist() == [2]
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[:4]
    marks = np.zeros(6 + 5, np.uint8)
    marks[job.dataset.X.row_entries(rows)] = 1
    marks[6 + job.dataset.Y.row_entries(rows)] = 1
    np.testing.assert_array_equal(executor.table.touched, [0 * marks, marks, 0 * marks])


def test_every_step_is_reported_once_and_busy_says_who_runs(executor, job):
    executor.start(job, Sharing.REPLICAS)
    for worker in (2, 0, 1):
        executor.submit(step(worker, 0, 2 + worker))
    assert executor.busy == {0, 1, 2}
    reports = {report.worker: report for report in (executor.wait() for _ in range(3))}
    assert {w: report.rows for w, report in reports.items()} == {0: 2, 1: 3, 2: 4}
    assert executor.busy == set()


def test_a_span_is_as_many_updates_as_its_steps_one_by_one(executor, job):
    executor.start(job, Sharing.REPLICAS)
    executor.submit(Step(0, 0, 0, 8, 0.1, batch=3))
    whole = executor.wait()
    losses = []
    for start, stop in ((0, 3), (3, 6), (6, 8)):
        executor.submit(step(1, start, stop))
        losses.append(executor.wait().loss)
    np.testing.assert_array_equal(executor.table.params[1], executor.table.params[2])
    assert (whole.updates, whole.rows) == (3, 8)
    assert whole.loss == pytest.approx(sum(losses))


def test_all_executors_compute_the_same_replicas_to_the_bit(executor, job):
    executor.start(job, Sharing.REPLICAS)
    serial = KINDS["serial"]()
    serial.start(job, Sharing.REPLICAS)
    for made in (executor, serial):
        for first in (0, 6):
            for w in made.workers:
                made.submit(step(w, first + 2 * w, first + 2 * w + 2))
            for _ in made.workers:
                made.wait()
    np.testing.assert_array_equal(executor.table.params, serial.table.params)


def test_a_merge_applies_its_rule_to_the_center_and_the_members(executor, job):
    executor.start(job, Sharing.REPLICAS)
    executor.table.params[:] = np.array([9, 0, 2, 4], np.float32)[:, None]
    executor.table.touched[:] = 1

    def rule(part):
        part.center[:] = part.mean({0: 0.5, 2: 0.25})
        part.broadcast()

    executor.merge(rule, [0, 2])
    for row, value in enumerate([1, 1, 2, 1]):
        for view in NETWORK.layout.views(executor.table.params[row]).values():
            np.testing.assert_array_equal(view, np.full(view.shape, value))


def test_the_clock_starts_at_zero_and_runs(executor, job):
    executor.start(job, Sharing.IN_PLACE)
    first, second = executor.now(), executor.now()
    assert 0 <= first <= second < 60


@pytest.mark.parametrize("sharing", list(Sharing))
def test_a_run_goes_on_from_the_model_state_and_steps_of_an_earlier_one(executor, job, sharing):
    optimizer = Adam()
    params = np.full(SIZE, 0.1, np.float32)
    state = np.full(state_layout(NETWORK.layout, optimizer).size, 0.01, np.float32)
    executor.start(Job(job.dataset, NETWORK, optimizer, start=Start(params, state, steps=7)), sharing)
    np.testing.assert_array_equal(executor.center, params)
    np.testing.assert_array_equal(executor.table.states[0], state)
    executor.submit(step(0, 0, 4))
    executor.wait()
    _, state_now, steps = executor.result()
    assert np.any(state_now != 0.01)
    assert steps == 8


def test_what_a_worker_raises_is_raised_where_it_is_waited_for(executor, job):
    if isinstance(executor, Processes):
        executor.team.makers = [broken] * 3
        with pytest.raises(WorkerDied, match=r"worker 0 failed:\n(.|\n)*RuntimeError: out of order"):
            executor.start(job, Sharing.REPLICAS)
        return
    executor.start(job, Sharing.REPLICAS)
    executor.learners[0].device.input_forward = broken

    def run():
        executor.submit(step(0, 0, 4))
        executor.wait()

    with pytest.raises(RuntimeError, match="out of order"):
        run()


# --- serial ------------------------------------------------------------------------------------------------------


def test_serial_steps_finish_in_the_order_of_submission(job):
    executor = KINDS["serial"]()
    executor.start(job, Sharing.REPLICAS)
    for worker in (2, 0, 1):
        executor.submit(step(worker, 0, 2))
    assert [executor.wait().worker for _ in range(3)] == [2, 0, 1]
    executor.submit(step(0, 0, 4))
    executor.close()
    assert executor.busy == set()
    with pytest.raises(IndexError):
        executor.wait()


def test_one_serial_worker_goes_on_in_the_arrays_of_an_earlier_run(job):
    optimizer = Adam()
    params = np.full(SIZE, 0.1, np.float32)
    state = np.zeros(state_layout(NETWORK.layout, optimizer).size, np.float32)
    executor = Serial([Reference()])
    executor.start(Job(job.dataset, NETWORK, optimizer, start=Start(params, state, steps=7)), Sharing.IN_PLACE)
    executor.submit(step(0, 0, 4))
    executor.wait()
    assert np.shares_memory(executor.center, params)
    assert state.any()
    assert np.shares_memory(executor.result()[1], state)


# --- simulated ---------------------------------------------------------------------------------------------------


def test_a_lockstep_run_over_processes_equals_the_simulated_one_to_the_bit(job):
    """T8.2."""
    fleet = [VirtualDevice(speed=1.0, noise=0.1), VirtualDevice(speed=0.6)]
    runs = []
    for executor in (Simulated(cpu(), fleet, seed=1), Lockstep(cpu, fleet, seed=1)):
        algorithm = Hogwild(batch=2, rate=0.1)
        runs.append(train(job.dataset, NETWORK, algorithm, executor, optimizer=SGD(), epochs=2))
    np.testing.assert_array_equal(runs[0].params, runs[1].params)
    assert [record["seconds"] for record in runs[0].records] == [record["seconds"] for record in runs[1].records]


def test_a_difference_is_added_to_what_others_have_written_meanwhile(job):
    executor = Simulated(cpu(), [VirtualDevice(speed=1.0), VirtualDevice(speed=0.5)])
    executor.start(job, Sharing.IN_PLACE)
    first = executor.center.copy()
    executor.submit(step(1, 0, 4))
    executor.submit(step(0, 4, 8))
    alone = [Learner(job, cpu(), first.copy()) for _ in range(2)]
    for learner, (start, stop) in zip(alone, ((4, 8), (0, 4)), strict=True):
        learner.step(step(0, start, stop))
    changes = [learner.flat - first for learner in alone]
    for worker, staleness, expected in ((0, 0, first + changes[0]), (1, 1, first + changes[0] + changes[1])):
        report = executor.wait()
        assert isinstance(report, Report)
        executor.push(report.worker, 1.0)
        assert (report.worker, report.staleness) == (worker, staleness)
        np.testing.assert_allclose(executor.center, expected, rtol=1e-6, atol=1e-7)


# --- processes ---------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_and_its_rows_are_trained_again(job):
    executor = Processes([cpu] * 2)
    killed = []

    class Killing(Synchronous):
        def finished(self, report):
            super().finished(report)
            if not killed:
                process = executor.team.processes[1].process
                process.kill()
                process.wait()
                killed.append(process.pid)

    seen = []

    class Rows(Monitor):
        def step(self, report):
            seen.append(report.rows)

    with pytest.warns(
        UserWarning, match="worker 1 is lost: killed by SIGKILL; what it had not merged is trained again"
    ):
        run = train(job.dataset, NETWORK, Killing(2, 0.1), executor, optimizer=SGD(), epochs=3, monitors=[Rows()])
    assert killed
    assert executor.failures == ["worker 1: killed by SIGKILL"]
    assert [record.get("left", []) for record in run.records] == [
        [{"worker": 1, "reason": "killed by SIGKILL"}], [], []
    ]  # fmt: skip
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_worker_that_is_stopped_is_lost_and_its_rows_are_trained_by_the_others(job, restarts):
    executor = Processes([cpu] * 2, restarts=restarts, silence=1.0)

    class Stopping(Synchronous):
        def submitted(self, w, rows):
            super().submitted(w, rows)
            if self.pace.keys() == {0, 1} and not executor.failures:
                executor.team.processes[1].process.send_signal(signal.SIGSTOP)

    with pytest.warns(UserWarning, match="worker 1 is lost: silent for too long, killed by SIGKILL"):
        run = train(job.dataset, NETWORK, Stopping(2, 0.1), executor, optimizer=SGD(), epochs=2)
    assert executor.failures == ["worker 1: silent for too long, killed by SIGKILL"]
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS]
    (left,) = (entry for record in run.records for entry in record.get("left", []))
    assert left == {"worker": 1, "reason": "silent for too long, killed by SIGKILL"}


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


def test_a_worker_that_does_not_start_in_time_is_told_of(job, monkeypatch):
    monkeypatch.setattr(processes, "START", 0.0)
    executor = Processes([cpu])
    with pytest.raises(WorkerDied, match="worker 0 did not start within 0 s"):
        train(job.dataset, NETWORK, Synchronous(2, 0.1), executor)
    assert not executor.team.processes


@pytest.mark.parametrize("silence", [0.0, -1.0, float("nan"), "3"])
def test_a_silence_that_is_no_number_above_zero_is_refused(silence):
    with pytest.raises(DataError, match="silence must be above 0, got"):
        Processes([cpu], silence=silence)


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

    executor = Processes([cpu] * 2)
    for w in (0, 1):
        executor.team.processes[w] = Ready(w)  # type: ignore[assignment]
    heard = [executor._next(None) for _ in range(6)]
    reports = [(report.worker, report.rows) for report in heard if isinstance(report, Report)]
    assert reports == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]


def test_a_run_ends_when_no_worker_is_left(job):
    executor = Processes([cpu], restarts=0)
    executor.start(job, Sharing.REPLICAS)
    executor.team.processes[0].process.kill()
    executor.submit(step(0, 0, 4))
    with pytest.warns(UserWarning, match="worker 0 is lost"):
        assert isinstance(executor.wait(), Left)
    with pytest.raises(WorkerDied, match="no worker is left: worker 0: killed by SIGKILL"):
        executor.wait()
    executor.close()


def test_a_run_leaves_nothing_in_shared_memory_and_the_model_stays_readable(job):
    executor = Processes([cpu])
    executor.start(job, Sharing.REPLICAS)
    folder = executor.team.folder.path
    assert {"table", "X_indices"} <= {file.name for file in folder.iterdir()}
    executor.close()
    assert not folder.exists()
    assert np.isfinite(executor.center).all()


def test_the_folder_of_a_killed_run_is_removed_by_the_next():
    code = (
        "import os; from xmlsgd.executors.run_folder import RunFolder as R; print(R(9).path, flush=True); os._exit(9)"
    )
    path = Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
    assert path.is_dir()
    living = RunFolder(10)
    assert not path.exists()
    RunFolder(10).close()
    assert living.path.is_dir(), "a folder in use stays"
    living.close()


def test_a_run_raises_when_all_its_workers_are_dead(job):
    executor = Processes([cpu], restarts=0)

    class Killing(Synchronous):
        def submitted(self, w, rows):
            super().submitted(w, rows)
            executor.team.processes[0].process.kill()

    with (
        pytest.warns(UserWarning, match="worker 0 is lost"),
        pytest.raises(WorkerDied, match="no worker is left: worker 0: killed by SIGKILL"),
    ):
        train(job.dataset, NETWORK, Killing(12, 0.1), executor, optimizer=SGD(), epochs=500)


@pytest.mark.parametrize("made", [Processes([broken] * 2), Threads([Reference()])])
def test_a_run_that_cannot_start_leaves_neither_processes_nor_files(job, monkeypatch, made):
    monkeypatch.setattr(Learner, "warm_up", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        train(job.dataset, NETWORK, Synchronous(2, 0.1), made)
    if isinstance(made, Processes):
        assert not made.team.processes
        assert not made.team.folder.path.exists()


def test_a_worker_that_a_signal_without_a_name_ends_is_told_of(job):
    executor = Processes([cpu], restarts=0)
    executor.start(job, Sharing.REPLICAS)
    executor.team.processes[0].process.send_signal(signal.SIGRTMIN + 3)
    with pytest.warns(UserWarning, match="worker 0 is lost: killed by signal"):
        assert executor.wait() == Left(0, f"killed by signal {signal.SIGRTMIN + 3}")
    executor.close()


def test_workers_import_nothing_from_the_current_folder_and_see_no_interrupt(job, tmp_path, monkeypatch):
    for name in ("numpy", "xmlsgd", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    executor = Processes([cpu])
    launch = executor.team.launch

    def interrupted(w):
        launch(w)
        executor.team.processes[w].process.send_signal(signal.SIGINT)  # while it imports

    monkeypatch.setattr(executor.team, "launch", interrupted)
    executor.start(job, Sharing.REPLICAS)
    executor.submit(step(0, 0, 4))
    assert isinstance(executor.wait(), Report)
    executor.close()


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_a_run_of_processes_returns_is_memory_of_this_process(job, goes_on):
    optimizer = Adam()
    start = Start(
        np.full(SIZE, 0.1, np.float32), np.zeros(state_layout(NETWORK.layout, optimizer).size, np.float32), steps=7
    )
    executor = Processes([cpu])
    run = train(
        job.dataset, NETWORK, Synchronous(6, 0.1), executor, optimizer=optimizer, epochs=1,
        start=start if goes_on else None,
    )  # fmt: skip
    for array, before in ((run.params, start.params), (run.state, start.state)):
        assert not isinstance(array, np.memmap)
        assert array.flags.writeable
        assert np.shares_memory(array, before) == goes_on
    assert run.steps == (9 if goes_on else 2)


def test_what_lies_abandoned_in_memory_is_removed_before_its_room_is_measured(monkeypatch):
    abandoned = RunFolder(10)
    os.close(abandoned._lock)  # as the system does when a process is killed
    (abandoned.path / "table").write_bytes(bytes(10))
    still_there = []

    def room(root):
        still_there.append(abandoned.path.exists())
        return 1 << 40

    monkeypatch.setattr(run_folder, "_room", room)
    RunFolder(10).close()
    assert still_there == [False, False]


def test_a_run_folder_without_room_in_memory_lies_on_the_disk_and_without_any_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    room = {run_folder.MEMORY: 100, tmp_path: 2000}
    monkeypatch.setattr(run_folder, "_room", room.__getitem__)
    with pytest.warns(UserWarning, match="do not fit into /dev/shm"):
        folder = RunFolder(1000)
    assert folder.path.parent == tmp_path
    folder.close()
    folder.close()
    with pytest.raises(OSError, match=r"0\.01 GB are needed for what the workers share"):
        RunFolder(10_000_000)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("made", [lambda: Processes([cpu] * 2), lambda: Serial([cpu()])], ids=["processes", "serial"])
def test_a_temporary_folder_that_is_gone_is_named_in_one_line_and_nothing_is_left(job, monkeypatch, tmp_path, made):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    executor = made()
    with pytest.raises(FileNotFoundError, match=r"cannot be made .* TMPDIR names another folder: .*gone'$") as error:
        train(job.dataset, NETWORK, Synchronous(2, 0.1), executor)
    assert "\n" not in str(error.value)
    if isinstance(executor, Processes):
        assert not executor.team.processes
        assert executor.team.folder is None


def test_a_temporary_folder_that_is_full_ends_a_run_in_one_line_and_nothing_is_left(job, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: open("/dev/full", "w+b"))  # noqa: SIM115
    executor = Processes([cpu])
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '.*'$"):
        train(job.dataset, NETWORK, Synchronous(2, 0.1), executor)
    assert not executor.team.processes
    assert not executor.team.folder.path.exists()


def test_data_that_find_no_room_beside_the_model_name_their_file():
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '/dev/full'$"):
        ArrayFile.of(np.zeros(100_000), Path("/dev/full"))


def test_a_folder_on_a_disk_without_locks_is_one_without_a_lock(monkeypatch):
    def unsupported(*arguments):
        raise OSError(errno.EOPNOTSUPP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folder = RunFolder(10)
    assert folder._lock is None
    folder.close()
    assert not folder.path.exists()


@pytest.mark.parametrize("change", ["removed", "replaced", "changed in memory"])
def test_data_whose_file_is_no_longer_theirs_are_written_anew_for_the_workers(tmp_path, change):
    np.arange(20, dtype=np.float32).tofile(tmp_path / "values")
    array = np.memmap(tmp_path / "values", np.float32, "c" if change == "changed in memory" else "r")
    if change == "removed":
        (tmp_path / "values").unlink()
    elif change == "replaced":
        np.zeros(20, np.float32).tofile(tmp_path / "other")
        (tmp_path / "other").replace(tmp_path / "values")
    else:
        array[3] = 77
    part = ArrayFile.of(array, tmp_path / "copy")
    np.testing.assert_array_equal(part.open(), array)


def test_a_worker_that_finds_other_data_than_it_was_told_of_refuses_them(tmp_path):
    np.arange(20, dtype=np.float32).tofile(tmp_path / "values")
    part = ArrayFile.of(np.memmap(tmp_path / "values", np.float32, "r"), tmp_path / "copy")
    (tmp_path / "values").rename(tmp_path / "older")
    with pytest.raises(DataError, match="values: must stay as it is during training, but was removed or replaced"):
        part.open()
    np.zeros(20, np.float32).tofile(tmp_path / "values")
    with pytest.raises(DataError, match="removed or replaced"):
        part.open()


def test_data_that_lie_in_files_are_not_copied_for_the_workers(job, tmp_path):
    file = np.memmap(tmp_path / "values", np.float32, "w+", shape=(20,))
    file[:] = np.arange(20)
    part = ArrayFile.of(file[4:9], tmp_path / "copy")
    assert part.path == str(tmp_path / "values")
    assert not (tmp_path / "copy").exists()
    np.testing.assert_array_equal(part.open(), np.arange(4, 9))
    plain = ArrayFile.of(np.arange(5)[::2], tmp_path / "copy")
    np.testing.assert_array_equal(plain.open(), [0, 2, 4])
    mapped = MappedJob.of(job, tmp_path).open()
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(mapped.dataset.X, name), getattr(job.dataset.X, name))
        np.testing.assert_array_equal(getattr(mapped.dataset.Y, name), getattr(job.dataset.Y, name))


# --- the learner -------------------------------------------------------------------------------------------------


def test_a_report_counts_rows_features_and_the_sum_of_their_losses(job):
    flat = np.zeros(SIZE, np.float32)
    report = Learner(job, Reference(), flat).step(step(5, 2, 9))
    assert (report.worker, report.rows) == (5, 7)
    assert report.loss == pytest.approx(7 * 5 * np.log(2), rel=1e-6)  # all logits are 0
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[2:9]
    assert report.nnz == job.dataset.X.take(rows).nnz
    assert report.seconds >= 0


def test_sample_weights_scale_the_loss_of_their_rows(job):
    weight = np.arange(N_ROWS, dtype=np.float32)
    weighted = Job(job.dataset, NETWORK, SGD(), seed=3, sample_weight=weight)
    report = Learner(weighted, Reference(), np.zeros(SIZE, np.float32)).step(step(0, 0, 4))
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[:4]
    assert report.loss == pytest.approx(weight[rows].sum() * 5 * np.log(2), rel=1e-6)


def test_dropout_masks_depend_on_the_batch_and_not_on_who_trains_it(job):
    dropping = Job(job.dataset, Network(6, 5, (4,), input_dropout=0.5, hidden_dropout=0.5), SGD(), seed=3)

    def after(*steps):
        flat = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
        learner = Learner(dropping, Reference(), flat)
        for one in steps:
            learner.step(one)
        return flat

    np.testing.assert_array_equal(after(step(0, 0, 4)), after(step(2, 0, 4)))
    assert np.any(after(step(0, 0, 4)) != after(step(0, 0, 4, epoch=1)))
