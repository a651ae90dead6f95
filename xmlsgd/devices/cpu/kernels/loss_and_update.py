"""Losses and optimizers in kernels: C functions, each compiled by itself, which kernels call by their addresses.

So kernels do not depend on the losses and optimizers that exist: a new one is compiled in a second, and no kernel is
compiled again. A call costs some nanoseconds and handles a whole row: the logits of a label, or its weights.
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

from ....data.files.numba_cache import cached
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


# Functions by which kernels call them.


def _caller(returns: types.Type) -> Any:
    """Return an intrinsic that calls the C function at an address; arguments of type uintp are passed as pointers."""

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

    loss : the address of a loss (`loss_address`). z (B,) : the logits of one label without its `bias`; B is a multiple
    of 16. scale (B,) : weights of the rows, 0 for padding. positives int64 : the batch rows that have the label.
    target, log_sum (B,) : of a normalized loss, 1 / number of labels of the row, and the log of its sum of
    exponentials; else 1 and 0. bias_gradient (1,) : becomes the gradient of the bias. logits (B,) : scratch.
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

    update : the address of an optimizer (`update_address`). s is (m,), or (1,) if a row shares one s; t is (m,). State
    that the optimizer does not use is not read. First the gradient is clipped and the weights decay, if `hyper` has
    numbers for them.
    """
    _call_update(
        update, (w.size, w.ctypes.data, g.ctypes.data, s.ctypes.data, t.ctypes.data, hyper.ctypes.data)
    )  # fmt: skip


# Templates of the C functions. `_with` gives each part its own versions of the functions that they call.


def _gradient(n_rows, z, bias, scale, target, log_sum, n_positives, positives, logits, bias_gradient):
    """Compute `label_gradient`: take every row as a negative, in vector code; then correct the few positives."""
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
    """Compute `Loss.negatives` by `value_and_gradient`."""
    value, total = ZERO, ZERO
    for i in range(z.size):
        of_row, slope = value_and_gradient(z[i] + bias, ZERO, log_sum[i])  # noqa: F821
        value += scale[i] * np.float32(of_row)
        z[i] = scale[i] * np.float32(slope)
        total += z[i]
    return value, total


def _correction(z, scale, target, log_sum):
    """Compute `Loss.correction` by `value_and_gradient`."""
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
    """Compute `update_row`: clip the gradient, decay the weights, move them."""
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


# Compilation.

_fast = njit(nogil=True, fastmath=FAST, error_model="numpy")
# Functions that compute sums are inlined. Otherwise the process that compiles a part would run a copy that LLVM has
# optimized separately, and round otherwise than processes that load the part from the cache.
_inlined = njit(nogil=True, fastmath=FAST, error_model="numpy", inline="always")


def loss_address(loss: Loss) -> int:
    """Return the address of the C function of a loss, compiled on first use; see `label_gradient`."""

    def functions() -> dict[str, Any]:
        given = {"value_and_gradient": _fast(loss.value_and_gradient)}
        return {
            "negatives": loss.negatives or _inlined(_with(_negatives, given, f"negatives_{loss.name}")),
            "correction": loss.correction or _fast(_with(_correction, given, f"correction_{loss.name}")),
        }

    build = partial(_build, _gradient, functions, _LOSS)
    return _address(loss, "loss", loss.name, loss.value_and_gradient, build)


def update_address(optimizer: Optimizer) -> int:
    """Return the address of the C function of an optimizer's class, compiled on first use; see `update_row`."""
    kind = type(optimizer)

    def functions() -> dict[str, Any]:
        given = {"state": _fast(kind.state), "step": _fast(kind.step)}
        move = _move_with_s_of_row if kind.row_state else _MOVES[kind.slots]
        return {"move": _inlined(_with(move, given, f"move_{optimizer.name}"))}

    build = partial(_build, _update, functions, _UPDATE)
    return _address(kind, "optimizer", optimizer.name, kind.step, build)


def _with(template: Callable[..., Any], functions: dict[str, Any], name: str) -> Any:
    """Return a copy of a template in which `functions` are globals, under the given name.

    Names must differ: Numba derives file names of its cache and symbols from them, and takes equal ones for the same
    function.
    """
    copy = FunctionType(template.__code__, {**globals(), **functions})
    copy.__qualname__ = name
    return copy


def _build(template: Callable[..., Any], functions: Callable[[], dict[str, Any]], signature: Any, name: str) -> CFunc:
    """Return the C function of a template, not compiled yet."""
    returns, arguments = signature
    options = {"error_model": "numpy", "fastmath": FAST}
    return CFunc(_with(template, functions(), name), (arguments, returns), {}, options)


def _address(key: Any, kind: str, name: str, defined: Callable[..., Any], build: Callable[[str], CFunc]) -> int:
    """Return the address of the C function from `build`, compiled once per process; cached on disk if it is ours."""
    if key not in _compiled:
        with _lock:
            if key not in _compiled:
                function = build(f"{kind}_{name}_{PARTS_STAMP}_{PROCESSOR}")
                # The stamp covers only the package: parts of users may depend on anything, and are not cached.
                if Path(defined.__code__.co_filename).parent in FOLDERS:
                    cached(function)
                try:
                    function.compile()
                except NumbaError as error:
                    raise DataError(f"{kind} {name!r}: Numba does not compile it for the CPU: {error}") from error
                _compiled[key] = function
    address: int = _compiled[key].address
    return address
