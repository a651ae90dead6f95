"""Steps as CUDA graphs train what steps launched one by one train, and launch next to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.base import Targets
from xmlsgd.devices.cuda.graph import GraphCublas
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train


def rows_of(rng, n_cols, per_row):
    """Return 120 rows of equally many entries."""
    indices = np.sort([rng.choice(n_cols, per_row, replace=False) for _ in range(120)]).astype(np.int32).ravel()
    data = rng.standard_normal(len(indices), dtype=np.float32)
    return CSR(np.arange(121, dtype=np.int64) * per_row, indices, data, n_cols)


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    return Dataset(rows_of(rng, 60, 8), rows_of(rng, 90, 3))


def trained(device, dataset, network, optimizer=None, epochs=1, batch=24):
    """Return the run: five batches of one kind, of which the last three are replayed."""
    algorithm = Sequential(batch, 0.05)
    return train(Job(dataset, network, optimizer or SGD(0.01)), algorithm, Serial([device]), Schedule(epochs))


def graphs_of(device):
    """Return the captured steps of a device."""
    return [static for static in device._graphs._kinds.values() if static.graph is not None]


@pytest.mark.parametrize(
    ("loss", "optimizer", "options"),
    [
        ("softmax", SGD(0.01), {"precision": "float32"}), ("softmax", SGD(0.01), {}), ("bce", SGD(clip_norm=0.1), {}),
        pytest.param("softmax", Adam(), {"precision": "float32"}, marks=pytest.mark.slow),
        pytest.param("squared_hinge", Adam(), {"chunk_bytes": 9_000}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_steps_as_graphs_end_in_the_model_of_steps_as_they_are(make, dataset, loss, optimizer, options):
    network, runs = Network(60, 90, (24, 16), loss), []
    for graphs in (False, True):
        device = make(**{"precision": "bfloat16", "graphs": graphs, **options})
        runs.append(trained(device, dataset, network, optimizer))
    assert graphs_of(device)
    tolerance = 1e-2 if device.bfloat16 else 1e-5  # cuBLAS may take another way where factors are on the GPU
    np.testing.assert_allclose(runs[1].params, runs[0].params, rtol=0, atol=tolerance)
    assert runs[1].records[-1]["loss"] == pytest.approx(runs[0].records[-1]["loss"], rel=tolerance)


def test_two_runs_by_graphs_are_bitwise_equal(make, dataset):
    network = Network(60, 90, (24,), "softmax")
    first, second = (trained(make(precision="bfloat16", graphs=True), dataset, network).params for _ in range(2))
    np.testing.assert_array_equal(first, second)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "late", [(), pytest.param({1}, marks=pytest.mark.slow), pytest.param({0}, marks=pytest.mark.slow), {0, 1}]
)
def test_on_the_shim_the_bits_are_those_of_steps_as_they_are_however_late_work_is_done(dataset, late):
    network = Network(60, 90, (24,), "softmax")
    runs = [trained(shim_device("bfloat16", graphs=graphs, late=late), dataset, network) for graphs in (False, True)]
    np.testing.assert_array_equal(runs[0].params, runs[1].params)


@NEEDS_COMPILER
def test_a_replayed_step_allocates_nothing_and_launches_but_what_writes_the_keys(dataset, monkeypatch):
    device, counts, launched = shim_device("bfloat16", graphs=True), [], []
    launch = device.runtime.launch

    def noted(name, *rest, **more):
        launched.append(name)
        launch(name, *rest, **more)

    monkeypatch.setattr(device.runtime, "launch", noted)
    network = Network(60, 90, (24,), "bce")
    device_memory = device.runtime.cupy.memory
    layers = network.layers(
        device.to_device(np.zeros(network.layout.size, np.float32)), none=device.to_device(np.zeros((1, 1), np.float32))
    )
    with device.start():
        for _ in range(8):
            before = device_memory.allocated
            launched.clear()
            scale = np.full(40, 1 / 40, np.float32)
            network.step(device, layers, dataset.X, Targets(dataset.Y, np.arange(40), scale), SGD().update(0.1, 1), 0)
            counts.append(device_memory.allocated - before)
    assert counts[5:] == [0, 0, 0]
    assert launched == ["entry_keys", "label_keys"]


@NEEDS_COMPILER
def test_a_graph_keeps_its_buffers_when_a_larger_batch_takes_larger_ones(dataset):
    runs = []
    for graphs in (False, True):
        device, network = shim_device("float32", graphs=graphs), Network(60, 90, (24,), "softmax")
        flat = np.random.default_rng(0).standard_normal(network.layout.size, dtype=np.float32)
        placed = device.to_device(flat)
        layers = network.layers(placed, none=device.to_device(np.zeros((1, 1), np.float32)))
        with device.start():
            for size in (10, 10, 10, 10, 40, 40, 40, 10, 40):
                scale = np.full(size, 1 / size, np.float32)
                network.step(
                    device, layers, dataset.X, Targets(dataset.Y, np.arange(size), scale), SGD().update(0.1, 1), 0
                )
        runs.append(device.to_host(placed))
    np.testing.assert_array_equal(*runs)


@NEEDS_COMPILER
def test_a_graph_is_of_one_model_and_its_data(dataset):
    """Two runs on one device, whose memory the second may find where the first had other things."""
    device, network = shim_device("float32", graphs=True), Network(60, 90, (24,), "softmax")
    other = Dataset(dataset.X.take(np.arange(96)), dataset.Y.take(np.arange(96)))
    for data in (dataset, other):
        got, expected = (trained(one, data, network, Adam()) for one in (device, shim_device("float32")))
        np.testing.assert_array_equal(got.params, expected.params)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("network", "options"),
    [
        (Network(60, 90, (24,), input_dropout=0.1), {}), (Network(60, 90, (24,), hidden_dropout=0.1), {}),
        (Network(60, 90, (24,)), {"free": 0}),
    ],
    ids=["input dropout", "hidden dropout", "data travel"],
)  # fmt: skip
def test_steps_with_dropout_or_uploaded_data_are_no_graphs(dataset, network, options):
    device = shim_device("float32", graphs=True, **options)
    trained(device, dataset, network, epochs=1)
    assert not device._graphs._kinds


@NEEDS_COMPILER
def test_what_cublas_refuses_is_told():
    runtime = shim_device("float32").runtime
    library = type("Library", (), {"cublasSetStream_v2": lambda *_: 13})()
    with runtime.start(), pytest.raises(RuntimeError, match="cublasSetStream_v2: cuBLAS status 13"):
        GraphCublas(library, 1, runtime)
