"""The training plan: every decision of a run with its reason, made before the run (`planning.make_plan`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..algorithms.base import Algorithm
from ..data.csr import Dataset
from ..data.held_out import HeldOutSize
from ..devices.base import Device
from ..nn.network import Network
from ..nn.optimizers import Optimizer
from ..nn.samplers import Sampler
from ..nn.schedules import Schedule
from ..training.job import Job, Start
from .inputs import FeatureSpace
from .workers import Worker, make_device


@dataclass(frozen=True)
class Decision:
    """A decision: its name, the chosen value and the reason."""

    name: str
    value: str | float
    reason: str


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """The training plan; `str` returns a table of its decisions with their reasons.

    Attributes
    ----------
    network, optimizer, schedule, sampler : parts of training.
    learning_rate, batch_size : peak learning rate, and rows of a batch.
    n_candidates : candidate labels per training row by votes; 0 for the network alone.
    features : how the model transforms rows.
    concurrent_candidates : whether candidates are learned while the network is trained.
    held_out_size : how many rows are held out, in each fold.
    n_folds : number of folds, each scored by a network that has not learned it.
    n_temporary_networks : how many of these networks are not kept.
    algorithm : how the workers train together; a run trains by a copy, which keeps its state.
    workers, n_threads : the workers, and the threads that those on the CPU share; each has at least one.
    n_candidate_threads : threads that learn candidates, all that `n_jobs` allows.
    precision : precision of matrix products; as given unless all workers are CPUs.
    early_stopping, n_epochs_no_change, tol, verbose : parameters of the estimator.
    decisions : the decisions with their reasons.
    """

    network: Network
    optimizer: Optimizer
    schedule: Schedule
    learning_rate: float
    batch_size: int
    sampler: Sampler
    n_candidates: int
    features: FeatureSpace
    concurrent_candidates: bool
    held_out_size: HeldOutSize
    n_folds: int
    n_temporary_networks: int
    algorithm: Algorithm
    workers: tuple[Worker, ...]
    n_threads: int
    n_candidate_threads: int
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
        """Return {decision: {"value": ..., "reason": ...}}, for JSON."""
        return {d.name: {"value": d.value, "reason": d.reason} for d in self.decisions}

    def new_device(self) -> Device:
        """Return a new device of the first worker with all threads, for evaluation and for training by one worker."""
        return make_device(self.workers[0].name, self.n_threads, self.precision)

    def job(self, dataset: Dataset, seed: int, weight: NDArray[Any] | None = None, start: Start | None = None) -> Job:
        """Return the job of training on these rows; weight : their sample weights, float32 (n,)."""
        return Job(dataset, self.network, self.optimizer, seed, weight, start, self.sampler)
