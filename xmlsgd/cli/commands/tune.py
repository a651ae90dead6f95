"""Search for better parameters by a metric on validation rows, within a time budget.

A tenth of the rows, at most 10,000, are validation rows. The first trial has the parameters of the flags, or else the
defaults, so that the result is never worse on these rows. Parameters that a flag sets do not change. Of the others,
candidates, hidden layers, epochs, learning rate and dropout are searched. The last line of the output is the command
that trains with the best parameters, also if Ctrl-C has ended the search. Needs Optuna: pip install "xmlsgd[tune]".
"""

from __future__ import annotations

import shlex
from typing import Any

from ...errors import counted, optional_module
from ..flags import FLOAT, INT, JSON_FILE, NAME, PATH, TRAINING_DATA_FLAGS, Flag, flag_of, positional
from ..input_options import InputOptions
from ..messages import Console
from ..parameters import parameter_flags
from ..results import size_text, write_json

FLAGS = (
    positional("train", PATH, "TRAIN", "rows to learn from and to validate on, in any format that train reads"),
    *TRAINING_DATA_FLAGS,
    *parameter_flags(),
    Flag("metric", NAME, "metric to maximize: one at a rank, as in nDCG@5 or PSP@3, \"micro F1\" or \"macro F1\"",
         "search", "P@1"),
    Flag("seconds", FLOAT, "time budget; no trial begins that would probably end later", "search", 600.0),
    Flag("trials", INT, "maximum number of trials", "search", default_text="no limit"),
    JSON_FILE,
)  # fmt: skip
INSTEAD = {
    **dict.fromkeys(("--test", ""), "validation rows are those of TRAIN; pass test rows to train"),
    "--out": "no model is written; run the train command of the last line",
}
EXAMPLES = """  xmlsgd tune train.txt --metric nDCG@5 --seconds 300 --json best.json
  xmlsgd tune train.txt --metric "micro F1" --candidates 0 --trials 20 --seed 0"""


def run(
    train: str,
    input_options: InputOptions,
    parameters: dict[str, Any],
    metric: str,
    seconds: float,
    trials: int | None,
    console: Console,
) -> None:
    """Read the rows, search, and show the best parameters."""
    optuna = optional_module("optuna", "tune")  # raises an error before rows are read
    input_options.check_inputs(train)
    from ...estimators.tuning import Trial, best_of, check_search, tune
    from ..sources import read_training
    from ..training_runs import compile_kernels, new_model

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    check_search(metric, seconds, trials)  # before the data are read, which may take minutes
    model = new_model(parameters)
    read = read_training(train, None, input_options)
    rows = read.train
    model.set_params(vectorizer=read.vectorizer)
    console.note(f"{train}: {size_text(rows)}")
    compile_kernels(model.get_params(deep=False), rows.n_labels, compact=False)

    ended: list[Trial] = []
    n_validation: int | None = None
    stop: KeyboardInterrupt | None = None

    def show(trial: Trial) -> None:
        ended.append(trial)
        console.show(f"{metric} {trial.value:.2f} in {trial.seconds:.1f} s: {flags_of(trial.parameters) or 'as given'}")

    try:
        n_validation = tune(
            rows.X, rows.Y, model, metric=metric, seconds=seconds, n_trials=trials,
            **read.fit_options, fixed=parameters, callback=show,
        ).n_validation  # fmt: skip
    except KeyboardInterrupt as interrupt:
        if not ended:
            raise
        stop = interrupt
    first, best = ended[0], best_of(ended)
    of_rows = "validation rows" if n_validation is None else f"{n_validation:,} validation rows"
    of_trials = f"{best.value:.2f} at best, of {counted(len(ended), 'trial')}"
    console.show(f"{metric} of {of_rows}: {first.value:.2f} as given, {of_trials}")
    flags = flags_of(parameters | best.parameters)
    console.show(
        " ".join(
            filter(None, ["xmlsgd train", shlex.quote(train), flags_of(input_options.given), flags, "--out model"])
        )
    )
    write_json(console.json, {
        "metric": metric, "validation_rows": n_validation, "default": first.value, "best": best.value,
        "parameters": parameters | best.parameters, "flags": flags, "trials": [trial._asdict() for trial in ended],
    })  # fmt: skip
    if stop is not None:
        raise stop


def flags_of(parameters: dict[str, Any]) -> str:
    """Return parameters as the text of flags of `train`."""
    words = []
    for name, value in parameters.items():
        flag = flag_of(name)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"{flag} {shlex.quote(text)}")
    return " ".join(words)
