"""xmlsgd: XMLClassifier in the running interpreter.

Kernels are loaded, or compiled where no cache has them, before anything is timed: `load_seconds` says how long that
took. The first run of all is measured apart, by `benchmarks.compilation`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

import xmlsgd
from xmlsgd.cli.models import template_of
from xmlsgd.cli.training_runs import compile_kernels
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats.store import open_store
from xmlsgd.estimators.defaults import auto_rounding
from xmlsgd.estimators.workers import make_device
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.parameters import zeros
from xmlsgd.training.job import Job
from xmlsgd.training.learner import Learner
from xmlsgd.training.messages import Span

from .runner import BATCH, HIDDEN, K, Problem, Runner, arguments, main, peak_memory_bytes, step_rates, timed, versions

RATE = 4e-3
PACKAGES = ("numba", "numpy", "scipy", "scikit-learn")
EXACT = "-exact"  # ends the name of a variant whose gradients are not rounded
VARIANTS = ("bfloat16", f"bfloat16{EXACT}", "float32", f"float32{EXACT}")


class Ours(Runner):
    """The classifier as it comes; parameters from the command line override those of the setting.

    `compact` predicts with the model that it saved compact and mapped, `n_estimators` makes an ensemble.
    """

    packages = PACKAGES
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "float32": {"precision": "float32"},
        "fast": {"hidden_layer_sizes": [32], "max_epochs": 2, "candidates": 32},
        "network": {"candidates": 0},
        "compact": {"compact": True},
        "compact-network": {"compact": True, "candidates": 0},
        "accurate": {"hidden_layer_sizes": [256], "max_epochs": 15, "hidden_dropout": 0.5, "n_estimators": 3},
    }

    def __init__(self, given: dict[str, Any]) -> None:
        """Take parameters that go before those of the settings."""
        chosen = {name: {**parameters, **given} for name, parameters in type(self).settings.items()}
        self.settings = chosen  # type: ignore[misc]
        self.given = given

    def load(self, problem: Problem) -> None:
        """Load or compile the kernels of all settings."""
        for setting in self.settings.values():
            parameters = {name: value for name, value in setting.items() if name not in ("compact", "n_estimators")}
            compile_kernels({"n_jobs": problem.threads, **parameters}, problem.Y.shape[1])

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Fit."""
        parameters = dict(parameters)
        self.compact = bool(parameters.pop("compact", False))
        several = parameters.pop("n_estimators", 1)
        single = xmlsgd.XMLClassifier(n_jobs=problem.threads, random_state=problem.seed, **parameters)
        self.model = single if several == 1 else xmlsgd.XMLEnsemble(single, several, random_state=problem.seed)
        self.model.fit(problem.X, problem.Y)

    def save(self, folder: Path) -> None:
        """Write the model as `XMLClassifier.save` does."""
        self.model.save(folder / "model", compact=self.compact)

    def serve(self, problem: Problem, folder: Path) -> None:
        """Map the compact model."""
        if self.compact:
            self.model = xmlsgd.load_model(folder / "model")

    def use_one_thread(self) -> None:
        """Ask for one thread."""
        template_of(self.model).set_params(n_jobs=1)

    def predict(self, X: sp.csr_matrix) -> np.ndarray:
        """Return the best K labels: of the candidates, or of all labels without them."""
        labels: np.ndarray = self.model.predict_topk(X, K)[0]
        return labels

    def predict_more(self, X: sp.csr_matrix, k: int) -> np.ndarray:
        """Return the best k labels."""
        labels: np.ndarray = self.model.predict_topk(X, k)[0]
        return labels

    def extra(self) -> dict[str, Any]:
        """Return the version and the epochs that ran."""
        return {"xmlsgd": xmlsgd.__version__, "epochs": self.model.n_epochs_}


def throughput(problem: Problem, variant: str, warm_up: int, steps: int) -> dict[str, Any]:
    """Return rows per second over `steps` full batches after `warm_up` batches."""
    dataset = Dataset(CSR.from_scipy(problem.X), CSR.from_scipy(problem.Y))
    precision = variant.removesuffix(EXACT)
    rounding = 0.0 if variant.endswith(EXACT) else auto_rounding(dataset.n_labels, "bce", Adam(), ["cpu"])
    network = Network(dataset.n_features, dataset.n_labels, (HIDDEN,), gradient_rounding=rounding)
    device = make_device("cpu", problem.threads, precision)
    flat = zeros(network.layout.size)
    network.initialize(flat, dataset.Y, problem.seed)
    learner = Learner(Job(dataset, network, Adam(), problem.seed), device, flat)
    seconds = []
    with device.start():
        for i in range(warm_up + steps):
            epoch, at = divmod(i, dataset.n_rows // BATCH)
            span = Span(0, epoch, at * BATCH, (at + 1) * BATCH, RATE)
            start = time.perf_counter()
            learner.train_span(span)
            seconds.append(time.perf_counter() - start)
    timing = step_rates(seconds[:warm_up], seconds[warm_up:], BATCH)
    return {
        "variant": variant,
        "gradient_rounding": rounding,
        "threads": problem.threads,
        **timing,
        "versions": versions(PACKAGES),
    }


def memory(store: Path, threads: int, seed: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the peak resident bytes of `fit` on an opened store, beside what it must hold."""
    dataset = open_store(store)
    model = xmlsgd.XMLClassifier(n_jobs=threads, random_state=seed, **parameters)
    idle = peak_memory_bytes()
    _, seconds = timed(model.fit, dataset.X, dataset.Y)
    peak = peak_memory_bytes()
    parts = model.estimate_memory(dataset.X, dataset.Y)
    arrays = [part for matrix in (dataset.X, dataset.Y) for part in (matrix.indptr, matrix.indices, matrix.data)]
    return {
        "peak_memory_bytes": peak,
        "idle_memory_bytes": idle,
        "parameters_bytes": parts["parameters"],
        "optimizer_state_bytes": parts["optimizer_state"],
        "candidates_bytes": parts["candidates"],
        "data_bytes": sum(array.nbytes for array in arrays if array.strides != (0,)),  # all labels share one value
        "estimate_bytes": parts["total"],
        "train_seconds": seconds,
        "parameters": parameters,
        "versions": versions(PACKAGES),
    }


def main_ours() -> None:
    """Run the classifier, or measure steps (`--max-steps N`), or memory (`--memory`), from the command line."""
    parser = arguments(Ours.settings)
    parser.add_argument("--parameters", type=json.loads, default={}, help="of XMLClassifier, as JSON")
    parser.add_argument("--max-steps", type=int, default=0, help="steps to time")
    parser.add_argument("--warm-up-steps", type=int, default=8)
    parser.add_argument("--variant", nargs="*", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--memory", action="store_true", help="of training on the store")
    args = parser.parse_args()
    if args.memory:
        result = memory(args.folder / "train", args.threads, args.random_state, args.parameters)
        args.out.write_text(json.dumps(result, indent=1))
    elif args.max_steps:
        measure_steps(args)
    else:
        main(Ours(args.parameters), args)


def measure_steps(args: argparse.Namespace) -> None:
    """Write the throughput of each variant."""
    problem = Problem.read(args.folder, args.threads, args.random_state)
    results = [throughput(problem, variant, args.warm_up_steps, args.max_steps) for variant in args.variant]
    args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main_ours()
