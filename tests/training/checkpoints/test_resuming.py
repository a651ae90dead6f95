"""Algorithms and executors of several workers resume from a checkpoint and end with one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared import light, toy
from shared.cut_runs import BATCH, N_ROWS, NETWORK, SCHEDULE, STEPS, Killed, Late, go, job_of
from shared.ended import ended_run
from shared.failing import Failing
from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.easgd import EASGD
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.checkpoints import read_checkpoint
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.progress import TrainingPosition

pytestmark = pytest.mark.usefixtures("forked")


def test_workers_may_change(dataset, at):
    go(job_of(dataset), at, STEPS + 2)
    executor = Serial([Reference(), Reference()])
    run = train(job_of(dataset), Hogwild(BATCH, 0.05), executor, SCHEDULE, checkpoint=at)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]
    assert len(run.records[-1]["workers"]) == 2


@pytest.mark.parametrize("kind", ["serial", "threads", "simulated", "processes"])
def test_each_row_is_trained_once_an_epoch_by_workers_that_were_killed(at, kind):
    """Workers add 1 to a row's weight; those of one memory stop for a checkpoint, so that none is in the middle."""
    rows = toy.dataset(60)
    job = Job(rows, Network(60, 1, (1,), input_scale=0.0), SGD())
    make = {
        "serial": lambda: Serial([light.Marking() for _ in range(3)]),
        "threads": lambda: Threads([light.Marking() for _ in range(3)]),
        "simulated": lambda: Simulated(light.Marking(), [VirtualDevice(speed=speed) for speed in (1.0, 0.5, 0.3)]),
        "processes": lambda: Processes([light.Marking] * 2),
    }[kind]
    with pytest.raises(Killed):
        train(job, Hogwild(4, 0.1), make(), Schedule(3), [Failing(Killed(), 22)], at)
    position = read_checkpoint(at).position
    assert 0 < position.rows < 180
    run = train(job, Hogwild(4, 0.1), make(), Schedule(3), checkpoint=at)
    trained = job.network.layout.views(run.params)["W0"][:, 0]
    np.testing.assert_array_equal(trained, 3)
    assert [record["rows"] for record in run.records] == [60, 120, 180]


@pytest.mark.parametrize("name", sorted({*algorithm_names()} - {"sequential"}))
def test_every_algorithm_resumes(name, at):
    """Replicas are not waited for: what is kept is of the last time at which all work was in the model."""
    job = Job(toy.learnable_data(200), toy.FITTING, SGD())
    fleet = [VirtualDevice(speed=speed) for speed in (1.0, 0.7)]
    device, logged = CPU(1), toy.Logged(CPU(1), fleet)
    algorithm, again = (get_algorithm(name, batch=5, learning_rate=0.1) for _ in range(2))
    with device.start():
        with pytest.raises(Killed):
            train(job, algorithm, Simulated(device, fleet), Schedule(3), [Late(330)], at)
        left = 600 - read_checkpoint(at).position.rows
        run = train(job, again, logged, Schedule(3), checkpoint=at)
    assert 200 < left <= 400
    assert [record["rows"] for record in run.records] == [200, 400, 600]
    assert np.isfinite(run.params).all()
    trained = sum(step.rows for step in logged.of("issue"))
    if name == "omnivore":  # its trials are begun anew; what they train does not count
        assert left <= trained < 600
    else:
        assert trained == left


class Careful(Omnivore):
    """Looks whether anybody is in the middle of a step when an epoch ends."""

    def end_epoch(self, comm):
        assert not comm.busy
        super().end_epoch(comm)


@pytest.mark.parametrize("name", sorted({*algorithm_names()} - {"omnivore"}))
def test_every_algorithm_resumes_in_the_middle_of_an_epoch(name, at):
    goes_on_in_the_middle(at, lambda: get_algorithm(name, batch=5, learning_rate=0.1), (1.0, 0.7))


@pytest.mark.parametrize("options", [{}, {"tune": False, "groups": 2}, {"tune": False, "groups": 1}], ids=str)
def test_omnivore_ends_the_first_epoch_where_it_ends(options, at):
    goes_on_in_the_middle(at, lambda: Careful(5, 0.1, **options), (1.0, 0.9, 0.8, 0.7))


def goes_on_in_the_middle(at, algorithm, speeds):
    """Let one worker do a part of an epoch, and several by an algorithm the rest of the run."""
    job = Job(toy.learnable_data(200), toy.FITTING, SGD())
    device, fleet = CPU(1), [VirtualDevice(speed=speed) for speed in speeds]
    with device.start():
        with pytest.raises(Killed):
            train(job, Sequential(5, 0.1), Serial([device]), Schedule(3), [Late(100)], at)
        position = read_checkpoint(at).position
        assert position.at - sum(stop - start for start, stop in position.returned) == 95
        executor = Simulated(device, fleet)
        run = train(job, algorithm(), executor, Schedule(3), checkpoint=at)
    assert [record["rows"] for record in run.records] == [200, 400, 600]
    assert np.isfinite(run.params).all()


def test_learners_that_never_wait_for_each_other_are_held_back_for_a_checkpoint(at):
    job, fleet = Job(toy.learnable_data(200), toy.FITTING, SGD()), [VirtualDevice(speed=speed) for speed in (1, 0.7)]
    device = CPU(1)
    with device.start(), pytest.raises(Killed):
        train(job, Crossbow(5, 0.1, sync_every=1), Simulated(device, fleet), Schedule(3), [Late(330)], at)
    assert 300 < read_checkpoint(at).position.rows < 330


def test_replicas_that_are_never_merged_together_are_kept_at_the_end_of_an_epoch(at):
    job = Job(toy.learnable_data(60), toy.FITTING, SGD())
    algorithm = LocalSGD(5, 0.1, steps=100)
    with pytest.raises(Killed):
        train(job, algorithm, Serial([Reference(), Reference()]), Schedule(3), [Failing(Killed(), 20)], at)
    assert read_checkpoint(at).position == TrainingPosition(1, rows=60, seconds=read_checkpoint(at).position.seconds)


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("algorithm", [Hogwild, LocalSGD], ids=["shared", "replicas"])
def test_a_run_that_is_to_end_writes_a_checkpoint_first(dataset, at, algorithm, n_workers):
    """Of replicas too: they are merged for it."""
    seldom, stop = replace(at, minutes=60.0), KeyboardInterrupt("enough")
    assert not seldom.end_by(stop), "no run is under way"

    class Stopping(Callback):
        """Asks for the end in the second epoch."""

        def start(self, n_rows, epochs, center):
            self.rows, self.asked, self.longest = 0, 0, 0

        def span(self, report):
            self.rows, self.longest = self.rows + report.rows, max(self.longest, report.rows)
            if self.rows > N_ROWS and not self.asked:
                assert seldom.end_by(stop)
                self.asked = self.rows

    stopping, executor = Stopping(), Serial([Reference() for _ in range(n_workers)])
    with pytest.raises(KeyboardInterrupt) as ended:
        train(job_of(dataset), algorithm(BATCH, 0.05), executor, SCHEDULE, [stopping], seldom)
    assert ended.value is stop
    saved = read_checkpoint(at)
    assert N_ROWS < stopping.asked <= saved.position.rows <= stopping.asked + (n_workers - 1) * stopping.longest
    np.testing.assert_array_equal(saved.arrays.arrays["params"], ended_run(ended.value).params)
    assert seldom.request.error is None
    run = train(job_of(dataset), algorithm(BATCH, 0.05), executor, SCHEDULE, checkpoint=seldom)
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]


def test_gradients_may_be_rounded_otherwise_on_another_device(dataset, at):
    go(job_of(dataset), at, STEPS)
    job = replace(job_of(dataset), network=replace(NETWORK, gradient_rounding=0.0))
    assert [record["rows"] for record in go(job, at).records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]


@pytest.mark.parametrize(
    "algorithm",
    [EASGD(5, 0.1, sync_every=2, asynchronous=True), Omnivore(5, 0.1, groups=2), Crossbow(5, 0.1, sync_every=2)],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_workers_that_never_wait_for_each_other_are_held_back_for_a_checkpoint(algorithm, at):
    """Else none would be written before the end of an epoch, however long that takes."""
    job = Job(toy.learnable_data(200), toy.FITTING, SGD())
    device = CPU(1)
    with device.start(), pytest.raises(Killed):
        train(job, algorithm, Simulated(device, toy.fleet(1, 0.7)), Schedule(3), [Late(150)], at)
    assert 0 < read_checkpoint(at).position.at < 150
