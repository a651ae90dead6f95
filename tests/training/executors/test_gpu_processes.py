"""GPUs in processes of their own: models stay there from merge to merge, and are copied when the coordinator asks."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from shared import light, toy
from shared.apart import Apart, MarkingApart
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.easgd import EASGD
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.merging import MergeRule
from xmlsgd.training.messages import Joined, Sharing, Span

pytestmark = pytest.mark.usefixtures("forked")

N_ROWS = 48


class LightApart(Apart, light.Light):
    """A GPU that computes what the reference does."""


class Copying(MarkingApart):
    """A GPU that appends to a file, whose size counts, how many vectors it has copied."""

    def __init__(self, file):
        self.file = file

    def copy_to_device(self, placed, flat):
        self._count()
        super().copy_to_device(placed, flat)

    def to_host(self, placed, flat=None):
        self._count()
        return super().to_host(placed, flat)

    def _count(self):
        with self.file.open("ab") as file:
            file.write(b".")


class Lost(MarkingApart):
    """A GPU that is lost once, when its replica is asked for: its process dies, raises an error or hangs."""

    def __init__(self, folder, how):
        self.folder, self.how = folder, how

    def to_host(self, placed, flat=None):
        if self.how == "killed":
            light.die_once(self.folder, ["lost"])
        elif not (self.folder / "lost").exists():
            (self.folder / "lost").touch()
            if self.how == "raises":
                raise MemoryError("the GPU has fallen off the bus")
            time.sleep(60)
        return super().to_host(placed, flat)


class HalfEpoch(Callback):
    """Interrupts a run in the middle of an epoch, while all have a step."""

    def span(self, report):
        raise KeyboardInterrupt


@MergeRule
def take_replica(params):
    """Let the center be the replica of worker 1."""
    params.center[:] = params.replicas[1]


def gpus(*makers, **settings):
    return Processes(makers, shares_memory=[False] * len(makers), **settings)


@pytest.mark.parametrize("optimizer", [SGD(), Adam()], ids=["sgd", "adam"])
@pytest.mark.parametrize("algorithm", [Synchronous(4, 0.1), Crossbow(4, 0.1, sync_every=1)], ids=["mean", "crossbow"])
def test_gpus_in_processes_learn_what_cpus_do_to_the_bit(job, algorithm, optimizer):
    job = Job(job.dataset, job.network, optimizer, job.seed)
    runs = [
        train(job, algorithm, executor, Schedule(3))
        for executor in (gpus(LightApart, LightApart), Processes([light.Light] * 2))
    ]
    np.testing.assert_array_equal(runs[0].params, runs[1].params)
    np.testing.assert_array_equal(runs[0].state, runs[1].state)
    assert runs[0].updates == runs[1].updates


def begun(executor, job):
    """Begin a run of replicas with Adam."""
    executor.start(replace(job, optimizer=Adam()), Sharing.REPLICAS)
    return executor


def stepped(executor, w):
    """Let a worker make one step; return its replica and its optimizer state."""
    executor.submit(Span(w, 0, 0, 6, 0.1))
    assert executor.wait().rows == 6
    executor.learned()  # into the shared parameters
    return np.concatenate([executor.shared.params[1 + w], executor.shared.states[w]])


def test_a_gpu_in_a_process_goes_on_from_the_model_and_state_that_were_put_back(job):
    executor = begun(gpus(LightApart), job)
    executor.save_snapshot()
    first = stepped(executor, 0)
    executor.restore_snapshot()
    again = stepped(executor, 0)
    executor.close()
    np.testing.assert_array_equal(again, first)


def test_a_gpu_in_a_process_that_joins_begins_as_a_cpu_does(job):
    """From the center of that moment and a state of zeros, though its process was ready before the last merge."""
    found = []
    for executor in (gpus(LightApart, LightApart), Processes([light.Light] * 2)):
        begun(executor, job)
        for w in (0, 1):
            stepped(executor, w)
        executor.pool.processes[0].kill()
        with pytest.warns(UserWarning, match="worker 0 is lost"):
            assert executor.wait().worker == 0
        assert executor.pool.processes[0].pipe.poll(60), "it is ready"
        executor.merge(take_replica, [1])
        assert executor.wait() == Joined(0)
        found.append(stepped(executor, 0))
        executor.close()
    np.testing.assert_array_equal(found[0], found[1])


def test_a_model_is_copied_for_merges_and_the_optimizer_state_at_the_end(tmp_path):
    """Its model from and to each of two GPUs at every merge; model and state of both at the end."""
    data, file = toy.dataset(N_ROWS), tmp_path / "copied"
    executor = gpus(partial(Copying, file), partial(Copying, file))
    algorithm = EASGD(4, 0.1, sync_every=3)
    train(Job(data, toy.counting(data), Adam()), algorithm, executor, Schedule(1))
    assert executor.merges >= 2
    assert file.stat().st_size == 4 * executor.merges  # states in place of the models that a last merge gives back


@pytest.mark.parametrize(
    ("algorithm", "how"),  # the executor notes how one is lost, the algorithm what it had not merged
    [
        (Synchronous(4, 0.1), "killed"),
        (LocalSGD(4, 0.1, combine="mean"), "raises"),
        (Crossbow(4, 0.1, sync_every=2), "hangs"),
        (Omnivore(4, 0.1, groups=2, momentum=0.0), "killed"),
    ],
    ids=["mean", "local_sgd", "crossbow", "omnivore"],
)
def test_the_rows_of_a_gpu_that_is_lost_when_its_replica_is_asked_for_are_trained_again(tmp_path, algorithm, how):
    data = toy.dataset(N_ROWS)
    executor = gpus(partial(Lost, tmp_path, how), MarkingApart, liveness_timeout=1.0)
    rows = []

    class Rows(Callback):
        def span(self, report):
            rows.append(report.rows)

        def lost(self, reports):
            rows.append(-sum(report.rows for report in reports))

    with pytest.warns(UserWarning, match="worker 0 is lost: .*; what it had not merged is trained again") as told:
        run = train(Job(data, toy.counting(data), SGD()), algorithm, executor, Schedule(2), [Rows()])
    assert sum(rows) == 2 * N_ROWS == run.records[-1]["rows"]
    assert all(record["rows"] for record in run.records)
    assert how != "raises" or "off the bus" in str(told[0].message)
    assert [left.worker for left in executor.left] == [0]
    if isinstance(algorithm, Omnivore):  # the sum of all steps, without momentum: every row leaves its mark
        np.testing.assert_array_equal(toy.marks(run.params, data), 2)


def test_what_gpus_keep_is_in_the_result_of_a_run_that_is_interrupted_while_they_are_busy(job):
    executor = gpus(LightApart, LightApart)
    job = Job(job.dataset, job.network, Adam(), job.seed)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        train(job, Hogwild(2, 0.1), executor, Schedule(2), [HalfEpoch()])
    assert interrupted.value.run.state.any()  # type: ignore[attr-defined]
