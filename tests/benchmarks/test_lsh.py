"""Locality-sensitive hashing: codes against theory and against plain loops, tables, what a row finds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.samplers.lsh import DWTA, LSH, Refresh, SimHash, Tables, Turns, buckets
from benchmarks.samplers.lsh_kernels import ATTEMPTS, EMPTY, fill_tables, mixed, retrieve
from shared import toy
from shared.samplers import learned, two_parts
from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import Layer, Targets
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.samplers import ALL_LABELS, Batch

ONE, TWO = CPU(1), CPU(2)


def at_angles(angles, n_units, rng):
    """A vector, and one at each of the angles to it."""
    u, v = np.linalg.qr(rng.standard_normal((n_units, 2)))[0].T
    return np.array([u, *(np.cos(a) * u + np.sin(a) * v for a in angles)], np.float32)


def test_signs_are_equal_with_the_probability_of_theory():
    rng = np.random.default_rng(0)
    angles = np.array([0.0, 0.3, 0.8, np.pi / 2, 2.5])
    codes = SimHash.make(256, 20_000, rng).codes(at_angles(angles, 256, rng), ONE)
    equal = (codes[1:] == codes[0]).mean(axis=1)
    np.testing.assert_allclose(equal, 1 - angles / np.pi, atol=0.02)


def test_a_label_is_retrieved_with_the_probability_of_theory():
    hashes, tables, rounds = 4, 5, 300
    rng = np.random.default_rng(1)
    angles = np.array([0.2, 0.6, 1.2])
    found = np.zeros(len(angles))
    for _ in range(rounds):
        V = at_angles(angles, 64, rng)
        family = SimHash.make(64, hashes * tables, rng)
        keys = buckets(family, V, tables, hashes, ONE)
        found += (keys[:, 1:] == keys[:, :1]).any(axis=0)
    chance = 1 - (1 - (1 - angles / np.pi) ** hashes) ** tables
    np.testing.assert_allclose(found / rounds, chance, atol=4 * 0.5 / np.sqrt(rounds))


def plain_dwta(v, bins):
    """Algorithm 1 of Chen and Shrivastava 2018 for one vector, written as it reads."""
    winners = []
    for columns in bins:
        present = [(v[column], -place) for place, column in enumerate(columns) if v[column] != 0]
        winners.append(-max(present)[1] if present else EMPTY)
    codes = []
    for j, winner in enumerate(winners):
        borrowed = (winners[mixed(j * ATTEMPTS + attempt) % len(bins)] for attempt in range(1, ATTEMPTS + 1))
        codes.append(winner if winner != EMPTY else next((code for code in borrowed if code != EMPTY), 0))
    return codes


@pytest.mark.parametrize("zeros", [0.0, 0.7, 0.97, 1.0])
@pytest.mark.parametrize("device", [ONE, TWO], ids=["one thread", "two"])
def test_densified_codes_are_those_of_the_paper(zeros, device):
    rng = np.random.default_rng(2)
    V = rng.standard_normal((7, 40)).astype(np.float32) * (rng.random((7, 40)) >= zeros)
    family = DWTA.make(40, 33, rng)
    with device.start():
        codes = family.codes(V, device)
    np.testing.assert_array_equal(codes, [plain_dwta(v, family.bins) for v in V])


def test_the_bins_of_a_permutation_share_no_column():
    bins = DWTA.make(40, 13, np.random.default_rng(0)).bins
    assert bins.shape == (13, 8)
    for first in range(0, 13, 5):
        of_round = bins[first : first + 5].ravel()
        assert len(np.unique(of_round)) == len(of_round)
    assert DWTA.make(3, 5, np.random.default_rng(0)).bins.shape == (5, 3)


def test_vectors_that_share_their_largest_entries_have_more_equal_codes():
    rng = np.random.default_rng(3)
    v, other = np.abs(rng.standard_normal((2, 64))).astype(np.float32)
    near = (v + 0.1 * np.abs(rng.standard_normal(64))).astype(np.float32)
    codes = DWTA.make(64, 400, rng).codes(np.array([v, near, other]), ONE)
    assert (codes[0] == codes[1]).mean() > 0.8 > 0.4 > (codes[0] == codes[2]).mean()


def test_long_keys_are_folded_and_stay_equal_for_equal_vectors():
    rng = np.random.default_rng(4)
    V = rng.standard_normal((500, 32)).astype(np.float32)
    keys = buckets(SimHash.make(32, 60, rng), np.concatenate([V, V]), 3, 6, ONE)
    np.testing.assert_array_equal(keys[:, :500], keys[:, 500:])
    assert keys.min() >= 0
    assert keys.max() < 64
    assert np.bincount(keys[0], minlength=64).max() < 60


def filled(of_label, sequence, capacity, reservoir, n_buckets=4, seed=0):
    """The labels of each bucket of one table."""
    of_label = np.array([of_label], np.int32)
    starts, members = np.empty((1, n_buckets + 1), np.int32), np.full_like(of_label, -1)
    fill_tables.alone(of_label, np.array(sequence, np.int32), capacity, reservoir, seed, starts, members)
    return [members[0, starts[0, b] : starts[0, b + 1]].tolist() for b in range(n_buckets)]


def test_a_table_holds_every_label_in_its_bucket():
    assert filled([0, 2, 0, 3, 2], [4, 0, 1, 3, 2], 8, False) == [[0, 2], [], [4, 1], [3]]


def test_a_full_bucket_keeps_those_that_came_last_or_an_even_sample():
    sequence = np.arange(10)
    assert sorted(filled(np.zeros(10), sequence, 3, False)[0]) == [7, 8, 9]
    kept = np.concatenate([filled(np.zeros(10), sequence, 3, True, seed=s)[0] for s in range(2000)])
    np.testing.assert_allclose(np.bincount(kept, minlength=10) / 2000, 0.3, atol=0.05)
    assert all(len(set(filled(np.zeros(10), sequence, 3, True, seed=s)[0])) == 3 for s in range(20))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_row_finds_is_what_its_buckets_hold_most_often(threads):
    rng = np.random.default_rng(5)
    of_label, asked = rng.integers(4, size=(6, 30)).astype(np.int32), rng.integers(4, size=(6, 5)).astype(np.int32)
    starts, members = np.empty((6, 5), np.int32), np.empty_like(of_label)
    fill_tables.alone(of_label, np.arange(30, dtype=np.int32), 30, False, 0, starts, members)
    found, few = np.empty((5, 30), np.int32), np.empty((5, 4), np.int32)
    with CPU(threads).start():
        for out in (found, few):
            CPU(threads).run(retrieve, asked, starts, members, 30, True, 7, threads, out)
    for i in range(5):
        times = (of_label == asked[:, i : i + 1]).sum(axis=0)
        labels = found[i][found[i] >= 0]
        assert sorted(labels) == np.flatnonzero(times).tolist()
        assert np.all(np.diff(times[labels]) <= 0)
        np.testing.assert_array_equal(few[i], found[i, :4])


def test_without_counting_tables_are_asked_until_enough_is_found():
    of_label = np.tile(np.arange(12, dtype=np.int32) // 4, (3, 1))
    starts, members = np.empty((3, 4), np.int32), np.empty_like(of_label)
    fill_tables.alone(of_label, np.arange(12, dtype=np.int32), 12, False, 0, starts, members)
    found = np.empty((3, 6), np.int32)
    retrieve.alone(np.tile(np.arange(3, dtype=np.int32), (3, 1)), starts, members, 12, False, 0, 1, found)
    np.testing.assert_array_equal(found[:, :4], np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(found[:, 4:], -1)


def counted(monkeypatch):
    """Where the numbers of labels of each hashing of labels will be."""
    sizes = []
    hashed = Tables.rehash

    def rehash(self, W, device):
        sizes.append(int(self.changed.sum()))
        hashed(self, W, device)

    monkeypatch.setattr(Tables, "rehash", rehash)
    return sizes


def model(n_labels=200, n_units=16, seed=0):
    rng = np.random.default_rng(seed)
    none = np.zeros((1, 1), np.float32)
    W = rng.standard_normal((n_labels, n_units)).astype(np.float32)
    return Layer(W, np.zeros(n_labels, np.float32), none, none[0], none, none[0])


def true_labels(n_rows, n_labels):
    """Row i has label i."""
    ones = np.ones(n_rows, np.float32)
    return CSR(np.arange(n_rows + 1), np.arange(n_rows, dtype=np.int32), ones, n_labels)


def test_only_labels_that_were_trained_are_hashed_again_and_ever_more_seldom(monkeypatch):
    sizes = counted(monkeypatch)
    Y, layer = true_labels(4, 200), model()
    sampler = LSH(hashes=3, tables=4, per_row=2, negatives=0, refresh=Refresh(2, 0.7)).begin(Y, 0)
    trained, expected = set(range(200)), []
    for i in range(8):
        if i in (0, 2, 6):  # 2, and then 2 e^0.7 = 4 more
            expected.append(len(trained))
            trained = set()
        rows = np.array([i % 4, (i + 1) % 4])
        drawn = sampler.draw(Batch(Y, rows, i, layer.W[rows], layer, Reference()))
        trained |= set(drawn.tolist())
    assert sizes == expected
    assert expected[0] == 200 > max(expected[1:])


def test_rehashed_tables_hold_each_label_once_and_are_those_that_are_built_from_the_new_weights():
    Y, layer = true_labels(4, 200), model()
    settings = LSH(hashes=3, tables=4, capacity=500, negatives=0)
    sampler, fresh = settings.begin(Y, 0), settings.begin(Y, 0)
    sampler.rehash(layer.W, ONE)
    layer.W[[3, 70]] *= -1
    sampler.changed[[3, 70]] = True
    sampler.rehash(layer.W, ONE)
    fresh.rehash(layer.W, ONE)
    np.testing.assert_array_equal(sampler.buckets, fresh.buckets)
    for starts, members in zip(sampler.starts, sampler.members, strict=True):
        assert sorted(members[: starts[-1]]) == list(range(200))
    assert sampler.sequence[-2:].tolist() in ([3, 70], [70, 3])


@pytest.mark.parametrize("settings", [{"family": "simhash", "hashes": 5}, {"family": "dwta", "hashes": 2}], ids=str)
def test_a_batch_trains_labels_of_large_inner_products_with_its_rows(settings):
    Y, layer = true_labels(4, 2000), model(2000, 64)
    sampler = LSH(**settings, tables=30, per_row=20, frequent=True, negatives=0).begin(Y, 0)
    rows = np.arange(2)
    A = np.maximum(layer.W[[100, 200]], 0)
    drawn = sampler.draw(Batch(Y, rows, 0, A, layer, ONE))
    assert {0, 1, 100, 200} <= set(drawn)
    assert len(drawn) <= 2 * 20 + 2
    cosines = (layer.W / np.linalg.norm(layer.W, axis=1, keepdims=True)) @ A.T
    assert cosines[drawn].max(axis=1).mean() > np.quantile(cosines.max(axis=1), 0.8)


def test_where_tables_find_little_labels_are_drawn_evenly():
    Y, layer = true_labels(4, 2000), model(2000)
    rows = np.arange(2)
    sampler = LSH(hashes=30, tables=1, per_row=5, negatives=300).begin(Y, 0)
    drawn = sampler.draw(Batch(Y, rows, 0, layer.W[rows], layer, ONE))
    assert 250 < len(drawn) <= 302
    assert {0, 1} <= set(drawn)


@pytest.mark.parametrize("settings", [{"per_row": 40, "hashes": 1, "negatives": 0}, {"negatives": 10_000}], ids=str)
def test_a_step_in_which_all_labels_are_active_is_that_of_the_dense_output_layer(settings):
    """To the bit: found in the tables, or drawn."""
    data, network = toy.random_data(12, 6, 40), Network(6, 40, (8,))
    params = np.random.default_rng(0).standard_normal((2, network.layout.size)).astype(np.float32)
    params[1] = params[0]
    for row, sampler in zip(params, (ALL_LABELS, LSH(**settings).begin(data.Y, 0)), strict=True):
        network.step(
            Reference(), network.layers(row), data.X, Targets(data.Y, np.arange(12), np.full(12, 1 / 12, np.float32)),
            SGD().update(0.1, 1), 0, sampler,
        )  # fmt: skip
    np.testing.assert_array_equal(*params)


def test_on_other_devices_than_a_cpu_all_batches_are_hashed_by_one_cpu():
    Y, layer = true_labels(4, 200), model()
    sampler = LSH(hashes=3, tables=4, negatives=0).begin(Y, 0)
    used = []
    for seed in range(2):
        sampler.draw(Batch(Y, np.arange(2), seed, layer.W[:2], layer, Reference()))
        used.append(sampler.device)
    assert isinstance(used[0], CPU)
    assert used[0] is used[1]


def test_refreshes_come_ever_more_seldom():
    turns = Turns(Refresh(10, 0.5))
    due = [batch for batch in range(200) if turns.due()]
    gaps = np.diff(due)
    assert due[:3] == [0, 10, 10 + round(10 * np.exp(0.5))]
    np.testing.assert_allclose(gaps, 10 * np.exp(0.5 * np.arange(len(gaps))), atol=1)
    steady = Turns(Refresh(7, 0.0))
    assert [batch for batch in range(30) if steady.due()] == [0, 7, 14, 21, 28]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"family": "minhash"}, "family must be one of simhash, dwta, got 'minhash'"),
        ({"family": 3}, "family must be a text, got 3"),
        ({"frequent": 1}, "frequent must be True or False, got 1"),
        ({"refresh": 50}, "refresh must be a Refresh such as .*, got 50"),
        ({"rule": "lifo"}, "rule must be one of reservoir, fifo, got 'lifo'"),
        ({"tables": 0}, "tables must be at least 1, got 0"),
        ({"negatives": -1}, "negatives must be at least 0, got -1"),
        ({"family": "dwta", "hashes": 22}, "hashes must be at most 21 for dwta, got 22"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, text):
    with pytest.raises(DataError, match=text):
        LSH(**settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("5",), "first must be a whole number, got '5'"),
        ((0,), "first must be at least 1, got 0"),
        ((5, -1), "growth must be finite and at least 0, got -1"),
        ((5, np.inf), "growth must be finite and at least 0, got inf"),
    ],
)
def test_refreshes_outside_their_range_are_refused(settings, text):
    with pytest.raises(DataError, match=text):
        Refresh(*settings)


SMALL = {"hashes": 2, "tables": 10, "per_row": 4, "negatives": 100, "refresh": Refresh(20)}
SAMPLERS = {"simhash": LSH(**{**SMALL, "hashes": 4}), "dwta": LSH("dwta", **SMALL, rule="fifo", frequent=True)}


@pytest.fixture(scope="module")
def parts():
    return two_parts()


@pytest.mark.parametrize("name", SAMPLERS)
def test_hashed_labels_teach_nearly_what_all_labels_do(parts, name):
    assert learned(parts, SAMPLERS[name])[0] > 0.85 * learned(parts, ALL_LABELS)[0] > 0.2


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_same_seed_gives_the_same_tables(parts, name):
    """All that is drawn comes from the seed, nothing from the time."""
    first, again = (learned(parts, SAMPLERS[name], epochs=1)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)
