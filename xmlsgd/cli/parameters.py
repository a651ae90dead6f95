"""The estimator's parameters as flags of the same names, with the spellings that the field has for them."""

from __future__ import annotations

import math
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import suggest

if TYPE_CHECKING:
    from collections.abc import Callable


def sizes(text: str) -> tuple[int, ...]:
    """Return the numbers of `256` or `512,256`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"must be numbers separated by commas, as in 512,256, got {text!r}") from None


def place(text: str) -> str:
    """Return a name of a file or folder: an empty one is mostly a variable that was never set."""
    if not text:
        raise ArgumentTypeError("must be a name, got ''")
    return text


def whole(text: str) -> int:
    """Return a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a whole number, got {text!r}") from None


def number(text: str) -> float:
    """Return a number."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a number, got {text!r}") from None


def minutes(text: str) -> float:
    """Return a number of minutes from one checkpoint to the next."""
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise ArgumentTypeError(f"must be minutes, 0 or more, between checkpoints, which lie beside DIR, got {text!r}")


def or_auto(read: Callable[[str], Any], *words: str) -> Callable[[str], Any]:
    """Return a reader that lets the estimator choose where the text is `auto`; it may also be one of `words`."""

    def read_or_keep(text: str) -> Any:
        if text in ("auto", *words):
            return text
        try:
            return read(text)
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{error}{suggest(text, ('auto', *words))}") from error

    return read_or_keep


@dataclass(frozen=True)
class Parameter:
    """A parameter of `XMLClassifier`: how its value is read (None: a switch), its default as text, what it means.

    The default, which the estimator has itself, is "" where the meaning says what holds without the parameter.
    """

    name: str
    read: Callable[[str], Any] | None
    default: str
    help: str
    synonyms: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """Return the flag: `--batch-size` of `batch_size`."""
        return "--" + self.name.replace("_", "-")


# In the order of the constructor. Ranges and names are checked by the estimator, in one place for all its users.
PARAMETERS = (
    Parameter("hidden_layer_sizes", sizes, "256", "units of the hidden layers, as in 256 or 512,256", ("--hidden",)),
    Parameter("loss", str, "auto", "bce, softmax, squared_hinge or auto"),
    Parameter("optimizer", str, "adam", "adam, adagrad, row_adagrad, momentum or sgd", ("--solver",)),
    Parameter("learning_rate_init", or_auto(number), "auto", "the rate at the start, or auto", ("--lr", "--eta")),
    Parameter(
        "learning_rate", str, "linear", "how the rate falls: linear, constant, cosine, inverse_sqrt", ("--schedule",)
    ),
    Parameter("warm_up", number, "0.02", "share of the run over which the rate rises"),
    Parameter("batch_size", or_auto(whole), "auto", "rows of a step, or auto", ("--batch",)),
    Parameter("negatives", or_auto(whole, "all"), "auto", "labels besides its own that a batch trains, all, or auto"),
    Parameter(
        "gradient_rounding", or_auto(number), "auto", "gradients below this are rounded at random, 0 for none, or auto"
    ),
    Parameter(
        "candidates",
        or_auto(whole),
        "auto",
        "labels that neighbors propose and a linear path weighs, 0 for none, or auto",
    ),
    Parameter(
        "stacking", str, "logistic", "how what is known of listed labels is weighed: logistic, or boosted for trees"
    ),
    Parameter(
        "max_epochs",
        or_auto(whole),
        "auto",
        "passes over the data, or auto",
        ("--epochs", "--epoch", "--num-epochs", "--max-iter"),
    ),
    Parameter("weight_decay", number, "0", "decoupled decay, times the rate", ("--wd",)),
    Parameter("clip_norm", number, "0", "largest norm of the gradient of one row of weights, 0 for none", ("--clip",)),
    Parameter("input_dropout", number, "0", "share of features left out in training"),
    Parameter("hidden_dropout", number, "0", "share of hidden units left out in training", ("--dropout",)),
    Parameter("average_weights", number, "0", "share of the end of the run over which weights are averaged"),
    Parameter("early_stopping", None, "", "stop when P@1 no longer rises on held-out rows; keep the best model"),
    Parameter("validation_fraction", number, "0.1", "share of the rows held out for early stopping"),
    Parameter("n_epochs_no_change", whole, "3", "epochs without a rise before stopping", ("--patience",)),
    Parameter("tol", number, "0.0001", "a rise smaller than this is none"),
    Parameter("class_weight", str, "", "balanced: rare classes weigh more; for one class a row"),
    Parameter("algorithm", str, "auto", "how several workers learn together, as in local_sgd/outer=nesterov, or auto"),
    Parameter("devices", str, "cpu", "who works: cpu, or several as in cpu*2", ("--device",)),
    Parameter("precision", str, "auto", "of products: auto, float32 or bfloat16"),
    Parameter(
        "n_jobs",
        whole,
        "",
        "threads, -1 for all; as many as the work can feed",
        ("--threads", "--num-threads", "--thread"),
    ),
    Parameter("warm_start", None, "", "go on from the model in --out"),
    Parameter("random_state", whole, "", "seed of all that is random", ("--seed",)),
    Parameter("verbose", whole, "0", "0: no progress"),
)


def add_parameters(parser: ArgumentParser, names: tuple[str, ...] | None = None, **defaults: Any) -> None:
    """Add the flags of the parameters in `names` (default: all).

    One that is not given leaves no trace, unless the verb has a default of its own in `defaults`.
    """
    group = parser.add_argument_group("parameters (the estimator's names; other spellings in brackets)")
    for parameter in PARAMETERS:
        if names is not None and parameter.name not in names:
            continue
        shown, default = defaults.get(parameter.name, parameter.default), defaults.get(parameter.name, SUPPRESS)
        text = parameter.help + (f" (default {shown})" if shown != "" else "")
        text += f" [{', '.join(parameter.synonyms)}]" if parameter.synonyms else ""
        if parameter.read is None:
            group.add_argument(parameter.flag, action=BooleanOptionalAction, default=default, help=text)
        else:
            group.add_argument(parameter.flag, type=parameter.read, default=default, metavar="X", help=text)


def add_propensity_power(parser: ArgumentParser) -> None:
    """Add the flag that lets rare labels come earlier."""
    text = "rank by chance x inverse propensity ^ P: 0 (default) for P@k, 1 for PSP@k, between them for some of both"
    parser.add_argument("--propensity-power", type=number, default=0.0, metavar="P", help=text)


def given_parameters(args: Namespace) -> dict[str, Any]:
    """Return the parameters that the command line named."""
    return {p.name: getattr(args, p.name) for p in PARAMETERS if hasattr(args, p.name)}
