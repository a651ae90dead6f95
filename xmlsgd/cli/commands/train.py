"""Train a model and save it.

TRAIN is a file (XMC or LIBSVM text, raw text `label1,label2<TAB>text`), a folder, a converted store, or the name of a
data set. If it has a test part of its own, that is the default of --test.

An earlier model in DIR is replaced only with --overwrite; `xmlsgd learn DIR DATA` adds rows to it. During the run,
DIR.history.jsonl gets a line after every epoch. Ctrl-C, or an error that ends the run, saves what was learned so far:
in DIR, or in DIR.interrupted if DIR holds an earlier model. If DIR cannot be written at the end, the model is saved in
a temporary folder, which the error names.

With --checkpoint, the state of the run is saved in DIR.checkpoint every so many minutes, until the model is in DIR.
After kill -9, a power cut, SIGTERM or Ctrl-C, the same command resumes from it. After Ctrl-C, the model is in
DIR.interrupted as well.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any

from ...errors import MissingPackage, counted, suggest
from .. import model_folder
from ..exit_codes import TrainingStopped, UsageError, exit_code_and_text
from ..flags import (
    COUNT,
    DIR,
    FORMAT_FLAGS,
    JSON_FILE,
    LABEL_FLAGS,
    MINUTES,
    NAME,
    OVERWRITE,
    PATH,
    VECTORIZER_FLAGS,
    Flag,
    positional,
)
from ..machine import peak_memory_bytes, versions
from ..models import READ_BY, classifiers_of, groups_in_training, parameters_of, report_in, template_of
from ..output_files import check_folder, check_new
from ..parameters import parameter_flags
from ..results import size_numbers, size_text, table, write_json
from ..signals import SignalInterrupt, in_words, signal_number, signals_deferred
from .compile import compile_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...data.csr import Dataset
    from ...estimators import XMLClassifier, XMLEnsemble
    from ...training.callbacks import Callback
    from ...training.checkpoints import Checkpoint
    from ...training.history import EpochRecord
    from ..format_options import FormatOptions
    from ..messages import Console
    from ..sources import InputRows

FLAGS = (
    positional("train", PATH, "TRAIN", "rows to learn from"),
    Flag("test", PATH, "rows to measure on, after every epoch and at the end", "data",
         default_text="the test part of TRAIN, if it has one"),
    Flag("groups", PATH, "file whose line i is the group of training row i; wherever rows are held out, all rows of a "
         "group are, or none. 'similar' where new rows will be unlike these: similar rows are a group", "data",
         default_text="rows are independent"),
    *FORMAT_FLAGS,
    *VECTORIZER_FLAGS,
    *LABEL_FLAGS,
    Flag("n_estimators", COUNT, "train this many models and predict by the mean of their scores", "model", 1),
    *parameter_flags(),
    Flag("checkpoint", MINUTES, "between checkpoints in DIR.checkpoint, to resume from; 0: after each step", "training",
         default_text="no checkpoints"),
    Flag("out", DIR, "folder of the model; required unless --dry-run", "output", synonyms=("-o", "--output")),
    Flag("dry_run", None, "print the training plan, with the reason of each decision; train and save nothing",
         "output"),
    OVERWRITE,
    Flag("compact", None, "save a model a third as large that can only predict", "output"),
    Flag("track", NAME, "send epoch records to tensorboard, mlflow or wandb; tensorboard:FOLDER, mlflow:URI and "
         "wandb:PROJECT say where; may be repeated", "output", metavar="TRACKER", repeated=True),
    JSON_FILE,
)  # fmt: skip
EXAMPLES = """  xmlsgd train train.txt --test test.txt --out model
  xmlsgd train train.txt --dry-run
  xmlsgd train train.txt --out model --hidden 512 --epochs 20 --lr 0.002 --seed 0
  xmlsgd train train.txt --out model --devices "cpu*2" --checkpoint 10"""
OF_NETWORK = " (of the network alone; the table is of the model with its candidates)"
OF_EACH = " (of each network alone; the table is of their mean)"
COLUMNS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5")


def run(
    train: str,
    test: str | None,
    groups: str | None,
    format_options: FormatOptions,
    label_texts: str | None,
    feature_names: str | None,
    n_estimators: int,
    parameters: dict[str, Any],
    checkpoint: float | None,
    out: str | None,
    dry_run: bool,
    overwrite: bool,
    compact: bool,
    track: list[str] | None,
    json: str | None,
    console: Console,
) -> None:
    """Read the rows; then train, evaluate and save a model, or only show the plan."""
    inputs = (train, test, groups, label_texts, feature_names, format_options.vocabulary, format_options.stop_words)
    finished = None
    if not dry_run:
        if out is None:
            raise UsageError("the following arguments are required: --out; see xmlsgd train --help")
        check_folder(out, *inputs)
        finished = None if overwrite or checkpoint is None else model_folder.finished_call(out)
        if not finished:
            check_no_model(out, overwrite, n_estimators)
    format_options.check_inputs(train, test)
    saved_state = None if out is None or dry_run else model_folder.checkpoint_of(out, checkpoint, n_estimators)
    started = time.perf_counter()
    model, trackers = new_model(parameters, n_estimators), [new_tracker(text) for text in track or ()]
    rows = read_training_rows(train, test, groups, format_options, label_texts, feature_names)
    seconds = time.perf_counter() - started
    console.note(f"{train}: {size_text(rows.train)}; read in {seconds:.1f} s")
    if out is None or dry_run:
        show_plan(model, rows, json, console)
        return
    call = ""
    if saved_state:
        call = model_folder.call_of([parameters, n_estimators, compact, rows.texts, rows.groups], rows)
    if finished and saved_state:
        if finished["sha256"] == call:
            model_folder.clean_up(out, finished, saved_state)
            console.show(f"model: {out}; this call has made it before, nothing was trained")
            write_json(json, report_in(out))
            return
        check_no_model(out, overwrite, n_estimators)
    result = train_and_save(
        model, rows, out, Path(train).name, console, n_estimators, compact, saved_state, call, trackers
    )
    result["load_seconds"] = seconds
    for line in outcome(model, rows, result):
        console.show(line)
    console.show(f"model: {out}")
    console.show(f"learning curve{of_whom(model, rows)}: {result['learning_curve'] or result['not_drawn']}")
    write_json(json, result)


def check_no_model(out: str, overwrite: bool, n_estimators: int) -> None:
    """Raise `UsageError` if the folder has content that must not be overwritten."""
    check_new(out, "--out", overwrite, ", xmlsgd learn adds rows to it" if n_estimators == 1 else "")


def read_training_rows(
    train: str, test: str | None, groups: str | None, options: FormatOptions, label_texts: str | None,
    feature_names: str | None,
) -> InputRows:  # fmt: skip
    """Read rows and their groups; warn of rows that are probably not what the user meant."""
    from ..input_warnings import warn_of_training_rows
    from ..sources import read_training

    rows = read_training(train, test, options, label_texts, feature_names)
    warn_of_training_rows(rows, train, test, options)
    return replace(rows, groups=groups_in_training(groups, rows.train.n_rows))


def show_plan(model: XMLClassifier | XMLEnsemble, rows: InputRows, json: str | None, console: Console) -> None:
    """Print the training plan."""
    template = template_of(model).set_params(vectorizer=rows.vectorizer)
    plan = template.plan(rows.train.X, rows.train.Y, groups=rows.groups, **rows.texts)
    console.answer(str(plan))
    write_json(json, plan.to_dict())


def outcome(model: XMLClassifier | XMLEnsemble, rows: InputRows, result: dict[str, Any]) -> list[str]:
    """Return lines about the metrics and the cost of a run."""
    from ...training.worker_log import advice, choice
    from ..evaluation import report

    lines = ["nothing was measured: no test rows; --test FILE, or later: xmlsgd evaluate DIR FILE"]
    if rows.test is not None:
        lines = [table({"": result}, COLUMNS), *report(result)]
    classifiers = classifiers_of(model)
    several = f"{len(classifiers)} classifiers " if len(classifiers) > 1 else ""
    lines.append(f"trained {several}in {result['train_seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s")
    lines.append(f"trained on {size_text(rows.train)}")
    return [*lines, *choice(classifiers[-1].history_), *advice(result["workers"])]


def of_whom(model: XMLClassifier | XMLEnsemble, rows: InputRows) -> str:
    """Return a note if the learning curve is of networks alone, unlike the table of metrics."""
    classifiers = classifiers_of(model)
    if len(classifiers) > 1:
        return OF_EACH
    return OF_NETWORK if rows.test is not None and classifiers[0].candidates_ is not None else ""


def new_model(parameters: dict[str, Any], n_estimators: int = 1) -> XMLClassifier | XMLEnsemble:
    """Return the estimator for the flags, checked."""
    from ...estimators import XMLClassifier, XMLEnsemble
    from ...estimators.parameters import check_parameters
    from ...estimators.placement import check_devices, parse_devices
    from ..input_warnings import warn_of_workers

    model = XMLClassifier(**parameters)
    check_parameters(model)  # raises errors before the data are read, which may take minutes
    check_devices(model.devices)
    warn_of_workers(parse_devices(model.devices))
    model.set_params(verbose=0)  # the command line has its own progress bar
    return model if n_estimators == 1 else XMLEnsemble(model, n_estimators, random_state=model.random_state)


def new_tracker(text: str) -> Callback:
    """Return the tracker of a flag, "NAME" or "NAME:PLACE"."""
    from ...training.trackers import TRACKERS

    name, _, place = text.partition(":")
    if name not in TRACKERS:
        raise UsageError(f"--track: must be one of {', '.join(TRACKERS)}, got {name!r}{suggest(name, TRACKERS)}")
    try:
        return TRACKERS[name](place)
    except MissingPackage as error:
        raise UsageError(f"--track: {error}") from error


def train_and_save(
    model: XMLClassifier | XMLEnsemble,
    rows: InputRows,
    out: str,
    title: str,
    console: Console,
    n_estimators: int = 1,
    compact: bool = False,
    checkpoint: Checkpoint | None = None,
    call: str = "",
    trackers: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train, measure on the test rows, save all into the folder `out`; return the results.

    call : with a checkpoint, the checksum of the call, by which it recognizes the model when it is repeated.

    After Ctrl-C, or an error that leaves a model, save the model as it is and raise an exception that says where.
    """
    compile_kernels(template_of(model).get_params(deep=False), rows.train.n_labels, compact)
    started = time.perf_counter()
    before = getattr(model, "history_", None)
    ending = "ending the run, to save what it has learned ..." if console.is_interactive else ""
    result: dict[str, Any] = dict.fromkeys(("P@1", "P@3", "P@5"))
    stop: KeyboardInterrupt | Exception | None = None
    with model_folder.growing_history(out) as history, signals_deferred(True, ending, checkpoint):
        try:
            fit(model, rows, [history, *trackers], checkpoint, console)
            result |= measures(model, rows.test, console)
        except (KeyboardInterrupt, Exception) as end:
            if getattr(model, "history_", None) is before:
                raise
            stop = end
        with signals_deferred() as received:
            # Not those of the growing file, which may lack the last epoch of a run that was interrupted.
            result |= about_run(model, rows, model.history_)
            result |= {"seconds": time.perf_counter() - started, "interrupted": stop is not None}
            folder = out if stop is None else model_folder.name_of_interrupted(out, checkpoint is not None)
            saved = not (checkpoint and is_resumed_by_machine(stop, checkpoint))
            if checkpoint and stop is None:
                result[model_folder.CALL] = {"sha256": call, "runs": checkpoint.request.runs}
            if saved:
                model_folder.save(model, folder, result, title, compact, rows.names_of_uris)
            if checkpoint and stop is None:
                replace(checkpoint, keep=False).done()
    if stop is None and received:
        first = received[0]
        raise SignalInterrupt(
            f"{first} while the model was saved; it is complete, in {folder}", first.signal
        ) from first
    if stop is not None:
        several = f"with {len(classifiers_of(model))} of {n_estimators} classifiers, " if n_estimators > 1 else ""
        when = f"{several}after {counted(len(model.history_), 'whole epoch')}"
        raise ended(stop, when + what_is_left(folder if saved else None, checkpoint)) from stop
    return result


def what_is_left(folder: str | None, checkpoint: Checkpoint | None) -> str:
    """Return where the model of a run that ended early was saved, if it was, and what the same command would do."""
    saved = "" if folder is None else f"; the model as it was then is in {folder}"
    if not checkpoint:
        return saved
    resumes = f"resumes from {checkpoint.path}" if checkpoint.exists else "starts anew"
    return f"{saved}; the same command {resumes}"


def is_resumed_by_machine(stop: BaseException | None, checkpoint: Checkpoint) -> bool:
    """Return whether a signal other than Ctrl-C ended a run that can be resumed; its model is not saved then."""
    return isinstance(stop, KeyboardInterrupt) and signal_number(stop) != SIGINT and checkpoint.exists


def ended(stop: KeyboardInterrupt | Exception, where: str) -> SignalInterrupt | TrainingStopped:
    """Return the exception to raise when a signal or an error has ended a run whose model is saved."""
    if isinstance(stop, KeyboardInterrupt):
        number = signal_number(stop)
        return SignalInterrupt(f"{in_words(number)} {where}", number)
    return TrainingStopped(f"stopped {where}: {exit_code_and_text(stop)[1]}")


def measures(
    model: XMLClassifier | XMLEnsemble, test: Dataset | None, console: Console, with_thresholds: bool = True
) -> dict[str, Any]:
    """Return the metrics on test rows, if any, by default with F1 at the learned thresholds."""
    if test is None:
        return {}
    from ..evaluation import evaluate, evaluate_thresholds, inverse_propensity_if_known, rank_rows

    ranking = rank_rows(model, test.X, quiet=console.quiet)
    result = evaluate(model, test, ranking, inv_propensity=inverse_propensity_if_known(model, test.Y.n_cols))
    return result | (evaluate_thresholds(model, test, ranking)[0] if with_thresholds else {})


def fit(
    model: XMLClassifier | XMLEnsemble, rows: InputRows, callbacks: Sequence[Callback], checkpoint: Checkpoint | None,
    console: Console,
) -> None:  # fmt: skip
    """Train with a progress bar; evaluate P@k on the test rows after every epoch."""
    from ...training.progress_bar import ProgressBar
    from ..sources import first_labels

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
            label_names=train.label_names,
            **rows.texts,
            groups=rows.groups,
            callbacks=[*([bar] if bar else []), *callbacks],
            checkpoint=checkpoint,
        )


def about_run(model: XMLClassifier | XMLEnsemble, rows: InputRows, records: list[EpochRecord]) -> dict[str, Any]:
    """Return the settings and the cost of a run, given the records of its epochs."""
    from ...training.history import runs_of
    from ...training.worker_log import summary

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
        "n_parameters": sum(each.params_.size for each in classifiers),
        "data": {"train": size_numbers(rows.train), **test},
        READ_BY: rows.read_by,
        "versions": versions(),
    }
