"""Crossbow's synchronous model averaging and elastic averaging: pulls, conservation, the number of learners."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from shared import light, toy
from xmlsgd.algorithms.crossbow import INTERVAL, Crossbow, LearnerTuner
from xmlsgd.algorithms.easgd import EASGD
from xmlsgd.errors import DataError
from xmlsgd.estimators.workers import parse_devices
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.processes import Processes
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.messages import Report


def started(k, kind=Crossbow, **settings):
    if kind is Crossbow:
        settings = {"center_momentum": 0.0, **settings}
    algorithm = kind(10, 0.1, **{"sync_every": 1, **settings})
    algorithm.start(range(k), 10**6)
    return algorithm


def meet(algorithm, comm, steps=None):
    """Let every replica move by its step, while what is left of the last merge is done; then merge."""
    comm.shared.touched[:] = 1
    members = range(len(comm.shared.params) - 1)
    if steps is not None:
        comm.shared.params[1:] += np.array(steps, np.float32)[:, None]
    algorithm.overlap(comm, members)
    algorithm.merge(comm, members)


@pytest.mark.parametrize("mu", [0.0, 0.9])
def test_an_iteration_is_the_papers_worked_by_hand(mu):
    """Corrections are taken from where learners stood before their step, and moved the average during it."""
    algorithm = Crossbow(10, 0.2, center_momentum=mu, sync_every=1)
    done, executor = toy.run(algorithm, toy.fleet(1, 0.8, 0.5), n_rows=300)
    z = previous = 0.0
    w, steps, c = np.zeros(3), np.zeros(3), np.zeros(3)
    for kind, what in executor.log:
        if kind == "issue":
            steps[what.worker] = w[what.worker] - toy.after(w[what.worker], what, 300)
        elif kind == "merge" and what:
            w[what] -= steps[what] + c[what]
        elif kind == "merge":
            c = (w - z) / 3
            z, previous = z + c.sum() + mu * (z - previous), z
    assert executor.of("merge").count([]) == 10
    assert z > 0
    assert toy.weight(done, 300) == pytest.approx(z, rel=1e-4)
    replicas = [toy.weight(type(done)(row, [], None, 0), 300) for row in executor.shared.params[1:]]
    assert replicas == pytest.approx(w.tolist(), rel=1e-4)


@pytest.mark.parametrize("n_rows", [240, 250, 330, 700])
def test_rounds_of_several_steps_end_with_a_pull_also_where_an_epoch_cuts_them_short(n_rows):
    """Learners of unequal speed: when rows run out one may be in the next round, which counts too."""
    algorithm = Crossbow(10, 0.2, sync_every=4)
    done, executor = toy.run(algorithm, toy.fleet(1, 0.55), n_rows=n_rows)
    z = previous = total = 0.0
    w = np.zeros(2)
    for kind, what in executor.log:
        if kind == "issue":
            w[what.worker] = toy.after(w[what.worker], what, n_rows)
        elif kind == "merge" and what:
            c = (w[what] - z) / 2
            w[what], total = w[what] - c, total + c.sum()
        elif kind == "merge":
            z, previous, total = z + total + 0.9 * (z - previous), z, 0.0
    assert total == 0
    assert z > 0
    assert toy.weight(done, n_rows) == pytest.approx(z, rel=1e-4)


def test_a_learner_goes_on_while_others_are_at_work_and_waits_for_the_average_of_the_round_before():
    """A step takes the first 10 ms and the second 25: the first has its second task at once, and then has to wait."""
    _, executor = toy.run(Crossbow(10, 0.2, sync_every=1), toy.fleet(1, 0.4), n_rows=200)
    assert [step.worker for step in executor.of("issue")] == [0, 1] * 10
    begun = {0: [], 1: []}
    for (kind, what), at in zip(executor.log, executor.times, strict=True):
        if kind == "issue":
            begun[what.worker].append(at)
    assert begun[1] == pytest.approx([0.025 * i for i in range(10)], abs=1e-4)
    assert begun[0] == pytest.approx([0, 0.01, *(0.025 * i for i in range(1, 9))], abs=1e-4)


def test_learners_wait_for_their_own_corrections_and_for_nothing_else_of_an_average():
    """Ten rounds of steps of 10 ms, where it takes 0.1 ms to read and write a vector of the model."""
    data, network = toy.random_data(300, 4, 1, density=1), Network(4, 1, (1,))
    executor = toy.Logged(toy.Quadratic(), toy.fleet(1, 1, 1), bandwidth=8 * 7 / 1e-4)
    job = Job(data, network, toy.SGD())
    done = toy.train(job, Crossbow(10, 0.2, sync_every=1), executor, Schedule(1, "constant", 0))
    correction, move = 4, 3  # vectors: replica, average, sum and the learner's own; average, sum and motion
    assert executor.merge_seconds == pytest.approx(10 * (3 * correction + move) * 1e-4)
    waiting = 10 * correction + 2 * correction + move  # own ones; at the end those of two others and the average
    assert done.records[-1]["seconds"] == pytest.approx(0.1 + waiting * 1e-4)


def test_the_model_depends_on_no_timing_where_learners_are_corrected_after_every_step():
    """To the bit: rows and sums keep the order of the learners."""
    models = []
    for speeds, noise in (((1, 1, 1), 0.0), ((1, 0.3, 0.6), 0.0), ((0.7, 1, 0.9), 1.0)):
        done, _ = toy.run(Crossbow(10, 0.2, sync_every=1), toy.fleet(*speeds, noise=noise), n_rows=400, epochs=2)
        models.append(done.params)
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])


def test_processes_train_the_model_of_simulated_devices_of_other_speeds():
    """To the bit, whoever is done first."""
    data, network = toy.random_data(205, 30, 12), Network(30, 12, (8,))
    executors = Processes([toy.Reference] * 2), toy.Logged(toy.Reference(), toy.fleet(0.3, 1))
    job = Job(data, network, Adam(), seed=1)
    one, other = (toy.train(job, Crossbow(10, 0.01, sync_every=1), each, Schedule(2)).params for each in executors)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("sync_every", "learners"), [(1, 1), (3, 1), (1, 2)])
def test_a_run_goes_on_whenever_a_learner_dies_or_comes_back(sync_every, learners):
    for begin in np.linspace(0.001, 0.1, 23):
        away = VirtualDevice(0.0, 1e-3, absent=((begin, begin + 0.03),))
        for learner in range(3):
            devices = toy.fleet(1, 0.8, 0.5)
            devices[learner] = away
            algorithm = Crossbow(10, 0.2, sync_every=sync_every, learners=learners)
            done, _ = toy.run(algorithm, devices, epochs=2)
            assert [record["rows"] for record in done.records] == [240, 480]
            assert 0 < toy.weight(done) < 3


def test_elastic_averaging_worked_by_hand():
    """Every tau steps learners and center move towards each other; the next gradient is taken where the pull ends."""
    algorithm = EASGD(10, 0.2, sync_every=3)
    done, executor = toy.run(algorithm, toy.fleet(1, 0.8), n_rows=240)
    z, w = 0.0, np.zeros(2)
    for kind, what in executor.log:
        if kind == "issue":
            w[what.worker] = toy.after(w[what.worker], what)
        elif kind == "merge":
            c = 0.45 * (w - z)
            w, z = w - c, z + c.sum()
    assert len(executor.of("merge")) == 4
    assert toy.weight(done) == pytest.approx(z, rel=1e-4)


def test_asynchronous_elastic_averaging_meets_the_center_one_by_one():
    algorithm = EASGD(10, 0.2, sync_every=2, asynchronous=True)
    done, executor = toy.run(algorithm, toy.fleet(1, 0.6), n_rows=240)
    z, w = 0.0, np.zeros(2)
    assert [len(members) for members in executor.of("merge")[:-1]] == [1] * (len(executor.of("merge")) - 1)
    for kind, what in executor.log:
        if kind == "issue":
            w[what.worker] = toy.after(w[what.worker], what)
        elif kind == "merge":
            c = 0.45 * (w[what] - z)
            w[what], z = w[what] - c, z + c.sum()
    assert toy.weight(done) == pytest.approx(z, rel=1e-4)


def test_momentum_of_the_center_changes_it():
    """It is off in both released systems."""
    models = []
    for mu in (0.0, 0.9):
        algorithm = Crossbow(10, 0.2, center_momentum=mu, sync_every=1)
        models.append(toy.weight(toy.run(algorithm, toy.fleet(1, 1))[0]))
    assert abs(models[1] - models[0]) > 0.1 * abs(models[0])


def test_one_learner_is_plain_gradient_descent():
    """To the bit, since it has nothing to average with."""
    data, network = toy.random_data(65, 7, 5), Network(7, 5, (4,))
    done, _ = toy.run(
        Crossbow(10, 0.3, sync_every=1), toy.fleet(1), device=toy.Reference(), data=data, network=network, epochs=2
    )
    np.testing.assert_array_equal(done.params, toy.sequential(data, network, epochs=2).params)


@pytest.mark.parametrize("kind", [Crossbow, EASGD])
def test_learners_and_center_together_change_by_the_steps_alone(kind):
    """Without momentum the sum of all learners and z changes by the gradients only."""
    algorithm, comm = started(3, kind), toy.Replicas(1, 1, 2, 4)
    if kind is Crossbow:  # the first correction is taken from where learners began, at the center
        comm = toy.Replicas(1, 1, 1, 1)
    total, rng = sum(comm.values()), np.random.default_rng(0)
    for _ in range(20):
        steps = rng.standard_normal(3)
        meet(algorithm, comm, steps)
        total += steps.sum()
        assert sum(comm.values()) == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("kind", [Crossbow, EASGD])
def test_without_gradients_all_meet_in_the_middle(kind):
    """(sum of all w + z) / (k + 1), and the distance shrinks geometrically."""
    algorithm, comm = started(3, kind), toy.Replicas(0, 0, 0, 0)
    meet(algorithm, comm, [1.0, 2.0, 5.0])
    spreads = []
    for _ in range(60):
        meet(algorithm, comm)
        spreads.append(np.ptp(comm.values()))
    np.testing.assert_allclose(comm.values(), 8 / 4, rtol=1e-4)
    assert spreads[20] < 1e-2 * spreads[0]


def test_the_order_of_the_learners_does_not_matter():
    centers = []
    for order in ([0, 1, 2], [2, 0, 1]):
        algorithm, comm = started(3), toy.Replicas(0, 0, 0, 0)
        for steps in ([1, 2, 5], [-1, 0.5, 2], [0.1, 0.2, 0.3]):
            meet(algorithm, comm, np.array(steps)[order])
        centers.append(comm.values()[0])
    assert centers[0] == pytest.approx(centers[1], rel=1e-5)


@pytest.mark.parametrize("kind", [Crossbow, EASGD])
def test_the_pull_follows_the_number_of_learners(kind):
    """A worker that joins late must not make it unstable."""
    share = 1.0 if kind is Crossbow else 0.9
    algorithm = started(2, kind)
    assert algorithm.alpha == share / 2
    for w in (2, 3):
        algorithm.worker_joined(w)
    assert algorithm.alpha == share / 4
    algorithm.worker_left(0)
    assert algorithm.alpha == pytest.approx(share / 3)


def test_a_worker_that_leaves_and_comes_back_pulls_from_the_center():
    """What a learner was away from z before it left is forgotten."""
    algorithm, comm = started(3), toy.Replicas(0, 0, 0, 0)
    meet(algorithm, comm, [3, 6, 9])
    algorithm.overlap(comm, ())
    assert comm.values() == [6, 3, 6, 9]
    algorithm.worker_left(2)
    algorithm.worker_joined(2)
    comm.merger.copy_center(2)
    meet(algorithm, comm)
    assert comm.values() == [6, 2, 4, 6]


@pytest.mark.parametrize("sync_every", [1, 4])
def test_what_a_learner_was_corrected_by_is_in_the_average_when_it_dies(sync_every):
    """Its rows count as trained then: the learner that is left alone must not replace the average without them."""
    algorithm, comm = started(2, sync_every=sync_every), toy.Replicas(0, 0, 0)
    comm.shared.touched[:] = 1
    comm.shared.params[1:] += np.float32([[8], [2]])
    algorithm.merge(comm, [0])
    algorithm.worker_left(0)
    algorithm.merge(comm, [1])
    assert comm.values()[::2] == [6, 6]


def test_learners_are_merged_in_every_epoch_also_where_a_round_is_longer():
    for sync_every, merges in ((4, 6), (10**6, 2)):
        _, executor = toy.run(EASGD(10, 0.1, sync_every=sync_every), toy.fleet(1, 1), epochs=2)
        assert len(executor.of("merge")) == merges


@pytest.mark.parametrize("sync_every", [1, 4])
def test_a_learner_left_alone_while_it_waits_goes_on_where_it_is(sync_every):
    """It was corrected, is done with its next round, and then the one for whom it waits dies."""
    algorithm, comm = started(2, sync_every=sync_every), toy.Replicas(0, 0, 0)
    comm.shared.touched[:] = 1
    for step in (8, 2):
        comm.shared.params[1] += step
        algorithm.finished(Report(0, 10, 10, 0.0, 1.0))
        if step == 8:
            algorithm.merge(comm, [0])
    algorithm.worker_left(1)
    algorithm.merge(comm, [0])
    algorithm.overlap(comm, ())
    assert comm.values()[:2] == [10, 10], "what it was corrected by is neither lost nor counted twice"


@pytest.mark.parametrize("sync_every", [1, 4])
def test_the_last_learner_of_a_round_keeps_what_those_that_died_were_corrected_by(sync_every):
    algorithm, comm = started(3, sync_every=sync_every), toy.Replicas(0, 0, 0, 0)
    comm.shared.touched[:] = 1
    comm.shared.params[1:] += np.float32([[3], [6], [9]])
    algorithm.merge(comm, [0, 1])
    for w in (1, 2):
        algorithm.worker_left(w)
    algorithm.overlap(comm, [0])
    algorithm.finished(Report(0, 10, 10, 0.0, 1.0))
    algorithm.merge(comm, [0])
    assert comm.values()[0] == 3 + 2


def test_the_last_learner_of_a_round_goes_on_where_it_is_if_only_those_that_died_were_corrected():
    algorithm, comm = started(3), toy.Replicas(0, 0, 0, 0)
    meet(algorithm, comm, [3, 6, 9])
    algorithm.overlap(comm, ())
    comm.shared.touched[:] = 1
    algorithm.merge(comm, [0])
    for w in (0, 1):
        algorithm.worker_left(w)
    algorithm.merge(comm, [2])
    of_first = (3 - 1 - 6) / 3
    assert comm.values()[0] == comm.values()[3] == pytest.approx(9 + of_first)


@pytest.mark.parametrize("sync_every", [1, 4])
def test_a_learner_left_alone_keeps_no_motion_and_no_correction_for_when_it_has_company(sync_every):
    algorithm, comm = started(2, center_momentum=0.5, sync_every=sync_every), toy.Replicas(0, 0, 0)
    meet(algorithm, comm, [2, 4])
    algorithm.overlap(comm, ())
    algorithm.worker_left(1)
    algorithm.merge(comm, [0])
    alone = comm.values()[0]
    algorithm.worker_joined(1)
    comm.merger.copy_center(1)
    meet(algorithm, comm)
    algorithm.overlap(comm, ())
    assert comm.values() == [alone] * 3


def test_an_average_takes_in_a_rare_feature_that_only_the_first_learner_to_be_corrected_has_trained():
    algorithm, comm = started(3), toy.Replicas(0, 0, 0, 0, network=Network(9, 2, (2,)))
    comm.shared.touched[:] = 0
    comm.shared.touched[0, 0] = 1
    comm.views(1)["W0"][0] += 3
    for w in range(3):
        algorithm.merge(comm, [w])
    algorithm.overlap(comm, ())
    assert comm.values()[0] == 1


def test_learners_that_are_done_at_once_meet_the_center_one_by_one_where_averaging_is_asynchronous():
    algorithm = started(2, EASGD, asynchronous=True)
    for w in (0, 1):
        algorithm.submitted(w, 10, 0.0)
    assert algorithm.merge_due((), 0.0) == [0]


def test_a_learner_and_the_average_move_by_the_same_correction_whoever_leaves_meanwhile():
    algorithm, comm = started(3), toy.Replicas(0, 0, 0, 0)
    meet(algorithm, comm, [3, 6, 9])
    algorithm.worker_left(2)
    algorithm.overlap(comm, ())
    comm.shared.touched[:] = 1
    algorithm.merge(comm, [0, 1])
    assert comm.values()[:3] == [6, 3 - 1, 6 - 2]


def test_a_device_has_at_least_one_learner():
    with pytest.raises(DataError, match="learners must be at least 1, got 0"):
        Crossbow(learners=0)


@pytest.mark.parametrize(
    ("devices", "fits"),
    [
        ("cuda:0*2", True),
        ("cuda:0*2,cuda:1*2", True),
        ("cuda:0,cuda:1", False),
        ("cuda:0*4", False),
        ("cuda:0,cuda:1,cuda:0,cuda:1", False),
        ("cpu", False),
    ],
)
def test_a_number_of_learners_that_is_tuned_is_that_of_each_device(devices, fits):
    names = parse_devices(devices)
    Crossbow().check_devices(names)
    refused = pytest.raises(
        DataError, match=r"^learners: with .* each device must have 2 workers, got 'c.*'; list each"
    )
    with nullcontext() if fits else refused:
        Crossbow(learners=2).check_devices(names)


def tuned(throughput, noise=lambda i: 1.0, most=16):
    """Let a tuner see `throughput(learners)` until it ends; return the learners."""
    tuner, now = LearnerTuner(most), 0.0
    tuner.finished_round(now)
    for i in range(200):
        for _ in range(INTERVAL):
            now += 100 / (throughput(tuner.learners) * noise(i))
            tuner.rows += 100
            tuner.finished_round(now)
    assert tuner.ended
    return tuner.learners


@pytest.mark.parametrize("knee", [1, 2, 4, 7])
def test_the_tuner_stops_at_the_knee_of_the_throughput(knee):
    """Within one learner of it."""
    assert abs(tuned(lambda m: min(m, knee) + 0.01 * m) - knee) <= 1


@pytest.mark.parametrize("outlier", range(12))
def test_one_slow_sample_does_not_end_the_tuning(outlier):
    assert abs(tuned(lambda m: min(m, 4), lambda i: 0.1 if i == outlier else 1.0) - 4) <= 1


def test_a_tuner_that_pays_to_the_last_ends_with_all():
    assert tuned(lambda m: m, most=4) == 4


@pytest.mark.parametrize(("devices", "sync_every"), [(1, 1), (1, 8), (2, 1), (2, 8)])
def test_learners_that_are_added_begin_at_the_center(devices, sync_every):
    """Devices of three learners each, whose throughput rises with every learner, within one epoch."""

    class Noting(Crossbow):
        def overlap(self, comm, busy):
            before = set(self.learning)
            super().overlap(comm, busy)
            if self.learning != before:
                counts.append(len(self.learning))
                for w in self.learning:
                    np.testing.assert_array_equal(executor.shared.params[1 + w], executor.shared.params[0])

    algorithm, counts, n_rows = Noting(4, 0.2, learners=3, sync_every=sync_every), [], 3000 * devices
    executor = toy.Logged(light.Quadratic(), [VirtualDevice(1e-3, 1e-6) for _ in range(3 * devices)])
    done = toy.train(Job(toy.dataset(n_rows), Network(n_rows, 1, (1,)), toy.SGD()), algorithm, executor, Schedule(1))
    assert counts == [2 * devices, 3 * devices]
    assert done.records[0]["rows"] == sum(report.rows for report in executor.of("done")) == n_rows
    assert done.records[0]["algorithm"]["learners"] == 3
    assert algorithm.alpha == 1 / (3 * devices)


def test_a_learner_takes_the_place_of_one_that_died():
    """Learner 0 of a device dies while learner 1 does not take part yet: the run goes on with learner 1."""
    fleet = [VirtualDevice(1e-3, 1e-4, absent=((0.05, np.inf),)), VirtualDevice(1e-3, 1e-4)]
    done, executor = toy.run(Crossbow(4, 0.2, learners=2), fleet, n_rows=400)
    workers = [step.worker for step in executor.of("issue")]
    assert workers[0] == 0
    assert set(workers[workers.index(1) :]) == {1}
    assert done.records[0]["rows"] == 400


@pytest.mark.parametrize("sync_every", [1, 4])
def test_what_a_learner_did_in_the_next_round_stays_when_another_takes_the_place_of_a_dead_one(sync_every):
    """Learner 0 is done with the next round when 4, of another device, dies before its correction, and 5 takes over."""

    def learn(w, step):
        comm.shared.params[1 + w] += step
        algorithm.submitted(w, 10 * sync_every, 0.0)
        algorithm.finished(Report(w, 10 * sync_every, 10, 0.0, 1.0))

    algorithm, comm = started(6, sync_every=sync_every, learners=2), toy.Replicas(*[0] * 7)
    comm.shared.touched[:] = 1
    learn(0, 9)
    learn(2, 0)
    algorithm.merge(comm, algorithm.merge_due((), 0.0))
    learn(0, 3)
    ahead = comm.values()[1]
    algorithm.worker_left(4)
    algorithm.overlap(comm, ())
    assert comm.values()[:2] == [3, ahead]
    learn(2, 0)
    algorithm.merge(comm, algorithm.merge_due((), 0.0))
    algorithm.overlap(comm, ())
    assert algorithm.learning == {0, 2, 5}
    values = comm.values()
    assert values[1] == values[3] == values[6] == values[0] > 3
