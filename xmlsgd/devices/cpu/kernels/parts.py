"""Losses and optimizers in kernels: C functions, each compiled by itself, which kernels call by their addresses.

So no kernel depends on which losses and optimizers there are: one more is compiled in a second, and nothing else anew.
A call costs some nanoseconds, and does the work of a whole row: the logits of a label, or its weights.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from ....data.files.compiled import cached
from ....errors import DataError
from ....nn import losses, optimizers
from ....nn.optimizers import CLIP, DECAY, RATE
from ..compiling import PROCESSOR, STAMP, stamp_of
from ..intrinsics.elementary import FAST, ONE, ZERO
from ..intrinsics.llvm import pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....nn.losses import Loss
    from ....nn.optimizers import Optimizer

FOLDERS = [Path(str(package.__file__)).parent for package in (losses, optimizers)]
PARTS_STAMP = stamp_of([file for folder in FOLDERS for file in sorted(folder.glob("*.py"))], STAMP)
_floats, _integers = types.CPointer(types.float32), types.CPointer(types.intp)
_LOSS = (types.float32, (types.intp, _floats, types.float32, *[_floats] * 3, types.intp, _integers, _floats, _floats))
_UPDATE = (types.void, (types.intp, *[_floats] * 5))
_lock = threading.Lock()
_compiled: dict[Any, CFunc] = {}  # keeps the code alive as long as the process


# How kernels call them.


def _caller(returns: types.Type) -> Any:
    """Return an intrinsic that calls the C function at an address; of the arguments, uintp are pointers."""

    @intrinsic
    def call(typingctx, address, arguments):
        def codegen(context, builder, signature, args):
            values = cgutils.unpack_tuple(builder, args[1], len(arguments))
            for i, kind in enumerate(arguments):
                if kind == types.uintp:
                    values[i] = builder.inttoptr(values[i], pointer)
            result = ir.VoidType() if returns == types.void else context.get_value_type(returns)
            function = ir.FunctionType(result, [value.type for value in values]).as_pointer()
            found = builder.call(builder.inttoptr(args[0], function), values)
            return context.get_dummy_value() if returns == types.void else found

        return returns(types.intp, arguments), codegen

    return call


_call_loss, _call_update = _caller(types.float32), _caller(types.void)


@njit(nogil=True)
def label_gradient(loss, z, bias, scale, target, log_sum, positives, logits, bias_gradient):
    """Turn a label's logits into their gradient in place; return its part of the loss.

    loss : the address of a loss (`loss_address`). z (B,), B a multiple of 16, are the logits of one label without its
    `bias`; scale (B,) weighs the rows, 0 for padding; positives int64 are the batch rows that have the label. Of a
    normalized loss target (B,) is 1 / labels of the row and log_sum (B,) the log of its sum of exponentials, else 1 and
    0. bias_gradient (1,) gets the gradient of the bias. logits (B,) is scratch.
    """
    return _call_loss(
        loss,
        (
            z.size, z.ctypes.data, bias, scale.ctypes.data, target.ctypes.data, log_sum.ctypes.data, positives.size,
            positives.ctypes.data, logits.ctypes.data, bias_gradient.ctypes.data,
        ),
    )  # fmt: skip


@njit(nogil=True)
def update_row(update, w, g, s, t, hyper):
    """Update the parameters w (m,) by their gradient g (m,), both in place; s and t are their state.

    update : the address of an optimizer (`update_address`). s is (m,), or (1,) where rows have one s; t is (m,). What
    the optimizer does not keep is not read. Gradients are clipped and weights decay first, if `hyper` says so.
    """
    _call_update(
        update, (w.size, w.ctypes.data, g.ctypes.data, s.ctypes.data, t.ctypes.data, hyper.ctypes.data)
    )  # fmt: skip


# What they are compiled from: functions whose names in capitals or of a part are given for each part anew.


def _gradient(n_rows, z, bias, scale, target, log_sum, n_positives, positives, logits, bias_gradient):
    """Do what `label_gradient` says: take every row as a negative, in vector code; then correct the few positives."""
    z, scale, target = carray(z, n_rows), carray(scale, n_rows), carray(target, n_rows)
    log_sum = carray(log_sum, n_rows)
    rows, logits = carray(positives, n_positives), carray(logits, n_rows)
    for p in range(n_positives):
        logits[p] = z[rows[p]] + bias
    value, total = negatives(z, bias, scale, log_sum)  # noqa: F821
    for p in range(n_positives):
        i = rows[p]
        more, change = correction(logits[p], scale[i], target[i], log_sum[i])  # noqa: F821
        value += more
        z[i] += change
        total += change
    bias_gradient[0] = total
    return value


def _negatives(z, bias, scale, log_sum):
    """Do what `Loss.negatives` says by `value_and_gradient`."""
    value, total = ZERO, ZERO
    for i in range(z.size):
        of_row, slope = value_and_gradient(z[i] + bias, ZERO, log_sum[i])  # noqa: F821
        value += scale[i] * np.float32(of_row)
        z[i] = scale[i] * np.float32(slope)
        total += z[i]
    return value, total


def _correction(z, scale, target, log_sum):
    """Do what `Loss.correction` says by `value_and_gradient`."""
    value, slope = value_and_gradient(z, target, log_sum)  # noqa: F821
    without, slope_without = value_and_gradient(z, ZERO, log_sum)  # noqa: F821
    return scale * np.float32(value - without), scale * np.float32(slope - slope_without)


@njit(nogil=True, fastmath=FAST, error_model="numpy", inline="always")
def _clip(g, limit):
    """Scale g in place so that its Euclidean norm is at most `limit`."""
    square = ZERO
    for j in range(g.size):
        square += g[j] * g[j]
    norm = np.sqrt(square)
    if norm > limit:
        scale = limit / norm
        for j in range(g.size):
            g[j] *= scale


def _update(size, w, g, s, t, hyper):
    """Do what `update_row` says: clip the gradient, decay the weights, move them."""
    w, g, s, t = carray(w, size), carray(g, size), carray(s, size), carray(t, size)
    h = (hyper[0], hyper[1], hyper[2], hyper[3], hyper[4], hyper[5], hyper[6], hyper[7])
    if h[CLIP] > 0:
        _clip(g, h[CLIP])
    if h[DECAY] > 0:
        shrink = ONE - h[RATE] * h[DECAY]
        for j in range(size):
            w[j] *= shrink
    move(w, g, s, t, h)  # noqa: F821


def _move_without_state(w, g, s, t, h):
    for j in range(w.size):
        w[j] -= step(g[j], ZERO, ZERO, h)  # noqa: F821


def _move_with_s(w, g, s, t, h):
    for j in range(w.size):
        new, _ = state(g[j], g[j] * g[j], s[j], ZERO, h)  # noqa: F821
        s[j] = new
        w[j] -= step(g[j], new, ZERO, h)  # noqa: F821


def _move_with_s_and_t(w, g, s, t, h):
    for j in range(w.size):
        new_s, new_t = state(g[j], g[j] * g[j], s[j], t[j], h)  # noqa: F821
        s[j] = new_s
        t[j] = new_t
        w[j] -= step(g[j], new_s, new_t, h)  # noqa: F821


def _move_with_s_of_row(w, g, s, t, h):
    square = ZERO
    for j in range(w.size):
        square += g[j] * g[j]
    new, _ = state(ZERO, square / np.float32(w.size), s[0], ZERO, h)  # noqa: F821
    s[0] = new
    for j in range(w.size):
        w[j] -= step(g[j], new, ZERO, h)  # noqa: F821


_MOVES = (_move_without_state, _move_with_s, _move_with_s_and_t)


# How they are compiled.

_fast = njit(nogil=True, fastmath=FAST, error_model="numpy")
# What sums is inlined: else the process that compiles a part runs a copy of it that is optimized on its own, and rounds
# otherwise than those that load the part.
_inlined = njit(nogil=True, fastmath=FAST, error_model="numpy", inline="always")


def loss_address(loss: Loss) -> int:
    """Return the address of the C function of a loss, compiled the first time; see `label_gradient`."""

    def functions() -> dict[str, Any]:
        given = {"value_and_gradient": _fast(loss.value_and_gradient)}
        return {
            "negatives": loss.negatives or _inlined(_with(_negatives, given, f"negatives_{loss.name}")),
            "correction": loss.correction or _fast(_with(_correction, given, f"correction_{loss.name}")),
        }

    return _address(
        loss,
        "loss",
        loss.name,
        loss.value_and_gradient,
        partial(_build, _gradient, functions, _LOSS, {"fastmath": FAST}),
    )


def update_address(optimizer: Optimizer) -> int:
    """Return the address of the C function of an optimizer's class, compiled the first time; see `update_row`."""
    kind = type(optimizer)

    def functions() -> dict[str, Any]:
        given = {"state": _fast(kind.state), "step": _fast(kind.step)}
        move = _move_with_s_of_row if kind.row_state else _MOVES[kind.slots]
        return {"move": _inlined(_with(move, given, f"move_{optimizer.name}"))}

    build = partial(_build, _update, functions, _UPDATE, {"fastmath": FAST})
    return _address(kind, "optimizer", optimizer.name, kind.step, build)


def _with(template: Callable[..., Any], functions: dict[str, Any], name: str) -> Any:
    """Return a copy of a function that sees some functions by their names.

    Each needs a name of its own: by it Numba names files of its cache and symbols, of which equal ones are taken for
    the same.
    """
    copy = FunctionType(template.__code__, {**globals(), **functions})
    copy.__qualname__ = name
    return copy


def _build(
    template: Callable[..., Any], functions: Callable[[], dict[str, Any]], signature: Any, options: Any, name: str
) -> CFunc:
    """Return the C function of a template, not compiled yet."""
    returns, arguments = signature
    return CFunc(_with(template, functions(), name), (arguments, returns), {}, {"error_model": "numpy", **options})


def _address(key: Any, kind: str, name: str, defined: Callable[..., Any], build: Callable[[str], CFunc]) -> int:
    """Return the address of what `build` returns, made once a process; kept on disk if it is part of the package."""
    if key not in _compiled:
        with _lock:
            if key not in _compiled:
                function = build(f"{kind}_{name}_{PARTS_STAMP}_{PROCESSOR}")
                # The stamp covers the package only: what users add may depend on anything.
                if Path(defined.__code__.co_filename).parent in FOLDERS:
                    cached(function)
                try:
                    function.compile()
                except NumbaError as error:
                    raise DataError(f"{kind} {name!r}: Numba does not compile it for the CPU: {error}") from error
                _compiled[key] = function
    address: int = _compiled[key].address
    return address
