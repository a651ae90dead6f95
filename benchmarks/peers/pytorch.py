"""PyTorch: the same network as ours, EmbeddingBag -> ReLU -> Linear -> BCEWithLogits, with Adam.

PyTorch gets its best: a variant is a choice of precision, of gradients for the input layer (dense, or sparse with
SparseAdam) and of compiled or eager execution; Adam is the fused one; batches are slices of a matrix that was permuted
once an epoch; the target buffer is reused, only its ones are written and cleared; denormals are flushed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch

from .runner import BATCH, HIDDEN, K, Problem, Runner, arguments, main, step_rates, versions

PREDICT_BATCH = 1024  # 100 MB of float32 logits at 25,000 labels
PACKAGES = ("torch", "numpy", "scipy")


@dataclass(frozen=True)
class Variant:
    """How PyTorch runs the step: bf16 autocast or fp32, sparse or dense input gradients, compiled or eager."""

    bf16: bool = False
    sparse: bool = True
    compiled: bool = False


VARIANTS = {
    f"{precision}-{gradients}{suffix}": Variant(precision == "bf16", gradients == "sparse", bool(suffix))
    for precision in ("fp32", "bf16")
    for gradients in ("dense", "sparse")
    for suffix in ("", "-compiled")
}


class Network(torch.nn.Module):
    """One hidden layer over sparse rows; logits out."""

    def __init__(self, n_features: int, label_priors: np.ndarray, variant: Variant, hidden: int) -> None:
        """Draw the input layer, start the output layer at zero weights and the labels' log odds, as ours does."""
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(
            n_features, hidden, mode="sum", include_last_offset=True, sparse=variant.sparse
        )
        torch.nn.init.normal_(self.bag.weight, std=0.3)
        self.bias = torch.nn.Parameter(torch.zeros(hidden))
        self.output = torch.nn.Linear(hidden, len(label_priors))
        torch.nn.init.zeros_(self.output.weight)
        with torch.no_grad():
            self.output.bias.copy_(torch.from_numpy(np.log(label_priors / (1 - label_priors)).astype(np.float32)))

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return logits (B, L)."""
        return self.head(self.bag(indices, offsets, per_sample_weights=values))

    def head(self, summed: torch.Tensor) -> torch.Tensor:
        """Return logits (B, L) from the summed embeddings (B, H)."""
        return self.output(torch.relu(summed + self.bias))


def bag_inputs(X: sp.csr_matrix, rows: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return indices, offsets and values of a span of rows, as views of the matrix."""
    start, stop = X.indptr[rows.start], X.indptr[rows.stop]
    offsets = torch.from_numpy(X.indptr[rows.start : rows.stop + 1] - start)
    return torch.from_numpy(X.indices[start:stop]), offsets, torch.from_numpy(X.data[start:stop])


class Trainer:
    """The network, its optimizers and the reused target of one run."""

    def __init__(self, problem: Problem, variant: Variant, learning_rate: float, hidden: int = HIDDEN) -> None:
        """Build everything that a step needs."""
        torch.manual_seed(problem.seed)
        torch.set_flush_denormal(True)
        torch.set_num_threads(problem.threads)
        self.problem = problem
        self.variant = variant
        counts = np.asarray(problem.Y.sum(axis=0)).ravel()
        self.network = Network(problem.X.shape[1], np.clip(counts / problem.X.shape[0], 1e-5, 0.5), variant, hidden)
        self.target = torch.zeros(BATCH, problem.Y.shape[1])
        self.optimizers = self._optimizers(learning_rate)
        self.initial_rate = learning_rate
        self.head_loss = torch.compile(self._head_loss) if variant.compiled else self._head_loss

    def _optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        network = self.network
        if not self.variant.sparse:
            return [torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)]
        rest = [network.bias, *network.output.parameters()]
        return [
            torch.optim.SparseAdam([network.bag.weight], lr=learning_rate),
            torch.optim.Adam(rest, lr=learning_rate, fused=True),
        ]

    def _head_loss(self, summed: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        # Summed over labels: the mean over B x L would bring the gradients down to Adam's epsilon.
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.network.head(summed), target, reduction="sum")
        return loss / BATCH

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the forward pass runs."""
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.variant.bf16 else contextlib.nullcontext()

    def step(self, X: sp.csr_matrix, Y: sp.csr_matrix, rows: slice) -> None:
        """Train on a span of at most BATCH rows of X and Y."""
        labels = torch.from_numpy(Y.indices[Y.indptr[rows.start] : Y.indptr[rows.stop]].astype(np.int64))
        lengths = torch.from_numpy(np.diff(Y.indptr[rows.start : rows.stop + 1]).astype(np.int64))
        ones = (torch.repeat_interleave(torch.arange(len(lengths)), lengths), labels)
        target = self.target[: len(lengths)]
        target[ones] = 1.0
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            indices, offsets, values = bag_inputs(X, rows)
            loss = self.head_loss(self.network.bag(indices, offsets, per_sample_weights=values), target)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        target[ones] = 0.0

    def steps(self, epoch: int) -> Iterator[float]:
        """Yield the seconds of every step of an epoch after the permutation, the last short batch included."""
        order = np.random.default_rng((self.problem.seed, epoch)).permutation(self.problem.X.shape[0])
        X, Y = self.problem.X[order], self.problem.Y[order]
        for start in range(0, X.shape[0], BATCH):
            begin = time.perf_counter()
            self.step(X, Y, slice(start, min(start + BATCH, X.shape[0])))
            yield time.perf_counter() - begin

    def set_rate(self, fraction: float) -> None:
        """Set the learning rate to a fraction of the initial one."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.initial_rate * fraction


class PyTorch(Runner):
    """Whole training runs, for the accuracy table."""

    packages = PACKAGES
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"variant": "bf16-sparse", "epochs": 8, "learning_rate": 4e-3},
        "compiled": {"variant": "bf16-sparse-compiled", "epochs": 8, "learning_rate": 4e-3},
        "fp32": {"variant": "fp32-sparse", "epochs": 8, "learning_rate": 4e-3},
    }

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Train for the given epochs while the rate falls linearly to zero."""
        trainer = Trainer(problem, VARIANTS[parameters["variant"]], parameters["learning_rate"])
        total = parameters["epochs"] * -(-problem.X.shape[0] // BATCH)
        done = 0
        for epoch in range(parameters["epochs"]):
            for _ in trainer.steps(epoch):
                done += 1
                trainer.set_rate(1 - done / total)
        self.trainer = trainer

    def save(self, folder: Path) -> None:
        """Write the state dictionary."""
        torch.save(self.trainer.network.state_dict(), folder / "network.pt")

    def use_one_thread(self) -> None:
        """Ask for one thread."""
        torch.set_num_threads(1)

    @torch.inference_mode()
    def predict(self, X: sp.csr_matrix) -> np.ndarray:
        """Return the best K labels, batch by batch."""
        out = np.empty((X.shape[0], K), np.int32)
        for start in range(0, X.shape[0], PREDICT_BATCH):
            rows = slice(start, min(start + PREDICT_BATCH, X.shape[0]))
            with self.trainer.autocast():
                logits = self.trainer.network(*bag_inputs(X, rows))
            out[rows] = torch.topk(logits, K, dim=1).indices.numpy()
        return out


def throughput(problem: Problem, variant: str, warm_up: int, steps: int, hidden: int) -> dict[str, Any]:
    """Return rows per second of one variant over `steps` full batches after `warm_up` batches."""
    trainer = Trainer(problem, VARIANTS[variant], 4e-3, hidden)
    seconds: list[float] = []
    epoch = 0
    while len(seconds) < warm_up + steps:
        seconds += itertools.islice(trainer.steps(epoch), warm_up + steps - len(seconds))
        epoch += 1
    timing = step_rates(seconds[:warm_up], seconds[warm_up:], BATCH)
    return {"variant": variant, "threads": problem.threads, **timing, "versions": versions(PACKAGES)}


def main_throughput() -> None:
    """Measure variants from the command line: `--max-steps N [--variant NAME ...] [--hidden N]`."""
    parser = arguments(PyTorch.settings)
    parser.add_argument("--max-steps", type=int, required=True, help="steps to time")
    parser.add_argument("--warm-up-steps", type=int, default=8)
    parser.add_argument("--variant", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--hidden", type=int, default=HIDDEN, help="hidden units")
    args = parser.parse_args()
    problem = Problem.read(args.folder, args.threads, args.random_state)
    results = [
        throughput(problem, variant, args.warm_up_steps, args.max_steps, args.hidden) for variant in args.variant
    ]
    args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main_throughput() if "--max-steps" in sys.argv else main(PyTorch())
