"""From a task to a trained model: how long a run goes, who watches it, how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms.base import Algorithm
from ..errors import DataError, shorten
from ..nn.samplers import ALL_LABELS, Sampler, find_sampler
from ..nn.schedules import Schedule
from ..training.averaging import WeightAverage
from ..training.callbacks import Callback, EarlyStopping, Evaluation
from ..training.checkpoints import Checkpoint, checksum_of_rows
from ..training.learner import Job
from ..training.loop import train
from ..training.progress_bar import ProgressBar
from ..training.rollback import LastGoodModel
from ..training.runs import Run, add_hint
from .defaults import auto_epochs, auto_rate
from .inference import Measure
from .parameters import optimizer_of
from .placement import algorithm_of, employed, executor_of, make_device, names_of_excluded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..nn.optimizers import Optimizer
    from ..training.learner import Start
    from .classifier import XMLClassifier
    from .task import Task


LARGE_WEIGHT = 100.0  # of a row, which may be why a run diverges


def check_callbacks(callbacks: Any) -> None:
    """Raise `DataError` unless `callbacks` is a list of `Callback`."""
    listed = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    strange = [callback for callback in listed if not isinstance(callback, Callback)]
    if strange or listed is not callbacks:
        raise DataError(f"callbacks: must be a list of Callback objects, got {shorten((strange or listed)[0])}")


def as_checkpoint(given: Any) -> Checkpoint | None:
    """Return the checkpoint that an argument means, which may be a path."""
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


@dataclass(frozen=True, eq=False)
class Plan:
    """How a run goes: how long and at which rate, who watches it besides, where it keeps what it has learned."""

    schedule: Schedule
    callbacks: Sequence[Callback] = ()
    checkpoint: Checkpoint | None = None


def launch(model: XMLClassifier, task: Task, start: Start, plan: Plan) -> Run:
    """Train from `start`, whose arrays change in place, and return the run."""
    device, rate = task.device, rate_of(model, task.optimizer)
    job = Job(task.dataset, task.network, task.optimizer, model._seed, task.weight, start, sampler_of(model, task))
    workers, speeds = employed(model.algorithm, job, task.workers, model.precision, task.batch)
    if workers[0].name != task.workers[0].name:
        device = make_device(workers[0].name, workers[0].n_threads, model.precision)
    algorithm = algorithm_of(model.algorithm, task.batch, rate, workers, lambda: speeds)
    executor = executor_of(workers, device, model.precision)
    measure = Measure(task.held_out, task.network, device) if task.held_out else None
    snapshot, progress = LastGoodModel(), ProgressBar() if model.verbose else None
    try:
        watching = _callbacks(model, measure, snapshot, _deciding_rows(model, task, plan))
        watching += [*([progress] if progress else []), *plan.callbacks]
        with device.start():
            return train(job, algorithm, executor, plan.schedule, watching, plan.checkpoint)
    except BaseException as error:
        if excluded := names_of_excluded(task.workers, workers):
            add_hint(error, f"{excluded} was excluded, with no process to stand in; go on with it alone in devices")
        raise
    finally:
        snapshot.close()
        if progress:
            progress.close()


def sampler_of(model: XMLClassifier, task: Task) -> Sampler:
    """Return what chooses the labels of a batch."""
    if task.n_negatives is None:
        return ALL_LABELS
    return find_sampler("uniform" if model.sampler == "auto" else model.sampler).of(task.n_negatives)


def schedule_of(model: XMLClassifier, task: Task) -> Schedule:
    """Return the schedule of a whole `fit`."""
    listed = task.shortlist_size > 0
    epochs = auto_epochs(task.n_rows, task.batch, listed) if model.max_epochs == "auto" else int(model.max_epochs)
    return Schedule(epochs, model.learning_rate, model.warm_up)


def rate_of(model: XMLClassifier, optimizer: Optimizer) -> float:
    """Return the initial learning rate."""
    if isinstance(model.algorithm, Algorithm):
        return model.algorithm.learning_rate
    return auto_rate(optimizer) if model.learning_rate_init == "auto" else float(model.learning_rate_init)


def advice(model: XMLClassifier, weight: np.ndarray | None, epoch: int) -> str:
    """Return what to do about a loss that was not finite in `epoch` (from 1); weight : float32 (n,) of the rows."""
    rate = rate_of(model, optimizer_of(model))
    at, remedy = f"at learning_rate_init={rate:g}", f"a lower one ({rate / 10:g})"
    if weight is not None and weight.max() > LARGE_WEIGHT:
        at, remedy = f"{at} and weights of rows up to {weight.max():g}", "weights around 1, a lower rate"
    return f"the loss was not finite in epoch {epoch} {at}; pass {remedy}, clip_norm=1.0, or scale X (rows of norm 1)"


def _deciding_rows(model: XMLClassifier, task: Task, plan: Plan) -> str:
    """Return what tells the rows that decide when a run with a checkpoint stops from others, "" where none do."""
    decide = plan.checkpoint and model.early_stopping and task.held_out
    return checksum_of_rows(task.held_out) if decide and task.held_out else ""


def _callbacks(model: XMLClassifier, measure: Measure | None, snapshot: LastGoodModel, rows: str) -> list[Callback]:
    """Return those who watch a run, in the order in which they change its records and its model."""
    watching: list[Callback] = []
    average = WeightAverage(model.average_weights) if model.average_weights else None
    if average:
        watching.append(average)
    if measure:
        # Averaged weights are what the run will end with, so they are what is measured.
        watching.append(
            Evaluation(lambda c: measure(c if average is None or average.mean is None else average.mean), rows)
        )
    if measure and model.early_stopping:
        watching.append(EarlyStopping("P@1", int(model.n_epochs_no_change), 100 * model.tol, snapshot))
    return watching
