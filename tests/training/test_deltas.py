"""Steps on copies: what is pushed is the difference, never the copy."""

from __future__ import annotations

import numpy as np
import pytest

from shared import light, toy
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.nn.network import Network
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.deltas import Deltas
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.shared_parameters import SharedParameters, SharedShape, WorkerArrays

NETWORK = Network(8, 3, (2,))


@pytest.fixture(params=[1, 2])
def deltas(request):
    shared = SharedParameters.in_memory(SharedShape(NETWORK.layout.size, 0, 4, 1, 11))
    rows = [WorkerArrays(1 + w, 0, base=3 + w) for w in range(2)]
    shared.params[:] = np.random.default_rng(0).standard_normal(NETWORK.layout.size).astype(np.float32)
    return shared, Deltas(shared, NETWORK.layout, rows, request.param)


def features(numbers):
    return np.array(numbers, np.int32)


def change(shared, w, rows, by):
    """What a step does: it changes some rows of W0 and everything behind it."""
    views = NETWORK.layout.views(shared.params[1 + w])
    views["W0"][rows] += np.float32(by)
    for name in ("b0", "W1", "b1"):
        views[name][:] += np.float32(by)


def test_a_push_adds_the_difference_to_what_others_wrote_meanwhile(deltas):
    """Writing the copy back would undo what others wrote."""
    shared, copies = deltas
    before = NETWORK.layout.views(shared.params[0].copy())
    copies.pull(0, features([1, 2]))
    copies.pull(1, features([2, 3]))
    change(shared, 0, [1, 2], 1.0)
    change(shared, 1, [2, 3], 10.0)
    copies.push(1)
    copies.push(0)
    after = NETWORK.layout.views(shared.params[0])
    added = [0, 1, 11, 10, 0, 0, 0, 0]
    np.testing.assert_allclose(after["W0"] - before["W0"], np.tile(added, (2, 1)).T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after["W1"] - before["W1"], 11, rtol=1e-5)


def test_a_push_without_another_since_the_pull_leaves_the_copy_to_the_bit(deltas):
    """So one worker by itself is sequential gradient descent."""
    shared, copies = deltas
    copies.pull(0, features([0, 5]))
    change(shared, 0, [0, 5], 0.1)
    copies.push(0)
    for name in ("b0", "W1", "b1"):
        np.testing.assert_array_equal(*(NETWORK.layout.views(shared.params[row])[name] for row in (0, 1)))
    np.testing.assert_array_equal(*(NETWORK.layout.views(shared.params[row])["W0"][[0, 5]] for row in (0, 1)))


@pytest.mark.parametrize("others", [0, 1])
def test_a_pull_after_a_push_gives_the_center_whoever_came_between(deltas, others):
    shared, copies = deltas
    for w in (0, *range(1, 1 + others)):
        copies.pull(w, features([0, 1]))
        change(shared, w, [0, 1], 0.3 * (w + 1))
    copies.push(0)
    for w in range(1, 1 + others):
        copies.push(w)
    before = shared.params[0].copy()
    copies.pull(0, features([0, 7]))
    center, copy, base = (NETWORK.layout.views(shared.params[row]) for row in (0, 1, 3))
    np.testing.assert_array_equal(shared.params[0], before)
    for name in ("b0", "W1", "b1"):
        np.testing.assert_array_equal(copy[name], center[name])
        np.testing.assert_array_equal(base[name], center[name])
    np.testing.assert_array_equal(copy["W0"][[0, 7]], center["W0"][[0, 7]])
    np.testing.assert_array_equal(base["W0"][[0, 7]], center["W0"][[0, 7]])


def test_a_pull_sees_what_others_wrote_in_place_since_the_push():
    shared = SharedParameters.in_memory(SharedShape(NETWORK.layout.size, 0, 2, 1, 11))
    copies = Deltas(shared, NETWORK.layout, [WorkerArrays(1, 0, base=2), WorkerArrays(0, 0)], in_place=[1])
    copies.pull(0, features([1]))
    change(shared, 0, [1], 5.0)
    copies.push(0)
    shared.params[0] += 1  # by worker 1
    copies.pull(0, features([1]))
    center, copy = (NETWORK.layout.views(shared.params[row]) for row in (0, 1))
    for name in ("b0", "W1", "b1"):
        np.testing.assert_array_equal(copy[name], center[name])


def test_one_that_left_in_the_middle_of_a_step_begins_with_the_center_again(deltas):
    shared, copies = deltas
    copies.pull(0, features([1]))
    copies.push(0)
    copies.pull(0, features([1]))
    change(shared, 0, [1], 5.0)
    copies.drop(0)
    copies.pull(0, features([1]))
    center, copy = (NETWORK.layout.views(shared.params[row]) for row in (0, 1))
    np.testing.assert_array_equal(copy["W1"], center["W1"])


def test_what_a_worker_that_left_had_pulled_changes_nothing(deltas):
    """Its report comes too late, and so does its difference."""
    shared, copies = deltas
    before = shared.params[0].copy()
    copies.pull(0, features([4]))
    change(shared, 0, [4], 2.0)
    copies.drop(0)
    np.testing.assert_array_equal(shared.params[0], before)
    with pytest.raises(KeyError):
        copies.push(0)


def test_what_others_wrote_during_a_long_task_is_not_lost():
    """A fast worker marks 30 rows while a slow one is at its task; pushing the copy would undo them all."""
    data = toy.dataset(31)
    slow, fast = VirtualDevice(0.0, 100.0), VirtualDevice(0.0, 1.0)
    done, executor = toy.run(Hogwild(1, 0.1), [slow, fast], data=data, device=light.Marking())
    assert [report.worker for report in executor.of("done")] == [1] * 30 + [0]
    np.testing.assert_array_equal(toy.marks(done.params, data), 1)

    class Overwriting(toy.Logged):
        def push(self, worker):
            self._deltas._pushes_at_pull[worker] = self._deltas._pushes  # as if nobody had written meanwhile
            self._deltas._features[worker] = np.arange(31, dtype=np.int32)
            super().push(worker)

    executor = Overwriting(light.Marking(), [slow, fast])
    lost = toy.train(Job(data, toy.counting(data), toy.SGD()), Hogwild(1, 0.1), executor, Schedule(1))
    assert toy.marks(lost.params, data).sum() == 1
