"""The CPU: Numba kernels on all threads, with bfloat16 products if the processor has them."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from ...data.cores import FORKED_FROM_THREADS
from ...data.csr import CSR
from ...data.validation import check_choice
from ...errors import DataError
from ...nn.parameters import zeros
from ..base import EXACT, PRECISIONS, Device, Dropout, Layer, Rounding, Targets
from ..compact import CompactLayer
from . import kernel_cache, search
from .compiling import for_kernels
from .intrinsics import bf16
from .kernels import copying, input_layer, output_layer, sparsified_layer
from .kernels.loss_and_update import loss_address, update_address
from .kernels.output_layer import CHUNK
from .part_threads import run_parts
from .search import weights_of
from .threads import OneAtATime, launch_context, start_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from ...nn.losses import Loss
    from ...nn.optimizers import Optimizer, Update
    from .compiling import Kernel


FEW_PARTS = 8  # so few parts NumPy adds up in less time than launching threads takes


class CPU(Device):
    """A device of `n_threads` threads of this machine.

    precision : "float32", "bfloat16" (products only; sums, weights and state are float32) or "auto", which is bfloat16
    if the processor multiplies it natively. Buffers are allocated once for each batch shape and reused.

    A device of one thread runs only in the Python thread that calls it, and kernels release the GIL, so that several
    such devices can train in one process at once.

    If `most_threads` is set, kernels run on at most `most_threads()` threads, as another device computes on the others.
    Work is split into the same parts, so that results do not depend on it.
    """

    most_threads: Callable[[], int] | None = None
    _launched = 0  # the number of Numba's threads that this device has set; 0 if it is not started

    def __init__(self, n_threads: int = 1, precision: str = "auto") -> None:
        check_choice("precision", precision, PRECISIONS)
        if precision == "bfloat16" and not bf16.HAS_AVX512_BF16:
            raise DataError("precision='bfloat16' needs a processor with AVX512-BF16 or AMX; pass 'auto' or 'float32'")
        kernel_cache.remove_stale()
        self.n_threads = n_threads
        self.bfloat16 = bf16.HAS_AVX512_BF16 if precision == "auto" else precision == "bfloat16"
        self._buffers: dict[Any, np.ndarray] = {}
        self._alone = OneAtATime(self._buffers)

    def to_device(self, flat: np.ndarray) -> np.ndarray:
        """Return the vector itself, or a view of it for kernels."""
        return for_kernels(flat)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Return a buffer, zeros at first, that keeps its content between calls with the same arguments."""
        known = self._buffers.get(name)
        if known is None or known.shape != shape or known.dtype != dtype:
            size = math.prod(shape) * np.dtype(dtype).itemsize
            known = zeros(-(-size // 4)).view(dtype)[: math.prod(shape)].reshape(shape)
            self._buffers[name] = known
        return known

    def start(self) -> AbstractContextManager[None]:
        """Return a context with this device's number of Numba threads, and one thread for the BLAS that kernels call.

        The Python thread that calls the operations must enter it. Other threads wait, as the buffers belong to the
        thread inside.
        """
        return self._on_threads() if self._has_threads else self._alone

    @contextlib.contextmanager
    def _on_threads(self) -> Iterator[None]:
        with self._alone:
            start_layer()
            before, launched = numba.get_num_threads(), self._launched
            self._set_threads(self.n_threads)
            try:
                yield
            finally:
                numba.set_num_threads(before)
                self._launched = launched

    def _set_threads(self, n_threads: int) -> None:
        numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
        self._launched = n_threads

    def load_optimizer(self, optimizer: Optimizer) -> None:
        """Compile or load the functions of an optimizer."""
        update_address(optimizer)
        update_address(optimizer.for_biases())

    def input_forward(self, X: CSR, rows: np.ndarray, layer: Layer | CompactLayer) -> np.ndarray:
        """Return A (B, H) = relu(X[rows] W + b)."""
        A = np.empty((len(rows), layer.W.shape[1]), np.float32)
        self.run(input_layer.input_forward, rows, X.indptr, X.indices, X.data, *weights_of(layer), A)
        return A

    def dense_forward(self, A: np.ndarray, layer: Layer) -> np.ndarray:
        """Return relu(A W^T + b)."""
        out = A @ layer.W.T
        out += layer.b
        return np.maximum(out, 0, out=out)

    def drop(self, A: np.ndarray, dropout: Dropout) -> None:
        """Apply dropout to A in place."""
        self.run(input_layer.drop, A, dropout.seed, dropout.threshold, dropout.factor)

    def output_step(
        self, A: np.ndarray, targets: Targets, layer: Layer, loss: Loss, update: Update, rounding: Rounding = EXACT
    ) -> tuple[float, np.ndarray]:
        """Update the output layer on one batch; return the loss, summed over rows with their weights, and dA."""
        B, H = A.shape
        n, padded = self.n_threads, self.padded("A", A, bf16.pad(B), bf16.pad(H) if self.bfloat16 else H)
        Bp, Hp = padded.shape
        # Smaller chunks if there would be fewer of them than threads.
        chunk = min(CHUNK, bf16.pad(-(-len(layer.b) // n)))
        Z = self.buffer("Z", (n, bf16.BLOCK if self.bfloat16 else chunk, Bp))
        dA, db = self.buffer("dA", (n, Bp, Hp)), self.buffer("db", (n, chunk))
        ints, logits = self.buffer("ints", (n, Bp), np.int64), self.buffer("logits", (n, Bp))
        operands, losses = self._operands(padded, chunk), np.zeros(n)
        scales, target, log_sum = _row_weights(targets, loss, Bp)
        if loss.normalized:
            log_sum[:] = self._log_sum(layer, chunk, Z, logits, padded, operands)
        of_biases = update.for_biases()
        head = (
            layer.W, layer.b, layer.Ws, layer.Wt, layer.bs, layer.bt, _positives(targets), scales, target, log_sum,
            loss_address(loss), update_address(update.optimizer), update.hyper, update_address(of_biases.optimizer),
            of_biases.hyper,
        )  # fmt: skip
        if rounding.threshold > 0:
            kept, g = self.buffer("kept", (n, Bp), np.int64), self.buffer("g", (n, H))
            self.run_converted(
                sparsified_layer.sparsified_step, *head, np.float32(rounding.threshold), rounding.seed, padded, Z, g,
                dA, db, ints, kept, logits, losses, *operands,
            )  # fmt: skip
        else:
            part, backward = self._backward(padded)
            self.run(
                output_layer.output_step, *head, chunk, rounding.seed, Z, self.buffer("dW", (n, Z.shape[1], Hp)), dA,
                part, db, ints, logits, losses, padded, backward, *operands,
            )  # fmt: skip
        return float(losses.sum()), np.ascontiguousarray(self._sum(dA)[:B, :H])  # the layout that kernels expect

    def _sum(self, parts: np.ndarray) -> np.ndarray:
        """Return the sum of the parts of all threads, added up in their order."""
        if len(parts) <= FEW_PARTS:
            return np.asarray(parts.sum(axis=0))
        total = np.empty(parts.shape[1:], np.float32)
        self.run_converted(output_layer.add_parts, parts, total)
        return total

    def _operands(self, padded: np.ndarray, chunk: int) -> tuple[np.ndarray | None, ...]:
        """Return packed activations, a buffer for packed labels, and one for padding; all None in float32."""
        if not self.bfloat16:
            return None, None, None
        n, (Bp, Hp) = self.n_threads, padded.shape
        words = (bf16.BLOCK * Hp + chunk * Hp + bf16.BLOCK * Bp + chunk * Bp) // 2 + 16 * Bp
        packed, pads = self.buffer("packed", (n, words), np.uint32), self.buffer("pads", (n, 2, Hp))
        forward = self.buffer("forward", (Bp * Hp // 2,), np.uint32)
        output_layer.pack_forward.alone(for_kernels(padded), forward, packed)  # faster than launching threads
        return forward, packed, pads

    def _backward(self, padded: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return a buffer for each thread's part of dA in float32, and activations packed for dW in bfloat16."""
        if not self.bfloat16:
            return self.buffer("dA_part", (self.n_threads, *padded.shape)), None
        packed = self.buffer("backward", (padded.size // 2,), np.uint32)
        output_layer.pack_backward.alone(for_kernels(padded), packed)  # faster than launching threads
        return None, packed

    def _log_sum(
        self, layer: Layer, chunk: int, Z: np.ndarray, logits: np.ndarray, padded: np.ndarray, operands: Any
    ) -> np.ndarray:
        """Return the log of the sum of exponentials of each row's logits (B,); each thread computes a part of it."""
        largest, total = self.buffer("largest", logits.shape), self.buffer("total", logits.shape, np.float64)
        self.run(output_layer.log_sums, layer.W, layer.b, chunk, Z, largest, total, logits, padded, *operands)
        top: np.ndarray = largest.max(axis=0)
        with np.errstate(invalid="ignore"):  # a run that diverges is found by its loss
            return top + np.log((total * np.exp(largest - top)).sum(axis=0))

    def take(self, layer: Layer | CompactLayer, active: np.ndarray) -> Any:
        """Return a copy of the outputs `active` of a layer, in buffers; state arrays of one element are not copied."""
        if isinstance(layer, CompactLayer):
            return CompactLayer(*(part[active] for part in layer))
        room, parts = 1 << max(len(active) - 1, 0).bit_length(), []
        for name, whole in zip(Layer._fields, layer, strict=True):
            part = whole
            if len(whole) > 1:
                part = self.buffer(f"active {name}", (room, *whole.shape[1:]))[: len(active)]
            parts.append(part)
        self._copy(layer, active, False, parts)
        return Layer(*parts)

    def put(self, part: Layer, layer: Layer, active: np.ndarray) -> None:
        """Write `part`, from `take`, back to the outputs `active` of a layer."""
        self._copy(layer, active, True, part)

    def _copy(self, layer: Layer, active: np.ndarray, back: bool, parts: Iterable[np.ndarray]) -> None:
        """Copy the outputs `active` of a layer to `parts`; if `back`, from `parts` to the layer."""
        whole, taken = ([each.reshape(len(each), -1) for each in arrays] for arrays in (layer, parts))
        self.run_converted(copying.copy_outputs, *whole, active, back, self.n_threads, *taken)

    def dense_step(self, A: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update) -> np.ndarray:
        """Update a dense layer given the gradient dZ of its pre-activations; return the gradient of its input A."""
        dA = dZ @ layer.W
        self.run(
            output_layer.rows_update, layer.W, dZ.T @ A, layer.Ws, layer.Wt, update_address(update.optimizer),
            update.hyper, self.n_threads,
        )  # fmt: skip
        self._update_biases(dZ, layer, update)
        return dA

    def input_step(self, X: CSR, rows: np.ndarray, dZ: np.ndarray, layer: Layer, update: Update) -> None:
        """Update the rows of W for the features of the batch, and b, given the gradient dZ of the pre-activations."""
        nnz = int((X.indptr[rows + 1] - X.indptr[rows]).sum())
        counts = self.buffer("counts", (X.n_cols,), np.int32)
        features, starts = np.empty(nnz, np.int32), np.empty(nnz + 1, np.int64)
        entry_row, entry_value = np.empty(nnz, np.int32), np.empty(nnz, np.float32)
        n = input_layer.group_entries.alone(
            rows, *map(for_kernels, (X.indptr, X.indices, X.data)), counts, features, starts, entry_row, entry_value,
        )  # fmt: skip
        self.run(
            input_layer.input_update, dZ, features[:n], starts, entry_row, entry_value, layer.W, layer.Ws, layer.Wt,
            update_address(update.optimizer), update.hyper, self.buffer("gradients", (self.n_threads, dZ.shape[1])),
        )  # fmt: skip
        self._update_biases(dZ, layer, update)

    def _update_biases(self, dZ: np.ndarray, layer: Layer, update: Update) -> None:
        """Update the biases of a layer by the sums of dZ (B, H) over its rows."""
        update = update.for_biases()
        output_layer.biases_update.alone(
            layer.b, dZ.sum(axis=0), layer.bs, layer.bt, update_address(update.optimizer), update.hyper
        )

    def top_k(
        self, A: np.ndarray, layer: Layer | CompactLayer, k: int, floor: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return labels int32 (n, k) and logits float32 (n, k), best first; of equal logits, the smaller label first.

        In bfloat16, a few more than k labels are ranked, and then scored again in float32. If fewer than k labels
        are found, as for k > L, or as labels are below `floor` (`Device.top_k`), labels -1 and logits -inf follow.
        """
        return search.top_k(self, A, layer, k, floor)

    def padded(self, name: str, A: np.ndarray, n_rows: int, n_columns: int) -> np.ndarray:
        """Return A with zeros below and to the right, in the buffer `name`; A itself if it has this shape."""
        if A.shape == (n_rows, n_columns) and A.flags.c_contiguous:
            return A
        padded = self.buffer(name, (n_rows, n_columns))
        padded[: len(A), : A.shape[1]] = A
        padded[len(A) :] = 0
        padded[:, A.shape[1] :] = 0
        return padded

    def run(self, kernel: Kernel, *arguments: Any) -> None:
        """Run a kernel on this device's threads; it must not write read-only arrays."""
        self.run_converted(kernel, *(for_kernels(each) if isinstance(each, np.ndarray) else each for each in arguments))

    def run_converted(self, kernel: Kernel, *arguments: Any) -> None:
        """Run a kernel on arrays that need no `for_kernels`, which takes time for thirty of them."""
        n_threads = self.n_threads if self._has_threads else 1
        if self.most_threads is not None:
            n_threads = min(n_threads, self.most_threads())
        if kernel.threaded is None:
            run_parts(kernel.alone, self.n_threads, arguments, n_threads)
        elif self._has_threads:
            with launch_context():
                if self._launched not in (0, n_threads):
                    self._set_threads(n_threads)
                kernel.threaded(*arguments)
        else:
            kernel.alone(*arguments)

    @property
    def _has_threads(self) -> bool:
        """Whether kernels run on several threads; in a forked process they cannot."""
        return self.n_threads > 1 and not FORKED_FROM_THREADS.is_set()


def cpu_of(device: Device, n_threads: int) -> CPU:
    """Return a CPU for operations that only a CPU has: this device if it is one, else one of `n_threads` threads."""
    return device if isinstance(device, CPU) else CPU(n_threads)


def _row_weights(targets: Targets, loss: Loss, n_rows: int) -> np.ndarray:
    """Return weights and targets of the rows, and zeros, float32 (3, n_rows); all 0 beyond the batch."""
    weights = np.zeros((3, n_rows), np.float32)
    scales, target = weights[:2, : len(targets.rows)]
    if loss.normalized:
        target[:], scales[:] = targets.of_softmax()
    else:
        target[:], scales[:] = 1, targets.scale
    return weights


def _positives(targets: Targets) -> np.ndarray:
    """Return the batch's (label, row) pairs as sorted keys, int64."""
    Y, rows, _ = targets
    of_row = np.repeat(np.arange(len(rows)), Y.indptr[rows + 1] - Y.indptr[rows])
    keys: np.ndarray = (Y.columns_of(rows).astype(np.int64) << 32) + of_row
    keys.sort(kind="stable")  # merges the rows: with a million labels in one, quicksort took 3 s, this takes 0.6 ms
    return keys
