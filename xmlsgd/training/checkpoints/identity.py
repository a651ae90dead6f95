"""The identity of a run: only the run that wrote a checkpoint may resume from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import __version__
from ...algorithms.base import Algorithm
from ...data.csr import Dataset
from ...nn.schedules import Schedule
from ..callbacks import Callback
from ..learner import Job
from .reader import callback_names

# Checksums are shown by these names where they differ.
DATA, MODEL = "checksum of rows, labels and weights", "checksum of the initial model"
NONE = "none"


def identity(job: Job, algorithm: Algorithm, schedule: Schedule, callbacks: Sequence[Callback]) -> dict[str, str]:
    """Return the settings that identify a run, by name; workers and devices may change."""
    parts = {"network": job.network, "optimizer": job.optimizer, "sampler": job.sampler, "schedule": schedule}
    found: dict[str, str] = {}
    for name, part in parts.items():
        found |= {name: type(part).__name__} | _as_text(name, vars(part))
    found.pop("network.gradient_rounding", None)  # depends on the device, and does not change the mean of gradients
    for name, callback in zip(callback_names(callbacks), callbacks, strict=True):
        found |= _as_text(name, callback.settings())
    found |= _as_text("", {"batch": algorithm.batch, "learning_rate": algorithm.learning_rate, "seed": job.seed})
    found["xmlsgd"] = __version__
    found[DATA] = checksum_of_rows(job.dataset, job.sample_weight)
    if job.start and job.start.epochs:
        found[MODEL] = _checksum(job.start.params, job.start.state)
    return found


def checksum_of_rows(dataset: Dataset, weight: np.ndarray | None = None) -> str:
    """Return a checksum of rows, labels and weights."""
    X, Y = dataset.X, dataset.Y
    return _checksum(X.indptr, X.indices, X.data, Y.indptr, Y.indices, Y.data, weight)


def _checksum(*arrays: np.ndarray | None) -> str:
    """Return the first digits of the SHA-256 of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return digest.hexdigest()[:16]


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe how two runs differ; return "" if they are the same."""
    changes = []
    for name in sorted(before.keys() | now.keys()):
        part = name.partition(".")[0]
        of_others = part != name and before.get(part) != now.get(part)  # fields of a part that is of another class
        if before.get(name) != now.get(name) and not of_others:
            changes.append(f"{name} was {before.get(name, NONE)}, is {now.get(name, NONE)}")
    return "; ".join(changes)


def _as_text(part: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the public values as text, by names that begin with the name of their part."""
    begins = f"{part}." if part else ""
    return {f"{begins}{name}": _text(value) for name, value in values.items() if not name.startswith("_")}


def _text(value: Any) -> str:
    """Return a value as text, the same for 2 and 2.0."""
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)
