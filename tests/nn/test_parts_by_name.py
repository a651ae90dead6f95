"""A loss, an optimizer, a sampler of one file each are found by name and train; one that lacks something raises."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from shared.layers import assert_same_change, copy, output_batch
from shared.toy import learnable_data
from xmlsgd import XMLClassifier
from xmlsgd.data.registry import part_names
from xmlsgd.devices.base import Targets
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu.kernels.loss_and_update import loss_address
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn import losses, optimizers, samplers
from xmlsgd.nn.losses import find_loss, loss_names
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, find_optimizer, optimizer_names
from xmlsgd.nn.samplers import find_sampler

HUBER_LIKE = """
import numpy as np
from xmlsgd.nn.losses import Loss

def value_and_gradient(z, target, log_sum):
    error = z - (2 * target - 1)
    return np.sqrt(1 + error * error) - 1, error / np.sqrt(1 + error * error)

LOSS = Loss(value_and_gradient, initial_bias=lambda frequency: 2 * frequency - 1)
"""
SIGNED = """
from dataclasses import dataclass
import numpy as np
from xmlsgd.nn.optimizers import RATE, Optimizer

@dataclass(frozen=True)
class Signed(Optimizer):
    slots = 1
    default_rate = 0.003

    @staticmethod
    def state(g, square, s, t, h):
        return 0.5 * s + 0.5 * g, t

    @staticmethod
    def step(g, s, t, h):
        return h[RATE] * np.sign(s)

OPTIMIZER = Signed
"""
FIRST_ONES = """
from dataclasses import dataclass
import numpy as np
from xmlsgd.nn.samplers import Sampler

@dataclass(frozen=True)
class FirstOnes(Sampler):
    negatives: int

    def draw(self, batch):
        return batch.with_true(np.arange(self.negatives))

SAMPLER = FirstOnes
"""


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Return a function that adds a module `toy` of this text to a package."""

    def add(package, text, name="toy"):
        folder = tmp_path / package.__name__
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
        added.append(f"{package.__name__}.{name}")

    added = []
    yield add
    for name in added:
        sys.modules.pop(name, None)


def assert_devices_agree(loss, optimizer):
    A, targets, layer = output_batch((33, 24, 100), optimizer=optimizer)
    update = optimizer.update(0.1, 2)
    got, expected = copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, loss, update)
    device = CPU(1, "float32")
    with device.start():
        value2, dA2 = device.output_step(A, targets, got, loss, update)
    assert value2 == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(dA2, dA, atol=1e-4 * np.abs(dA).max())
    assert_same_change(layer, got, expected, 1e-3)


def test_a_loss_in_one_file_trains_on_the_cpu_as_on_the_reference(add):
    add(losses, HUBER_LIKE)
    assert "toy" in loss_names()
    assert find_loss("toy").name == "toy"
    assert_devices_agree(find_loss("toy"), SGD())


def test_an_optimizer_in_one_file_trains_on_the_cpu_as_on_the_reference(add):
    add(optimizers, SIGNED)
    assert "toy" in optimizer_names()
    assert_devices_agree(find_loss("softmax"), find_optimizer("toy")(clip_norm=0.5, weight_decay=0.1))


def test_a_classifier_learns_by_a_loss_and_an_optimizer_of_one_file_each(add):
    add(losses, HUBER_LIKE)
    add(optimizers, SIGNED)
    data = learnable_data(400)
    X, Y = data.X.to_scipy(), data.Y.to_scipy()
    settings = {"hidden_layer_sizes": (16,), "max_epochs": 30, "random_state": 0}
    model = XMLClassifier(loss="toy", optimizer="toy", **settings)
    assert model.fit(X, Y).score(X, Y) > 0.9
    chances, scores = model.predict_proba(X), model.decision_function(X)
    assert ((chances >= 0) & (chances <= 1)).all()
    np.testing.assert_array_equal(chances.argmax(axis=1), scores.argmax(axis=1))


@pytest.mark.parametrize("sampler", ["toy", "all", "uniform"])
def test_a_classifier_learns_with_each_sampler_by_its_name(add, sampler):
    add(samplers, FIRST_ONES)
    data = learnable_data(400, n_labels=40)
    X, Y = data.X.to_scipy(), data.Y.to_scipy()
    drawn = {} if sampler == "all" else {"negatives": 5}
    model = XMLClassifier(sampler=sampler, **drawn, candidates=0, batch_size=8, max_epochs=10, random_state=0)
    assert model.fit(X, Y).score(X, Y) > 0.8


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"sampler": "toys"}, "sampler must be one of all, uniform, got 'toys'"),
        ({"sampler": "all", "negatives": 5}, "negatives: must be 'all' or 'auto' with sampler='all', got 5"),
        ({"sampler": "uniform", "negatives": "all"}, "negatives: must be a number or 'auto' with sampler='uniform'"),
    ],
)
def test_a_sampler_that_does_not_fit_is_refused(settings, complaint):
    with pytest.raises(DataError, match=complaint):
        XMLClassifier(**settings).fit(np.eye(2), [["a"], ["b"]])


def test_a_sampler_in_one_file_chooses_the_labels_of_a_batch(add):
    add(samplers, FIRST_ONES)
    assert "toy" in part_names(samplers.__name__)
    data = learnable_data(64, n_labels=40)
    network, rows = Network(data.n_features, 40, (8,)), np.arange(4)
    flat = np.zeros(network.layout.size, np.float32)
    network.initialize(flat, data.Y, 0)
    before, layers = flat.copy(), network.layers(flat)
    targets = Targets(data.Y, rows, np.full(4, 0.25, np.float32))
    sampler = find_sampler("toy").of(5)
    network.step(Reference(), layers, data.X, targets, SGD().update(1.0, 1), 0, sampler)
    changed = np.flatnonzero(network.layout.views(flat)["b1"] != network.layout.views(before)["b1"])
    assert set(changed) == {*range(5), *data.Y.columns_of(rows)}


@pytest.mark.parametrize(
    ("package", "find", "text", "complaint"),
    [
        (losses, find_loss, "", "loss 'toy': .*toy.py does not define LOSS"),
        (losses, find_loss, "LOSS = 3", "loss 'toy': LOSS must be a Loss, got 3"),
        (losses, find_loss, "from xmlsgd.nn.losses import Loss\nLOSS = Loss(min)", "'initial_bias'"),
        (optimizers, find_optimizer, "", "optimizer 'toy': .*toy.py does not define OPTIMIZER"),
        (optimizers, find_optimizer, "OPTIMIZER = dict", "OPTIMIZER must be a class of Optimizer"),
        (
            optimizers,
            find_optimizer,
            "from xmlsgd.nn.optimizers import Optimizer\nclass Toy(Optimizer): slots = 1\nOPTIMIZER = Toy",
            "optimizer 'toy': Toy does not define step",
        ),
        (
            optimizers,
            find_optimizer,
            SIGNED.replace("def state", "def stat"),
            "optimizer 'toy': Signed does not define state",
        ),
        (
            optimizers,
            find_optimizer,
            SIGNED.replace("slots = 1", ""),
            r"optimizer 'toy': Signed defines state, but slots is 0; set it to 1 \(s\) or 2 \(s and t\)",
        ),
        (
            optimizers,
            find_optimizer,
            SIGNED.replace("    @staticmethod\n    def step", "    def step"),
            "optimizer 'toy': Signed.step must be a static method, got <function",
        ),
        (samplers, find_sampler, "SAMPLER = None", "sampler 'toy': SAMPLER must be a class of Sampler"),
        (
            samplers,
            find_sampler,
            FIRST_ONES.replace("def draw", "def drew"),
            "sampler 'toy': FirstOnes does not define draw",
        ),
    ],
)
def test_a_part_that_lacks_something_is_refused_by_its_name(add, package, find, text, complaint):
    add(package, text)
    with pytest.raises((DataError, TypeError), match=complaint):
        find("toy")


def test_a_loss_that_numba_does_not_compile_is_refused_on_the_cpu(add):
    add(losses, HUBER_LIKE.replace("np.sqrt(1 + error * error) - 1,", "str(error),"))
    with pytest.raises(DataError, match="loss 'toy': Numba does not compile it"):
        loss_address(find_loss("toy"))


def test_parts_without_code_for_gpus_are_refused_there(add):
    add(losses, HUBER_LIKE)
    add(optimizers, SIGNED)
    with pytest.raises(DataError, match="loss: 'toy' has no code for GPUs"):
        find_loss("toy").on_cuda()
    with pytest.raises(DataError, match="optimizer: 'toy' has no code for GPUs"):
        find_optimizer("toy")().update(0.1, 1).kind  # noqa: B018


def test_every_part_of_the_package_has_what_devices_ask_for():
    assert loss_names() == ["bce", "softmax"]
    assert sorted(find_loss(name).on_cuda() for name in loss_names()) == [0, 1]
    kinds = {find_optimizer(name)().update(0.1, 1).kind for name in optimizer_names()}
    assert kinds == set(range(6))
    assert all(find_sampler(name).of(7) for name in part_names(samplers.__name__))


def test_a_part_that_another_thread_is_importing_is_waited_for(tmp_path, monkeypatch):
    source = "import builtins, time\nbuiltins.started.set()\ntime.sleep(0.3)\n"
    (tmp_path / "slow_loss.py").write_text(source + HUBER_LIKE)
    monkeypatch.setattr(losses, "__path__", [*losses.__path__, str(tmp_path)])
    started = threading.Event()
    monkeypatch.setattr("builtins.started", started, raising=False)
    importing = threading.Thread(target=losses.find_loss, args=("slow_loss",))
    importing.start()
    try:
        assert started.wait(10)
        assert not losses.find_loss("slow_loss").normalized
    finally:
        importing.join()
        sys.modules.pop("xmlsgd.nn.losses.slow_loss", None)
