"""The simulated clock: repeatable, monotone, one task a device; who is away, who is excluded, who goes on."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from shared import light, toy
from shared.ended import ended_run
from xmlsgd.algorithms import algorithm_names, get_algorithm
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.devices.base import EXACT
from xmlsgd.errors import WorkerDied
from xmlsgd.metrics import precision_at_k
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job, Start
from xmlsgd.training.loop import run_of, train

N_ROWS, BATCH = 240, 5
DATA = toy.learnable_data(N_ROWS)
EVERY = algorithm_names()
NAMES = [name for name in EVERY if name not in ("auto", "omnivore")]
FLEET = toy.fleet(1, 0.8, 0.5, noise=0.1)
AWAY = tuple(VirtualDevice(0, 1e-3, speed=speed, noise=0.1, absent=absent) for speed, absent in [
    (1, ((0.03, 0.06),)), (0.8, ((0.0, 0.05), (0.1, 0.2))), (0.5, ((0.02, 0.022), (0.09, np.inf)))
])  # fmt: skip


def made(name):
    """An algorithm with meetings so frequent that an epoch of the test has some."""
    settings = {"easgd": {"sync_every": 3}, "local_sgd": {"steps": 3}}.get(name, {})
    if name in ("adaptive", "elastic"):
        settings = {"mega_batch": 45}
    return type(get_algorithm(name, BATCH, 0.1))(BATCH, 0.1, **settings)


def trained(name, fleet=FLEET, seed=0, epochs=2, start=None, optimizer=None):
    executor = toy.Logged(toy.Reference(), fleet, seed=seed)
    job, schedule = Job(DATA, toy.FITTING, optimizer or SGD(), start=start), Schedule(epochs, "constant", 0)
    return train(job, made(name), executor, schedule), executor


def sha(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


@pytest.mark.parametrize("fleet", [FLEET, AWAY], ids=["present", "away"])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_repeats_to_the_bit_and_another_seed_gives_another_schedule_of_the_same_rows(name, fleet):
    """The same rows once an epoch, whoever is away."""
    (first, log), (second, again), (_, other) = trained(name, fleet), trained(name, fleet), trained(name, fleet, seed=1)
    assert sha(first.params) == sha(second.params)
    assert log.times == again.times
    assert log.times != other.times
    for executor in (log, other):
        rows = sum(report.rows for report in executor.of("done"))
        assert rows == 2 * N_ROWS or fleet is AWAY
        assert first.records[-1]["rows"] == 2 * N_ROWS


@pytest.mark.parametrize("name", NAMES)
def test_rows_issued_are_done_lost_or_in_flight_at_every_event_and_no_device_has_two_tasks(name):
    """Whenever anything happens, and the clock never goes back."""
    _, executor = trained(name, AWAY)
    assert executor.times == sorted(executor.times)
    flying, away = {}, {1}
    for kind, what in executor.log:
        if kind == "issue":
            assert what.worker not in flying
            assert what.worker not in away
            flying[what.worker] = what
        elif kind == "done":
            assert flying.pop(what.worker).rows == what.rows
        elif kind == "left":
            flying.pop(what, None)
            away.add(what)
        elif kind == "joined":
            away.remove(what)
        else:
            assert not set(what) & (set(flying) | away), "who is busy or away takes no part"
    assert not flying


@pytest.mark.parametrize("name", [name for name in NAMES if name != "easgd"])
def test_one_worker_is_sequential_gradient_descent(name):
    """Elastic averaging pulls also at one learner."""
    run, _ = trained(name, toy.fleet(1))
    np.testing.assert_array_equal(run.params, trained("sequential", toy.fleet(1))[0].params)


def test_four_stale_workers_lose_precision_at_one_rate_and_regain_it_at_a_quarter():
    """The simulated clock shows what threads on few cores hide."""
    data = toy.learnable_data(400, seed=1)

    def precision(n_workers, rate):
        fleet = toy.fleet(*[1] * n_workers)
        run, _ = toy.run(Hogwild(10, rate), fleet, device=toy.Reference(), data=data, network=toy.FITTING, epochs=3)
        layers, rows = toy.FITTING.layers(run.params), np.arange(400)
        A = toy.FITTING.hidden_activations(toy.Reference(), layers, data.X, rows)
        labels, _ = toy.Reference().top_k(A, layers[-1], 1)
        return float(precision_at_k(data.Y, labels, 1)[0])

    assert precision(1, 2.0) > 0.95
    assert precision(4, 2.0) < 0.5
    assert precision(4, 0.5) > 0.95


@pytest.mark.parametrize("algorithm", [Hogwild(10, 0.1), Synchronous(10, 0.1)], ids=["shared", "replicas"])
def test_a_worker_that_is_back_before_its_lost_step_would_have_ended_does_not_apply_it(algorithm):
    """The report of what it was at when it left changes nothing."""
    fleet = [VirtualDevice(0, 1e-2, absent=((0.05, 0.06),)), VirtualDevice(0, 1e-2)]
    data = toy.dataset(40)
    done, executor = toy.run(algorithm, fleet, data=data, device=light.Marking())
    first = executor.of("issue")[0]
    assert (first.worker, executor.of("left"), executor.of("joined")) == (0, [0], [0])
    assert len([step for step in executor.of("issue") if step.start == first.start]) == 2, "its rows are issued again"
    ends = [
        at for (kind, what), at in zip(executor.log, executor.times, strict=True) if kind == "done" and not what.worker
    ]
    assert 0.1 not in ends
    if isinstance(algorithm, Hogwild):
        np.testing.assert_array_equal(toy.marks(done.params, data), 1)
    assert done.records[0]["rows"] == 40


@pytest.mark.parametrize("name", EVERY)
def test_a_run_waits_until_a_worker_joins(name):
    """All devices are away from the start, and again in the middle."""
    fleet = [VirtualDevice(0, 1e-3, absent=((0.0, begin), (0.1, 0.3))) for begin in (0.02, 0.05)]
    run, executor = trained(name, fleet, epochs=1)
    assert executor.times[0] >= 0.02
    assert executor.log[0][0] == "joined"
    assert run.records[0]["rows"] == N_ROWS
    assert run.records[0]["seconds"] > 0.3
    assert np.isfinite(run.params).all()


@pytest.mark.parametrize("name", EVERY)
def test_a_run_ends_with_one_line_when_no_worker_will_return(name):
    fleet = [VirtualDevice(0, 1e-3, absent=((begin, np.inf),)) for begin in (0.03, 0.05)]
    with pytest.raises(WorkerDied, match=r"no worker is left: all devices of the fleet are away, and none returns"):
        trained(name, fleet)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_learned_until_no_worker_was_left_is_kept_and_goes_on(name):
    fleet = [VirtualDevice(0, 1e-3, absent=((begin, np.inf),)) for begin in (0.3, 0.35)]
    merged = []

    class Merging(toy.Logged):
        def push(self, worker):
            super().push(worker)
            merged.append(self.center.copy())

        def merge(self, rule, members):
            super().merge(rule, members)
            merged.append(self.center.copy())

    executor = Merging(toy.Reference(), fleet)
    with pytest.raises(WorkerDied) as lost:
        train(Job(DATA, toy.FITTING, Adam()), made(name), executor, Schedule(20))
    run = ended_run(lost.value)
    assert 0 < len(run.records) < 20
    np.testing.assert_array_equal(run.params, merged[-1])
    start = Start(run.params, run.state, run.updates, epochs=len(run.records))
    after = train(
        Job(DATA, toy.FITTING, Adam(), start=start), made(name), Simulated(toy.Reference(), FLEET), Schedule(1)
    )
    assert [record["epoch"] for record in after.records] == [len(run.records)]


def test_a_fleet_that_some_have_left_runs_again_as_the_first_time():
    executor = Simulated(toy.Reference(), AWAY)
    first, second = (train(Job(DATA, toy.FITTING, SGD()), made("elastic"), executor, Schedule(2)) for _ in range(2))
    assert first.records == second.records
    np.testing.assert_array_equal(first.params, second.params)


@pytest.mark.filterwarnings("ignore:sync_every")
@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize("name", EVERY)
def test_fewer_rows_than_workers_are_trained_once_an_epoch_though_all_come_and_go(name, n_rows):
    fleet = [
        VirtualDevice(1e-3, 1e-3, speed=1 / (1 + w), absent=((3e-3 * (w + 1), 5e-3 + 4e-3 * w),)) for w in range(7)
    ]
    data = toy.random_data(n_rows, 6, 5, density=0.9)
    for batch in (1, 256):
        algorithm = type(get_algorithm(name, 1, 1.0))(batch, 0.1)
        executor = Simulated(toy.Reference(), fleet)
        run = train(Job(data, Network(6, 5, (4,)), Adam()), algorithm, executor, Schedule(3))
        assert [record["rows"] for record in run.records] == [n_rows, 2 * n_rows, 3 * n_rows]
        for record in run.records:
            assert sum(entry["rows"] for entry in record["workers"]) == n_rows


def test_a_run_that_has_learned_nothing_has_nothing_to_keep():
    fleet = [VirtualDevice(0, 1e-3, absent=((1e-3, np.inf),))]
    with pytest.raises(WorkerDied, match="no worker is left") as death:
        trained("hogwild", fleet)
    assert run_of(death.value) is None


def test_a_model_that_is_not_finite_when_no_worker_is_left_is_that_of_the_last_whole_epoch():
    class Faulty(light.Marking):
        def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
            if executor.now() > 0.25:
                layer.W[0, 0] = np.nan
            return 0.0, A

    executor = Simulated(Faulty(), [VirtualDevice(0, 1e-3, absent=((0.3, np.inf),))])
    data = toy.dataset(N_ROWS)
    with pytest.raises(WorkerDied) as lost:
        train(Job(data, toy.counting(data), SGD()), Hogwild(10, 0.1), executor, Schedule(3))
    np.testing.assert_array_equal(toy.marks(ended_run(lost.value).params, data), 1)
    assert ended_run(lost.value).diverged


def test_an_algorithm_that_gives_no_worker_any_rows_is_named():
    class Idle(Sequential):
        def batch_size(self, w, now):
            return 0

    with pytest.raises(WorkerDied, match=r"Idle assigned no rows to any live worker, \[0, 1, 2\]"):
        train(Job(DATA, toy.FITTING, SGD()), Idle(BATCH, 0.1), Simulated(toy.Reference(), FLEET), Schedule(1))


@pytest.mark.parametrize("settings", [{}, {"tune": True, "slice_seconds": 0.05}], ids=["", "tuned"])
def test_groups_are_formed_of_workers_that_join_if_none_is_there_at_first(settings):
    fleet = [VirtualDevice(0, 1e-3, absent=((0.0, begin),)) for begin in (0.02, 0.05, 0.06)]
    executor = toy.Logged(toy.Reference(), fleet)
    run = train(Job(DATA, toy.FITTING, SGD()), Omnivore(BATCH, 0.1, **settings), executor, Schedule(3))
    assert [record["rows"] for record in run.records] == [N_ROWS, 2 * N_ROWS, 3 * N_ROWS]
    assert all(entry["rows"] for entry in run.workers)


def test_a_worker_that_joins_late_begins_with_the_center_of_that_moment():
    fleet = [VirtualDevice(0, 1e-3), VirtualDevice(0, 1e-3, absent=((0.0, 0.05),))]
    executor = toy.Logged(light.Quadratic(), fleet)
    seen = []

    class Looking(Synchronous):
        def worker_joined(self, w):
            super().worker_joined(w)
            seen.append((executor.shared.params[1 + w] == executor.center).all() and bool(executor.center.any()))

    train(Job(toy.dataset(N_ROWS), Network(N_ROWS, 1, (1,)), SGD()), Looking(10, 0.1), executor, Schedule(1))
    assert seen == [True]
    workers = [step.worker for step in executor.of("issue")]
    assert workers[:4] == [0, 0, 0, 0]
    assert workers.count(1) >= 8


def test_a_worker_that_joins_has_an_optimizer_state_of_its_own_from_the_start():
    """Neither the half-written state of who died nor a bias correction of other steps."""
    fleet = [VirtualDevice(0, 1e-3), VirtualDevice(0, 1e-3, absent=((0.052, 0.06),))]
    states = []

    class Looking(Synchronous):
        def worker_joined(self, w):
            super().worker_joined(w)
            states.append(executor.shared.states[w].any())

    executor = toy.Logged(toy.Reference(), fleet)
    train(Job(DATA, toy.FITTING, Adam()), Looking(BATCH, 0.01), executor, Schedule(1))
    assert states == [False]
    rejoined = [kind for kind, _ in executor.log].index("joined")
    steps = [what for kind, what in executor.log[rejoined:] if kind == "issue" and what.worker == 1]
    assert executor.result()[2] > len(steps) > 0
    assert executor.updates_seen[1] == len(steps)


def test_the_optimizer_state_that_is_kept_is_not_that_of_a_worker_that_left():
    """What it was at may have been written by half; it had made the most updates."""
    fast, slow = toy.fleet(1, 0.2)
    executor = toy.Logged(toy.Reference(), [replace(fast, absent=((0.8e-3 * N_ROWS, np.inf),)), slow])
    run = train(Job(DATA, toy.FITTING, Adam()), get_algorithm("local_sgd", BATCH, 0.01), executor, Schedule(1))
    assert executor.of("left") == [0]
    assert run.updates == executor.updates_seen[1] < executor.updates_seen[0]
    np.testing.assert_array_equal(run.state, executor.shared.states[1])


def test_workers_that_write_one_model_in_place_correct_adams_bias_by_all_their_updates():
    executor = toy.Logged(toy.Reference(), [replace(device, in_place=True) for device in FLEET])
    run = train(Job(DATA, toy.FITTING, Adam()), Hogwild(BATCH, 0.01), executor, Schedule(1))
    assert run.updates == N_ROWS / BATCH


def test_workers_that_send_differences_correct_adams_bias_by_their_own_updates():
    executor = toy.Logged(toy.Reference(), FLEET)
    train(Job(DATA, toy.FITTING, Adam()), Hogwild(BATCH, 0.01), executor, Schedule(1))
    made = [sum(report.updates for report in executor.of("done") if report.worker == w) for w in range(len(FLEET))]
    assert executor.updates_seen == made
    assert sum(made) == N_ROWS / BATCH


def test_a_diverged_model_is_not_written_over_by_those_still_at_work():
    class Faulty(light.Quadratic):
        n_steps = 0

        def output_step(self, A, targets, layer, loss, update, rounding=EXACT):
            self.n_steps += 1
            value, A = super().output_step(A, targets, layer, loss, update, rounding)
            return (np.nan if self.n_steps == 1 else value), A

    class Noting(Serial):
        def close(self):
            busy.append(set(self.busy))
            super().close()

    busy, devices = [], [Faulty(), light.Quadratic(), light.Quadratic()]
    executor = Noting(devices)
    network = Network(N_ROWS, 1, (1,))
    run = train(Job(toy.dataset(N_ROWS), network, SGD()), Hogwild(10, 0.1), executor, Schedule(1))
    assert run.diverged
    assert network.layout.views(run.params)["W1"][0, 0] == 0
    assert vars(devices[1]) == vars(light.Quadratic())
    assert busy == [set()]


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_goes_on_from_an_earlier_run(name):
    first, _ = trained(name, AWAY, epochs=1, optimizer=Adam())
    start = Start(first.params.copy(), first.state.copy(), first.updates, epochs=1)
    second, executor = trained(name, AWAY, epochs=1, optimizer=Adam(), start=start)
    assert [record["epoch"] for record in second.records] == [1]
    assert [record["first_epoch"] for record in second.records] == [1]
    assert second.updates > first.updates
    assert {step.epoch for step in executor.of("issue")} == {1}
    assert second.records[0]["loss"] < first.records[0]["loss"]


@pytest.mark.parametrize("name", ["elastic", "synchronous", "hogbatch", "hogwild", "sequential"])
def test_two_runs_in_a_row_equal_one_where_epochs_leave_nothing_behind(name):
    """No momentum, sizes or replicas that go on from epoch to epoch."""
    fleet = toy.fleet(1, 0.83, 0.47)  # no two end at the same moment, whose order would hang on how seconds are rounded
    whole, _ = trained(name, fleet)
    first, _ = trained(name, fleet, epochs=1)
    second, _ = trained(name, fleet, epochs=1, start=Start(first.params, first.state, first.updates, epochs=1))
    np.testing.assert_allclose(second.params, whole.params, rtol=1e-6, atol=1e-7)
    assert second.updates == whole.updates


def test_epochs_take_the_rows_in_different_orders():
    _, executor = trained("adaptive", FLEET)
    orders = [toy.epoch_order(N_ROWS, 0, epoch).tolist() for epoch in (0, 1)]
    assert orders[0] != orders[1]
    assert {step.epoch for step in executor.of("issue")} == {0, 1}


@pytest.mark.parametrize("name", EVERY)
def test_an_algorithm_learns_though_workers_come_and_go(name):
    run, _ = trained(name, AWAY, epochs=12)
    losses = [record["loss"] for record in run.records]
    assert losses[-1] < 0.9 * losses[0]
