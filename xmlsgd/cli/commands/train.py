"""Train a model and save it.

TRAIN is a file (XMC or LIBSVM text, raw text `label1,label2<TAB>text`), a folder, a converted store, or the name of a
data set. Where it has a test part of its own, that is the default of --test.

An earlier model in DIR is replaced with --overwrite and trained further with --warm-start; without either, the call is
refused. While a run goes on, DIR.history.jsonl gets a line after every epoch. Ctrl-C saves the model as it is then: in
DIR, or in DIR.interrupted where DIR holds an earlier model. So does an error that ends the run. Where DIR cannot be
written when the model is there, it goes to a folder among the temporary files, which the error names.

With --checkpoint what was learned is kept in DIR.checkpoint every so many minutes, until DIR is there: after kill -9, a
power cut, SIGTERM or Ctrl-C the same call goes on from there. The model as it was at Ctrl-C is in DIR.interrupted then.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any

from ...training.runs import WorkersLost, whole_epochs
from .. import folder
from ..failures import Halted, UsageError, describe
from ..format_options import add_source_arguments
from ..kernels import prepare_kernels
from ..machine import peak_memory_bytes, versions
from ..model import classifiers_of, parameters_of, template_of
from ..outputs import add_overwrite, check_file, check_model, check_there
from ..parameters import add_parameters, given_parameters, minutes, place, whole
from ..results import note, show, table, write_json
from ..saving import check_room, save_somewhere
from ..signals import Stopped, in_words, signal_of, signals_raise_once, signals_wait

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ...estimators import XMLClassifier, XMLEnsemble
    from ...training.checkpoints import Checkpoint
    from ...training.history import EpochRecord, History
    from ..sources import Training

PROPENSITY_ROWS = 3  # the least number of training rows for which propensities are defined
NETWORK_ALONE = " (of the network alone; the table has the shortlist too)"
EACH_ALONE = " (of each network alone; the table has the mean of all)"
COLUMNS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("train", type=place, metavar="TRAIN", help="what to learn from")
    parser.add_argument(
        "--test", type=place, metavar="TEST", help="rows to measure on, after every epoch and at the end"
    )
    parser.add_argument("--out", type=place, metavar="DIR", required=True, help="folder that takes the model [-o]")
    add_overwrite(parser)
    parser.add_argument("--compact", action="store_true", help="save a model a sixth as large, only to predict with")
    parser.add_argument("--json", type=place, metavar="FILE", help="write the results as JSON, - for stdout")
    parser.add_argument(
        "--n-estimators", type=whole, default=1, metavar="N", help="train N, and predict by the mean of their scores"
    )
    parser.add_argument(
        "--checkpoint",
        type=minutes,
        metavar="MINUTES",
        help="keep what was learned this often (0: after each step); the same call goes on",
    )
    add_source_arguments(parser)
    add_parameters(parser)


def run(args: Namespace) -> None:
    """Read, train, measure, save."""
    check_model(args, args.train, args.test)
    check_file(args.json, "--json", args.train, args.test, beside=args.out)
    check_there(args.train, args.test)
    checkpoint = folder.checkpoint_of(args)
    from ...training.worker_log import advice, choice
    from ..input_warnings import warn_of_base, warn_of_labels, warn_of_names, warn_of_unknown
    from ..sizes import size_text
    from ..sources import Known, read_training

    started = time.perf_counter()
    model = new_model(args)
    data = read_training(args, Known.of_model(model) if template_of(model).warm_start else None)
    seconds = time.perf_counter() - started
    note(args, f"{args.train}: {size_text(data.train)}; read in {seconds:.1f} s")
    warn_of_labels(data.train, args.train)
    warn_of_base(data.train, args.train)
    if data.vectorizer is not None:
        warn_of_names(data.train.label_names or (), args.train)
    if data.test is not None:
        warn_of_unknown(data.test, data.train.n_labels, args.test or args.train)
    result = train_and_save(args, model, data, checkpoint) | {"load_seconds": seconds}
    if data.test is not None:
        show(args, table([("", result)], COLUMNS))
    else:
        show(args, "nothing was measured: no test rows; --test FILE, or later: xmlsgd evaluate DIR FILE")
    classifiers = classifiers_of(model)
    several = f"{len(classifiers)} classifiers " if len(classifiers) > 1 else ""
    show(args, f"trained {several}in {result['train_seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s")
    show(args, f"trained on {size_text(data.train)}")
    for line in [*choice(classifiers[-1].history_), *advice(result["workers"])]:
        show(args, line)
    listed = data.test is not None and classifiers[0].candidates_ is not None
    of = EACH_ALONE if several else NETWORK_ALONE if listed else ""
    show(args, f"model: {args.out}")
    show(args, f"learning curve{of}: {result['learning_curve'] or result['not_drawn']}")
    write_json(args.json, result)


def new_model(args: Namespace) -> XMLClassifier | XMLEnsemble:
    """Return the estimator of the flags; with `--warm-start` the one in `--out`, with these flags over its own."""
    from ...estimators import XMLClassifier, XMLEnsemble
    from ...estimators.parameters import check_parameters
    from ...estimators.placement import check_devices

    given, several = given_parameters(args), getattr(args, "n_estimators", 1)
    if several < 1:
        raise UsageError(f"--n-estimators: must be at least 1, got {several}")
    if not given.get("warm_start"):
        model = XMLClassifier(**given)
    elif several > 1:
        raise UsageError(f"--warm-start: goes on from one model, got --n-estimators {several}; use --overwrite instead")
    elif not Path(args.out).exists():
        raise UsageError(f"--out {args.out}: no such folder; leave --warm-start out the first time")
    else:
        model = XMLClassifier.load(args.out, predict_only=False).set_params(**given)
    check_parameters(model)  # before the data are read, which may take minutes
    check_devices(model.devices)
    model.set_params(verbose=0)  # the bar of the command line takes its place
    return model if several == 1 else XMLEnsemble(model, several, random_state=model.random_state)


def train_and_save(
    args: Namespace, model: XMLClassifier | XMLEnsemble, data: Training, checkpoint: Checkpoint | None = None
) -> dict[str, Any]:
    """Train on `data`, measure on its test rows, save all into `args.out`; return the results.

    After Ctrl-C, and an error that leaves a model, it is saved as it is; then raises what says where.
    """
    wanted, compact = getattr(args, "n_estimators", 1), getattr(args, "compact", False)
    check_room(model, wanted, data.train, args.out, compact)
    prepare_kernels(template_of(model).get_params(), data.train.n_labels)
    started = time.perf_counter()
    before = getattr(model, "history_", None)
    ending = "" if args.quiet or not sys.stderr.isatty() else "ending the run, to save what it has learned ..."
    result: dict[str, Any] = dict.fromkeys(("P@1", "P@3", "P@5"))
    stop: KeyboardInterrupt | Exception | None = None
    with folder.growing_history(args.out) as history, signals_raise_once(ending, checkpoint):
        try:
            fit(args, model, data, history, checkpoint)
            result |= measures(args, model, data)
        except (KeyboardInterrupt, Exception) as end:
            if getattr(model, "history_", None) is before:
                raise
            stop = end
        with signals_wait() as came:
            result |= about_run(model, data, history.records)
            result |= {"seconds": time.perf_counter() - started, "interrupted": stop is not None}
            out = args.out if stop is None else folder.name_of_interrupted(args.out, checkpoint is not None)
            resumed = checkpoint is not None and goes_on(stop, checkpoint)
            if not resumed:
                save_somewhere(model, out, result, Path(args.train).name, compact)
            if checkpoint and stop is None:
                replace(checkpoint, keep=False).done()
    if stop is None and came:
        raise Stopped(f"{came[0]} while the model was saved; it is whole, in {out}", came[0].signal) from came[0]
    if stop is not None:
        several = f"with {len(classifiers_of(model))} of {wanted} classifiers, " if wanted > 1 else ""
        told = [f"{several}after {whole_epochs(len(history.records))}"]
        if not resumed:
            told.append(f"the model as it was then is in {out}")
        if checkpoint:
            told.append(f"the same call {f'goes on from {checkpoint.path}' if checkpoint.exists else 'begins anew'}")
        raise ended(stop, "; ".join(told)) from stop
    return result


def goes_on(stop: BaseException | None, checkpoint: Checkpoint) -> bool:
    """Return whether a machine has stopped the run, not a person, and the same call goes on: nobody needs the model."""
    return isinstance(stop, KeyboardInterrupt) and signal_of(stop) != SIGINT and checkpoint.exists


def ended(stop: KeyboardInterrupt | Exception, where: str) -> Stopped | Halted:
    """Return what to raise of a run that a signal or an error has ended, when its model is saved."""
    if isinstance(stop, KeyboardInterrupt):
        number = signal_of(stop)
        return Stopped(f"{in_words(number)} {where}", number)
    cause = stop.__cause__ if isinstance(stop, WorkersLost) else stop  # its advice, to save the model, is followed
    assert isinstance(cause, Exception)
    return Halted(f"stopped {where}: {describe(cause)[1]}")


def measures(args: Namespace, model: XMLClassifier | XMLEnsemble, data: Training) -> dict[str, Any]:
    """Return what is measured on the test rows, if there are any."""
    if data.test is None:
        return {}
    from ...metrics import inverse_propensity
    from ..measure import measure

    Y, n_labels = data.train.Y, data.test.Y.n_cols
    q = inverse_propensity(Y, n_labels=n_labels) if Y.n_rows >= PROPENSITY_ROWS else None
    return measure(model, data.test, quiet=args.quiet, inv_propensity=q)


def fit(
    args: Namespace, model: XMLClassifier | XMLEnsemble, data: Training, history: History, checkpoint: Checkpoint | None
) -> None:
    """Train with a bar, measuring P@k on the test rows after every epoch."""
    from ...training.progress_bar import Progress
    from ..sources import known_labels, names_of_rows

    train, test = data.train, data.test
    if data.vectorizer is not None:
        template_of(model).set_params(vectorizer=data.vectorizer)
    # New labels of the test rows have no column in the model; for P@k they need none.
    eval_set = None if test is None else (test.X, known_labels(test.Y, train.n_labels))
    # A model that goes on finds its label columns by their names, and adds those that are new.
    Y = names_of_rows(train) if template_of(model).warm_start and train.label_names is not None else train.Y
    shown = [] if args.quiet or getattr(args, "verbose", 1) == 0 else [Progress()]
    try:
        callbacks = [*shown, history]
        model.fit(
            train.X, Y, eval_set=eval_set, label_names=train.label_names, callbacks=callbacks, checkpoint=checkpoint
        )
    finally:
        for bar in shown:
            bar.close()


def about_run(model: XMLClassifier | XMLEnsemble, data: Training, records: list[EpochRecord]) -> dict[str, Any]:
    """Return what a run was and what it took, by the records of its own epochs."""
    from ...training.history import runs_of
    from ...training.worker_log import summary
    from ..sizes import size_numbers

    test = {"test": size_numbers(data.test)} if data.test is not None else {}
    behind = sum(getattr(each, "candidates_seconds_", 0.0) for each in classifiers_of(model))
    return {
        **folder.speed_of([run[-1] for run in runs_of(records)], behind),
        "peak_memory_bytes": peak_memory_bytes(),
        "workers": summary(records),
        "algorithm": records[-1].get("algorithm") if records else None,
        "loss": records[-1]["loss"] if records else None,
        "epochs": model.n_epochs_,
        "classifiers": len(classifiers_of(model)),
        "parameters": parameters_of(model),
        "n_parameters": sum(each.params_.size for each in classifiers_of(model)),
        "data": {"train": size_numbers(data.train), **test},
        "versions": versions(),
    }
