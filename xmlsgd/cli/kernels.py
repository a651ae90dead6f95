"""Kernels are compiled at their first use and cached on disk: here that is done ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data.files import NO_ROOM, scratch_folder

# Parameters that choose the kernels of a run.
CHOOSING = ("loss", "optimizer", "devices", "precision", "n_jobs", "gradient_rounding", "hidden_dropout")
MANY_LABELS = 1 << 20


def prepare_kernels(parameters: dict[str, Any], n_labels: int = MANY_LABELS) -> None:
    """Compile or load the kernels of a training run with these parameters of the estimator.

    The clock of the run must not count that: it is about a second where the kernels are cached, a minute else.
    """
    compile_kernels({name: value for name, value in parameters.items() if name in CHOOSING}, n_labels)


def compile_kernels(parameters: dict[str, Any], n_labels: int = MANY_LABELS) -> None:
    """Compile what training, saving, loading and prediction need, by running each on a few rows.

    Of several workers by one of each kind, in this process: they find the kernels in the cache; and with all threads,
    as a shortlist is learned after them. The rows are enough for
    a blend to be learned, the labels for gradients to be rounded where they are of `n_labels`.
    """
    from ..data.synthetic import make_xmc
    from ..estimators import XMLClassifier
    from ..estimators.defaults import ROUNDED_LABELS
    from ..estimators.placement import parse_devices, workers_of
    from ..estimators.threads import thread_count

    devices = parameters.get("devices", "cpu")
    if len(parse_devices(devices)) > 1:
        n_threads = thread_count(parameters.get("n_jobs"))
        alone = {(worker.name, worker.n_threads) for worker in workers_of(devices, n_threads)}
        for name, threads in sorted({*alone, ("cpu", n_threads)}):
            compile_kernels({**parameters, "devices": name, "n_jobs": threads}, n_labels)
        return

    few = make_xmc(1000, 48, min(max(n_labels, 16), ROUNDED_LABELS), nnz_per_row=5, labels_per_row=2)
    small = {"hidden_layer_sizes": (32,), "candidates": 8, "max_epochs": 1, "batch_size": 256, "verbose": 0}
    small["stacking"] = "logistic"  # the same kernels, and trees are not learned from so few rows
    model = XMLClassifier(**{**parameters, **small}).fit(few.X, few.Y, eval_set=(few.X, few.Y))
    try:
        with scratch_folder() as folder:
            for compact in (False, True):
                model.save(Path(folder, "model"), compact=compact)
                loaded = XMLClassifier.load(Path(folder, "model"))
                for X in (few.X, few.X.span(0, 1)):  # a row by itself has kernels of one thread
                    loaded.predict_topk(X)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise  # else what is loaded compiles its kernels when it is; the run itself may need no temporary files
