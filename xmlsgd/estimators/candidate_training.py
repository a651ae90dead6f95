"""Candidates, learned while the network is trained: only their stacking needs it."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from ..candidates.fitting import CandidateRows, Unstacked, fit_stacked, fit_unstacked
from ..devices.cpu import CPU, cpu_of
from ..devices.cpu.threads import start_layer
from ..metrics import precision_at_k
from .inference import Scorer
from .inference.candidates import CandidateScorer, pair_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates import CandidateModel, HeldOutScores
    from ..devices.base import Device
    from .plan import TrainingPlan
    from .training_data import TrainingData

REFIT_SHARE = 0.04  # of the rows: where more are held out, classifiers miss them
COMPARED_ROWS, WORSE = 256, 1.1  # held-out rows that show whether candidates rank worse, and by which factor


class CandidateTraining:
    """Learns the candidates of a run; leaving the context ends what is not done.

    If the plan says so, all that needs no network begins at once, on a thread of its own, which uses as many threads as
    the network: while those of the one wait for each other, the other's run. The model is the same to the bit.
    """

    def __init__(self, plan: TrainingPlan, data: TrainingData, held_out: NDArray[np.intp]) -> None:
        self._plan, self._data, self._held_out = plan, data, held_out
        self._stopped = threading.Event()
        self._found: Future[Unstacked] | None = None
        if plan.concurrent_candidates:
            self._found = Future()
            start_layer()  # two Python threads must not do so at once
            # A daemon: a process that ends does not wait for it.
            threading.Thread(target=self._run, args=(self._found,), name="candidates", daemon=True).start()

    def __enter__(self) -> CandidateTraining:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()

    def _run(self, found: Future[Unstacked]) -> None:
        try:
            found.set_result(self._fit(_StoppableCPU(self._plan.n_threads, self._stopped)))
        except BaseException as error:  # noqa: BLE001  `finish` raises it
            found.set_exception(error)

    def _fit(self, cpu: CPU) -> Unstacked:
        plan, data = self._plan, self._data
        weight = np.ones(data.dataset.n_rows, np.float32) if data.weight is None else data.weight
        refit = plan.stacking == "thorough" or len(self._held_out) > REFIT_SHARE * data.n_rows
        rows = CandidateRows(
            data.dataset, weight, self._held_out, plan.n_candidates, refit, data.groups is not None, data.n_label_rows
        )
        return fit_unstacked(rows, cpu)

    def finish(self, device: Device, params: NDArray[np.float32]) -> tuple[CandidateModel, HeldOutScores | None]:
        """Return the candidates beside a network with these parameters, and the scores of the held-out rows."""
        network, data, held_out = self._plan.network, self._data, self._held_out
        cpu, alone = cpu_of(device, self._plan.n_threads), Scorer(network, params, device)
        found, self._found = self._found, None
        unstacked = self._fit(cpu) if found is None else found.result()
        model, scores = fit_stacked(unstacked, pair_scores(alone, cpu), cpu)
        _warn_of_useless(alone, CandidateScorer(network, params, device, model, cpu), data, held_out[:COMPARED_ROWS])
        return model, scores


class _StoppableCPU(CPU):
    """A CPU that starts no kernel any more once it is stopped."""

    def __init__(self, n_threads: int, stopped: threading.Event) -> None:
        super().__init__(n_threads)
        self._stopped = stopped

    def call(self, kernel: Any, *arguments: Any) -> None:
        if self._stopped.is_set():
            raise RuntimeError("stopped")
        super().call(kernel, *arguments)


def _warn_of_useless(alone: Scorer, stacked: Scorer, data: TrainingData, held_out: NDArray[np.intp]) -> None:
    """Warn where the network alone ranks a tenth more true labels of these rows among the best five."""
    X, Y = data.dataset.X.take(held_out), data.dataset.Y.take(held_out)
    k = min(5, Y.n_cols)
    if not len(held_out):
        return
    without, found = (precision_at_k(Y, scorer.top_k(X, k)[0], k)[-1] for scorer in (alone, stacked))
    if without > WORSE * found:
        warnings.warn(
            f"candidates: P@{k} of {len(held_out)} held-out rows is {100 * found:.1f} % with candidates and "
            f"{100 * without:.1f} % by the network alone; nearest rows say little here: pass candidates=0",
            stacklevel=4,
        )
