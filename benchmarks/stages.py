"""One run of the default estimator, timed stage by stage and kernel by kernel: the process that `scaling` starts.

Functions are timed where the estimator calls them, by replacing them in this process. It loads the rows and kernels,
fits a part of the rows, and then waits for a line on its standard input, so that a run's preparation disturbs no other.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WARM_UP_ROWS = 8192
K = 5
LAUNCHES, PAUSES = 200, (0.0, 2e-4, 2e-3)  # launches of threads, and seconds of one thread's work between them


@dataclass
class Stages:
    """Seconds and calls of functions, by name and by the Python thread that called them."""

    spent: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0]))

    def add(self, name: str, seconds: float) -> None:
        """Count a call."""
        own = "candidates" if threading.current_thread().name == "candidates" else "main"
        total = self.spent[own, name]
        total[0] += seconds
        total[1] += 1

    def timed(self, run: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a function that does what `run` does and counts its calls."""

        @functools.wraps(run)
        def call(*given: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return run(*given, **options)
            finally:
                self.add(name, time.perf_counter() - started)

        return call

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        """Time a function of a module, or a method."""
        found = vars(owner)[attribute]
        is_of_class = isinstance(found, classmethod)
        timed = self.timed(found.__func__ if is_of_class else found, name)
        setattr(owner, attribute, classmethod(timed) if is_of_class else timed)  # type: ignore[arg-type]

    def told(self) -> list[dict[str, Any]]:
        """Return what was counted, the longest first."""
        rows = sorted(self.spent.items(), key=lambda item: -item[1][0])
        return [
            {"thread": own, "name": name, "seconds": round(seconds, 4), "calls": int(calls)}
            for (own, name), (seconds, calls) in rows
        ]


def watch_stages(stages: Stages) -> None:
    """Time the stages of `fit`; an indented name is part of the one above it."""
    from xmlsgd.candidates import boosted_trees, cooccurrence, fitting, knn, stacking, stacking_training
    from xmlsgd.devices.cpu.device import CPU
    from xmlsgd.estimators import candidate_training
    from xmlsgd.estimators import fitting as whole
    from xmlsgd.nn.network import Network
    from xmlsgd.nn.samplers.uniform import UniformNegatives

    watched: list[tuple[Any, str, str]] = [
        (whole, "initial_start", "first parameters"),
        (whole, "_train", "network"),
        (Network, "step", "network: steps"),
        (CPU, "input_forward", "network: input forward"),
        (UniformNegatives, "draw", "network: draw labels"),
        (CPU, "take", "network: take labels"),
        (CPU, "output_step", "network: output layer"),
        (CPU, "put", "network: put labels"),
        (CPU, "input_step", "network: input step"),
        (candidate_training, "fit_base_models", "candidates"),
        (fitting, "idf_weights", "candidates: idf"),
        (fitting, "unit_rows", "candidates: unit rows"),
        (knn.KNNIndex, "build", "candidates: k-NN index"),
        (fitting, "training_candidates", "candidates: k-NN votes"),
        (fitting, "draw_validation_rows", "candidates: validation rows"),
        (cooccurrence.Cooccurrence, "count", "candidates: co-occurrence"),
        (cooccurrence.Cooccurrence, "candidates", "candidates: co-occurring labels"),
        (fitting, "find_pairs", "candidates: pairs"),
        (fitting, "choose_cost_and_features", "candidates: cost and features"),
        (fitting, "_fit_and_score", "candidates: linear classifiers"),
        (candidate_training.CandidateTraining, "score_fold", "held-out scores"),
        (candidate_training.CandidateTraining, "finish", "stacking"),
        (stacking, "_regression", "stacking: regressions"),
        (boosted_trees.BoostedTrees, "fit_spans", "stacking: trees"),
        (stacking_training, "fit_trees", "stacking: trees and whether they help"),
        (whole, "calibrated", "thresholds"),
    ]
    for owner, attribute, name in watched:
        stages.watch(owner, attribute, name)


def watch_kernels(kernels: Stages) -> None:
    """Time the kernels that run on all threads of a device."""
    from xmlsgd.devices.cpu.device import CPU

    run = CPU.run_converted

    def timed(self: CPU, kernel: Any, *given: Any) -> None:
        started = time.perf_counter()
        try:
            run(self, kernel, *given)
        finally:
            kernels.add(kernel.alone.__name__, time.perf_counter() - started)

    CPU.run_converted = timed  # type: ignore[method-assign]


def launch_seconds(threads: int) -> dict[str, float]:
    """Return the median seconds of a kernel without work, by the seconds of one thread's work before it."""
    import numpy as np

    from xmlsgd.devices.cpu import CPU
    from xmlsgd.devices.cpu.kernels.input_layer import drop

    device, A = CPU(threads), np.ones((threads, 1), np.float32)
    found = {}
    with device.start():
        for pause in PAUSES:
            seconds = []
            for _ in range(LAUNCHES):
                started = time.perf_counter()
                while time.perf_counter() < started + pause:
                    pass
                started = time.perf_counter()
                device.run_converted(drop, A, 0, np.uint32(0), np.float32(1))
                seconds.append(time.perf_counter() - started)
            found[f"{pause:g}"] = float(np.median(seconds))
    return found


def measure(folder: Path, threads: int, devices: str) -> dict[str, Any]:
    """Return the seconds of `fit` and of prediction and their parts, of one run on `threads` threads."""
    started = time.perf_counter()
    from xmlsgd import XMLClassifier
    from xmlsgd.data.cores import usable_cores
    from xmlsgd.metrics import precision_at_k

    from .prepare import train_and_test

    train, test = train_and_test(folder)
    loaded = time.perf_counter()
    few = train.X.span(0, min(train.n_rows, WARM_UP_ROWS)), train.Y.span(0, min(train.n_rows, WARM_UP_ROWS))
    kind = "cuda:0" if "cuda" in devices else "cpu"  # processes that are started for one run do not stay warm
    XMLClassifier(n_jobs=threads, devices=kind, random_state=1).fit(*few).predict_topk(test.X, K)
    launch = launch_seconds(threads) if devices == "cpu" else {}
    stages, kernels = Stages(), Stages()
    watch_stages(stages)
    watch_kernels(kernels)
    warm = time.perf_counter()
    print("ready", flush=True)
    if not sys.stdin.readline():  # whoever started it has ended
        sys.exit("stopped")
    begun, used = time.perf_counter(), time.process_time()
    model = XMLClassifier(n_jobs=threads, devices=devices, random_state=0).fit(train.X, train.Y)
    fit_seconds, processor_seconds = time.perf_counter() - begun, time.process_time() - used
    told = {"stages": stages.told(), "kernels": kernels.told()}
    begun = time.perf_counter()
    ranked, _ = model.predict_topk(test.X, K)
    predict_seconds = time.perf_counter() - begun
    return {
        "threads": threads, "devices": devices, "cores": usable_cores(), "threading_layer": _threading_layer(),
        "load_seconds": loaded - started, "warm_up_seconds": warm - loaded, "fit_seconds": fit_seconds,
        "processor_seconds": processor_seconds, "predict_seconds": predict_seconds, "test_rows": test.n_rows,
        "measures": {f"P@{k}": 100 * float(precision_at_k(test.Y, ranked, K)[k - 1]) for k in (1, 3, 5)},
        "epoch_seconds": [record["seconds"] for record in model.history_], "launch_seconds": launch, **told,
    }  # fmt: skip


def _threading_layer() -> str:
    """Return how Numba launches threads, "none" where it has not."""
    import numba

    try:
        return str(numba.threading_layer())
    except ValueError:
        return "none"


def main() -> None:
    """Measure what the command line asks for, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--cores", type=int, required=True, help="of those that this process may use, the first ones")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # before Numba and the BLAS count cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    args.out.write_text(json.dumps(measure(args.folder, args.threads, args.devices)))


if __name__ == "__main__":
    main()
