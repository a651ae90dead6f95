"""A GPU: parameters and data in its memory, kernels of the folder `kernels`, other matrix products by cuBLAS.

CuPy is imported when a device is made, never before. The kernels' order of summation is fixed, so that two runs on one
kind of GPU give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from ...data.csr import CSR
from ...data.validation import check_choice
from ...errors import DataError
from ...nn.losses import Loss
from ...nn.optimizers import CLIP, Update
from ..base import EXACT, PRECISIONS, Device, Dropout, Layer, Rounding, Targets
from .availability import check_gpu, runtime_of
from .batches import BatchLoader, DeviceRows
from .binary import ROWS_PER_PART, BinaryLossStep
from .chunks import CHUNK_BYTES
from .hopper import HopperSoftmaxStep
from .runtime import SHARED_LIMIT, THREADS, TILE, WARP, Runtime, blocks_of
from .softmax import SoftmaxStep
from .tensor_cores import TensorCoreSoftmaxStep
from .top_k import TopK
from .updates import update_biases, update_rows


class CUDA(Device):
    """The GPU number `index`.

    Parameters
    ----------
    n_threads : int
        Not used; every device takes it.
    precision : {"auto", "float32", "bfloat16"}
        Of the operands of the output layer's matrix products; sums, weights and optimizer state are float32. "auto" is
        bfloat16 where the GPU multiplies it.
    index : int
        Number of the GPU.
    runtime : Runtime, optional
        Stands in for a GPU in tests.
    chunk_bytes : int
        About how much memory a chunk of labels takes in the output layer.

    Raises
    ------
    DataError
        Where CuPy, cuBLAS, a driver or the GPU is missing, or the GPU lacks the precision.
    """

    memory = "cuda"  # with the index of the GPU in an instance

    def __init__(
        self, n_threads: int = 1, precision: str = "auto", index: int = 0, runtime: Runtime | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:  # fmt: skip
        check_choice("precision", precision, PRECISIONS)
        self.n_threads, self.runtime = n_threads, runtime or runtime_of(index, precision)
        self.memory = f"cuda:{self.runtime.index}"
        self.bfloat16 = self.runtime.bfloat16
        self._loader = BatchLoader(self.runtime)
        self._binary, self._top_k = BinaryLossStep(self.runtime, chunk_bytes), TopK(self.runtime, chunk_bytes)
        bfloat16_step = HopperSoftmaxStep if self.runtime.hopper else TensorCoreSoftmaxStep
        self._softmax = (bfloat16_step if self.bfloat16 else SoftmaxStep)(self.runtime, chunk_bytes)

    @classmethod
    def at(cls, index: int) -> Callable[..., CUDA]:
        """Return a function that makes the device of GPU `index`; raise `DataError` if there is no such GPU."""
        check_gpu(index)
        return partial(cls, index=index)

    def with_own_stream(self) -> CUDA:
        """Return another device on this GPU, with its own stream and buffers."""
        run = self.runtime
        precision = "bfloat16" if self.bfloat16 else "float32"
        return CUDA(runtime=Runtime(run.cupy, run.cublas, run.index, precision, run.driver))

    def start(self) -> AbstractContextManager[None]:
        """Return the context in which one Python thread at a time calls the operations."""
        return self.runtime.start()

    def to_device(self, flat: np.ndarray) -> Any:
        """Return a copy of an array in the GPU's memory."""
        with self.runtime.current():
            return self.runtime.to_device(flat)

    def copy_to_device(self, placed: Any, flat: np.ndarray) -> None:
        """Copy `flat` over what `to_device` returned."""
        with self.runtime.current():
            self.runtime.copy_to_device(placed, flat)

    def to_host(self, placed: Any, flat: np.ndarray | None = None) -> np.ndarray:
        """Copy an array of the GPU over `flat`, contiguous, or to a new one."""
        with self.runtime.current():
            return self.runtime.to_host(placed, flat)

    def read_later(self, value: Any) -> Callable[[], float]:
        """Return a function that waits until a number on the GPU is computed, not for later work, and returns it."""
        return self.runtime.read_later(value)

    def input_forward(self, X: CSR, rows: np.ndarray, layer: Layer) -> Any:
        """Return A (B, H) = relu(X[rows] W + b)."""
        batch, H = self._loader.batch(X, rows, "X"), layer.W.shape[1]
        A = self.runtime.empty((batch.n, H))
        self.runtime.launch(
            "input_forward", (blocks_of(batch.n, THREADS // WARP), blocks_of(H, TILE)), *batch[:3], layer.W, layer.b,
            batch.n, H, A,
        )  # fmt: skip
        return A

    def dense_forward(self, A: Any, layer: Layer) -> Any:
        """Return relu(A W^T + b)."""
        out = self.runtime.empty((len(A), len(layer.b)))
        self.runtime.gemm(A, layer.W, out, tb=True)
        self.runtime.launch("bias_relu", blocks_of(out.size), out, layer.b, out.size, len(layer.b))
        return out

    def through_relu(self, dA: Any, A: Any, factor: float) -> Any:
        """Return `factor` dA where A > 0, and 0 elsewhere, in the array dA."""
        self.runtime.launch("through_relu", blocks_of(A.size), dA, A, A.size, factor)
        return dA

    def drop(self, A: Any, dropout: Dropout) -> None:
        """Apply dropout to A in place."""
        seed, threshold, factor = dropout.seed & 0xFFFFFFFF, int(dropout.threshold), float(dropout.factor)
        self.runtime.launch("drop", blocks_of(A.size), A, A.size, seed, threshold, factor)

    def output_step(
        self, A: Any, targets: Targets, layer: Layer, loss: Loss, update: Update, rounding: Rounding = EXACT
    ) -> tuple[Any, Any]:
        """Update the output layer on one batch; return the loss, weighed by row, float64 () on the GPU, and dA."""
        if rounding.threshold > 0:  # which would save nothing: a GPU is fast at dense products
            raise DataError("gradient_rounding: must be 0 on a GPU, got a threshold above; pass gradient_rounding=0")
        number = loss.on_cuda()  # a loss without CUDA code is refused before anything is uploaded
        labels = self._loader.batch(targets.Y, targets.rows, "Y")
        if loss.normalized:
            value, dA = self._softmax.step(A, labels, targets, layer, update)
        else:
            value, dA = self._binary.step(A, labels, targets.scale, layer, number, update)
        return value[0], dA

    def dense_step(self, A: Any, dZ: Any, layer: Layer, update: Update) -> Any:
        """Update a dense layer given the gradient dZ of its pre-activations; return the gradient of its input A."""
        run, (n, H) = self.runtime, layer.W.shape
        hyper = run.upload("hyper", update.hyper)
        dA, dW = run.empty((len(A), H)), run.buffer("dW", (n, H))
        run.gemm(dZ, layer.W, dA)
        run.gemm(dZ, A, dW, ta=True)
        update_rows(run, layer, dW, update, hyper)
        self._update_biases(dZ, layer, update, hyper)
        return dA

    def input_step(self, X: CSR, rows: np.ndarray, dZ: Any, layer: Layer, update: Update) -> None:
        """Update the rows of W for the features of the batch, and b, given the gradient dZ of the pre-activations."""
        run, H = self.runtime, layer.W.shape[1]
        batch, hyper = self._loader.again(X, rows, "X"), run.upload("hyper", update.hyper, update.for_biases().hyper)
        keys, entry_row, entry_value = self._entries(batch)
        run.wait_for("entries")
        norms = update.optimizer.row_state or update.hyper[CLIP] > 0
        tiles, width = (1, H) if norms else (blocks_of(H, TILE), min(H, TILE))
        warps = min(max(SHARED_LIMIT // (4 * width), 1), THREADS // WARP)
        run.launch(
            "input_update", (blocks_of(len(keys), WARP), tiles), keys, len(keys), entry_row, entry_value, dZ, layer.W,
            layer.Ws, layer.Wt, H, update.kind, hyper, threads=WARP * warps, shared=4 * width * warps,
        )  # fmt: skip
        run.has_read("entries")
        self._update_biases(dZ, layer, update, hyper[len(update.hyper) :])

    def _entries(self, batch: DeviceRows) -> tuple[Any, ...]:
        """Return key int64, row int32 and value float32 of a batch's entries, sorted by key.

        A key is feature * 2^32 + the entry's number in the batch, by which rows and values are ordered. They come
        `ahead("entries")`.
        """
        run, nnz = self.runtime, batch.nnz
        with run.ahead("entries"):
            keys = run.buffer("entry keys", (nnz,), np.int64)
            rows, values = run.buffer("entry rows", (nnz,), np.int32), run.buffer("entry values", (nnz,))
            blocks = blocks_of(batch.n, THREADS // WARP)
            run.launch("entry_keys", blocks, *batch[:3], batch.n, keys, rows, values)
            run.sort(keys)
        return keys, rows, values

    def take(self, layer: Layer, active: np.ndarray) -> Layer:
        """Return a copy of the outputs `active` of a layer; state arrays of one element stay as they are."""
        run, rows = self.runtime, self.runtime.upload("active", active)
        taken = layer._asdict()
        for name, part in zip(Layer._fields, layer, strict=True):
            if part.shape[0] > 1:
                width = int(part.size // part.shape[0])
                taken[name] = out = run.buffer(f"active {name}", (len(active), *part.shape[1:]))
                run.launch("gather_rows", blocks_of(len(active), THREADS // WARP), part, rows, len(active), width, out)
        return Layer(**taken)

    def put(self, part: Layer, layer: Layer, active: np.ndarray) -> None:
        """Write `part`, from `take`, back to the outputs `active` of a layer."""
        run, rows = self.runtime, self.runtime.upload("active", active)
        for new, old in zip(part, layer, strict=True):
            if new is not old:
                width = int(old.size // old.shape[0])
                run.launch("scatter_rows", blocks_of(len(active), THREADS // WARP), new, rows, len(active), width, old)

    def top_k(self, A: Any, layer: Layer, k: int, floor: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return labels int32 (n, k) and logits float32 (n, k), best first, ties to the smaller label."""
        return self._top_k.top_k(A, layer, k)

    def _update_biases(self, dZ: Any, layer: Layer, update: Update, hyper: Any) -> None:
        """Update the biases of a layer by the sums of dZ (B, H) over its rows."""
        run, (B, H) = self.runtime, dZ.shape
        parts = blocks_of(B, ROWS_PER_PART)
        partial = run.buffer("partial", (parts, H))
        run.launch("column_sums", (blocks_of(H), parts), dZ, B, H, ROWS_PER_PART, partial)
        update_biases(run, layer, partial, update, hyper)
