"""The identity of a run: only the run that wrote a checkpoint may resume from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...algorithms.base import Algorithm
from ...data.csr import Dataset
from ...nn.schedules import Schedule
from ..callbacks import Callback
from ..job import Job
from .reader import callback_names

PACKAGE = Path(__file__).parents[2]
# The beginnings of paths of sources that decide what a step learns.
SOURCES = ("algorithms/", "data/random_streams.py", "devices/", "nn/", "training/")
VERSION, DATA, EVALUATED, MODEL, SEED = "xmlsgd", "data", "Evaluation.rows", "initial model", "seed"
OF_ROWS = {DATA, EVALUATED, "network.input_scale"}  # another seed holds other rows out
NONE = "none"
# How to describe a setting that is a checksum or drawn at random, if it differs.
SUMS = {
    SEED: "another seed (random_state)",
    DATA: "other rows, labels or weights",
    MODEL: "another initial model",
    EVALUATED: "other rows to evaluate on",
}
# Names of settings in error messages: most are parameters of the estimator.
PARAMETERS = {
    VERSION: "xmlsgd (version, checksum of sources)",
    "network.hidden": "hidden_layer_sizes",
    "network.loss": "loss",
    "network.hidden_dropout": "hidden_dropout",
    "optimizer.weight_decay": "weight_decay",
    "optimizer.clip_norm": "clip_norm",
    "schedule.epochs": "max_epochs",
    "schedule.kind": "learning_rate",
    "schedule.warm_up": "warm_up",
    "batch": "batch_size",
    "learning_rate": "learning_rate_init",
    "EarlyStopping.metric": "early_stopping",
    "EarlyStopping.patience": "n_epochs_no_change",
    "EarlyStopping.tol": "tol",
}


def identity(job: Job, algorithm: Algorithm, schedule: Schedule, callbacks: Sequence[Callback]) -> dict[str, str]:
    """Return the settings that identify a run, by name; workers and devices may change.

    A setting that is no field of these parts comes in by `settings` of the callback that has it, or as a field of `Job`
    and a line here.
    """
    parts = {"network": job.network, "optimizer": job.optimizer, "sampler": job.sampler, "schedule": schedule}
    found: dict[str, str] = {}
    for name, part in parts.items():
        found |= {name: type(part).__name__} | _as_text(name, vars(part))
    found.pop("network.gradient_rounding", None)  # depends on the device, and does not change the mean of gradients
    for name, callback in zip(callback_names(callbacks), callbacks, strict=True):
        found |= _as_text(name, callback.settings())
    found |= {"batch": _text(algorithm.batch), "learning_rate": _text(algorithm.learning_rate), SEED: _text(job.seed)}
    found[VERSION] = f"{__version__} ({source_checksum()})"
    found[DATA] = checksum_of_rows(job.dataset, job.sample_weight)
    if job.start and job.start.epochs:
        found[MODEL] = _checksum(job.start.params, job.start.state)
    return found


def source_checksum(package: Path = PACKAGE) -> str:
    """Return a checksum of `SOURCES`, so that a run is not resumed under other code."""
    files = (file for file in sorted(package.rglob("*.*")) if file.suffix in (".py", ".cu"))
    of_steps = [file.read_bytes() for file in files if file.relative_to(package).as_posix().startswith(SOURCES)]
    return hashlib.sha256(b"".join(of_steps)).hexdigest()[:12]


def checksum_of_rows(dataset: Dataset, weight: np.ndarray | None = None) -> str:
    """Return the SHA-256 of rows, labels and weights."""
    X, Y = dataset.X, dataset.Y
    return _checksum(X.indptr, X.indices, X.data, Y.indptr, Y.indices, Y.data, weight)


def _checksum(*arrays: np.ndarray | None) -> str:
    """Return the SHA-256 of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return digest.hexdigest()


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe how two runs differ; return "" if they are the same."""
    changes = []
    of_seed = OF_ROWS if before.get(SEED) != now.get(SEED) else set()
    for name in sorted((before.keys() | now.keys()) - of_seed):
        part = name.partition(".")[0]
        class_differs = part != name and before.get(part) != now.get(part)  # which is reported instead of its fields
        if before.get(name) != now.get(name) and not class_differs:
            change = f"{PARAMETERS.get(name, name)} was {before.get(name, NONE)}, is {now.get(name, NONE)}"
            changes.append(SUMS.get(name, change))
    return "; ".join(changes)


def _as_text(part: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the public values as text, named "part.name"."""
    return {f"{part}.{name}": _text(value) for name, value in values.items() if not name.startswith("_")}


def _text(value: Any) -> str:
    """Return a value as text, the same for 2 and 2.0."""
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)
