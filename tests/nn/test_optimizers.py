"""Update rules worked by hand, two steps each, on the reference and on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import Layer
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError
from xmlsgd.nn.optimizers import (
    EPSILON,
    SGD,
    Adagrad,
    Adam,
    Momentum,
    Optimizer,
    RMSprop,
    RowRMSprop,
    find_optimizer,
    get_optimizer,
    optimizer_names,
)

RATE = 0.1
# The weights of one unit with two inputs, and the gradients of two steps; the bias sees the third number.
START, GRADIENTS = [1.0, -2.0, 0.5], [[0.5, -1.0, 2.0], [-0.25, 3.0, 1.0]]


@pytest.fixture(scope="module", params=[Reference, CPU], ids=["reference", "cpu"])
def device(request):
    made = request.param()
    with made.start():
        yield made


def new_layer(optimizer, shape=(1, 2)):
    """Return a layer of zero state that starts at START."""
    states = [optimizer.slot_shapes(shape), optimizer.slot_shapes(shape[:1])]
    slots = [
        np.zeros(of_one[i] if i < len(of_one) else none, np.float32)
        for i in range(2)
        for of_one, none in zip(states, [(1, 1), (1,)], strict=True)
    ]
    W, b = np.tile(np.float32(START[:2]), (shape[0], 1)), np.full(shape[0], START[2], np.float32)
    return Layer(W, b, *slots)


def run(device, optimizer, gradients=GRADIENTS):
    """Return [W00, W01, b0] after each step; inputs are the identity, so that gradients come out as they are given."""
    layer, after = new_layer(optimizer), []
    for steps, (first, second, bias) in enumerate(gradients, 1):
        A = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
        dZ = np.array([[first], [second], [bias - first - second]], np.float32)
        device.dense_step(A, dZ, layer, optimizer.update(RATE, steps))
        after.append([*layer.W[0].tolist(), float(layer.b[0])])
    return after


def by_hand(rule):
    """Return what `rule(w, gradients so far, step)` makes of each parameter after each step."""
    w, seen, after = list(START), [[], [], []], []
    for step, gradient in enumerate(GRADIENTS, 1):
        for i, g in enumerate(gradient):
            seen[i].append(g)
            w[i] = rule(w[i], seen[i], step)
        after.append(list(w))
    return after


def sgd(w, g, step):
    return w - RATE * g[-1]


def momentum(w, g, step):
    velocity = sum(0.9 ** (step - 1 - i) * g[i] for i in range(step))
    return w - RATE * velocity


def adagrad(w, g, step):
    return w - RATE * g[-1] / (math.sqrt(sum(x * x for x in g)) + 1e-8)


def rmsprop(w, g, step):
    square = sum(0.01 * 0.99 ** (step - 1 - i) * g[i] ** 2 for i in range(step)) / (1 - 0.99**step)
    return w - RATE * g[-1] / (math.sqrt(square) + 1e-8)


def adam(w, g, step):
    mean = sum(0.1 * 0.9 ** (step - 1 - i) * g[i] for i in range(step)) / (1 - 0.9**step)
    square = sum(0.001 * 0.999 ** (step - 1 - i) * g[i] ** 2 for i in range(step)) / (1 - 0.999**step)
    return w - RATE * mean / (math.sqrt(square) + 1e-8)


@pytest.mark.parametrize(
    ("optimizer", "rule"),
    [(SGD(), sgd), (Momentum(), momentum), (Adagrad(), adagrad), (RMSprop(), rmsprop), (Adam(), adam)],
    ids=["sgd", "momentum", "adagrad", "rmsprop", "adam"],
)
def test_two_steps_are_those_of_the_formula(device, optimizer, rule):
    np.testing.assert_allclose(run(device, optimizer), by_hand(rule), rtol=1e-5)


def test_two_steps_of_row_rmsprop_share_one_second_moment_a_row(device):
    v1 = (0.5**2 + 1.0**2) / 2  # 0.01 of it, corrected by 1 - 0.99
    v2 = (0.99 * v1 + (0.25**2 + 3.0**2) / 2) / 1.99
    first = [1 - RATE * 0.5 / math.sqrt(v1), -2 + RATE * 1.0 / math.sqrt(v1), 0.5 - RATE]
    second = [
        first[0] + RATE * 0.25 / math.sqrt(v2),
        first[1] - RATE * 3 / math.sqrt(v2),
        first[2] - RATE / math.sqrt((0.99 * 4 + 1) / 1.99),
    ]
    np.testing.assert_allclose(run(device, RowRMSprop()), [first, second], rtol=1e-5)


def test_the_first_step_of_adam_is_as_long_as_the_rate(device):
    (first, _) = run(device, Adam())
    np.testing.assert_allclose(np.subtract(START, first), RATE * np.sign(GRADIENTS[0]), rtol=1e-5)


@pytest.mark.parametrize("optimizer", optimizer_names())
def test_weight_decay_shrinks_weights_by_rate_times_decay_and_leaves_biases(device, optimizer):
    plain = run(device, find_optimizer(optimizer)())[0]
    decayed = run(device, find_optimizer(optimizer)(weight_decay=0.5))[0]
    shrunk = np.multiply(START, [RATE * 0.5, RATE * 0.5, 0])
    np.testing.assert_allclose(decayed, np.subtract(plain, shrunk), rtol=1e-5)


@pytest.mark.parametrize(("optimizer", "is_scaled"), [("adam", True), ("row_rmsprop", True), ("sgd", False)])
def test_the_rate_of_the_input_layer_follows_the_scale_of_its_weights_if_steps_are_as_long(optimizer, is_scaled):
    update = find_optimizer(optimizer)(weight_decay=0.5).update(RATE, 1)
    of_input = update.for_input(0.25)
    factor = 0.25 if is_scaled else 1
    scaled = [0, 1, EPSILON]
    expected = update.hyper[scaled] * [factor, 1 / factor, 1 / factor]
    assert of_input.hyper[scaled] == pytest.approx(expected)
    np.testing.assert_array_equal(np.delete(of_input.hyper, scaled), np.delete(update.hyper, scaled))
    np.testing.assert_array_equal(of_input.for_biases().hyper, update.for_biases().hyper)
    assert (of_input.optimizer, of_input.output_epsilon) == (update.optimizer, update.output_epsilon)


def test_a_gradient_above_the_norm_is_scaled_to_it_and_the_bias_is_not(device):
    g = np.array(GRADIENTS[0])
    norm = math.hypot(g[0], g[1])
    expected = np.subtract(START, RATE * g * np.array([0.25 / norm, 0.25 / norm, 1]))
    np.testing.assert_allclose(run(device, SGD(clip_norm=0.25))[0], expected, rtol=1e-5)


def test_a_gradient_below_the_norm_is_left_as_it_is(device):
    np.testing.assert_allclose(run(device, SGD(clip_norm=3.2)), run(device, SGD()), rtol=1e-6)


@pytest.mark.parametrize("optimizer", optimizer_names())
def test_lazy_rows_keep_weights_and_state_to_the_bit(device, optimizer):
    rule = find_optimizer(optimizer)(weight_decay=0.5, clip_norm=0.5)
    layer = new_layer(rule, (6, 2))
    layer = layer._replace(b=np.zeros(2, np.float32), bs=np.zeros_like(layer.bs[:2]), bt=np.zeros_like(layer.bt[:2]))
    X = CSR(np.array([0, 2]), np.array([1, 4], np.int32), np.array([1, -2], np.float32), 6)
    before = Layer(*[array.copy() for array in layer])
    device.input_step(X, np.array([0]), np.array([[0.5, 1]], np.float32), layer, rule.update(RATE, 1))
    for name in ("W", "Ws", "Wt"):
        old, new = getattr(before, name), getattr(layer, name)
        changed = np.flatnonzero(np.any(new != old, axis=1)).tolist()
        has_state = len(old) == 6
        assert changed == ([1, 4] if has_state else []), name


def test_state_has_the_sizes_that_the_rules_need():
    shapes = {name: find_optimizer(name)().slot_shapes((5, 3)) for name in optimizer_names()}
    assert shapes == {
        "sgd": [],
        "momentum": [(5, 3)],
        "adagrad": [(5, 3)],
        "rmsprop": [(5, 3)],
        "row_rmsprop": [(5, 1)],
        "adam": [(5, 3), (5, 3)],
    }
    assert RowRMSprop().slot_shapes((5,)) == [(5,)]


def test_an_optimizer_is_found_by_name_and_built_with_numbers():
    assert get_optimizer("momentum", momentum=0.8, weight_decay=0.1) == Momentum(momentum=0.8, weight_decay=0.1)
    made = Adam(beta1=0.5)
    assert get_optimizer(made) is made
    assert all(isinstance(get_optimizer(name), Optimizer) for name in optimizer_names())


def test_an_unknown_name_lists_the_optimizers_there_are():
    with pytest.raises(DataError, match="adam, momentum, rmsprop, row_rmsprop, sgd or an Optimizer, got 'lion'"):
        get_optimizer("lion")


@pytest.mark.parametrize("optimizer", optimizer_names())
def test_adam_and_rmsprop_have_an_epsilon_of_their_own_for_the_output_layer(optimizer):
    update = find_optimizer(optimizer)().update(RATE, 3)
    output = update.for_output()
    differ = np.flatnonzero(update.hyper != output.hyper).tolist()
    has_epsilon = optimizer in {"adam", "rmsprop", "row_rmsprop"}
    assert differ == ([EPSILON] if has_epsilon else [])
    assert output.kind == update.kind
    if has_epsilon:
        assert output.hyper[EPSILON] == np.float32(4e-4)


@pytest.mark.parametrize(
    ("kind", "name", "value", "wanted"),
    [
        (Adam, "beta2", 1.0, "in \\[0, 1\\), got 1.0"),
        (Adam, "beta1", math.nan, "a number, got nan"),
        (RMSprop, "epsilon", 0.0, "finite and above 0, got 0.0"),
        (Adagrad, "epsilon", -1.0, "finite and above 0, got -1.0"),
        (Momentum, "momentum", 2.0, "in \\[0, 1\\), got 2.0"),
        (SGD, "weight_decay", -1.0, "at least 0, got -1.0"),
        (SGD, "clip_norm", -1.0, "at least 0, got -1.0"),
    ],
)
def test_numbers_with_which_no_update_is_defined_are_refused(kind, name, value, wanted):
    with pytest.raises(DataError, match=f"{name} must be {wanted}"):
        kind(**{name: value})


@dataclass(frozen=True)
class Scheduled(SGD):
    """An optimizer with a field whose type only type checkers know."""

    schedule: Unknown | None = None  # type: ignore[name-defined]  # noqa: F821


def test_an_optimizer_may_have_fields_of_types_that_are_unknown_at_run_time():
    assert Scheduled(weight_decay=0.5).schedule is None
    with pytest.raises(DataError, match="weight_decay must be at least 0, got -1"):
        Scheduled(weight_decay=-1)


@pytest.mark.parametrize("optimizer", optimizer_names())
def test_the_optimizer_of_biases_is_not_made_anew_in_each_step(optimizer):
    made = find_optimizer(optimizer)(weight_decay=0.5)
    assert made.for_biases() is made.for_biases()
    assert made.for_biases().weight_decay == 0.5


def test_an_optimizer_whose_state_would_not_be_kept_is_not_made():
    class Forgetful(Momentum):
        slots = 0

    class Numbered(Optimizer):
        step = 3  # type: ignore[assignment]

    with pytest.raises(DataError, match="Forgetful defines state, but slots is 0"):
        Forgetful()
    with pytest.raises(DataError, match="step must be a static method, got 3"):
        Numbered()
