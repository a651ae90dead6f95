"""A CPU beside a GPU: the CPU writes the shared model in place, the GPU pulls copies and pushes differences."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from shared import light, toy
from shared.apart import MarkingApart, ReferenceApart
from shared.every_executor import span
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.optimizers import SGD, Adagrad
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.learner import Learner
from xmlsgd.training.loop import train
from xmlsgd.training.messages import Sharing

pytestmark = pytest.mark.usefixtures("forked")

CPU, GPU = 0, 1


FLEET = [VirtualDevice(1e-4, 1e-3, in_place=True), VirtualDevice(1e-3, 1e-4)]
MADE = {
    "processes": lambda: Processes([light.Light, ReferenceApart], shares_memory=[True, False]),
    "threads": lambda: Threads([Reference(), ReferenceApart()]),
    "simulated": lambda: Simulated(Reference(), FLEET),
}


@pytest.fixture(params=MADE)
def executor(request):
    made = MADE[request.param]()
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_the_cpu_writes_the_center_and_the_gpu_does_so_when_its_difference_is_pushed(job, kind):
    executor = MADE[kind]()
    executor.start(job, Sharing.IN_PLACE)
    written = []
    for w in (CPU, GPU):
        before = executor.center.copy()
        executor.submit(span(w, 0, 4))
        executor.wait()
        written.append(bool(np.any(executor.center != before)))
        executor.push(w)
        assert np.any(executor.center != before)
    executor.close()
    assert written == [True, False]
    assert [executor.writes_in_place(w) for w in (CPU, GPU)] == [True, False]


def test_what_the_cpu_wrote_while_the_gpu_was_busy_is_not_lost(executor, job):
    """Also where the GPU has pushed last, and knows of no push since."""
    executor.start(job, Sharing.IN_PLACE)
    first = executor.center.copy()
    change = np.zeros_like(first)
    for at in (0, 8):
        read = executor.center.copy()
        executor.submit(span(GPU, at, at + 2))
        executor.submit(span(CPU, at + 2, at + 4))
        for _ in range(2):
            executor.wait()
        for w in (CPU, GPU):
            executor.push(w)
        for start in (at, at + 2):
            alone = Learner(job, Reference(), read.copy())
            alone.train_span(span(0, start, start + 2))
            change += alone.flat - read
    np.testing.assert_allclose(executor.center, first + change, rtol=1e-5, atol=1e-6)


def test_the_gpu_has_an_optimizer_state_of_its_own(executor, job):
    """Which neither undoes nor is undone by what the CPU writes to its state."""
    executor.start(Job(job.dataset, job.network, Adagrad(), job.seed), Sharing.IN_PLACE)
    for w in (CPU, GPU):
        executor.submit(span(w, 4 * w, 4 * w + 4))
        executor.wait()
        executor.push(w)
    assert executor.updates_seen == [1, 1]
    executor.learned()  # a GPU keeps its own until then
    cpu, gpu = executor.shared.states
    assert cpu.any()
    assert gpu.any()
    assert np.any(cpu != gpu)


def test_the_same_steps_move_the_same_bytes_on_a_simulated_fleet_and_on_real_workers(job):
    """None for the CPU, three vectors for a pull of the GPU and four for a push: others write meanwhile."""
    moved = {}
    for name, make in MADE.items():
        executor = make()
        executor.start(job, Sharing.IN_PLACE)
        for at, workers in ((0, (GPU, CPU)), (4, (GPU,)), (8, (CPU,))):
            for w in workers:
                executor.submit(span(w, at + 2 * w, at + 2 * w + 2))
            for _ in workers:
                executor.push(executor.wait().worker)
        executor.close()
        moved[name] = executor.transfer_bytes
    assert moved["processes"] > 0
    assert set(moved.values()) == {moved["processes"]}


@pytest.mark.parametrize("kind", ["processes", "threads", "simulated"])
def test_hogbatch_trains_every_row_once_and_moves_bytes_for_the_gpu_alone(kind):
    """Each of its spans pulls and pushes a feature a row, and the output layer."""
    n_rows = 240
    data = toy.dataset(n_rows)
    executor = {
        "processes": lambda: Processes([light.Marking, MarkingApart], shares_memory=[True, False]),
        "threads": lambda: Threads([light.Marking(), MarkingApart()]),
        "simulated": lambda: Simulated(light.Marking(), FLEET),
    }[kind]()
    spans = []

    class Spans(Callback):
        def span(self, report):
            if report.worker == GPU:
                spans.append(report.rows)

    job = Job(data, toy.counting(data), SGD())
    algorithm = Hogbatch(4, 0.1, sizes=(4, 32), threads=(2, 1))
    run = train(job, algorithm, executor, Schedule(2), [Spans()])
    np.testing.assert_array_equal(toy.marks(run.params, data), 2)
    dense = executor.shared.params.shape[1] - n_rows
    assert spans
    assert executor.transfer_bytes == 4 * (3 + 4) * (len(spans) * dense + sum(spans))


def test_a_step_of_a_gpu_is_not_lost_where_the_center_is_read_meanwhile(job):
    class Slow(ReferenceApart):
        def input_step(self, *given):
            stepping.set()
            assert read.wait(60)
            super().input_step(*given)

    stepping, read = Event(), Event()
    executor = Threads([Slow(), ReferenceApart()])
    executor.start(job, Sharing.DELTA)
    executor.submit(span(1, 4, 8))  # as long as the output layer is zero, no input layer learns
    executor.wait()
    executor.push(1)
    before = executor.center.copy()
    executor.submit(span(0, 0, 4))
    assert stepping.wait(60)
    executor.fetch_center()
    read.set()
    executor.wait()
    executor.push(0)
    Learner(job, Reference(), before).train_span(span(0, 0, 4))
    np.testing.assert_allclose(executor.center, before, rtol=0, atol=1e-6)
    executor.close()
