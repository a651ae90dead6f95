"""Whole steps of a network on every device, what a device offers, and how it is found by name."""

from __future__ import annotations

import numpy as np
import pytest

from shared.layers import FLOAT32, HALF_ULP, whole_step
from xmlsgd.devices import get_device
from xmlsgd.devices.base import Device
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.losses import loss_names
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adam, Optimizer


@pytest.mark.parametrize("hidden", [(24,), (40, 32)], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("loss", loss_names())
def test_steps_of_a_network_are_those_of_the_reference(device, hidden, dropout, loss):
    network = Network(60, 100, hidden, loss, hidden_dropout=dropout)
    n_steps = 1 if device.bfloat16 else 3  # rounding of later steps can turn a relu on or off
    _, start = whole_step(Reference(), network, SGD(), n_steps=0)
    value, expected = whole_step(Reference(), network, SGD(), n_steps=n_steps)
    value2, got = whole_step(device, network, SGD(), n_steps=n_steps)
    tolerance = 4 * HALF_ULP if device.bfloat16 else FLOAT32
    assert value2 == pytest.approx(value, rel=tolerance)
    for name, change in network.layout.views(expected - start).items():
        other = network.layout.views(got - start)[name]
        np.testing.assert_allclose(other, change, rtol=0, atol=tolerance * np.abs(change).max() + 1e-6, err_msg=name)


@pytest.mark.parametrize("optimizer", [SGD(), Adam()], ids=["sgd", "adam"])
def test_the_same_seed_gives_the_same_bits(device, optimizer: Optimizer):
    """Threads own fixed shares of the labels and their sums are added in thread order."""
    network = Network(60, 700, (40,), "bce", hidden_dropout=0.3)
    first, second = (whole_step(device, network, optimizer, n_steps=4) for _ in range(2))
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])


def poison_with(name, value):
    def poison(X, views):
        if name == "X":
            X.data[:] = value
        elif name == "W0":
            views["W0"][:, 3] = value
        elif name == "W1":
            views["W1"][97, 5] = value
        else:
            views[name][2] = value

    return poison


@pytest.mark.parametrize("name", ["X", "W0", "b0", "W1", "b1"])
@pytest.mark.parametrize("loss", loss_names())
def test_nan_anywhere_makes_the_loss_nan(device, loss, name):
    """A run that diverges is recognised by its loss alone."""
    network = Network(60, 100, (24,), loss)
    for one in (Reference(), device):
        with np.errstate(invalid="ignore"):
            value, _ = whole_step(one, network, SGD(), poison=poison_with(name, np.nan))
        assert not np.isfinite(value)


def test_precision_is_checked_when_a_device_is_made():
    with pytest.raises(DataError, match="precision must be one of auto, float32, bfloat16, got 'half'"):
        CPU(1, "half")


def test_the_reference_offers_what_the_protocol_asks_for():
    operations = {name for name in vars(Device) if not name.startswith("_")}
    assert operations <= set(dir(Reference())) & set(dir(CPU))
    with Reference().start() as nothing:
        assert nothing is None


def test_a_device_is_found_by_the_name_of_its_module():
    assert get_device("cpu") is CPU
    assert get_device("reference") is Reference


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("abacus", "device must be one of cpu, cuda, reference, got 'abacus'"),
        ("bf16", "device must be one of cpu, cuda, reference, got 'bf16'"),
        ("cpu:0", "device must be one of cpu, cuda, reference, got 'cpu:0'"),
        ("cuda:x", "device must be one of cpu, cuda, reference, got 'cuda:x'"),
    ],
)
def test_an_unknown_device_is_answered_with_those_there_are(name, complaint):
    with pytest.raises(DataError) as error:
        get_device(name)
    assert str(error.value) == complaint
