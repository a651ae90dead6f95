"""Compile the kernels of a run before its timed part: what `compile` and the commands that train share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data.files.reading import DISK_FULL
from ..data.files.temporary import temporary_folder

# Parameters that decide which kernels a run uses.
RELEVANT = ("loss", "optimizer", "devices", "precision", "n_jobs", "gradient_rounding", "hidden_dropout")
MANY_LABELS = 1 << 20


def compile_kernels(parameters: dict[str, Any], n_labels: int = MANY_LABELS, compact: bool = True) -> None:
    """Compile or load all kernels of training and prediction, by training, saving, loading and predicting a few rows.

    The timed part of a run is then free of compilation. With several workers, one of each kind is run in this process,
    so that the workers find their kernels in the cache; and one with all threads, by which candidates are trained.

    Parameters
    ----------
    parameters
        Parameters of the estimator.
    n_labels
        Number of labels, which decides whether gradients may be sparsified.
    compact
        Whether to compile the kernels of compact models, too, whose arrays have other types.
    """
    from ..data.synthetic import make_xmc
    from ..estimators import XMLClassifier
    from ..estimators.defaults import ROUNDED_LABELS
    from ..estimators.placement import parse_devices, thread_count, workers_of

    parameters = {name: value for name, value in parameters.items() if name in RELEVANT}
    devices = parameters.get("devices", "cpu")
    if len(parse_devices(devices)) > 1:
        n_threads = thread_count(parameters.get("n_jobs"))
        alone = {(worker.name, worker.n_threads) for worker in workers_of(devices, n_threads)}
        for name, threads in sorted({*alone, ("cpu", n_threads)}):
            compile_kernels({**parameters, "devices": name, "n_jobs": threads}, n_labels, compact)
        return

    few = make_xmc(1000, 48, min(max(n_labels, 16), ROUNDED_LABELS), nnz_per_row=5, labels_per_row=2)
    small = {"hidden_layer_sizes": (32,), "candidates": 8, "max_epochs": 1, "batch_size": 256, "verbose": 0}
    model = XMLClassifier(**{**parameters, **small}).fit(few.X, few.Y, eval_set=(few.X, few.Y))
    try:
        with temporary_folder() as folder:
            for as_compact in (False, True) if compact else (False,):
                model.save(Path(folder, "model"), compact=as_compact)
                loaded = XMLClassifier.load(Path(folder, "model")).set_params(n_jobs=model.n_jobs)
                for X in (few.X, few.X.span(0, 1)):  # a single row has kernels for one thread
                    loaded.predict_topk(X)
                    loaded.decision_function(X)
                loaded.load_kernels(few.X)  # rows with few candidates, too
                loaded.explain(few.X.span(0, 1), k=1)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise  # on a full disk, kernels are compiled later; the run itself may need no temporary files
