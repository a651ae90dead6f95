"""Compile kernels, train a model, measure it and save it: what the commands that train share."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from typing import Any

from ..data.csr import Dataset
from ..data.files.numba_cache import not_kept
from ..data.files.system_errors import DISK_FULL
from ..data.files.temporary import temporary_folder
from ..data.synthetic import make_xmc
from ..errors import MissingPackage, counted, suggest
from ..estimators import Model, XMLClassifier, XMLEnsemble
from ..estimators.defaults import ROUNDED_LABELS
from ..estimators.parameters import check_parameters
from ..estimators.workers import check_devices, parse_devices, thread_count, workers_of
from ..training.callbacks import Callback
from ..training.checkpoints import Checkpoint
from ..training.history import EpochRecord, runs_of
from ..training.progress_bar import ProgressBar
from ..training.trackers import TRACKERS
from ..training.worker_log import advice, describe_choice, summary
from . import model_folder, model_metrics
from .exit_codes import TrainingStopped, UsageError, exit_code_and_text
from .input_warnings import warn_of_workers
from .machine import peak_memory_bytes, versions
from .messages import Console
from .model_folder import Target
from .models import classifiers_of, parameters_of, template_of
from .results import COLUMNS, size_numbers, size_text, table
from .signals import SignalInterrupt, describe_signal, signal_number, signals_deferred
from .sources import Columns, InputRows, first_labels, names_of_rows

# Parameters that decide which kernels a run uses.
KERNEL_PARAMETERS = ("loss", "optimizer", "devices", "precision", "n_jobs", "gradient_rounding", "hidden_dropout")
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
    parameters = {name: value for name, value in parameters.items() if name in KERNEL_PARAMETERS}
    devices = parameters.get("devices", "cpu")
    if len(parse_devices(devices)) > 1:
        n_threads = thread_count(parameters.get("n_jobs"))
        alone = {(worker.name, worker.n_threads) for worker in workers_of(devices, n_threads)}
        for name, threads in sorted({*alone, ("cpu", n_threads)}):
            compile_kernels({**parameters, "devices": name, "n_jobs": threads}, n_labels, compact)
        return

    few = make_xmc(150, 48, min(max(n_labels, 16), ROUNDED_LABELS), nnz_per_row=5, labels_per_row=2)
    small = {"hidden_layer_sizes": (32,), "candidates": 8, "max_epochs": 1, "batch_size": 256, "verbose": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about these rows, which are not the user's
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
            raise
        # On a full disk, kernels are compiled later; the run itself may need no temporary files.
        not_kept.append(f"temporary files: {error.strerror}")


def new_model(parameters: dict[str, Any], n_estimators: int = 1) -> Model:
    """Return the estimator for the flags, checked."""
    model = XMLClassifier(**parameters)
    check_parameters(model)  # raises errors before the data are read, which may take minutes
    check_devices(model.devices)
    warn_of_workers(parse_devices(model.devices))
    model.set_params(verbose=0)  # the command line has its own progress bar
    return model if n_estimators == 1 else XMLEnsemble(model, n_estimators, random_state=model.random_state)


def train_and_save(
    model: Model, rows: InputRows, target: Target, console: Console, trackers: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Train, measure on the test rows, save everything; return the results.

    After Ctrl-C, or an error that leaves a model, save the model as it is and raise an exception that says where.
    """
    compile_kernels(template_of(model).get_params(deep=False), rows.train.n_labels, target.compact)
    started = time.perf_counter()
    target = replace(target, replaces=model_folder.manifest_of(target.out))
    before = getattr(model, "history_", None)
    ending = "ending the run, to save what it has learned ..." if console.is_interactive else ""
    result: dict[str, Any] = dict.fromkeys(("P@1", "P@3", "P@5"))
    stop: KeyboardInterrupt | Exception | None = None
    with model_folder.growing_history(target.out) as history, signals_deferred(True, ending, target.checkpoint):
        try:
            fit(model, rows, [history, *trackers], target.checkpoint, console)
            result |= measure(model, rows.test, console)
        except (KeyboardInterrupt, Exception) as end:
            if getattr(model, "history_", None) is before:
                raise
            stop = end
        with signals_deferred() as received:
            # The records of the model: the growing file may lack the last epoch of a run that was interrupted.
            result |= about_run(model, rows, model.history_)
            result |= {"seconds": time.perf_counter() - started, "interrupted": stop is not None}
            folder = _save(model, rows, result, target, stop)
    if stop is not None:
        raise error_of_stopped_run(stop, describe_progress(model) + describe_saved(folder, target.checkpoint)) from stop
    if received:
        first = received[0]
        text = f"{first} while the model was saved; it is complete, in {folder}"
        raise SignalInterrupt(text, first.signal) from first
    return result


def _save(
    model: Model, rows: InputRows, result: dict[str, Any], target: Target, stop: BaseException | None
) -> str | None:
    """Save a model and the results of its run; return the folder, or None if nothing was saved.

    stop : what ended the run early. After a signal of a machine that will resume the run, the checkpoint is enough.
    """
    checkpoint = target.checkpoint
    if checkpoint and is_resumed_by_machine(stop, checkpoint):
        return None
    folder = target.out if stop is None else model_folder.name_of_interrupted(target.out, checkpoint is not None)
    if checkpoint and stop is None:
        result[model_folder.CALL] = {"sha256": target.call, "runs": checkpoint.request.runs}
    if folder != target.out:
        target = replace(target, out=folder, replaces=model_folder.NO_MODEL)
    model_folder.save(model, target, result, rows.names_of_uris)
    if checkpoint and stop is None:
        replace(checkpoint, keep=False).done()
    return folder


def describe_progress(model: Model) -> str:
    """Say how far a run has come that ended early."""
    n_estimators = getattr(model, "n_estimators", 1)
    several = f"with {len(classifiers_of(model))} of {n_estimators} classifiers, " if n_estimators > 1 else ""
    return f"{several}after {counted(len(model.history_), 'whole epoch')}"


def describe_saved(folder: str | None, checkpoint: Checkpoint | None) -> str:
    """Return where the model of a run that ended early was saved, if it was, and what the same command would do."""
    saved = "" if folder is None else f"; the model as it was then is in {folder}"
    if not checkpoint:
        return saved
    resumes = f"resumes from {checkpoint.path}" if checkpoint.exists else "starts again"
    return f"{saved}; the same command {resumes}"


def is_resumed_by_machine(stop: BaseException | None, checkpoint: Checkpoint) -> bool:
    """Return whether a signal other than Ctrl-C ended a run that can be resumed; its model is not saved then."""
    return isinstance(stop, KeyboardInterrupt) and signal_number(stop) != SIGINT and checkpoint.exists


def error_of_stopped_run(stop: KeyboardInterrupt | Exception, where: str) -> SignalInterrupt | TrainingStopped:
    """Return the exception to raise when a signal or an error has ended a run whose model is saved."""
    if isinstance(stop, KeyboardInterrupt):
        number = signal_number(stop)
        return SignalInterrupt(f"{describe_signal(number)} {where}", number)
    return TrainingStopped(f"stopped {where}: {exit_code_and_text(stop)[1]}")


def measure(model: Model, test: Dataset | None, console: Console, with_thresholds: bool = True) -> dict[str, Any]:
    """Return the metrics on test rows, if any, by default with F1 at the learned thresholds."""
    if test is None:
        return {}
    ranking = model_metrics.rank_rows(model, test.X, quiet=console.quiet)
    q = model_metrics.inverse_propensity_or_none(model, test.Y.n_cols)
    result = model_metrics.evaluate(model, test, ranking, inv_propensity=q)
    return result | (model_metrics.evaluate_thresholds(model, test, ranking)[0] if with_thresholds else {})


def fit(
    model: Model, rows: InputRows, callbacks: Sequence[Callback], checkpoint: Checkpoint | None,
    console: Console,
) -> None:  # fmt: skip
    """Train with a progress bar; evaluate P@k on the test rows after every epoch."""
    train, test = rows.train, rows.test
    if rows.vectorizer is not None:
        template_of(model).set_params(vectorizer=rows.vectorizer)
    # Labels that only the test rows have are no columns of the model; P@k does not need them.
    eval_set = None if test is None else (test.X, first_labels(test.Y, train.n_labels))
    with nullcontext() if console.quiet else ProgressBar() as bar:
        model.fit(
            train.X,
            train.Y,
            eval_set=eval_set,
            label_names=rows.label_names,
            **rows.fit_options,
            callbacks=[*([bar] if bar else []), *callbacks],
            checkpoint=checkpoint,
        )


def learn(
    estimator: XMLClassifier, train: Dataset, columns: Columns, documents: Sequence[str] | None,
    label_texts: dict[str, str],
) -> float:  # fmt: skip
    """Train the model on more rows, or on their texts `documents`; return the seconds.

    columns : of the model before. label_texts : the texts of new labels, by name.
    """
    started = time.perf_counter()
    # Names match labels with the columns of the model, and new ones get columns after them. A model without names
    # matches labels by number.
    names = train.label_names if columns.names is not None else None
    Y = train.Y if names is None else names_of_rows(train.Y, names)
    estimator.partial_fit(documents or train.X, Y, label_texts=label_texts or None)
    return time.perf_counter() - started


def about_run(model: Model, rows: InputRows, records: list[EpochRecord]) -> dict[str, Any]:
    """Return the settings and the cost of a run, given the records of its epochs."""
    test = {"test": size_numbers(rows.test)} if rows.test is not None else {}
    classifiers = classifiers_of(model)
    after = sum(getattr(each, "candidates_seconds_", 0.0) for each in classifiers)
    return {
        **model_folder.speed([each[-1] for each in runs_of(records)], after),
        "peak_memory_bytes": peak_memory_bytes(),
        "workers": summary(records),
        "algorithm": records[-1].get("algorithm") if records else None,
        "loss": records[-1]["loss"] if records else None,
        "epochs": model.n_epochs_,
        "classifiers": len(classifiers),
        "parameters": parameters_of(model),
        "plan": classifiers[0].plan_.to_dict(),  # that of all: only their seeds differ
        "n_parameters": sum(each.params_.size for each in classifiers),
        "data": {"train": size_numbers(rows.train), **test},
        model_folder.OPTIONS: rows.saved_options,
        "versions": versions(),
    }


def outcome(model: Model, rows: InputRows, result: dict[str, Any]) -> list[str]:
    """Return lines about the metrics and the cost of a run."""
    lines = ["nothing was measured: no test rows; --test FILE, or later: xmlsgd evaluate DIR FILE"]
    if rows.test is not None:
        lines = [table({"": result}, COLUMNS), *model_metrics.describe(result)]
    classifiers = classifiers_of(model)
    several = f"{len(classifiers)} classifiers " if len(classifiers) > 1 else ""
    lines.append(f"trained {several}in {result['train_seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s")
    lines.append(f"trained on {size_text(rows.train)}")
    if rows.vectorizer is not None and rows.vectorizer.reason:
        lines.append(f"features by {rows.vectorizer}: {rows.vectorizer.reason}")
    return [*lines, *describe_choice(classifiers[-1].history_), *advice(result["workers"])]


def new_tracker(text: str) -> Callback:
    """Return the tracker of a flag, "NAME" or "NAME:PLACE"."""
    name, _, place = text.partition(":")
    if name not in TRACKERS:
        raise UsageError(f"--track: must be one of {', '.join(TRACKERS)}, got {name!r}{suggest(name, TRACKERS)}")
    try:
        return TRACKERS[name](place)
    except MissingPackage as error:
        raise UsageError(f"--track: {error}") from error
