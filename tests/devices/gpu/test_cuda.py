"""The CUDA device beyond what all devices have in common (test_devices.py): on the CPU by the shim, or on a GPU."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from shared.fake_gpu.shim import CUDARuntimeError, shim_device
from shared.layers import (
    FLOAT32,
    assert_same_change,
    copy,
    input_batch,
    output_batch,
    random_csr,
    whole_step,
    with_frequent_column,
)
from shared.needs import NEEDS_COMPILER, NEEDS_GPU
from shared.on_host import OnHost
from shared.running_mean import RunningMean
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import Dataset
from xmlsgd.devices.base import Targets
from xmlsgd.devices.cuda import CUDA, staging
from xmlsgd.devices.cuda.chunks import parts_of_sum
from xmlsgd.devices.cuda.kernels import kernel_parameters, kernel_source
from xmlsgd.devices.cuda.top_k import MAX_RANKED
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError, MemoryEstimateError
from xmlsgd.estimators.inference import Scorer
from xmlsgd.nn.losses import find_loss, loss_names
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD, Adam, RowRMSprop
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.executors.threads import Threads
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train


def trained(device, dataset, network, algorithm=None, workers=1, optimizer=None, callbacks=()):
    """Return the model of two epochs."""
    executor = Serial([device] * workers)
    with device.start():
        job = Job(dataset, network, optimizer or Adam())
        return train(job, algorithm or Sequential(32, 0.02), executor, Schedule(2), callbacks)


@pytest.mark.parametrize("optimizer", [SGD(), Adam(), RowRMSprop()], ids=["sgd", "adam", "row_rmsprop"])
def test_a_run_with_parameters_on_the_gpu_ends_in_the_model_and_the_state_of_the_reference(
    make, dataset, network, optimizer
):
    got, expected = (
        trained(device, dataset, network, optimizer=optimizer) for device in (make("float32"), Reference())
    )
    np.testing.assert_allclose(got.params, expected.params, rtol=0, atol=2e-4)
    np.testing.assert_allclose(got.state, expected.state, rtol=1e-3, atol=1e-5)
    assert got.records[-1]["loss"] == pytest.approx(expected.records[-1]["loss"], rel=1e-4)


@pytest.mark.parametrize("algorithm", [LocalSGD(16, 0.02), Hogwild(16, 0.02)], ids=["replicas", "differences"])
def test_two_learners_on_a_gpu_in_threads_train_one_model(make, dataset, network, algorithm):
    devices = [make("float32") for _ in range(2)]
    run = train(Job(dataset, network), algorithm, Threads(devices), Schedule(3))
    labels, _ = Scorer(network, run.params, Reference()).top_k(dataset.X, 1)
    one = trained(Reference(), dataset, network, Sequential(16, 0.02))
    assert run.records[-1]["loss"] < 1.3 * one.records[-1]["loss"]
    assert np.isfinite(run.params).all()
    assert labels.max() < 90


@NEEDS_COMPILER
def test_the_model_stays_on_the_gpu_from_step_to_step(dataset, network, monkeypatch):
    """It is copied at the start, for who looks at it, and back at the end of an epoch; not at every step."""
    device, copies = shim_device("float32"), []

    def noted(name):
        copy_all = getattr(device, name)

        def noting(*both):
            copies.append(name)
            return copy_all(*both)

        monkeypatch.setattr(device, name, noting)

    noted("to_host")
    noted("copy_to_device")
    trained(device, dataset, network, Sequential(30, 0.02))
    assert copies == ["to_host"] * 3, "the model after each of two epochs, the state after the last"


def test_a_mean_of_weights_is_taken_of_what_the_gpu_has_trained(make, dataset, network):
    got, expected = (
        trained(device, dataset, network, callbacks=[RunningMean()]) for device in (make("float32"), Reference())
    )
    np.testing.assert_allclose(got.params, expected.params, rtol=0, atol=2e-4)


def test_workers_in_turn_on_a_gpu_and_on_the_cpu_share_one_model(make, dataset, network):
    mixed, alike = (
        train(Job(dataset, network), Hogwild(16, 0.02), Serial(devices), Schedule(2))
        for devices in ([make("float32"), Reference()], [Reference(), Reference()])
    )
    np.testing.assert_allclose(mixed.params, alike.params, rtol=0, atol=5e-4)


def test_a_scorer_answers_as_the_reference_does(make, dataset, network):
    params = trained(Reference(), dataset, network).params
    device = make("float32")
    for columns in (None, np.array([80, 3, 5, 7])):
        labels, scores = Scorer(network, params, device).top_k(dataset.X, 3, columns)
        expected, values = Scorer(network, params, Reference()).top_k(dataset.X, 3, columns)
        np.testing.assert_allclose(scores, values, rtol=1e-5, atol=1e-5)
        assert np.mean(labels == expected) > 0.99
    ((_, Z),) = Scorer(network, params, device).logits(dataset.X)
    ((_, expected_Z),) = Scorer(network, params, Reference()).logits(dataset.X)
    np.testing.assert_allclose(Z, expected_Z, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_more_labels_than_a_list_in_shared_memory_holds_are_ranked_by_sorting_whole_rows(make, precision):
    A, _, layer = output_batch((5, 24, MAX_RANKED + 100))
    for k in (MAX_RANKED + 1, MAX_RANKED + 200):
        labels, scores = OnHost(make(precision, chunk_bytes=100_000)).top_k(A, layer, k)
        expected, values = Reference().top_k(A, layer, k)
        np.testing.assert_allclose(scores, values, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(np.sort(labels), np.sort(expected))


@pytest.mark.parametrize("loss", loss_names())
def test_the_size_of_chunks_changes_no_result(make, loss):
    A, targets, layer = output_batch((37, 24, 700), optimizer=Adam())
    update = Adam().update(0.1, 3)
    whole, pieces = copy(layer), copy(layer)
    value, dA = OnHost(make("float32", chunk_bytes=1 << 30)).output_step(A, targets, whole, find_loss(loss), update)
    value2, dA2 = OnHost(make("float32", chunk_bytes=1)).output_step(A, targets, pieces, find_loss(loss), update)
    assert value2 == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=1e-5 * np.abs(dA).max())
    np.testing.assert_allclose(pieces.W, whole.W, rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", loss_names())
@pytest.mark.parametrize("rows", [33, 34, 65, 300])
def test_a_label_of_nearly_all_rows_is_learned_as_by_the_reference(make, rows, loss):
    """A block adds it up, in one stretch a warp or more, or in a single key more than a warp does."""
    A, targets, layer = output_batch((rows, 130, 40), optimizer=RowRMSprop())
    targets = targets._replace(Y=with_frequent_column(targets.Y, 7))
    update, got, expected = RowRMSprop().update(0.1, 1), copy(layer), copy(layer)
    value, dA = Reference().output_step(A, targets, expected, find_loss(loss), update)
    device = OnHost(make("float32", chunk_bytes=1))
    value2, dA2 = device.output_step(A, targets, got, find_loss(loss), update)
    assert value2 == pytest.approx(value, rel=FLOAT32)
    np.testing.assert_allclose(dA2, dA, rtol=0, atol=FLOAT32 * np.abs(dA).max())
    assert_same_change(layer, got, expected, 1e-3)


@pytest.mark.parametrize(
    "update",
    [SGD().update(0.1, 1), Adam(clip_norm=0.05).update(0.1, 1), Adam().update(0.1, 1).for_input(0.02)],
    ids=["sgd", "clipped", "large rows"],
)
@pytest.mark.parametrize("shape", [(300, 150, 40), (34, 8, 3), (100, 1600, 9)], ids=str)
def test_a_feature_of_nearly_all_rows_is_learned_as_by_the_reference(make, shape, update):
    """With 1600 hidden units the sums of eight warps do not fit a block's memory where a norm is asked for."""
    X, rows, layer, dZ = input_batch(*shape, optimizer=update.optimizer)
    X = with_frequent_column(X, 2)
    got, expected = copy(layer), copy(layer)
    Reference().input_step(X, rows, dZ.copy(), expected, update)
    OnHost(make("float32")).input_step(X, rows, dZ.copy(), got, update)
    assert_same_change(layer, got, expected, 1e-4)


@NEEDS_COMPILER
@pytest.mark.parametrize("resident", [True, False])
def test_entries_that_travel_with_every_batch_train_as_those_that_stay_on_the_gpu(dataset, resident):
    network = Network(60, 90, (24,), "bce")
    device = shim_device("float32", free=1 << 30 if resident else 0)
    got = trained(device, dataset, network)
    kept = [value for value in device._loader._resident.values() if value]
    assert len(kept) == (2 if resident else 0)
    np.testing.assert_allclose(got.params, trained(Reference(), dataset, network).params, rtol=0, atol=2e-4)


@NEEDS_COMPILER
def test_a_device_that_is_gone_leaves_nothing_on_the_gpu_though_its_data_stay(dataset):
    """At once: the garbage collector would free it whenever it likes, while a graph is captured too."""
    device, network = shim_device("float32"), Network(60, 90, (24,), "bce")
    memory = device.runtime.cupy.memory
    trained(device, dataset, network)
    assert memory.live > 0
    gc.disable()
    try:
        del device
        assert memory.live == 0
    finally:
        gc.enable()


@NEEDS_COMPILER
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_neither_the_order_of_threads_nor_that_of_blocks_changes_a_bit(precision, seed):
    network = Network(60, 700, (40,), "softmax", hidden_dropout=0.3)
    first, second = (
        whole_step(OnHost(shim_device(precision, chunk_bytes=1 << 16, seed=turn)), network, Adam(), n_steps=2)
        for turn in (0, seed)
    )
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])


@NEEDS_COMPILER
def test_a_step_allocates_what_it_returns_and_nothing_else(dataset, network):
    device = shim_device("bfloat16")
    memory = device.runtime.cupy.memory
    layers = network.layers(
        device.to_device(np.zeros(network.layout.size, np.float32)), none=device.to_device(np.zeros((1, 1), np.float32))
    )
    scale, counts = np.full(40, 1 / 40, np.float32), []
    with device.start():
        for step in range(8):
            before = memory.allocated
            rows = np.arange(40) + step
            network.step(device, layers, dataset.X, Targets(dataset.Y, rows, scale), SGD().update(0.1, 1), 0)
            counts.append(memory.allocated - before)
    assert counts[5:] == [3, 3, 3], "A, dA and the loss"


@NEEDS_COMPILER
def test_data_leave_the_gpu_with_their_last_user():
    device, rng = shim_device("float32"), np.random.default_rng(0)
    dataset = Dataset(random_csr(rng, 50, 30, 3), random_csr(rng, 50, 30, 3))
    trained(device, dataset, Network(30, 30, (8,)))
    assert len(device._loader._resident) == 2
    del dataset
    assert len(device._loader._resident) == 0


@NEEDS_COMPILER
def test_a_gpu_before_ampere_trains_in_float32():
    assert not shim_device("auto", capability="75").bfloat16
    assert shim_device("auto", capability="80").bfloat16


@NEEDS_COMPILER
def test_what_is_no_argument_of_a_kernel_is_refused():
    runtime = shim_device("float32").runtime
    with runtime.start():
        x = runtime.empty((4, 8))
        with pytest.raises(AssertionError, match="drop: argument 0 has gaps"):
            runtime.launch("drop", 1, x[:, :4], 16, 0, 0, 1.0)
        with pytest.raises(TypeError, match="A must be float32, got int32"):
            runtime.launch("drop", 1, runtime.empty((4,), np.int32), 4, 0, 0, 1.0)
        with pytest.raises(ValueError, match="zip"):
            runtime.launch("drop", 1, x)
        with pytest.raises(
            DataError, match=r"^device 'cuda:0': a layer must have at most 12288 hidden units, got 12289"
        ):
            runtime.launch("input_update", 1, shared=4 * 12289)


def test_every_kernel_s_parameters_are_read_from_the_source():
    parameters = kernel_parameters(kernel_source(tensor_cores=True, hopper=True), np.dtype(np.uint16))
    assert [(p.name, p.is_pointer, p.dtype.name) for p in parameters["pack"]] == [
        ("x", True, "float32"), ("rows", False, "int32"), ("H", False, "int32"), ("width", False, "int32"),
        ("out", True, "uint16"),
    ]  # fmt: skip
    assert kernel_source(tensor_cores=True, hopper=True).count("__global__") == len(parameters)


def after_steps(device, dataset, network, wait=False):
    """Return the parameters after six steps of batches that grow; nothing is looked at before the last."""
    flat = np.random.default_rng(0).standard_normal(network.layout.size, dtype=np.float32)
    placed = device.to_device(flat)
    layers = network.layers(placed, none=device.to_device(np.zeros((1, 1), np.float32)))
    with device.start():
        for step in range(6):
            rows = (np.arange(20 + 5 * step) * 7 + step) % 120
            scale = np.full(len(rows), 1 / len(rows), np.float32)
            network.step(device, layers, dataset.X, Targets(dataset.Y, rows, scale), SGD().update(0.1, 1), step)
            if wait:
                device.runtime.stream.synchronize()
    after = device.to_host(placed)
    assert not np.array_equal(after, flat)
    return after


@NEEDS_GPU[0]
@NEEDS_GPU[1]
def test_steps_that_the_host_does_not_wait_for_end_as_others_do(dataset, network):
    """On CUDA that is not there, too, whose streams are late by FAKE_LATE=1."""
    models = [after_steps(CUDA(precision="float32"), dataset, network, wait) for wait in (True, False)]
    np.testing.assert_array_equal(*models)


def test_rows_that_change_in_place_are_seen_in_the_next_batch(make, dataset):
    X, rows = dataset.X.span(0, 20), np.arange(20)
    *_, layer, _ = input_batch(B=1, H=24, F=X.n_cols, optimizer=SGD())
    device = OnHost(make("float32"))
    before = device.input_forward(X, rows, layer)
    X.data[:] *= 2
    after = device.input_forward(X, rows, layer)
    X.data[:] /= 2
    assert not np.array_equal(before, after)


def test_rows_that_change_in_place_are_seen_in_the_next_prediction(make, monkeypatch, dataset, network):
    blocks = [np.arange(0, 50), np.arange(50, 120)]
    monkeypatch.setattr("xmlsgd.estimators.inference.scorer.row_ranges", lambda n_rows, width: blocks)
    params = np.zeros(network.layout.size, np.float32)
    network.initialize(params, dataset.Y, 0)
    network.layout.views(params)["W1"][:] = np.random.default_rng(0).standard_normal((90, 24))
    scorer, X = Scorer(network, params, make("float32")), dataset.X.take(np.arange(120))
    before = scorer.top_k(X, 5)[1]
    X.data[:] *= 2
    after = scorer.top_k(X, 5)[1]
    np.testing.assert_array_equal(after, Scorer(network, params, make("float32")).top_k(X, 5)[1])
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("B", [0, 1])
def test_a_product_in_parts_takes_any_number_of_rows(B):
    assert parts_of_sum(B, 128, 10_000) >= 1


@NEEDS_COMPILER
@pytest.mark.parametrize("free", [0, 1 << 30], ids=["data travel", "data stay"])
@pytest.mark.parametrize("late", [{1}, {0}, {2}, {0, 1, 2}], ids=["copies", "kernels", "keys", "all"])
def test_copies_and_kernels_may_be_as_late_as_their_events_allow(dataset, network, late, free):
    models = [after_steps(shim_device("float32", free=free, late=each), dataset, network) for each in ((), late)]
    np.testing.assert_array_equal(*models)


def sent_and_seen(late):
    """Return arrays that were sent under one name and what work on the GPU that was launched with each has read."""
    runtime = shim_device("float32", late=late).runtime
    arrays, seen = [np.full(5, i, np.float32) for i in range(12)], []
    with runtime.start():
        for array in arrays:
            placed = runtime.upload("numbers", array)
            runtime.stream.do(lambda placed=placed: seen.append(placed.host.copy()))
        runtime.stream.synchronize()
    return [array.tolist() for array in arrays], [array.tolist() for array in seen]


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("lost", "late"),
    [
        ("runtime.copies.wait_event(slot.read)", {0}),
        ("runtime.stream.wait_event(slot.copied)", {1}),
        ("slot.copied.synchronize()", {0, 1}),
    ],
)
def test_a_wait_that_is_lost_is_found(monkeypatch, lost, late):
    source = Path(staging.__file__).read_text()
    assert source.count(lost) == 1
    sent, seen = sent_and_seen(late)
    assert sent == seen
    broken = {"__name__": "xmlsgd.devices.cuda.staging", "__package__": "xmlsgd.devices.cuda"}
    exec(compile(source.replace(lost, "pass"), "staging.py", "exec"), broken)
    monkeypatch.setattr("xmlsgd.devices.cuda.runtime.StagingRing", broken["StagingRing"])
    sent, seen = sent_and_seen(late)
    assert sent != seen


@NEEDS_COMPILER
def test_a_staging_buffer_that_found_no_memory_still_holds_what_is_sent_next():
    runtime = shim_device("float32").runtime
    memory, array = runtime.cupy.memory, np.arange(1000, dtype=np.int32)
    for _ in range(staging.SLOTS):
        with runtime.start():
            runtime.upload("numbers", array[:10])
    memory.capacity = memory.live + 100
    with pytest.raises(MemoryEstimateError, match=r"^device 'cuda:0': Out of memory"), runtime.start():
        runtime.upload("numbers", array)
    memory.capacity = 1 << 40
    for _ in range(staging.SLOTS):
        with runtime.start():
            np.testing.assert_array_equal(runtime.to_host(runtime.upload("numbers", array)), array)


@NEEDS_COMPILER
def test_a_host_without_pinned_memory_is_told_of_in_one_line(monkeypatch):
    def fail(size):
        raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")

    runtime = shim_device("float32").runtime
    monkeypatch.setattr(runtime.cupy.cuda, "alloc_pinned_memory", fail)
    with pytest.raises(
        MemoryEstimateError, match=r"^device 'cuda:0': the host has no 50 bytes .* batch_size takes less$"
    ):
        runtime.upload("numbers", np.zeros(10, np.float32))
