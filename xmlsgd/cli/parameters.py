"""The parameters of `XMLClassifier` as flags of the same names, with synonyms that other programs use."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from ..nn.schedules import SCHEDULES
from .flags import DIR, FLOAT, FORMAT_FLAGS, INT, INTS, NAME, Flag, ValueType, or_word, positional

PACKAGE = Path(__file__).parents[1]


def parts_in(folder: str) -> tuple[str, ...]:
    """Return the names of the modules in a folder of the package; each module is a part, such as a loss."""
    return tuple(sorted({file.stem for file in (PACKAGE / folder).glob("[!_]*.py")} - {"base"}))


def named(*choices: str) -> ValueType:
    """Return the type of a name; the help shows the choices, and the estimator checks it: it knows added parts, too."""
    return replace(NAME, choices=choices)


# The flag of a parameter of `XMLClassifier`; its default, shown in the help, is the estimator's own.
Parameter = partial(Flag, collected_in="parameters", only_if_given=True)
AUTO_INT, AUTO_FLOAT = or_word(INT, "auto"), or_word(FLOAT, "auto")

# The estimator checks ranges and names.
PARAMETERS = (
    Parameter("hidden_layer_sizes", or_word(INTS, "auto"), "units of the hidden layers", "model", "auto",
              synonyms=("--hidden",)),
    Parameter("loss", named("auto", *parts_in("nn/losses")), "loss function",
              "model", "auto"),
    Parameter("candidates", AUTO_INT, "candidate labels per row, from k-nearest neighbors and co-occurrence; "
              "0 for the network alone", "model", "auto"),
    Parameter("class_weight", NAME, "balanced: rare classes weigh more; for one class per row", "model",
              default_text="none"),
    Parameter("optimizer", named("auto", *parts_in("nn/optimizers")), "update rule", "training",
              "auto", synonyms=("--solver",)),
    Parameter("learning_rate_init", AUTO_FLOAT, "learning rate, the peak of the schedule", "training", "auto",
              synonyms=("--lr", "--eta")),
    Parameter("learning_rate", named(*SCHEDULES), "learning-rate schedule",
              "training", "linear", synonyms=("--schedule",)),
    Parameter("warm_up", FLOAT, "share of the run over which the learning rate rises", "training", "0.02"),
    Parameter("batch_size", AUTO_INT, "rows per step", "training", "auto", synonyms=("--batch",)),
    Parameter("sampler", named("auto", *parts_in("nn/samplers")), "labels that a batch trains",
              "training", "auto"),
    Parameter("negatives", or_word(INT, "auto", "all"), "labels per batch trained besides those of its rows",
              "training", "auto"),
    Parameter("gradient_rounding", AUTO_FLOAT, "gradients below this are rounded stochastically to 0 or to it; "
              "0 for none", "training", "auto"),
    Parameter("max_epochs", AUTO_INT, "passes over the data", "training", "auto",
              synonyms=("--epochs", "--epoch", "--num-epochs", "--max-iter")),
    Parameter("weight_decay", FLOAT, "decoupled weight decay, times the learning rate", "training", "0",
              synonyms=("--wd",)),
    Parameter("clip_norm", FLOAT, "largest gradient norm of a row of weights, 0 for no limit", "training", "0",
              synonyms=("--clip",)),
    Parameter("hidden_dropout", FLOAT, "share of hidden units dropped in training", "training", "0",
              synonyms=("--dropout",)),
    Parameter("early_stopping", None, "stop when P@1 on validation rows stops rising; keep the best model", "training"),
    Parameter("validation_fraction", FLOAT, "share of validation rows for early stopping", "training", "0.1"),
    Parameter("n_epochs_no_change", INT, "epochs without a rise before stopping", "training", "3",
              synonyms=("--patience",)),
    Parameter("tol", FLOAT, "smallest rise of P@1 that counts", "training", "0.0001"),
    Parameter("random_state", INT, "seed of the random numbers", "training", default_text="another one each run",
              synonyms=("--seed",)),
    Parameter("algorithm", NAME, "how several workers train together, as in local_sgd/steps=8; "
              "docs/algorithms.md lists them", "workers", "auto"),
    Parameter("devices", NAME, "one worker per device, as in cpu*2 or cuda:0,cpu", "workers", "cpu",
              synonyms=("--device",)),
    Parameter("n_jobs", INT, "threads of the CPU, -1 for all", "workers", default_text="as many as the work can use",
              synonyms=("--threads", "--num-threads", "--thread")),
    Parameter("precision", named("auto", "float32", "bfloat16"), "number format of matrix products", "workers",
              "auto"),
)  # fmt: skip


def parameter_flags(*names: str) -> tuple[Flag, ...]:
    """Return the flags of the named parameters, by default of all."""
    return tuple(flag for flag in PARAMETERS if flag.name in names or not names)


# The saved model and the data of a command that ranks labels.
RANKING_FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    *FORMAT_FLAGS,
    *parameter_flags("precision", "n_jobs"),
)
