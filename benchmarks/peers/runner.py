"""What the runners share: read the prepared data, time training and top-5 prediction, write one JSON.

A runner imports nothing but NumPy, SciPy and its peer, since it runs in the peer's environment. The numbers of threads
are set by whoever starts it (`benchmarks.launch`), before any library is loaded.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

K = 5
HIDDEN = BATCH = 256  # of networks that are trained without an estimator
WARM_UP_ROWS = 64
PASSES = 3  # of prediction; fewer where one takes long
PASS_SECONDS = 60.0  # no further pass once they took this long
MORE_K = (20, 100)  # labels of a row that are asked for, beside K
SINGLE_ROWS, SINGLE_WARM_UP = 1000, 50  # asked one by one, and before the clock counts
SINGLE_SECONDS = 10.0  # no further row once they took this long


@dataclass(frozen=True)
class Problem:
    """A prepared data set: X (n, F) float32 CSR with int32 indices, Y (n, L) CSR of ones, and the same rows as text."""

    folder: Path
    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix
    threads: int
    seed: int

    @classmethod
    def read(cls, folder: Path, threads: int, seed: int) -> Problem:
        """Read what `benchmarks.prepare` wrote into `folder`."""
        names = ("X.trn", "Y.trn", "X.tst", "Y.tst")
        X, Y, X_test, Y_test = (sp.csr_matrix(sp.load_npz(folder / f"{name}.npz")) for name in names)
        return cls(folder, X, Y, X_test, Y_test, threads, seed)


class Runner(ABC):
    """A peer: its settings by name, and how it trains, saves and predicts."""

    packages: tuple[str, ...] = ()  # distributions whose versions the result carries
    settings: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    def load(self, problem: Problem) -> None:  # noqa: B027 (most peers take matrices and have nothing to load)
        """Read the peer's own file form; timed apart as `load_seconds`."""

    @abstractmethod
    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Train; `scratch` is an empty folder for what the peer writes meanwhile."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model into the empty `folder`, where it is weighed."""

    def serve(self, problem: Problem, folder: Path) -> None:  # noqa: B027 (most peers predict with what they trained)
        """Bring the saved model into the peer's fastest form for prediction; not timed."""

    @abstractmethod
    def predict(self, X: sp.csr_matrix) -> Any:
        """Return the best K labels of every row, in whatever form the peer gives them."""

    def predict_more(self, X: sp.csr_matrix, k: int) -> Any:
        """Return the best k labels of every row, None where a peer is not asked for other k."""
        return None

    def use_one_thread(self) -> None:  # noqa: B027 (some peers have one thread only, or one for each row)
        """Predict on one thread from now on, as is fastest for single rows."""

    def ranking(self, predicted: Any) -> np.ndarray:
        """Return `predicted` as (n, K) int32, best first, -1 where there are fewer; not timed."""
        return pad(predicted)

    def extra(self) -> dict[str, Any]:
        """Return more entries for the result."""
        return {}


def row_slices(X: sp.csr_matrix) -> list[slice]:
    """Return for every row where its entries lie."""
    return [slice(*span) for span in itertools.pairwise(X.indptr.tolist())]


def pad(rows: Any) -> np.ndarray:
    """Return lists of label ids as (n, K) int32, filled up with -1."""
    out = np.full((len(rows), K), -1, np.int32)
    for i, labels in enumerate(rows):
        labels = list(labels)[:K]
        out[i, : len(labels)] = labels
    return out


def rank_csr(scores: sp.csr_matrix) -> np.ndarray:
    """Return the columns of the K largest entries of every row, (n, K) int32, best first, filled up with -1."""
    scores = scores.tocsr()
    return pad([scores.indices[row][np.argsort(-scores.data[row], kind="stable")[:K]] for row in row_slices(scores)])


def peak_memory_bytes() -> int:
    """Return the largest resident size of this process so far.

    Linux's VmHWM, because ru_maxrss keeps the size of the parent from before exec; elsewhere ru_maxrss, 0 without it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def timed(call: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Return the result of a call and its seconds."""
    start = time.perf_counter()
    result = call(*args)
    return result, time.perf_counter() - start


def step_rates(before: list[float], seconds: list[float], batch: int) -> dict[str, Any]:
    """Return the rows a second of training steps of `batch` rows, given the seconds of each and of those before."""
    return {
        "steps": len(seconds),
        "rows_per_second": batch * len(seconds) / sum(seconds),
        "median_step_seconds": statistics.median(seconds),
        "warm_up_seconds": sum(before),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def predict_passes(runner: Runner, X: sp.csr_matrix) -> tuple[Any, list[float]]:
    """Return the prediction and the seconds of each of up to PASSES passes."""
    passes: list[float] = []
    while not passes or (len(passes) < PASSES and sum(passes) < PASS_SECONDS):
        predicted, seconds = timed(runner.predict, X)
        passes.append(seconds)
    return predicted, passes


def seconds_by_k(runner: Runner, X: sp.csr_matrix) -> dict[int, float]:
    """Return the seconds of a pass for each k of MORE_K, for runners that are asked for other k."""
    found = {}
    for k in MORE_K:
        if runner.predict_more(X[:WARM_UP_ROWS], k) is not None:
            found[k] = timed(runner.predict_more, X, k)[1]
    return found


def single_rows(runner: Runner, X: sp.csr_matrix) -> list[float]:
    """Return the seconds of each of the first rows, asked one by one on one thread; cutting them out is not timed."""
    runner.use_one_thread()
    rows = [X[i] for i in range(min(X.shape[0], SINGLE_ROWS))]
    for row in rows[:SINGLE_WARM_UP]:
        runner.predict(row)
    seconds: list[float] = []
    for row in rows:
        seconds.append(timed(runner.predict, row)[1])
        if sum(seconds) > SINGLE_SECONDS:
            break
    return seconds


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of Python and of the installed distributions."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def measure(runner: Runner, problem: Problem, setting: str, scratch: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Return the measurements of one run and its ranking of the test rows."""
    for name in ("work", "model"):
        (scratch / name).mkdir()
    idle = peak_memory_bytes()
    _, load_seconds = timed(runner.load, problem)
    _, train_seconds = timed(runner.train, problem, runner.settings[setting], scratch / "work")
    train_peak = peak_memory_bytes()
    runner.save(scratch / "model")
    runner.serve(problem, scratch / "model")
    runner.predict(problem.X_test[:WARM_UP_ROWS])
    predicted, passes = predict_passes(runner, problem.X_test)
    by_k = seconds_by_k(runner, problem.X_test)
    ranking, singles = runner.ranking(predicted), single_rows(runner, problem.X_test)
    result = {
        "setting": setting,
        "parameters": runner.settings[setting],
        "threads": problem.threads,
        "load_seconds": load_seconds,
        "train_seconds": train_seconds,
        "predict_seconds": statistics.median(passes),
        "predict_passes": passes,
        "predict_seconds_by_k": by_k,
        "single_row_seconds": statistics.median(singles),
        "single_row_seconds_90": float(np.quantile(singles, 0.9)),
        "single_rows": len(singles),
        "train_rows": problem.X.shape[0],
        "test_rows": problem.X_test.shape[0],
        "idle_memory_bytes": idle,
        "peak_memory_bytes": train_peak,
        "model_bytes": folder_bytes(scratch / "model"),
        "versions": versions(runner.packages),
        **runner.extra(),
    }
    return result, ranking


def arguments(settings: dict[str, dict[str, Any]]) -> argparse.ArgumentParser:
    """Return the command line of a runner."""
    parser = argparse.ArgumentParser(
        description="Run one peer on prepared data; meant to be started by the benchmarks."
    )
    parser.add_argument("folder", type=Path, help="what benchmarks.prepare wrote")
    parser.add_argument("--out", type=Path, required=True, help="JSON file; the ranking lands beside it as .npy")
    parser.add_argument("--setting", choices=sorted(settings), default="default")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--random-state", type=int, default=0)
    return parser


def main(runner: Runner, args: argparse.Namespace | None = None) -> None:
    """Run a peer from the command line, or with arguments that were read already."""
    args = args or arguments(runner.settings).parse_args()
    problem = Problem.read(args.folder, args.threads, args.random_state)
    scratch = Path(tempfile.mkdtemp(dir=args.out.parent, prefix="scratch-"))
    try:
        result, ranking = measure(runner, problem, args.setting, scratch)
    finally:
        shutil.rmtree(scratch)
    np.save(args.out.with_suffix(".npy"), ranking)
    args.out.write_text(json.dumps(result, indent=1))
