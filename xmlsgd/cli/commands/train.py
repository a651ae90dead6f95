"""Train a model and save it.

TRAIN is a file (XMC or LIBSVM text, raw text `label1,label2<TAB>text`), a folder, a converted store, or the name of a
data set. If it has a test split, that is the default of --test.

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
from pathlib import Path
from typing import Any

from .. import model_folder
from ..exit_codes import UsageError
from ..flags import COUNT, DIR, JSON_FILE, MINUTES, NAME, OVERWRITE, PATH, TRAINING_DATA_FLAGS, Flag, positional
from ..input_options import InputOptions
from ..messages import Console
from ..model_folder import Target
from ..models import template_of
from ..output_files import check_folder, check_new
from ..parameters import parameter_flags
from ..results import size_text, write_json

FLAGS = (
    positional("train", PATH, "TRAIN", "rows to learn from"),
    Flag("test", PATH, "rows to measure on, after every epoch and at the end", "data",
         default_text="the test split of TRAIN, if it has one"),
    *TRAINING_DATA_FLAGS,
    Flag("n_estimators", COUNT, "number of models to train, whose scores are averaged", "model", 1),
    *parameter_flags(),
    Flag("checkpoint", MINUTES, "minutes between checkpoints in DIR.checkpoint; 0 for one after each span", "training",
         default_text="no checkpoints"),
    Flag("out", DIR, "folder of the model; required unless --dry-run", "output", synonyms=("-o", "--output")),
    Flag("dry_run", None, "print the training plan, with the reason of each decision; train and save nothing",
         "output"),
    OVERWRITE,
    Flag("compact", None, "save a model about half as large that can only predict", "output"),
    Flag("track", NAME, "send epoch records to tensorboard, mlflow or wandb; tensorboard:FOLDER, mlflow:URI and "
         "wandb:PROJECT say where; may be repeated", "output", metavar="TRACKER", repeated=True),
    JSON_FILE,
)  # fmt: skip
EXAMPLES = """  xmlsgd train train.txt --test test.txt --out model
  xmlsgd train train.txt --dry-run
  xmlsgd train train.txt --out model --hidden 512 --epochs 20 --lr 0.002 --seed 0
  xmlsgd train train.txt --out model --devices "cpu*2" --checkpoint 10"""
# Arguments of `run` that do not change what a call trains, and those whose rows are compared instead. All others are
# settings: a call with another value of one is another call (`call_of`).
NO_SETTINGS = {
    "train", "test", "input_options", "checkpoint", "out", "dry_run", "overwrite", "track", "console",
}  # fmt: skip


def run(
    train: str,
    test: str | None,
    input_options: InputOptions,
    n_estimators: int,
    parameters: dict[str, Any],
    checkpoint: float | None,
    out: str | None,
    dry_run: bool,
    overwrite: bool,
    compact: bool,
    track: list[str] | None,
    console: Console,
) -> None:
    """Read the rows; then train, evaluate and save a model, or only show the plan."""
    settings = {name: value for name, value in locals().items() if name not in NO_SETTINGS}
    finished = None
    if not dry_run:
        if out is None:
            raise UsageError("the following arguments are required: --out; see xmlsgd train --help")
        check_folder(out, train, test, *input_options.files)
        finished = None if overwrite or checkpoint is None else model_folder.finished_call(out)
        if not finished:
            check_no_model(out, overwrite, n_estimators)
    input_options.check_inputs(train, test)
    from ..input_warnings import check_training_rows
    from ..sources import read_training
    from ..training_runs import new_model, new_tracker, outcome, train_and_save

    saved_state = None if out is None or dry_run else model_folder.checkpoint_of(out, checkpoint, n_estimators)
    started = time.perf_counter()
    model, trackers = new_model(parameters, n_estimators), [new_tracker(text) for text in track or ()]
    rows = read_training(train, test, input_options)
    check_training_rows(rows, train, test, input_options)
    seconds = time.perf_counter() - started
    console.note(f"{train}: {size_text(rows.train)}; read in {seconds:.1f} s")
    if out is None or dry_run:
        template_of(model).set_params(vectorizer=rows.vectorizer)  # which the plan names
        plan = model.plan(rows.train.X, rows.train.Y, **rows.fit_options)
        console.answer(str(plan))
        write_json(console.json, plan.to_dict())
        return
    call = model_folder.call_of([settings, rows.fit_options], rows) if saved_state else ""
    if saved_state and finished and finished["sha256"] == call:
        model_folder.clean_up(out, finished, saved_state)
        console.show(f"model: {out}; this call has made it before, nothing was trained")
        write_json(console.json, model_folder.report_in(out))
        return
    if finished:
        check_no_model(out, overwrite, n_estimators)
    result = train_and_save(model, rows, Target(out, Path(train).name, compact, saved_state, call), console, trackers)
    result["load_seconds"] = seconds
    for line in outcome(model, rows, result):
        console.show(line)
    console.show(f"model: {out}")
    console.show(f"learning curve: {result['learning_curve'] or result['not_drawn']}")
    write_json(console.json, result)


def check_no_model(out: str, overwrite: bool, n_estimators: int) -> None:
    """Raise `UsageError` if the folder has content that must not be overwritten."""
    check_new(out, "--out", overwrite, ", xmlsgd learn adds rows to it" if n_estimators == 1 else "")
