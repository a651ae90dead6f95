"""Bugs planted in the CUDA kernels are found by comparing them with the reference."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shared.fake_gpu.kernels import planted
from shared.fake_gpu.shim import shim_device
from shared.layers import (
    FLOAT32,
    assert_same_change,
    copy,
    input_batch,
    output_batch,
    random_layer,
    rounded,
    with_frequent_column,
)
from shared.needs import NEEDS_COMPILER
from shared.on_host import OnHost
from shared.tensor_cores import compare_exactly, compare_exponentials
from xmlsgd.devices.cuda.softmax import PILOT
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.losses import find_loss
from xmlsgd.nn.optimizers import SGD, Adam, RowRMSprop

pytestmark = NEEDS_COMPILER

KERNEL_BUGS = {
    "a barrier is lost": ("parts[threadIdx.x >> 5] = x;\n    __syncthreads();", "parts[threadIdx.x >> 5] = x;"),
    "a butterfly stops halfway": ("offset > 0; offset >>= 1) x +=", "offset > 1; offset >>= 1) x +="),
    "a loop ends one early": ("e + u < n &&", "e + u < n - 1 &&"),
    "every key counts as the first": ("keys[q - 1] >> 32 != mine)", "keys[q - 1] != keys[q])"),
    "every warp reads a long segment on its own": ("together ? warps * WARP : WARP", "WARP"),
    "all warps read the same stretches": ("together ? warp * WARP : 0", "0"),
    "the sums of other warps are left out": ("w < warps; ++w) sum +=", "w < 1; ++w) sum +="),
    "a long segment is a warp's and a block's": ("head) & ~all_long", "head)"),
    "a warp's labels are every row's first": ("label[u] = indices[q < end ? q : first]", "label[u] = indices[first]"),
    "labels behind the last count": ("if (first + u * warps >= end) continue;", ""),
    "all lanes count a label": ("if (lane == 0) all += logit;", "all += logit;"),
    "columns beyond a tile are left out": ("(tile += TILE) < to", "(tile += TILE) < 0"),
    "every tile updates the whole row": ("t, H, from, to, hyper);", "t, H, 0, H, hyper);"),
    "bounds are not checked": ("if (at < n) dA[at] =", "dA[at] ="),
    "labels of a chunk are counted from zero": ("(u32)(start + c)", "(u32)c"),
    "ties go to the larger label": ("<< 32) | (u64)(~label)", "<< 32) | (u64)label"),
    "positives overwrite the sum of a bias": ("partial[label - start] += sum", "partial[label - start] = sum"),
    "positives of other chunks are mended": ("start, start + C, nullptr", "start, n + start + C, nullptr"),
    "a state is not kept": ("        *t = square;\n", ""),
    "the norm is not clipped": ("factor = hyper[CLIP] / norm", "factor = 1.0f"),
    "the last row of a part has no loss": ("i = first; i < last; ++i) {", "i = first; i < last - 1; ++i) {"),
    "biases are left out of the logits": ("b[at + c] - shift", "-shift"),
    "a sum of exponentials counts labels": ("sum += from_operand(rounded);", "sum += 1.0f;"),
    "labels are not added to the gradient": ("old[c] + by * g[", "old[c] + 0.0f * g["),
    "the gradient of a bias keeps its labels": ("partial[label - start] -= total;", ";"),
    "a row's labels pull with another row's share": ("target[row] * label_sum[at]", "target[0] * label_sum[at]"),
    "an unknown optimizer is SGD": ("__trap();  // no such optimizer", "moved -= rate * g;"),
    "operands are cut instead of rounded": ("(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16", "bits >> 16"),
}  # fmt: skip


TENSOR_CORE_BUGS = {
    "copies are not waited for": ("wait_for_copies<STAGES - 2>", "wait_for_copies<STAGES - 1>"),
    "copies of rows are not waited for": ("<WEIGHT_STAGES - 2>", "<WEIGHT_STAGES - 1>"),
    "a stage is written while it is read": ("written == (STAGES - 1) * whole ? 0", "written == whole ? 0"),
    "a stage of rows is written while it is read": ("written == (WEIGHT_STAGES - 1) * whole", "written == 3 * whole"),
    "half of a stage is left out": ("half < DEEP / 16", "half < 1"),
    "groups are looked for elsewhere": ("label, half * 2 + ((lane >> 3) & 1), 3)", "label, half * 2, 3)"),
    "labels are written in another order": ("int column = label_of(n,", "int column = label_of(n ^ 4,"),
    "labels that are not there count": ("label < C ? b[label] : LOWEST", "b[label < C ? label : 0]"),
    "biases are those of the first block": ("label < C ? b[label]", "label < C ? b[label - first_label]"),
    "the reference is left out": ("row < B ? reference[row] : 0.0f, top", "0.0f, top"),
    "the last band is as wide as the others": ("n_labels - first < band", "n_labels < band"),
    "large logits are not brought down": ("if (all > MOST) top = best - shift;", ""),
    "tiles keep their references": ("expf(mine[2 * (at / LABELS)] - top)", "1.0f"),
    "a total leaves out what was scaled anew": ("                sum += written[c];\n", ""),
    "the sums of later chunks overwrite the first": ("start / LABELS + tile", "tile"),
    "exponentials of later chunks are not read": ("E + line * stride + start + first", "E + line * stride + first"),
    "the last group of a row is left out": ("last && fetched", "false && fetched"),
    "rows behind the last are taken": ("two = fetched + 8 < B", "two = true"),
    "weights are replaced": ("beta * old[n][0]", "0.0f"),
    "every second column is left out": ("both.y = beta * old[n][1] + alpha * got[1]", "both.y = 0.0f"),
    "the factor is one operand": ("partial[label] = got[0] + got[1]", "partial[label] = got[0]"),
}  # fmt: skip


HOPPER_BUGS = {
    "a chunk is not waited for": ("barrier_wait(full + 8 * stage, phase);", ""),
    "the chunk before is waited for": (
        "barrier_wait(full + 8 * stage, phase);",
        "barrier_wait(full + 8 * stage, phase ^ 1);",
    ),
    "a stage is written while it is read": ("barrier_wait(empty + 8 * stage, phase ^ 1);", ""),
    "a stage is let go before it is read": ("products_wait<1>();", ""),
    "the last stage of a tile is let go before it is read": (
        "products_wait<0>();\n            let_go(last);",
        "let_go(last);\n            products_wait<0>();",
    ),
    "results are taken before they are there": ("products_wait<0>();", "products_wait<1>();"),
    "a block lets go of its own stages alone": (
        "if (lane < CLUSTER) barrier",
        "if (lane == block_of_cluster()) barrier",
    ),
    "a stage is let go for one block": ("CONSUMERS / WARP * CLUSTER", "CONSUMERS / WARP"),
    "both blocks bring the same half": ("block_of_cluster() * (PARTS / CLUSTER)", "0"),
    "a phase lasts": ("stage = 0, phase ^= 1;", "stage = 0;"),
    "tiles share biases": ("slot = slot + 1 == slots ? 0 : slot + 1;", "slot = 0;"),
    "biases are overwritten too early": ("stages / chunks + 2", "stages / chunks + 1"),
    "biases are those of the first tile": ("next = biases_of(tile + (int)gridDim.y);", ""),
    "labels that are not there have a bias": (
        "label < C ? b[label] * LOG2E : LOWEST",
        "b[label < C ? label : 0] * LOG2E",
    ),
    "a turn is given to who has had it": ("turn_give<CONSUMERS>(2 - team)", "turn_give<CONSUMERS>(1 + team)"),
    "the first turn is not given": ("if (team == 1 && (int)blockIdx.y < n_tiles) turn_give", "if (false) turn_give"),
    "a turn is given that nobody takes": ("chunk + 1 == chunks && awaited", "chunk + 1 == chunks"),
    "registers are not ready for products": ("products_begin();", ""),
    "sums go on from the tile before": ("w, chunk | k)", "w, 1)"),
    "chunks are all the first": ("held + (chunk * 4 + k) * 4", "held + k * 4"),
    "the middle of a row is read anew": ("* CHUNK_BYTES) + 2 * k", "* CHUNK_BYTES)"),
    "groups of rows are looked for elsewhere": ("(ALIGNED >> 4) << 32", "(ALIGNED >> 5) << 32"),
    "stages are not aligned": ("(-shared_address(all_shared) & (ALIGNED - 1))", "0"),
    "what is behind the last label counts": ("if (left < LABELS) {", "if (false) {"),
    "labels are written in another order": (
        "float *logits = sum + (c * 4 + a) * 4",
        "float *logits = sum + (a * 4 + c) * 4",
    ),
    "both teams have the same rows": ("first_row + warp * 16", "first_row + warp % 4 * 16"),
    "rows are those of the first block": ("first_row = blockIdx.x * HOPPER_ROWS", "first_row = 0"),
    "the reference is left out": ("reference[row + 8 * i] * LOG2E : 0.0f", "0.0f : 0.0f"),
    "large logits are not brought down": ("if (all[i] > MOST) shifts[i] = best[i];", ""),
    "the largest logit is one of a lane": ("best[i] = fmaxf(best[i], __shfl_xor_sync(FULL, best[i], offset));", ";"),
    "the largest logit is kept by its binary logarithm": (" * (1.0f / LOG2E)", ""),
    "sums are those of a lane": ("all[i] += __shfl_xor_sync(FULL, all[i], offset);", ";"),
    "the sums of later chunks overwrite the first": ("tiles + start / LABELS + tile", "tiles + tile"),
    "barriers are used before they are made": ("    cluster_barrier();\n    int stage", "    int stage"),
    "a block leaves before the other": ("cluster_barrier();  // no block leaves", ";  // no block leaves"),
}  # fmt: skip


class Unknown(SGD):
    """An optimizer whose number no kernel knows."""

    cuda = 9


def compare(make):
    """Assert that a device computes what the reference does, on shapes that no block, warp or chunk divides."""
    device, reference = OnHost(make("float32", chunk_bytes=40_000, free=0)), Reference()
    clipped = Adam(clip_norm=0.05)
    X, rows, layer, dZ = input_batch(B=300, H=150, F=8, optimizer=clipped)
    X = with_frequent_column(X, 3)
    A = reference.input_forward(X, rows, layer)
    np.testing.assert_allclose(device.input_forward(X, rows, layer), A, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(device.through_relu(dZ.copy(), A, 2.0), reference.through_relu(dZ, A, 2.0))
    for update in (clipped.update(0.1, 2), Adam().update(0.1, 2)):
        step = partial(input_step, (X, rows, dZ), update)
        steps(device, layer, step)
    for name, rule in (("bce", Adam()), ("softmax", RowRMSprop(clip_norm=0.01)), ("bce", RowRMSprop())):
        loss = find_loss(name)
        A, targets, layer = output_batch((37, 24, 700), optimizer=rule)
        targets = targets._replace(Y=with_frequent_column(targets.Y, 7))
        step = partial(output_step, (A, targets), loss, rule.update(0.1, 2))
        (value, dA), (expected, dA_expected) = steps(device, layer, step, 10 * FLOAT32)
        assert value == pytest.approx(expected, rel=FLOAT32)
        np.testing.assert_allclose(dA, dA_expected, rtol=0, atol=FLOAT32 * np.abs(dA_expected).max())
    for optimizer in (SGD(), Adam()):
        A, targets, layer = output_batch((33, 24, 300), optimizer=optimizer, per_row=50)
        step = partial(output_step, (A, targets), find_loss("softmax"), optimizer.update(0.1, 2))
        (value, dA), (expected, dA_expected) = steps(device, layer, step, 10 * FLOAT32)
        assert value == pytest.approx(expected, rel=FLOAT32)
        np.testing.assert_allclose(dA, dA_expected, rtol=0, atol=FLOAT32 * np.abs(dA_expected).max())
    with pytest.raises(RuntimeError, match="a kernel has trapped"):
        device.output_step(A, targets, copy(layer), find_loss("bce"), Unknown().update(0.1, 1))
    layer = random_layer(np.random.default_rng(0), (700, 24), 700)
    layer.W[:], layer.b[:] = 0, np.arange(700) % 3
    for got, best in zip(device.top_k(A, layer, 5), reference.top_k(A, layer, 5), strict=True):
        np.testing.assert_array_equal(got, best)
    narrow = make("bfloat16")
    with narrow.start():
        operand = narrow.to_host(narrow._binary.operand("weights", narrow.to_device(np.ascontiguousarray(A))))
    np.testing.assert_array_equal(operand, rounded(A).view(np.uint32) >> 16)


def input_step(batch, update, device, layer):
    device.input_step(*batch, layer, update)


def output_step(batch, loss, update, device, layer):
    return device.output_step(*batch, layer, loss, update)


def steps(device, layer, step, tolerance=1e-4):
    """Return what `step` returns on the device and on the reference; assert that the layer has changed alike."""
    got, expected = copy(layer), copy(layer)
    results = step(device, got), step(Reference(), expected)
    assert_same_change(layer, got, expected, tolerance)
    return results


def compare_tensor_cores(make):
    """Assert that products are exact, and steps of several chunks, one with logits to scale down, the reference's."""
    compare_exactly(make, 20, 128)
    compare_exactly(make, 90, 85)
    compare_exponentials(make, 150, 2)
    for shape, optimizer, peak in (
        ((133, 85, 610), SGD(), 0.0), ((133, 85, 610), Adam(), 0.0), ((5, 24, PILOT + 300), SGD(), 120.0),
    ):  # fmt: skip
        A, targets, layer = output_batch(shape, optimizer=optimizer)
        A[:], layer.W[:] = rounded(A), rounded(layer.W)
        layer.b[-1] += peak
        step = partial(output_step, (A, targets), find_loss("softmax"), optimizer.update(0.1, 3))
        results = steps(OnHost(make("bfloat16", chunk_bytes=100_000)), layer, step, 1e-2)
        (value, dA), (expected, dA_expected) = results
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-4)
        np.testing.assert_allclose(dA, dA_expected, rtol=0, atol=4e-3 * np.abs(dA_expected).max())


def compare_hopper(make):
    """Assert that exponentials are right of one chunk and of eight, of many tiles of labels a block and of few."""
    compare_exponentials(make, 300, n=4000, width=16, start=128)
    compare_exponentials(make, 250, n=1100, width=512, start=256, peak=60.0, seed=1)


def test_the_kernels_pass_the_comparison():
    compare(shim_device)


@pytest.mark.slow
def test_the_kernels_for_tensor_cores_pass_the_comparison():
    compare_tensor_cores(partial(shim_device, capability="80"))


QUICK = "labels of a chunk are counted from zero"


@pytest.mark.parametrize(
    "bug", [QUICK, *(pytest.param(bug, marks=pytest.mark.slow) for bug in KERNEL_BUGS if bug != QUICK)]
)
def test_a_planted_bug_is_found(bug):
    edit = partial(planted, *KERNEL_BUGS[bug])
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        compare(partial(shim_device, edit=edit))


@pytest.mark.slow
@pytest.mark.parametrize("bug", TENSOR_CORE_BUGS)
def test_a_bug_planted_in_the_products_is_found(bug):
    edit = partial(planted, *TENSOR_CORE_BUGS[bug])
    with pytest.raises((AssertionError, RuntimeError, RuntimeWarning)):
        compare_tensor_cores(partial(shim_device, edit=edit, capability="80"))


@pytest.mark.slow
def test_the_kernel_for_hopper_passes_the_comparison():
    compare_hopper(shim_device)


@pytest.mark.slow
@pytest.mark.parametrize("bug", HOPPER_BUGS)
def test_a_bug_planted_in_the_kernel_for_hopper_is_found(bug):
    edit = partial(planted, *HOPPER_BUGS[bug], hopper=True)
    with pytest.raises((AssertionError, RuntimeError, RuntimeWarning)):
        compare_hopper(partial(shim_device, edit=edit))
