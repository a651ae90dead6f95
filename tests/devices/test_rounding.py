"""Rounded gradients of the output layer: as the reference has them, right on average, sparing labels without any."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from shared.fake_gpu.shim import pretend_gpus
from shared.layers import assert_same_change, copy, output_batch
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.data.csr import CSR
from xmlsgd.devices import get_device
from xmlsgd.devices.base import Rounding
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu.intrinsics import bf16
from xmlsgd.devices.cpu.intrinsics.avx512 import HAS_AVX512
from xmlsgd.devices.cpu.kernels import sparsified_layer
from xmlsgd.devices.reference import Reference, rounded
from xmlsgd.errors import DataError
from xmlsgd.nn.losses import find_loss, loss_names
from xmlsgd.nn.optimizers import SGD, Adam, find_optimizer, optimizer_names

PRECISIONS = ["float32", *(["bfloat16"] if bf16.HAS_AVX512_BF16 else [])]
DEVICES = pytest.mark.parametrize(
    "device", [CPU(n, precision) for precision in PRECISIONS for n in (1, 2)],
    ids=[f"{precision}*{n}" for precision in PRECISIONS for n in (1, 2)],
)  # fmt: skip


def exact_batch(shape, optimizer=None):
    """Return a batch whose activations and weights bfloat16 holds, of labels that are mostly far from certain."""
    A, targets, layer = output_batch(shape, optimizer=optimizer)
    A[:] = np.round(A * 8) / 8
    layer.W[:] = np.round(layer.W * 64) / 64
    layer.b[:] -= 3
    return A, targets, layer


@DEVICES
@pytest.mark.parametrize(
    ("optimizer", "loss"), list(zip(optimizer_names(), [*loss_names(), *loss_names()], strict=False))
)
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 40, 100), (37, 24, 700)], ids=str)
@pytest.mark.processor
def test_a_rounded_step_is_that_of_the_reference(device, loss, optimizer, shape):
    rule = find_optimizer(optimizer)(clip_norm=0.05, weight_decay=0.1)
    A, targets, layer = exact_batch(shape, optimizer=rule)
    expected, got, update = copy(layer), copy(layer), rule.update(0.1, 3)
    value, dA = Reference().output_step(A, targets, expected, find_loss(loss), update, Rounding(0.2, 7))
    with device.start():
        value2, dA2 = device.output_step(A, targets, got, find_loss(loss), update, Rounding(0.2, 7))
    assert value2 == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=1e-5 * np.abs(dA).max() + 1e-6)
    assert_same_change(layer, got, expected, 1e-4)


@DEVICES
@pytest.mark.parametrize("loss", loss_names())
def test_a_true_pair_is_never_rounded_whatever_its_gradient(device, loss):
    """With softmax, a label that all rows share and that is likelier than 1 / labels has a gradient above 0."""
    A, targets, layer = exact_batch((64, 40, 100))
    every = sp.lil_matrix(targets.Y.to_scipy())
    every[:, 5] = 1
    targets = targets._replace(Y=CSR.from_scipy(sp.csr_matrix(every, dtype=np.float32)))
    layer.b[5] = 3
    targets.scale[::7] = 0
    expected, got = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss(loss), SGD().update(1, 1), Rounding(0.9, 3))
    with device.start():
        value2, dA2 = device.output_step(A, targets, got, find_loss(loss), SGD().update(1, 1), Rounding(0.9, 3))
    assert value2 == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=1e-5 * np.abs(dA).max())
    assert_same_change(layer, got, expected, 1e-5)


@DEVICES
@pytest.mark.parametrize("loss", loss_names())
def test_rounding_to_a_threshold_below_every_gradient_is_the_exact_step(device, loss):
    A, targets, layer = exact_batch((33, 40, 100))
    layer.b[:] += 4
    exact, got = copy(layer), copy(layer)
    with device.start():
        value, dA = device.output_step(A, targets, exact, find_loss(loss), SGD().update(0.1, 1))
        value2, dA2 = device.output_step(A, targets, got, find_loss(loss), SGD().update(0.1, 1), Rounding(1e-30, 1))
    tolerance = 2.0**-7 if device.bfloat16 else 1e-5  # the exact step rounds the gradient to bfloat16
    assert value2 == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=tolerance * np.abs(dA).max())
    assert_same_change(layer, got, exact, tolerance)


def test_the_mean_of_rounded_gradients_is_the_exact_gradient():
    rng, draws, limit = np.random.default_rng(0), 2000, 0.5
    scale = rng.uniform(0.5, 1, 20)
    has = rng.random((20, 50)) < 0.1
    dZ = np.where(has, -rng.random((20, 50)), rng.random((20, 50)) ** 3) * scale[:, None]
    results = [rounded(dZ, has, scale, Rounding(limit, seed))[0] for seed in range(draws)]
    most = limit * scale[:, None]
    drawn = ~has & (dZ < most)
    np.testing.assert_array_equal(np.ptp(results, axis=0)[~drawn], 0)
    np.testing.assert_array_equal(results[0][~drawn], dZ[~drawn])
    chance = np.clip(dZ / most, 0, 1)
    score = (np.mean(results, axis=0) - dZ) / (most * np.sqrt(chance * (1 - chance) / draws + 1 / draws**2))
    assert np.abs(score[drawn]).max() < 5
    assert 0.7 < np.sqrt(np.mean(score[drawn] ** 2)) < 1.1, "spread as draws with these chances are"


@DEVICES
def test_a_label_that_keeps_no_pair_changes_only_in_its_bias(device):
    rule = Adam(weight_decay=0.1)
    A, targets, layer = exact_batch((33, 40, 700), optimizer=rule)
    layer.b[:] -= 4
    exact, got = copy(layer), copy(layer)
    with device.start():
        device.output_step(A, targets, exact, find_loss("bce"), rule.update(0.1, 3))
        device.output_step(A, targets, got, find_loss("bce"), rule.update(0.1, 3), Rounding(0.5, 1))
    same = (got.W == layer.W).all(axis=1)
    assert 100 < same.sum() < 690
    assert not same[targets.Y.columns_of(targets.rows)].any(), "true labels are always updated"
    np.testing.assert_array_equal(got.Ws[same], layer.Ws[same])
    np.testing.assert_array_equal(got.Wt[same], layer.Wt[same])
    np.testing.assert_allclose(got.b, exact.b, rtol=1e-6)


@DEVICES
def test_a_label_of_rows_of_weight_0_alone_keeps_no_pair(device):
    rule = Adam(weight_decay=0.1)
    A, targets, layer = exact_batch((33, 40, 100), optimizer=rule)
    targets.scale[:] = 0
    for each in (Reference(), device):
        got = copy(layer)
        with each.start():
            each.output_step(A, targets, got, find_loss("bce"), rule.update(0.1, 3), Rounding(0.5, 1))
        for name in ("W", "Ws", "Wt"):
            np.testing.assert_array_equal(getattr(got, name), getattr(layer, name))


def test_draws_follow_the_seed_and_nothing_else():
    A, targets, layer = exact_batch((64, 40, 700))

    def step(n_threads, seed):
        got, device = copy(layer), CPU(n_threads, "float32")
        with device.start():
            device.output_step(A, targets, got, find_loss("bce"), SGD().update(0.1, 1), Rounding(0.3, seed))
        return got.W

    np.testing.assert_array_equal(step(1, 5), step(2, 5))
    assert (step(1, 5) != step(1, 6)).any()


@pytest.mark.skipif(not HAS_AVX512, reason="this processor has no AVX512")
@pytest.mark.processor
def test_vector_code_draws_as_the_loops_do():
    rng = np.random.default_rng(0)
    for threshold in np.float32([0.01, 0.1, 0.9]):
        for label in range(50):
            z, scale = (rng.random((2, 64)) ** 4).astype(np.float32)
            scale[60:], z[60:], z[7], z[8] = 0, 0, np.nan, -1
            results = []
            for round_gradient in (sparsified_layer.round_vectors, sparsified_layer.round_loops):
                values, kept = z.copy(), np.full(64, -1)
                n = round_gradient(values, scale, threshold, label * 123457891 % 2**32, kept)
                results.append((n, *values, *kept))
            np.testing.assert_array_equal(*results)
            n, kept = results[0][0], results[0][65:]
            assert 0 < n < 64
            assert not set(kept[: int(n)]) & {7.0, 8.0, *range(60, 64)}


def many_labels(n_rows=3000):
    """Return data of more labels than the least for which gradients are rounded."""
    return make_xmc(n_rows, 2000, 1200, nnz_per_row=20, labels_per_row=3, random_state=0)


def test_a_classifier_of_many_labels_rounds_on_cpus():
    data, few = many_labels(200), make_xmc(200, 100, 50, nnz_per_row=5, labels_per_row=2, random_state=0)
    small = {"hidden_layer_sizes": (16,), "candidates": 0, "max_epochs": 1}
    for parameters, fitted, threshold in (
        ({}, data, 0.1),
        ({"negatives": 64}, data, 0.1),
        ({"negatives": 1000}, data, 0.1),
        ({"gradient_rounding": 0}, data, 0.0),
        ({"gradient_rounding": 0.25}, few, 0.25),
        ({}, few, 0.0),
        ({"loss": "softmax"}, data, 0.0),
        ({"optimizer": "sgd"}, data, 0.0),
        ({"clip_norm": 1.0}, data, 0.0),
        ({"devices": "cpu*2", "n_jobs": 2, "algorithm": "adaptive"}, data, 0.1),
    ):
        model = XMLClassifier(**small, **parameters).fit(fitted.X, fitted.Y)
        assert model.network_.gradient_rounding == threshold


def test_rounded_gradients_learn_as_well_as_exact_ones():
    data = many_labels()
    train, test = np.arange(2500), np.arange(2500, 3000)
    small = {"hidden_layer_sizes": (64,), "candidates": 0, "max_epochs": 12, "random_state": 0, "n_jobs": 1}
    scores = [
        XMLClassifier(gradient_rounding=threshold, **small)
        .fit(data.X.take(train), data.Y.take(train))
        .score(data.X.take(test), data.Y.take(test))
        for threshold in (0, 0.1)
    ]
    assert scores[0] > 0.3
    assert scores[1] > scores[0] - 0.03


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, "some", None, float("nan")])
def test_a_threshold_outside_its_range_is_refused(value):
    with pytest.raises(DataError, match=r"gradient_rounding: must be 'auto' or in \[0, 1\), got"):
        XMLClassifier(gradient_rounding=value).fit([[1.0], [0.0]], [[0], [1]])


def test_rounded_gradients_are_refused_on_a_gpu(monkeypatch):
    pretend_gpus(monkeypatch)
    data, small = many_labels(200), {"hidden_layer_sizes": (4,), "candidates": 0, "max_epochs": 1}
    with pytest.raises(DataError, match=r"gradient_rounding: must be 'auto' or 0 on a GPU, got 0\.2 and 'cuda:0'"):
        XMLClassifier(devices="cuda:0,cpu", gradient_rounding=0.2, **small).fit(data.X, data.Y)
    with pytest.raises(DataError, match="gradient_rounding: must be 0 on a GPU"):
        get_device("cuda:0")(1).load_kernels([find_loss("bce")], rounding=True)
