"""The training plan: every decision of a run, made before it (`planning.make_plan`), with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..algorithms.base import Algorithm
from ..data.held_out import HeldOutSize
from ..devices.base import Device
from ..nn.network import Network
from ..nn.optimizers import Optimizer
from ..nn.samplers import Sampler
from ..nn.schedules import Schedule
from .placement import Worker, algorithm_of, make_device


@dataclass(frozen=True)
class Decision:
    """What was decided about a run, and why."""

    name: str
    value: str | float | None
    reason: str


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """How a run goes; `str` of it is a table of decisions, their values and reasons.

    n_candidates : labels per row, 0 for the network alone. concurrent_candidates : whether they are learned while the
    network is trained. held_out_size : how many rows are held out, in each fold. n_folds : of rows, each scored by a
    temporary model that has not learned it, while the model learns all rows; 0 where the model leaves out the only one.
    algorithm : as given, "auto" until the speeds of several workers are measured. precision : as given where not all
    workers are CPUs.
    """

    network: Network
    optimizer: Optimizer
    schedule: Schedule
    learning_rate: float
    batch_size: int
    sampler: Sampler
    n_candidates: int
    concurrent_candidates: bool
    held_out_size: HeldOutSize
    n_folds: int
    algorithm: str | Algorithm
    workers: tuple[Worker, ...]
    n_threads: int
    precision: str
    early_stopping: bool
    n_epochs_no_change: int
    tol: float
    verbose: bool
    decisions: tuple[Decision, ...]

    def __str__(self) -> str:
        rows = [("decision", "value", "reason"), *((d.name, str(d.value), d.reason) for d in self.decisions)]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {reason}" for name, value, reason in rows)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return {decision: {"value": ..., "reason": ...}}, ready for JSON."""
        return {d.name: {"value": d.value, "reason": d.reason} for d in self.decisions}

    def new_device(self) -> Device:
        """Return the first worker's device, with all threads: it trains where it is the only one, and measures."""
        return make_device(self.workers[0].name, self.n_threads, self.precision)

    def equal_algorithm(self) -> Algorithm:
        """Return the algorithm of all workers, before any is excluded; `DataError` for options that do not fit."""
        return algorithm_of(self.algorithm, self.batch_size, 1.0, list(self.workers))
