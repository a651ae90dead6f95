"""The estimator on a GPU, pretended by the shim: what it learns, what memory it needs, what it says without one."""

from __future__ import annotations

import numpy as np
import pytest

from shared.fake_gpu.memory import OutOfMemoryError
from shared.fake_gpu.shim import pretend_gpus, shim_device
from shared.layers import random_csr
from shared.needs import NEEDS_COMPILER, NEEDS_GPU
from xmlsgd import MemoryEstimateError, XMLClassifier, make_xmc
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import Dataset
from xmlsgd.devices.cuda.step_memory import LIBRARY_BYTES, step_bytes
from xmlsgd.estimators import memory
from xmlsgd.nn.network import Network, state_layout
from xmlsgd.nn.optimizers import SGD, Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.virtual_device import measure_device
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

pytestmark = NEEDS_COMPILER


@pytest.fixture(scope="module")
def data():
    return make_xmc(200, 120, 60, nnz_per_row=8, labels_per_row=2, random_state=0)


def model(**parameters):
    made = {"hidden_layer_sizes": (16,), "max_epochs": 2, "batch_size": 32, "random_state": 0, "n_jobs": 1}
    return XMLClassifier(**{**made, "precision": "float32", **parameters})


@pytest.fixture(params=["shim", pytest.param("cuda", marks=NEEDS_GPU)])
def gpus(request, monkeypatch):
    """Let there be a GPU, pretended or not."""
    if request.param == "shim":
        pretend_gpus(monkeypatch)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("candidates", [0, 8])
def test_a_classifier_learns_on_a_gpu_what_it_learns_on_the_cpu(data, candidates):
    few = data.X.span(0, 10), data.Y.span(0, 10)  # ranking is slow on the shim
    fits = [
        model(devices=devices, candidates=candidates).fit(data.X, data.Y, eval_set=few) for devices in ("cuda:0", "cpu")
    ]
    np.testing.assert_allclose(fits[0].params_, fits[1].params_, rtol=0, atol=2e-4)
    for options in ({}, {"labels": [3, 40, 7]}):
        (_, got), (_, expected) = (fit.predict_topk(few[0], 3, **options) for fit in fits)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("devices", [pytest.param(name, marks=NEEDS_GPU) for name in ("cuda:0*2", "cuda:0,cpu")])
@pytest.mark.parametrize("algorithm", ["hogwild", "adaptive_hogbatch", "local_sgd"])
def test_workers_on_a_gpu_and_beside_it_learn_together(data, devices, algorithm):
    """A worker on the CPU beside one on a GPU makes each of them a process, which the shim cannot follow."""
    fit = model(devices=devices, algorithm=algorithm, max_epochs=6, candidates=0).fit(data.X, data.Y)
    alone = model(devices="cpu", max_epochs=6, candidates=0).fit(data.X, data.Y)
    assert np.isfinite(fit.params_).all()
    assert fit.score(data.X, data.Y) > 0.5 * alone.score(data.X, data.Y)


def test_a_gpu_that_is_too_small_is_told_before_anything_is_trained(data, monkeypatch):
    pretend_gpus(monkeypatch)
    pretend_gpus(monkeypatch, free=model(devices="cuda:0").estimate_memory(data.X, data.Y)["cuda:0"] - 10_000)
    with pytest.raises(MemoryEstimateError, match=r"^device 'cuda:0': training needs about .* hidden_layer_sizes") as e:
        model(devices="cuda:0").fit(data.X, data.Y)
    assert "\n" not in str(e.value)
    width = int(str(e.value).split("sizes=(")[1].split(",")[0])
    assert 1 <= width < 16
    with pytest.raises(MemoryEstimateError, match="fewer learners on it take less"):
        model(devices="cuda:1*2").fit(data.X, data.Y)


def test_the_memory_that_a_gpu_needs_stands_beside_that_of_the_process(data, monkeypatch):
    pretend_gpus(monkeypatch)
    two, one, none = (
        model(devices=devices).estimate_memory(data.X, data.Y) for devices in ("cuda:0*2", "cuda:0", "cpu")
    )
    assert two["cuda:0"] - LIBRARY_BYTES > 2 * (one["cuda:0"] - LIBRARY_BYTES) > 0, "and what merges keep"
    assert one["total"] - one["buffers"] == none["total"] - none["buffers"]
    assert "cuda:0" not in none


def test_memory_that_ends_in_the_middle_of_a_run_is_told_in_one_line(data, monkeypatch):
    pretend_gpus(monkeypatch, capacity=60_000)
    monkeypatch.setattr(memory, "gpu_estimate", lambda plan, data, name, free: {"total": 0, "data": 0})
    with pytest.raises(MemoryEstimateError, match=r"^device 'cuda:0': Out of memory allocating .* GB are free; a") as e:
        model(devices="cuda:0").fit(data.X, data.Y)
    assert "\n" not in str(e.value)
    assert isinstance(e.value.__cause__, OutOfMemoryError)


def test_the_speed_of_a_gpu_is_measured_with_copies_at_every_step(data, monkeypatch):
    device, copied = shim_device("float32"), []
    monkeypatch.setattr(device, "copy_to_device", lambda *both: copied.append(both))
    job = Job(Dataset(data.X.span(0, 8), data.Y.span(0, 8)), Network(120, 60, (4,)), SGD())
    assert measure_device(job, device).per_row >= 0
    assert copied


def peak(network, optimizer, batch, chunk_bytes, precision, dataset, free=1 << 30):
    """Return the most bytes that an epoch has taken on the "GPU"."""
    device = shim_device(precision, chunk_bytes=chunk_bytes, free=free)
    train(Job(dataset, network, optimizer), Sequential(batch, 0.01), Serial([device]), Schedule(1))
    return device.runtime.cupy.memory.peak


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", [SGD(), Adam()], ids=["sgd", "adam"])
@pytest.mark.parametrize(
    ("hidden", "batch", "chunk_bytes", "travels"), [((24,), 64, 1 << 30, True), ((40, 24), 64, 30_000, False)]
)
def test_the_estimate_is_near_what_steps_take_at_their_peak(precision, optimizer, hidden, batch, chunk_bytes, travels):
    rng = np.random.default_rng(0)
    dataset = Dataset(random_csr(rng, 2 * batch, 300, 20), random_csr(rng, 2 * batch, 900, 5))
    network = Network(300, 900, hidden, "softmax")
    entries = sum(matrix.nnz // 2 for matrix in (dataset.X, dataset.Y))
    stays = 4 * (network.layout.size + state_layout(network.layout, optimizer).size)
    stays += 0 if travels else 8 * (dataset.X.nnz + dataset.Y.nnz)
    estimated = stays + step_bytes(network, batch, entries, travels, precision == "bfloat16", chunk_bytes)
    free = 0 if travels else 1 << 30
    assert 0.6 < peak(network, optimizer, batch, chunk_bytes, precision, dataset, free) / estimated < 1.02


@pytest.mark.parametrize("optimizer", [SGD(), Adam()], ids=["sgd", "adam"])
def test_training_takes_at_most_1_3_times_weights_state_data_and_a_chunk(optimizer):
    rng = np.random.default_rng(0)
    dataset = Dataset(random_csr(rng, 64, 4000, 20), random_csr(rng, 64, 3000, 5))
    network, chunk_bytes = Network(4000, 3000, (32,), "bce"), 200_000
    needed = 4 * (network.layout.size + state_layout(network.layout, optimizer).size)
    needed += 8 * (dataset.X.nnz + dataset.Y.nnz) + chunk_bytes
    assert peak(network, optimizer, 32, chunk_bytes, "bfloat16", dataset) <= 1.3 * needed
