"""Random layers, batches and steps of a network for the tests of devices, and how near two results must be."""

from __future__ import annotations

import numpy as np

from xmlsgd.data.csr import CSR, pointers
from xmlsgd.devices.base import Layer, Targets
from xmlsgd.nn.network import state_layout
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.samplers import ALL_LABELS

HALF_ULP = 2.0**-8  # largest relative error of rounding to bfloat16, which has 8 significant bits
FLOAT32 = 3e-5  # relative error of a float32 sum of some hundred terms, and of the polynomials for exp and log


def random_csr(rng, n_rows, n_cols, per_row):
    """Return random rows of about `per_row` entries; the first is empty where there is more than one."""
    counts = rng.integers(0, min(2 * per_row, n_cols) + 1, n_rows)
    counts[-1] = min(per_row, n_cols)
    if n_rows > 1:
        counts[0] = 0
    indices = [np.sort(rng.choice(n_cols, c, replace=False)) for c in counts]
    indptr = pointers(counts)
    data = rng.standard_normal(indptr[-1]).astype(np.float32)
    return CSR(indptr.astype(np.int64), np.concatenate(indices).astype(np.int32), data, n_cols)


def with_frequent_column(matrix, column):
    """Return the matrix with ones in a column but for its first row: kernels spread such a column over a block."""
    dense = np.zeros((matrix.n_rows, matrix.n_cols), np.float32)
    dense[np.repeat(np.arange(matrix.n_rows), np.diff(matrix.indptr)), matrix.indices] = matrix.data
    dense[1:, column] = 1
    rows, columns = np.nonzero(dense)
    indptr = pointers(np.bincount(rows, minlength=matrix.n_rows))
    return CSR(indptr.astype(np.int64), columns.astype(np.int32), dense[rows, columns], matrix.n_cols)


def random_layer(rng, shape, n_biases, optimizer=None):
    """Return a layer with random parameters and a state well away from zero, so that no rule amplifies rounding."""
    arrays = [rng.standard_normal(shape).astype(np.float32) * np.float32(0.3), rng.standard_normal(n_biases)]
    optimizer = optimizer or SGD()
    slots = [optimizer.slot_shapes(shape), optimizer.slot_shapes((n_biases,))]
    for slot in range(2):
        for of_one, none in zip(slots, [(1, 1), (1,)], strict=True):
            arrays.append(rng.uniform(0.5, 1.5, of_one[slot] if slot < len(of_one) else none))
    return Layer(*[np.ascontiguousarray(array, dtype=np.float32) for array in arrays])


def copy(layer):
    return Layer(*[array.copy() for array in layer])


def output_batch(shape, seed=0, optimizer=None, per_row=3):
    """Return (A, targets, layer): rows in any order, some without labels, weights that differ."""
    B, H, L = shape
    rng = np.random.default_rng((seed, *shape))
    Y = random_csr(rng, B + 3, L, per_row)
    rows = rng.permutation(B + 3)[:B]
    A = np.maximum(rng.standard_normal((B, H)), 0).astype(np.float32)
    scale = (rng.uniform(0.5, 2, B) / B).astype(np.float32)
    return A, Targets(Y, rows, scale), random_layer(rng, (L, H), L, optimizer)


def assert_same_change(before, got, expected, tolerance, names=Layer._fields):
    """Assert that the arrays of a layer changed alike, each within `tolerance` of its largest change."""
    for name in names:
        old, a, b = (getattr(layer, name) for layer in (before, got, expected))
        change = b.astype(np.float64) - old
        limit = tolerance * np.abs(change).max() + 2e-7 * np.abs(old).max()
        np.testing.assert_allclose(a.astype(np.float64) - old, change, rtol=0, atol=limit, err_msg=name)


def input_batch(B=33, H=40, F=60, seed=0, optimizer=None):
    rng = np.random.default_rng((seed, B, H, F))
    X = random_csr(rng, B + 3, F, per_row=5)
    rows = rng.permutation(B + 3)[:B]
    return X, rows, random_layer(rng, (F, H), H, optimizer), rng.standard_normal((B, H)).astype(np.float32)


def whole_step(device, network, optimizer, n_steps=1, poison=None, seed=0, sampler=ALL_LABELS):
    """Run steps of a small network; return (loss of the last, flat parameters). `poison` changes arrays before."""
    rng = np.random.default_rng(seed)
    X = random_csr(rng, 40, network.n_features, per_row=8)
    Y = random_csr(rng, 40, network.n_labels, per_row=3)
    flat = np.zeros(network.layout.size, np.float32)
    network.initialize(flat, Y, seed)
    network.layout.views(flat)[f"W{len(network.hidden)}"][:] = rng.standard_normal(
        (network.n_labels, network.hidden[-1])
    )
    states = state_layout(network.layout, optimizer)
    layers = network.layers(flat, states.views(np.zeros(states.size, np.float32)))
    if poison:
        poison(X, network.layout.views(flat))
    value = 0.0
    for steps in range(1, n_steps + 1):
        rows = rng.permutation(40)[:37]
        scale = np.full(37, 1 / 37, np.float32)
        update = optimizer.update(0.01, steps)
        value = network.step(device, layers, X, Targets(Y, rows, scale), update, seed + steps, sampler)
    return value, flat


def rounded(x):
    """Return x rounded to the nearest bfloat16, ties to even, by integer arithmetic on its bits."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)
