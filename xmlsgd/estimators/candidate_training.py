"""Train k-NN index, co-occurrence and linear classifiers while the network is trained; only stacking needs both."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..candidates import CandidateModel, HeldOutScores
from ..candidates.fitting import BaseModels, CandidateRows, fit_base_models, fit_candidate_model
from ..candidates.non_candidates import NonCandidateScores, count_non_candidates
from ..candidates.stacking_training import best_columns
from ..devices.base import Device
from ..devices.cpu import CPU
from ..devices.cpu.threads import start_layer
from ..errors import warn
from ..metrics import precision_at_k
from .inference import Scorer
from .inference.candidate_scorer import logits_of_pairs
from .plan import TrainingPlan
from .training_data import TrainingData

# Most held-out rows of a fold, and most pairs of a row and a label, for which the network scores all labels: to compare
# it with the stacked model, and to learn the scores of labels that are not candidates.
RANKED_ROWS, RANKED_PAIRS = 256, 1 << 26
WORSE = 1.1  # warn if the P@k of the network alone is this many times as high


class ScoredFold(NamedTuple):
    """A fold of held-out rows, scored by models that have not learned them.

    number : number of the fold. rows : row indices, intp (n,). logits : those of their candidates by the network,
    float32 (n, m). best_alone : the labels that the network alone ranks highest for the first rows, int32 (up to
    `RANKED_ROWS`, k). non_candidates : counts of the other labels of these rows, float64 (2, bins)
    (`count_non_candidates`).
    """

    number: int
    rows: NDArray[np.intp]
    logits: NDArray[np.float32]
    best_alone: NDArray[np.int32]
    non_candidates: NDArray[np.float64]


class CandidateTraining:
    """Trains the candidate model of a run, as a context; leaving it stops the training.

    With `plan.concurrent_candidates`, the other base models are trained while the network is, on a Python thread of
    their own. On a CPU, the network uses at most half of the threads, and candidates the others, until one side is
    done: with more, a side would wait for threads whose core the other uses. The model is the same to the bit.

    folds : of held-out rows, which stacking learns from. device : the device that trains the network.
    """

    def __init__(
        self, plan: TrainingPlan, data: TrainingData, folds: Sequence[NDArray[np.intp]], device: Device
    ) -> None:
        self._plan, self._data, self._folds, self._device = plan, data, folds, device
        self._stopped, self._has_network = threading.Event(), threading.Event()
        self._future: Future[BaseModels] = Future()
        self._cpu = _StoppableCPU(plan.n_candidate_threads, self._stopped)

    def __enter__(self) -> CandidateTraining:
        if self._plan.concurrent_candidates:
            start_layer()  # here, as two Python threads must not start it at once
            if isinstance(self._device, CPU):
                n_threads = self._plan.n_candidate_threads
                of_network = min(self._device.n_threads, -(-n_threads // 2))
                self._device.most_threads = lambda: n_threads if self._future.done() else of_network
                self._cpu.most_threads = lambda: n_threads - (0 if self._has_network.is_set() else of_network)
            # A daemon, so that a process that ends does not wait for it.
            threading.Thread(target=self._fit, name="candidates", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        if isinstance(self._device, CPU):
            self._device.most_threads = None

    def _fit(self) -> None:
        data = self._data
        try:
            rows = CandidateRows(
                data.all_rows, data.row_weights, self._folds, self._plan.n_candidates,
                groups=data.groups, n_label_rows=data.n_label_rows,
            )  # fmt: skip
            self._future.set_result(fit_base_models(rows, self._cpu))
        except BaseException as error:  # noqa: BLE001  `_base_models` raises it
            self._future.set_exception(error)

    def _base_models(self) -> BaseModels:
        """Return the base models but for the network, which has been trained; fit them now, or wait for them."""
        self._has_network.set()
        if not self._plan.concurrent_candidates and not self._future.done():
            self._fit()
        return self._future.result()

    def score_fold(self, number: int, device: Device, params: NDArray[np.float32]) -> ScoredFold:
        """Return a fold of held-out rows, scored by the network with these parameters, which has not learned them."""
        held_out, base = self._folds[number], self._base_models()
        X, alone = self._data.all_rows.X.take(held_out), Scorer(self._plan.network, params, device)
        candidates = base.held_out.labels[base.held_out.fold == number]
        logits = logits_of_pairs(alone, self._cpu)(X, candidates)
        n_labels = self._plan.network.n_labels
        ranked = X.span(0, min(X.n_rows, RANKED_ROWS, max(RANKED_PAIRS // n_labels, 1)))
        best_alone, _ = alone.top_k(ranked, max(min(5, n_labels // 2), 1))
        others = count_non_candidates(
            alone.activations(ranked), alone.output.W, alone.output.b, self._data.all_rows.Y.take(held_out),
            candidates, base.frequency[number], np.count_nonzero(base.rows.weight), self._cpu,
        )  # fmt: skip
        return ScoredFold(number, held_out, logits, best_alone, others)

    def finish(self, folds: Sequence[ScoredFold]) -> tuple[CandidateModel, HeldOutScores | None]:
        """Return the candidate model, stacked on the folds of held-out rows, and the scores of these rows."""
        base = self._base_models()
        pairs = base.pairs({fold.number: fold.logits for fold in folds}) if folds else None
        model, scores = fit_candidate_model(base, pairs, self._cpu)
        if scores is not None:
            _warn_if_network_is_better(folds, scores, self._data)
            counts = np.sum([fold.non_candidates for fold in folds], axis=0)
            model = replace(model, non_candidates=NonCandidateScores.fit(counts, model.stacking.regression))
        return model, scores


class _StoppableCPU(CPU):
    """A CPU that refuses to start kernels once it is stopped."""

    def __init__(self, n_threads: int, stopped: threading.Event) -> None:
        super().__init__(n_threads)
        self._stopped = stopped

    def run_converted(self, kernel: Any, *arguments: Any) -> None:
        if self._stopped.is_set():
            raise RuntimeError("stopped")
        super().run_converted(kernel, *arguments)


def _warn_if_network_is_better(folds: Sequence[ScoredFold], scores: HeldOutScores, data: TrainingData) -> None:
    """Warn if the network alone has a P@5 on held-out rows that is a tenth higher than that with candidates.

    With fewer than ten labels, only the best half counts. Rows without candidates are ranked by the network.
    """
    alone = np.concatenate([fold.best_alone for fold in folds])
    first = np.concatenate([np.arange(len(fold.rows)) < len(fold.best_alone) for fold in folds])
    Y, k = data.all_rows.Y.take(np.concatenate([fold.rows for fold in folds])[first]), alone.shape[1]
    listed = scores.labels[first]
    stacked = np.take_along_axis(listed, best_columns(listed, scores.log_odds[first], k), axis=1)
    stacked = np.where((stacked >= 0).any(axis=1, keepdims=True), stacked, alone)
    without, found = (precision_at_k(Y, labels, k)[-1] for labels in (alone, stacked))
    if without > WORSE * found:
        warn(
            f"candidates: P@{k} of {len(alone)} held-out rows is {100 * found:.1f} % with candidates and "
            f"{100 * without:.1f} % by the network alone; pass candidates=0, as nearest rows tell little here"
        )
