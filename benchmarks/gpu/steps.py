"""Whole training steps on shapes of public data sets: rows a second, the host's part, and the time of every kernel."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from xmlsgd.data.csr import CSR, Dataset, pointers
from xmlsgd.devices.base import Targets
from xmlsgd.devices.cuda import CUDA
from xmlsgd.devices.cuda.chunks import CHUNK_BYTES
from xmlsgd.nn.losses import find_loss
from xmlsgd.nn.network import Network, state_layout
from xmlsgd.nn.optimizers import get_optimizer

from .target import Target
from .traffic import operations, traffic

CASES = (("softmax", "sgd"), ("bce", "sgd"), ("bce", "adam"))
RANDOM, SPREAD = 999_983, np.float32(0.05)  # of first weights: how many differ, and their standard deviation
POOL = 32  # batches of rows that steps take in turn: more than a level-2 cache holds


@dataclass(frozen=True)
class Shape:
    """Sizes of a step: random rows as sparse as those of the data set, features and labels by Zipf's law."""

    name: str
    n_features: int
    n_labels: int
    nnz: int
    labels: int
    hidden: int
    batch: int

    @cached_property
    def dataset(self) -> Dataset:
        """Return the rows."""
        rng = np.random.default_rng(0)
        n = POOL * self.batch
        return Dataset(_rows(rng, n, self.n_features, self.nnz), _rows(rng, n, self.n_labels, self.labels))


def shapes(target: Target) -> list[Shape]:
    """Return the shapes that are measured, the most telling first."""
    if target.shim:
        return [Shape("tiny", 200, 300, 8, 3, 24, 16)]
    amazon, delicious = ("Amazon-670K", 135_909, 670_091, 76, 6), ("Delicious-200K", 782_585, 205_443, 302, 75)
    sizes = [
        (amazon, 128, 1024),
        (amazon, 512, 1024),
        (("small", 40_000, 20_000, 20, 4), 64, 64),  # launches take longer than what they do
        (delicious, 128, 1024),
        (delicious, 512, 1024),
        (amazon, 128, 256),
    ]
    return [Shape(*data, hidden, batch) for data, hidden, batch in sizes]


class Stepper:
    """Steps of one network on one device."""

    def __init__(self, device: CUDA, shape: Shape, loss: str, optimizer: str) -> None:
        self.device, self.shape, self.rule = device, shape, get_optimizer(optimizer)
        self.network = Network(shape.n_features, shape.n_labels, (shape.hidden,), loss)
        # The same random numbers over and over; zeros, as an output layer begins with, are multiplied faster.
        some = np.random.default_rng(0).standard_normal(RANDOM, dtype=np.float32) * SPREAD
        flat = np.resize(some, self.network.layout.size)
        states = state_layout(self.network.layout, self.rule)
        with device.start():
            device.load_kernels([find_loss(loss)], deep=False, dropout=False, rounding=False)
            self.layers = self.network.layers(
                device.to_device(flat), states.views(device.to_device(np.zeros(states.size, np.float32))),
                device.to_device(np.zeros((1, 1), np.float32)),
            )  # fmt: skip
        entries, one_chunk = shape.dataset.X.nnz + shape.dataset.Y.nnz, CHUNK_BYTES
        if loss == "softmax":  # which keeps the exponentials of all labels
            one_chunk = max(shape.batch * shape.n_labels * device.runtime.operand.itemsize, CHUNK_BYTES)
        self.least_bytes = 4 * (self.network.layout.size + states.size) + 8 * entries + one_chunk
        self._scale = np.full(shape.batch, 1 / shape.batch, np.float32)
        self.steps = 0

    def step(self) -> None:
        """Enqueue one step."""
        first = self.steps % POOL * self.shape.batch
        self.steps += 1
        rows = np.arange(first, first + self.shape.batch)
        update = self.rule.update(0.01, self.steps)
        data = self.shape.dataset
        targets = Targets(data.Y, rows, self._scale)
        self.network.step(self.device, self.layers, data.X, targets, update, 0)

    def rate(self, seconds: float) -> dict[str, float]:
        """Return steps a second over about `seconds`, and the seconds that the host takes to enqueue one."""
        stream = self.device.runtime.stream
        with self.device.start():
            for _ in range(3):  # before the clock starts
                self.step()
            stream.synchronize()
            begun, n, host = time.perf_counter(), 0, 0.0
            while time.perf_counter() - begun < seconds or n < 2:
                enqueued = time.perf_counter()
                for _ in range(4):  # few enough that the host never waits for a pinned slot
                    self.step()
                    n += 1
                host += time.perf_counter() - enqueued
                stream.synchronize()
            taken = time.perf_counter() - begun
        return {
            "steps_per_second": n / taken,
            "rows_per_second": n * self.shape.batch / taken,
            "host_seconds": host / n,
        }

    def kernels(self, n_steps: int) -> dict[str, dict[str, float]]:
        """Return the seconds, launches, bytes and floating-point operations of each kernel in a step.

        Seconds are those between events around each launch, on the stream that it is on. Bytes are those of `traffic`,
        operations those of matrix products.
        """
        run, events = self.device.runtime, list[tuple[str, tuple[float, float], Any, Any]]()
        launch, gemm, sort, cuda = run.launch, run.gemm, run.sort, run.cupy.cuda
        gemm_parts, gemm_rows = run.gemm_parts, run.gemm_rows
        entries = self.shape.dataset.X.nnz / POOL

        def timed(name: str, call: Callable[[], None], n_bytes: float, count: float) -> None:
            stream = cuda.get_current_stream()
            before, after = cuda.Event(), cuda.Event()
            before.record(stream)
            call()
            after.record(stream)
            events.append((name, (n_bytes, count), before, after))

        def timed_launch(name: str, blocks: Any, *arguments: Any, **options: Any) -> None:
            named = dict(zip((one.name for one in run.parameters[name]), arguments, strict=True))
            work = traffic(name, named, entries), operations(name, named)
            timed(name, lambda: launch(name, blocks, *arguments, **options), *work)

        def timed_gemm(A: Any, B: Any, C: Any, **options: Any) -> None:
            k = A.shape[0] if options.get("ta") else A.shape[1]
            kind = "gemm into W" if options.get("ta") else "gemm logits" if options.get("tb") else "gemm dA"
            read_too = options.get("beta", 0.0) != 0.0 or "scalars" in options
            n_bytes = A.nbytes + B.nbytes + (1 + read_too) * C.nbytes
            timed(kind, lambda: gemm(A, B, C, **options), n_bytes, 2.0 * C.shape[0] * C.shape[1] * k)

        def timed_batched(kind: str, A: Any, B: Any, C_bytes: float, call: Callable[[], None]) -> None:
            del run.gemm  # which it calls for the last part
            timed(kind, call, A.nbytes + B.nbytes + C_bytes, 2.0 * A.shape[0] * A.shape[1] * B.shape[1])
            run.gemm = timed_gemm  # type: ignore[method-assign, assignment]

        def timed_parts(A: Any, B: Any, size: int, C: Any, beta: float = 0.0) -> None:
            timed_batched("gemm dA", A, B, C.nbytes, lambda: gemm_parts(A, B, size, C, beta))

        def timed_rows(A: Any, B: Any, size: int, C: Any, scalars: Any) -> None:
            C_bytes = (1 + (scalars.host[1] != 0)) * C.nbytes
            timed_batched("gemm into W", A, B, C_bytes, lambda: gemm_rows(A, B, size, C, scalars))

        def timed_sort(keys: Any) -> None:
            timed("sort", lambda: sort(keys), 0.0, 0.0)

        with self.device.start():
            self.step()
            run.launch, run.gemm = timed_launch, timed_gemm  # type: ignore[method-assign, assignment]
            run.gemm_parts, run.gemm_rows, run.sort = timed_parts, timed_rows, timed_sort  # type: ignore[method-assign]
            try:
                for _ in range(n_steps):
                    self.step()
            finally:
                del run.launch, run.gemm, run.gemm_parts, run.gemm_rows, run.sort
            run.stream.synchronize()
        found: dict[str, dict[str, float]] = {}
        for name, work, before, after in events:
            entry = found.setdefault(name, dict.fromkeys(("seconds", "launches", "bytes", "operations"), 0.0))
            entry["seconds"] += cuda.get_elapsed_time(before, after) / 1e3 / n_steps
            entry["launches"] += 1 / n_steps
            entry["bytes"] += work[0] / n_steps
            entry["operations"] += work[1] / n_steps
        return found


def steps(target: Target) -> Iterator[list[dict[str, Any]]]:
    """Yield the rates so far: softmax by SGD, BCE by SGD and Adam."""
    results = []
    for shape in shapes(target):
        for loss, optimizer in CASES:
            found = _tried(lambda: _rate(target, shape, loss, optimizer))  # noqa: B023  called at once
            named = {"loss": loss, "optimizer": optimizer}
            results.append({"shape": _named(shape), **named, **found})
            yield results


def _tried(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what is measured, or why it is not: a shape that does not fit must not cost the others."""
    try:
        return measure()
    except Exception as error:  # noqa: BLE001  told in the result
        return {"failure": f"{type(error).__name__}: {error}".partition("\n")[0]}


def _rate(target: Target, shape: Shape, loss: str, optimizer: str) -> dict[str, float]:
    """Return the rate of a shape, and what memory it takes over what it must."""
    device = target.device()
    pool = device.runtime.cupy.get_default_memory_pool()
    gc.collect()  # the devices before
    pool.free_all_blocks()
    stepper = Stepper(device, shape, loss, optimizer)
    found = stepper.rate(0.05 if target.shim else 1.2)
    return {**found, "memory_share": pool.total_bytes() / stepper.least_bytes}


def kernels(target: Target) -> Iterator[list[dict[str, Any]]]:
    """Yield the kernels of a step so far: softmax by SGD and BCE by Adam."""
    results = []
    for shape in shapes(target)[:2]:
        for loss, optimizer in (("softmax", "sgd"), ("bce", "adam")):
            stepper = Stepper(target.device(), shape, loss, optimizer)
            found = stepper.kernels(1 if target.shim else 10)
            named = {"shape": _named(shape), "loss": loss, "optimizer": optimizer}
            results.append({**named, "kernels": found})
            yield results


def _named(shape: Shape) -> dict[str, Any]:
    return {"name": shape.name, "hidden": shape.hidden, "batch": shape.batch, "labels": shape.n_labels}


def _rows(rng: np.random.Generator, n: int, n_cols: int, per_row: int) -> CSR:
    """Return n rows of about `per_row` entries, distinct and ascending, drawn by Zipf's law over shuffled columns."""
    draws = np.exp(rng.random((n, per_row)) * np.log(n_cols)).astype(np.int64) - 1
    columns = np.sort(rng.permutation(n_cols)[np.minimum(draws, n_cols - 1)], axis=1).astype(np.int32)
    first = np.ones((n, per_row), bool)
    first[:, 1:] = columns[:, 1:] != columns[:, :-1]
    indptr = pointers(first.sum(axis=1))
    data = (1 + rng.random(int(indptr[-1]), dtype=np.float32)) / np.float32(np.sqrt(per_row))
    return CSR(indptr.astype(np.int64), columns[first], data, n_cols)
