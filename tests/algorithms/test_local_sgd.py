"""Local SGD, its outer optimizers, synchronous gradients, and the rules that combine replicas."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from shared import toy
from xmlsgd.algorithms.combiners import COMBINERS, by_rows, by_updates, equal
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.outer import HeavyBall, Nesterov, Outer, merges_to_fade
from xmlsgd.algorithms.rounds import LocalWork
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.training.merging import ParameterSlice

DATA, NETWORK = toy.random_data(240, 7, 5), Network(7, 5, (4,))


def trained(algorithm, devices, **settings):
    return toy.run(algorithm, devices, device=toy.Reference(), data=DATA, network=NETWORK, **settings)[0].params


def plain_mean(means):
    return list(means)


def block_momentum(means, gamma=0.6, zeta=0.8):
    """BMUF: G <- mean - w; D <- gamma D + zeta G; w <- w + D."""
    w, D, out = 0.0, 0.0, []
    for mean in means:
        D = gamma * D + zeta * (mean(w) - w)
        w += D
        out.append(w)
    return out


def diloco(means, momentum=0.9, rate=0.7):
    """DiLoCo: SGD with Nesterov momentum, as PyTorch has it, on the outer gradient w - mean."""
    w, buffer, out = 0.0, 0.0, []
    for mean in means:
        gradient = w - mean(w)
        buffer = momentum * buffer + gradient
        w -= rate * (gradient + momentum * buffer)
        out.append(w)
    return out


@pytest.mark.parametrize(
    ("outer", "by_hand"),
    [
        (Outer(), lambda means: block_momentum(means, 0.0, 1.0)),
        (HeavyBall(0.6, 0.8), block_momentum),
        (Nesterov(0.9, 0.7), diloco),
    ],
    ids=["mean", "bmuf", "diloco"],
)
def test_a_run_is_the_papers_worked_by_hand(outer, by_hand):
    """Three local steps a worker from the common w, the mean of the replicas, the outer step (sections 6 and 7)."""
    done, executor = toy.run(LocalSGD(10, 0.2, steps=3, dynamic=False, outer=outer, combine="mean"), toy.fleet(1, 0.9))
    assert len(executor.of("merge")) == 4

    def mean_of(steps):
        def mean(w):
            replicas = [w, w]
            for step in steps:
                replicas[step.worker] = toy.after(replicas[step.worker], step)
            return np.mean(replicas)

        return mean

    expected = by_hand([mean_of(steps) for steps, _ in rounds_of(executor)])
    assert toy.weight(done) == pytest.approx(expected[-1], rel=1e-4)


def test_diloco_with_a_heavy_ball_of_rate_one_is_block_momentum():
    """The same object; d = w - mean and D = -v."""
    w, v, D, center = 1.0, 0.0, 0.0, 1.0
    outer, states = HeavyBall(0.9, 1.0), {}
    params = ParameterSlice(
        "b0", np.ones((1, 1), np.float32), {}, None, lambda name: states.setdefault(name, np.zeros((1, 1)))
    )
    for mean in (0.5, 0.2, -0.3):
        outer.apply(params, np.full((1, 1), mean, np.float32))
        v = 0.9 * v + (w - mean)
        w -= v
        D = 0.9 * D + (mean - center)
        center += D
        assert w == pytest.approx(center)
        assert float(params.center[0, 0]) == pytest.approx(w, rel=1e-6)


def test_one_worker_is_sequential_gradient_descent():
    """Block momentum of one worker is none."""
    np.testing.assert_array_equal(
        trained(LocalSGD(10, 0.3, steps=5, combine="mean"), toy.fleet(1)), toy.sequential(DATA, NETWORK).params
    )


def test_momentum_fades_to_a_thousandth():
    assert merges_to_fade(0.0) == 0
    assert 0.9 ** merges_to_fade(0.9) <= 1e-3 < 0.9 ** (merges_to_fade(0.9) - 1)


def test_synchronous_gradients_are_those_of_one_device_with_the_whole_batch():
    """Also for a tail that only one worker has a part of."""
    for n_rows in (240, 233):
        data = toy.random_data(n_rows, 7, 5)
        many = toy.run(
            Synchronous(10, 0.3), toy.fleet(1, 0.5, 0.2), device=toy.Reference(), data=data, network=NETWORK
        )[0].params
        np.testing.assert_allclose(many, toy.sequential(data, NETWORK, batch=30).params, rtol=1e-4, atol=1e-6)


def test_one_local_step_and_a_plain_mean_are_synchronous_gradients():
    """To the bit."""
    local = LocalSGD(10, 0.3, steps=1, dynamic=False, outer=Outer(), combine="mean")
    fleet = toy.fleet(1, 0.5)
    np.testing.assert_array_equal(trained(local, fleet), trained(Synchronous(10, 0.3), fleet))


@pytest.mark.parametrize(("dynamic", "expected"), [(True, {0: 6, 1: 2}), (False, {0: 4, 1: 4})])
def test_slow_workers_make_fewer_steps_where_rounds_are_dynamic(dynamic, expected):
    _, executor = toy.run(LocalSGD(10, 0.1, steps=4, dynamic=dynamic), toy.fleet(1, 0.3), n_rows=80)
    assert counted(executor.of("issue")) == expected
    assert executor.of("merge") == [[0, 1]]


def rounds_of(executor):
    """The steps given out in each round, and its seconds."""
    ends = [i for i, (kind, _) in enumerate(executor.log) if kind == "merge"]
    for first, last in pairwise([0, *ends]):
        steps = [step for kind, step in executor.log[first:last] if kind == "issue"]
        yield steps, executor.times[last] - executor.times[first]


def counted(steps):
    """The updates of each worker."""
    return {w: sum(step.updates for step in steps if step.worker == w) for w in sorted({s.worker for s in steps})}


def test_a_worker_makes_more_steps_while_it_would_wait_for_a_slow_batch():
    """A round has 8 batches; the slow one takes as long as 10 fast ones, which is not known in the first round."""
    _, executor = toy.run(LocalSGD(10, 0.1, steps=4), toy.fleet(1, 0.099), n_rows=600)
    given = [counted(steps) for steps, _ in rounds_of(executor)]
    assert given[:3] == [{0: 7, 1: 1}, {0: 10, 1: 1}, {0: 10, 1: 1}]


def test_no_worker_waits_in_a_round_for_as_long_as_a_batch_of_its_own_takes():
    """Batches go to whoever is free."""
    _, executor = toy.run(LocalSGD(10, 0.1, steps=4), toy.fleet(1, 0.35, 0.15), n_rows=1600)
    rounds = list(rounds_of(executor))[1:-1]
    assert len(rounds) > 5
    for steps, seconds in rounds:
        for w, batch in enumerate((0.01, 0.01 / 0.35, 0.01 / 0.15)):
            busy = batch * counted(steps)[w]
            assert seconds - busy < batch + 1e-4


@pytest.mark.parametrize("kind", [Synchronous, LocalSGD])
def test_a_round_continues_without_a_worker_that_leaves_and_takes_in_one_that_joins(kind):
    """Worker 2 leaves in the middle of a step and comes back while the others wait for nobody."""
    fleet = toy.fleet(1, 0.9, 0.1)
    fleet[2] = type(fleet[2])(0, 1e-3, speed=0.1, absent=((0.05, 0.12),))
    settings = {} if kind is Synchronous else {"steps": 2, "dynamic": False}
    done, executor = toy.run(kind(10, 0.1, **settings), fleet, n_rows=400)
    assert done.records[0]["rows"] == 400
    merges = executor.of("merge")
    assert merges[0] == [0, 1]
    assert [0, 1, 2] in merges
    assert sorted(set(executor.of("left")) | set(executor.of("joined"))) == [2]


WORK = {0: LocalWork(6, 60, 10), 1: LocalWork(2, 40, 20), 2: LocalWork(0, 0, 10)}


@pytest.mark.parametrize(
    ("rule", "expected"), [(equal, [1 / 3] * 3), (by_updates, [0.75, 0.25, 0]), (by_rows, [0.6, 0.4, 0])]
)
def test_weights_are_shares_of_the_work(rule, expected):
    assert list(rule(WORK).values()) == pytest.approx(expected, abs=1e-12)


def test_workers_without_any_work_have_equal_weights():
    idle = {0: LocalWork(0, 0, 10), 1: LocalWork(0, 0, 30)}
    assert by_rows(idle) == {0: 0.5, 1: 0.5}
    assert by_updates(idle) == {0: 0.25, 1: 0.75}, "equal updates: by size"


def combined(name, center, replicas, weights=None):
    params = ParameterSlice(
        "W1",
        np.array(center, np.float32),
        {w: np.array(rows, np.float32) for w, rows in enumerate(replicas)},
        None,
        None,
    )
    n = len(replicas)
    return COMBINERS[name](params, weights or dict.fromkeys(range(n), 1 / n))


def test_the_mean_is_weighed():
    np.testing.assert_allclose(combined("mean", [[0]], [[[1]], [[5]]], weights={0: 0.75, 1: 0.25}), [[2]])


def test_adasum_adds_orthogonal_and_averages_parallel_differences():
    center = [[1, 1], [1, 1]]
    got = combined("adasum", center, [[[3, 1], [3, 1]], [[1, 5], [3, 1]]])
    np.testing.assert_allclose(got, [[3, 5], [3, 1]])
    third = combined("adasum", [[0, 0]], [[[2, 0]], [[0, 4]], [[0, 0]]])
    np.testing.assert_allclose(third, [[2, 4]], err_msg="who has learned nothing takes nothing away")


@pytest.mark.parametrize("combine", sorted(COMBINERS))
def test_all_rules_train_a_model(combine):
    algorithm = LocalSGD(5, 0.3, steps=2, combine=combine)
    data = toy.learnable_data(240)
    run, _ = toy.run(
        algorithm, toy.fleet(1, 0.6, 0.3), device=toy.Reference(), data=data, network=toy.FITTING, epochs=5
    )
    losses = [record["loss"] for record in run.records]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    ("combine", "got"),
    [
        (lambda params, _: np.float32(0.5), r"float32 \(\)"),
        (lambda params, _: 0.5, "0.5"),
        (lambda params, _: params.center[0], r"float32 \(4,\)"),
        (lambda params, _: params.center.astype(float), r"float64 \(7, 4\)"),
        (lambda params, _: params.center, "params.center"),
    ],
    ids=["scalar", "number", "shape", "dtype", "center"],
)
def test_what_a_combiner_returns_is_checked(monkeypatch, combine, got):
    """Broadcast or added to itself, it would spoil the model in silence."""
    monkeypatch.setitem(COMBINERS, "odd", combine)
    complaint = rf"combine 'odd': must return a new array, float32 \(7, 4\), got {got}$"
    with pytest.raises(DataError, match=complaint):
        trained(LocalSGD(10, 0.3, combine="odd"), toy.fleet(1, 1))


def test_an_outer_optimizer_that_returns_the_center_instead_of_writing_it_is_refused():
    """Its model would never change."""

    class Returning(Outer):
        def apply(self, params, combined):
            return combined

    with pytest.raises(DataError, match=r"Returning.apply must write params.center, got array.* returned"):
        trained(LocalSGD(10, 0.3, outer=Returning()), toy.fleet(1, 1))


def test_an_outer_rate_scales_the_motion_also_without_momentum():
    algorithm, comm = LocalSGD(1, 0.1, combine="mean", outer=HeavyBall(0.0, 0.5)), toy.Replicas(1, 3, 5)
    algorithm.start([0, 1], 100)
    algorithm.merge_replicas(comm, {w: LocalWork(1, 1, 1) for w in (0, 1)})
    assert comm.values() == [1 + 0.5 * (4 - 1)] * 3


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: LocalSGD(steps=0), "steps must be at least 1, got 0"),
        (lambda: LocalSGD(combine="magic"), "combine must be one of"),
        (lambda: HeavyBall(1.0), "momentum must be in"),
        (lambda: HeavyBall(0.5, 0.0), "learning_rate must be finite and above 0, got 0"),
        (lambda: Nesterov(-0.1), "momentum must be in"),
        (lambda: Nesterov(learning_rate=np.inf), "learning_rate must be finite and above 0, got inf"),
    ],
)
def test_bad_numbers_are_refused_at_construction(make, complaint):
    with pytest.raises(DataError, match=complaint):
        make()


def test_rounds_get_longer_while_merges_take_more_than_their_share():
    algorithm = LocalSGD(1, 1.0, steps=4, merging=0.05)
    algorithm.start([0, 1], 10_000)
    now = 0.0
    lengths = []
    for _ in range(40):
        now += 0.01 * algorithm.sync_every  # of work
        algorithm.lengthen(now, now + 0.01, algorithm.round_rows)
        now += 0.01
        lengths.append(algorithm.sync_every)
    assert lengths[0] == 4  # the first merge says nothing
    assert lengths[-1] == 32  # 0.01 of 0.33 seconds is below 5 %, of 0.17 above
    assert lengths == sorted(lengths)
    assert algorithm.notes()["steps"] == 32


def test_rounds_do_not_get_longer_than_an_epoch():
    algorithm = LocalSGD(10, 1.0, steps=4)
    algorithm.start([0, 1], 100)
    for i in range(50):
        algorithm.lengthen(float(i), i + 0.9, algorithm.round_rows)
    assert algorithm.sync_every == 8


def test_one_slow_merge_lengthens_no_rounds():
    """The share of merges is an average over the last ones."""
    algorithm = LocalSGD(1, 1.0, steps=4, merging=0.1)
    algorithm.start([0, 1], 10_000)
    now = 0.0
    for merging in (0.02, 0.02, 0.02, 0.25, 0.02):
        algorithm.lengthen(now + 1, now + 1 + merging, algorithm.round_rows)
        now += 1 + merging
    assert algorithm.sync_every == 4


@pytest.mark.parametrize(("rows_missing", "steps"), [(0, 8), (1, 4)])
def test_only_a_merge_after_a_whole_round_lengthens_rounds(rows_missing, steps):
    algorithm = LocalSGD(1, 1.0, steps=4, merging=0.1)
    algorithm.start([0, 1], 10_000)
    algorithm.lengthen(-0.1, 0.0, algorithm.round_rows)
    algorithm.lengthen(1.0, 1.15, algorithm.round_rows - rows_missing)
    assert algorithm.sync_every == steps


@pytest.mark.parametrize(("merge_seconds", "steps"), [(0.001, 4), (0.01, 8), (0.03, 8), (0.1, 32)])
def test_an_epoch_keeps_four_merges_unless_these_take_too_long(merge_seconds, steps):
    """A step takes 10 ms, and a quarter of an epoch 8 steps of each worker."""
    algorithm = LocalSGD(10, 1.0, steps=4)
    algorithm.start([0, 1], 640)
    now = 0.0
    for _ in range(50):
        now += 0.01 * algorithm.sync_every
        algorithm.lengthen(now, now + merge_seconds, algorithm.round_rows)
        now += merge_seconds
    assert algorithm.sync_every == steps


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_the_share_of_merges_is_a_share(share):
    with pytest.raises(DataError, match="merging must be"):
        LocalSGD(1, 1.0, merging=share)
