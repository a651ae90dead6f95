"""Merging: rules a slice at a time, gathered rows of the input layer, merge states, subsets of the members, threads."""

from __future__ import annotations

import numpy as np
import pytest

from shared import toy
from xmlsgd.algorithms.combiners import COMBINERS
from xmlsgd.algorithms.outer import HeavyBall, Nesterov, Outer
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.training import merging
from xmlsgd.training.merging import BROADCAST, Merger, MergeRule

N_FEATURES, N_LABELS, N = 40, 6, 3
NETWORK = Network(N_FEATURES, N_LABELS, (2,))
NOTHING = MergeRule(lambda params: None)


def replicas(n_threads=1):
    comm = toy.Replicas(0, *[0] * N, network=NETWORK, n_threads=n_threads)
    comm.shared.params[:] = np.random.default_rng(0).standard_normal(comm.n_params).astype(np.float32)
    comm.shared.touched[:] = 0
    return comm


def train(comm, w, rng):
    """Change a few rows of the input layer, marking them, and of the output layer of a replica."""
    views = comm.views(1 + w)
    for name, rows in (("W0", N_FEATURES), ("W1", N_LABELS)):
        at = rng.choice(rows, 3, replace=False)
        views[name][at] += rng.standard_normal((3, 2)).astype(np.float32)
        if name == "W0":
            comm.shared.touched[w, at] = 1
    views["b0"] += np.float32(0.1)


def averaging(outer, combine="mean"):
    def rule(params):
        outer.apply(params, COMBINERS[combine](params, dict.fromkeys(params.replicas, 1 / len(params.replicas))))
        params.broadcast()

    return MergeRule(rule, outer.fade_merges)


def elastic():
    """Learners and a center that pull at each other, the center with momentum."""

    def rule(params):
        moved = np.zeros_like(params.center)
        for replica in params.replicas.values():
            pull = np.float32(0.3) * (replica - params.center)
            replica -= pull
            moved += pull
        motion = params.state("motion")
        motion *= np.float32(0.5)
        motion += moved
        params.center += motion

    return MergeRule(rule, 10, ends_at_center=False)


RULES = {
    "mean": lambda: averaging(Outer()),
    "heavy ball": lambda: averaging(HeavyBall(0.5)),
    "nesterov": lambda: averaging(Nesterov(0.5, 0.7)),
    "adasum": lambda: averaging(Outer(), "adasum"),
    "elastic": elastic,
}


def merged(rule, members=lambda i: range(N), n_merges=12, n_threads=1, extra=0):
    """Merge after every third of the batches; return the shared models."""
    comm, rng = replicas(n_threads), np.random.default_rng(1)
    rule = rule._replace(fade_merges=rule.fade_merges + extra)
    for i in range(n_merges):
        for w in members(i):
            train(comm, w, rng)
        comm.merge(rule, members(i))
    return comm.shared.params


@pytest.mark.parametrize("name", RULES)
def test_merging_the_touched_rows_equals_merging_all(monkeypatch, name):
    """Momentum of untouched rows fades below a thousandth of its first motion, which is left out."""
    sparse = merged(RULES[name]())
    monkeypatch.setattr(merging, "DENSE_SHARE", -1)
    np.testing.assert_allclose(sparse, merged(RULES[name]()), rtol=1e-5, atol=3e-3)


@pytest.mark.parametrize("name", RULES)
def test_it_equals_merging_all_where_only_some_take_part(monkeypatch, name):
    """Rows that others have changed since a worker's last merge are in its next one."""

    def pair(i):
        return [i % N, (i + 1) % N] if i % 2 else [i % N]

    sparse = merged(RULES[name](), pair, extra=20)
    monkeypatch.setattr(merging, "DENSE_SHARE", -1)
    np.testing.assert_allclose(sparse, merged(RULES[name](), pair, extra=20), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_threads_change_no_bit_of_a_merge(monkeypatch, name):
    """Slices are independent, and within one the order of the sum is that of the workers."""
    monkeypatch.setattr(Merger, "slice_floats", 8)
    one = merged(RULES[name]())
    np.testing.assert_array_equal(one, merged(RULES[name](), n_threads=3))
    monkeypatch.setattr(Merger, "slice_floats", 1 << 16)
    np.testing.assert_array_equal(one, merged(RULES[name]()))


@pytest.mark.parametrize("part", ["center", "replica"])
def test_a_rule_that_replaces_an_array_instead_of_writing_it_is_refused(part):
    @MergeRule
    def rule(params):
        if part == "center":
            params.center = params.center + 1
        else:
            params.replicas[1] = params.replicas[1] + 1

    with pytest.raises(DataError, match=r"a merge rule must write into params.center and params.replicas\[w\]"):
        replicas().merge(rule, range(N))


def test_only_rows_that_someone_touched_are_merged():
    comm, seen = replicas(), []
    comm.shared.touched[1, [3, 7]] = 1
    comm.shared.touched[2, 5] = 1

    @MergeRule
    def rule(params):
        if params.name == "W0":
            seen.append((params.center.shape, params.touched.tolist()))

    comm.merge(rule, [0, 1, 2])
    assert seen == [((3, 2), [[False] * 3, [True, False, True], [False, True, False]])]
    assert not comm.shared.touched.any()
    comm.merge(rule, [0, 1, 2])
    assert len(seen) == 1, "nothing is left to merge"


def test_touched_rows_are_told_to_the_rule_of_the_input_layer_alone():
    comm, seen = replicas(), {}
    comm.shared.touched[0, 0] = 1

    @MergeRule
    def rule(params):
        seen[params.name] = None if params.touched is None else params.touched[0].tolist()

    comm.merge(rule, [0, 1])
    assert seen == {"W0": [True], "b0": None, "W1": None, "b1": None}


def test_an_untouched_row_moves_on_by_momentum_until_that_is_negligible():
    """The row moves by 1 + gamma + gamma^2 + ... of its one difference, to a thousandth."""
    comm, rule = replicas(), averaging(HeavyBall(0.5))
    before = comm.views(0)["W0"][4].copy()
    for w in range(N):
        comm.views(1 + w)["W0"][4] += 1
        comm.shared.touched[w, 4] = 1
    for i in range(rule.fade_merges + 3):
        comm.merge(rule, range(N))
        expected = sum(0.5**q for q in range(min(i, rule.fade_merges) + 1))
        np.testing.assert_allclose(comm.views(0)["W0"][4] - before, expected, rtol=1e-5)
    assert sum(0.5**q for q in range(rule.fade_merges + 1)) > 2 * (1 - 1e-3)
    np.testing.assert_array_equal(comm.shared.params[1:], np.tile(comm.center, (N, 1)))


def test_a_merge_without_momentum_does_not_end_the_motion_of_a_row():
    """Another trains it in between, and all take it over; the motion goes on at the next merge of worker 0."""
    comm, rule = replicas(), averaging(HeavyBall(0.5))
    comm.shared.params[:] = 0
    comm.views(1)["W0"][4] = 1
    comm.shared.touched[0, 4] = 1
    comm.merge(rule, [0])
    comm.shared.touched[1, 4] = 1
    comm.merge(BROADCAST, range(N))
    comm.merge(rule, [0])
    np.testing.assert_array_equal(comm.views(0)["W0"][4], 1.5)


def test_a_row_that_a_worker_only_catches_up_on_is_in_no_merge_of_the_others():
    comm, seen = replicas(), []

    @MergeRule
    def noting(params):
        if params.name == "W0":
            seen.extend(params.replicas)
        if not seen[1:]:
            params.center[:] = params.replicas[0]
        params.broadcast()

    comm.shared.params[:] = 0
    comm.views(1)["W0"][4] = 1
    comm.shared.touched[0, 4] = 1
    for w in (0, 1, 2, 0, 1, 2):
        comm.merge(noting, [w])
    assert seen == [0, 1, 2]
    np.testing.assert_array_equal(comm.shared.params[1:], np.tile(comm.center, (N, 1)))


def test_replicas_are_the_same_to_the_bit_after_a_merge():
    """All of them are the center then."""
    for name in ("mean", "heavy ball", "nesterov", "adasum"):
        params = merged(RULES[name]())
        np.testing.assert_array_equal(params[1:], np.tile(params[0], (N, 1)))


def test_merging_equal_replicas_returns_them_and_the_order_of_the_workers_does_not_matter():
    """Where nothing perturbs them; sums in another order differ by rounding alone."""
    rng = np.random.default_rng(2)
    values = rng.standard_normal((N, replicas().n_params)).astype(np.float32)

    def merge(order):
        comm = replicas()
        comm.shared.params[1:] = order
        comm.shared.touched[:] = 1
        comm.merge(RULES["mean"](), range(N))
        return np.concatenate([view.ravel() for view in comm.views(0).values()])

    first = np.concatenate([view.ravel() for view in NETWORK.layout.views(values[0]).values()])
    np.testing.assert_allclose(merge(np.tile(values[0], (N, 1))), first, rtol=3e-7)
    np.testing.assert_allclose(merge(values), merge(values[[2, 0, 1]]), rtol=1e-5, atol=1e-6)


def test_a_state_asked_for_twice_is_one_vector_also_where_rows_are_gathered():
    comm = replicas()
    comm.shared.touched[0, 3] = 1

    @MergeRule
    def rule(params):
        params.state("motion")[:] += 1
        params.state("motion")[:] += 1
        params.center[:] = params.state("motion")

    comm.merge(rule, [0])
    comm.shared.touched[0, 3] = 1
    comm.merge(rule, [0])
    np.testing.assert_array_equal(comm.views(0)["W0"][3], 4)
    np.testing.assert_array_equal(comm.views(0)["W1"], 4)


def test_states_begin_as_zeros_whatever_was_in_memory(monkeypatch):
    """The published code reads an uninitialised buffer at its first momentum merge."""
    poisoned = {name: getattr(np, name) for name in ("empty", "empty_like")}

    def poison(make):
        def made(*arguments, **settings):
            array = make(*arguments, **settings)
            if array.dtype.kind == "f":
                array[...] = np.nan
            return array

        return made

    for name, make in poisoned.items():
        monkeypatch.setattr(np, name, poison(make))
    first = merged(averaging(HeavyBall(0.9)), n_merges=1)
    plain = merged(averaging(Outer()), n_merges=1)
    np.testing.assert_allclose(first, plain, rtol=1e-5, atol=1e-6)


def test_a_worker_that_comes_back_is_a_copy_of_the_center_and_has_no_state():
    comm, rng = replicas(), np.random.default_rng(3)

    @MergeRule
    def rule(params):
        params.center[:] = params.weighted_sum(dict.fromkeys(params.replicas, 1 / len(params.replicas)))
        params.state("all")[:] += 1
        for w in params.replicas:
            params.state("own", w)[:] += 1
        params.broadcast()

    train(comm, 0, rng)
    comm.merge(rule, range(N))
    train(comm, 1, rng)
    train(comm, 2, rng)
    comm.merge(rule, [0, 1])
    comm.merger.copy_center(2)
    np.testing.assert_array_equal(comm.shared.params[3], comm.center)
    states = {}

    @MergeRule
    def look(params):
        states[params.name] = [np.unique(params.state("all")), *(np.unique(params.state("own", w)) for w in range(N))]

    comm.merge(look, range(N))
    assert [value.tolist() for value in states["b0"]] == [[2], [2], [2], [0]]
    assert "W0" not in states, "nobody differs from the center"


def test_a_merge_says_how_many_floats_it_moved():
    comm = replicas()
    dense = 2 + N_LABELS * 2 + N_LABELS
    assert comm.merger.run(NOTHING, [0]) == 2 * dense
    comm.shared.touched[0, :5] = 1
    assert comm.merger.run(NOTHING, [0]) == 2 * (dense + 5 * 2)
    comm.shared.touched[0, :30] = 1
    of_all_rows = 2 * (dense + N_FEATURES * 2)
    assert comm.merger.run(NOTHING, [0]) == of_all_rows, "beyond a half all rows are merged"


def test_merge_states_are_moved_as_the_center_and_the_replicas_are():
    comm = replicas()
    plain = comm.merger.run(NOTHING, [0, 1])
    asked = MergeRule(lambda params: [params.state(name) for name in ("read 0", "read 0", "velocity")])
    assert comm.merger.run(asked, [0, 1]) == 5 / 3 * plain
    assert comm.merger.run(averaging(HeavyBall(0.5)), [0, 1]) == 4 / 3 * plain

    @MergeRule
    def of_the_output_alone(params):
        if params.name == "W1":
            params.state("velocity")

    assert comm.merger.run(of_the_output_alone, [0, 1]) == plain + N_LABELS * 2
