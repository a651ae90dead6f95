"""Tables of flags, and the parser that is built from them.

One entry of a table gives the parser's argument, its line in the help and its other spellings. The parser refuses
unknown flags and wrong values in one line.
"""

from __future__ import annotations

import argparse
import math
import re
from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from ..data.document_formats import DOCUMENT_FORMATS
from ..errors import suggest
from .exit_codes import UsageError

# Headings of the help, in this order.
GROUPS = ("arguments", "data", "model", "training", "workers", "search", "server", "output")
# In the errors of argparse.
CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")
OTHER_SPELLINGS = re.compile(r"^(argument [^\s/:]+)(?:/[^\s:]+)+")


@dataclass(frozen=True)
class ValueType:
    """The type of a flag's value.

    name : as shown in the help. wanted : what a value must be, for errors. convert : the text of a value; raises
    `ValueError` if it cannot. fits : whether a converted value is allowed. choices : names, shown in the help. words :
    texts that are values as they are, such as `auto`.
    """

    name: str
    wanted: str = ""
    convert: Callable[[str], Any] = str
    fits: Callable[[Any], bool] = lambda value: True
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """Return the value of a text; raise `ArgumentTypeError` if it is wrong."""
        if text in self.words:
            return text
        with suppress(ValueError):
            if self.fits(value := self.convert(text)):
                return value
        words = f", or {' or '.join(self.words)}" if self.words else ""
        near = suggest(text, self.choices + self.words)
        raise ArgumentTypeError(f"must be {self.wanted}{words}, got {text!r}{near}")


def number(wanted: str, fits: Callable[[float], bool]) -> ValueType:
    """Return the type of a number for which `fits` is true; `wanted` says so in errors."""
    return ValueType("FLOAT", wanted, float, fits)


# Names of files and folders. An empty name is an error: mostly a variable of the shell that is not set.
PATH = ValueType("PATH", "a name", fits=bool)
FILE = replace(PATH, name="FILE")  # a file that the command writes; those that it reads are a PATH
DIR = replace(PATH, name="DIR")
NAME = ValueType("NAME")
INT = ValueType("INT", "a whole number", int)
FLOAT = ValueType("FLOAT", "a number", float)
COUNT = ValueType("INT", "a whole number of at least 1", int, lambda count: count >= 1)
MINUTES = ValueType("MINUTES", "a finite number of minutes, 0 or more", float, lambda minutes: 0 <= minutes < math.inf)
INTS = ValueType(
    "INT,...", "whole numbers with commas between, as in 512,256", lambda text: tuple(map(int, text.split(",")))
)
FREQUENCY = ValueType(
    "INT|FLOAT", "a number of texts or a share", lambda text: int(text) if text.isdecimal() else float(text)
)


def name_among(*choices: str) -> ValueType:
    """Return the type of a name that must be one of `choices`."""
    return ValueType("NAME", f"one of {', '.join(choices)}", fits=choices.__contains__, choices=choices)


def or_word(value_type: ValueType, *words: str) -> ValueType:
    """Return a type that also takes some words, such as `auto`, besides its values."""
    return replace(value_type, name="|".join((value_type.name, *words)), words=words)


THRESHOLD = or_word(number("a probability in [0, 1]", lambda least: 0 <= least <= 1), "micro", "macro")


def flag_of(name: str) -> str:
    """Return the flag that sets an argument or a parameter: `--batch-size` for `batch_size`."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class Flag:
    """A flag or, in the group "arguments", a positional argument.

    name : of the argument of the command's function; the flag of `batch_size` is `--batch-size`. value_type : None for
    a switch. default : value without the flag. default_text : how the help shows the default, if not as it is.
    collected_in : name of the argument of the function that takes the value with others, as a dictionary, as
    `InputOptions` or as the `Console`; empty for an argument of its own. only_if_given : without the flag, nothing is
    collected, and `default` is only shown in the help. repeated : each use adds a value. n_values : number of values of
    one use, if not one.
    """

    name: str
    value_type: ValueType | None
    help: str
    group: str
    default: Any = None
    default_text: str = ""
    synonyms: tuple[str, ...] = ()
    metavar: str = ""
    collected_in: str = ""
    only_if_given: bool = False
    repeated: bool = False
    n_values: int | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the flag and its synonyms, each with hyphens and with underscores."""
        names = (flag_of(self.name), *self.synonyms)
        return (*names, *(name[:2] + name[2:].replace("-", "_") for name in names if "-" in name[2:]))

    @property
    def help_text(self) -> str:
        """Return what the help says: the meaning, the choices, the default and the synonyms."""
        choices = self.value_type.choices if self.value_type else ()
        default = self.default_text or ("" if self.default is None or self.default is False else str(self.default))
        if self.value_type is None:
            default = default or "off"
        return (
            self.help
            + (f"; one of {', '.join(choices)}" if choices else "")
            + (f" (default: {default})" if default and self.group != "arguments" else "")
            + (f" [{', '.join(self.synonyms)}]" if self.synonyms else "")
        ).replace("%", "%%")

    def add_to(self, group: Any) -> None:
        """Add the argument to a parser, or to an argument group of it."""
        if self.group == "arguments" and self.value_type is not None:
            group.add_argument(self.name, type=self.value_type.read, metavar=self.metavar, help=self.help_text)
            return
        default = SUPPRESS if self.only_if_given else self.default
        options: dict[str, Any] = {"dest": self.name, "default": default, "help": self.help_text}
        if self.value_type is None:
            options |= (
                {"action": BooleanOptionalAction} if self.only_if_given else {"action": "store_true", "default": False}
            )
        else:
            options |= {"type": self.value_type.read, "metavar": self.metavar or self.value_type.name}
            options |= {"action": "append"} if self.repeated else {"nargs": self.n_values}
        group.add_argument(*self.spellings, **options)


# A flag that sets a field of `InputOptions`; the defaults are there.
InputFlag = partial(Flag, group="data", collected_in="input_options", only_if_given=True)


def add_flags(parser: argparse.ArgumentParser, flags: Sequence[Flag]) -> None:
    """Add flags to a parser, under the headings of their groups."""
    for heading in GROUPS:
        if members := [flag for flag in flags if flag.group == heading]:
            group = parser.add_argument_group(heading)
            for flag in members:
                flag.add_to(group)


def collect(flags: Sequence[Flag], values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command's function, given the values that the parser has found."""
    arguments: dict[str, Any] = {flag.collected_in: {} for flag in flags if flag.collected_in}
    for flag in flags:
        if flag.name in values:
            (arguments[flag.collected_in] if flag.collected_in else arguments)[flag.name] = values[flag.name]
    return arguments


def positional(name: str, value_type: ValueType, metavar: str, text: str) -> Flag:
    """Return a positional argument."""
    return Flag(name, value_type, text, "arguments", metavar=metavar)


# Flags of several commands.
JSON_FILE = Flag("json", FILE, "write the results as JSON; - is standard output", "output", collected_in="console")
LABEL_TEXTS = InputFlag(
    "label_texts", PATH,
    "file of the texts of labels: one per line, or `label<TAB>text`; labels are also learned from these words",
)  # fmt: skip
OVERWRITE = Flag("overwrite", None, "replace what an earlier run has written there", "output")
PROPENSITY_POWER = Flag(
    "propensity_power", number("0 or more", lambda power: 0 <= power < math.inf),
    "rank by probability x inverse propensity ^ FLOAT: 0 is best for P@k, 1 for PSP@k; between, a compromise",
    "model", default=0.0,
)  # fmt: skip
PROPENSITY_CONSTANTS = (
    Flag("propensity_a", number("from 0 to 10", lambda A: 0 <= A <= 10), "A of the propensities (docs/metrics.md)",
         "output", 0.55, metavar="A"),
    Flag("propensity_b", number("above 0 and at most 100", lambda B: 0 < B <= 100),
         "B of the propensities (docs/metrics.md)", "output", 1.5, metavar="B"),
)  # fmt: skip
ID_COLUMN = InputFlag(
    "id_column", NAME, "column of CSV, or key of JSON lines, with an identifier that is written with each row",
    default_text="none",
)  # fmt: skip
EXCLUDE = Flag(
    "exclude", PATH, "labels that are never suggested, such as deprecated ones: names, one per line", "output"
)
EVERYWHERE = (
    Flag("quiet", None, "print no notes and no progress", "output", synonyms=("-q",)),
    Flag("traceback", None, "show the traceback of an error", "output"),
)


# How data files are read.
FORMAT_FLAGS = (
    InputFlag("format", name_among("auto", "rows", *DOCUMENT_FORMATS), "numeric features, or texts as raw "
               "text, CSV, JSON lines, Annif corpus or fastText; auto looks at name and first lines", default="auto"),
    InputFlag("text_column", NAME, "column of the texts in CSV, or their key in JSON lines; `a,b` joins several "
               "by spaces", default="text"),
    InputFlag("label_column", NAME, "column of the labels in CSV, or their key in JSON lines", default="labels"),
    InputFlag("label_separator", NAME, "text between two labels in raw text and CSV", default=","),
    InputFlag("vocabulary", PATH, "file of lines `<uri><TAB>label`, the names of labels that are URIs; "
               "also learned as label texts",
               default_text="those of the model, or the URIs"),
    InputFlag("one_based", None, "features count from 1, as in LIBSVM files", default=False),
    InputFlag("one_based_labels", None, "labels count from 1", default=False),
    InputFlag("duplicates", name_among("error", "sum"), "what to do about a feature that occurs twice in a row",
               default="error"),
)  # fmt: skip
# How words of texts become features, for commands that make new features.
VECTORIZER_FLAGS = (
    InputFlag("min_df", FREQUENCY, "leave out words that fewer training texts have: a number or a share, as in 0.001",
               default_text="1"),
    InputFlag("max_df", FREQUENCY, "leave out words that more training texts have: a number (1 is one text) or a "
               "share, as in 0.5", default_text="1.0"),
    InputFlag("max_features", INT, "number of words to keep, the most frequent ones", default_text="all"),
    InputFlag("ngram_range", INTS, "least and greatest n of n-grams; 1,2 adds pairs of words",
               default_text="1,1"),
    InputFlag("analyzer", name_among("word", "char_wb"), "n-grams of words, or of characters within words",
               default_text="chosen on held-out texts; word with another of these flags"),
    InputFlag("stop_words", PATH, "file of words to leave out, one per line", metavar="FILE"),
    InputFlag("sublinear_tf", None, "count a word that occurs tf times in a text as 1 + ln tf, not as tf",
               default_text="on"),
)  # fmt: skip
# What belongs to training rows.
TRAINING_DATA_FLAGS = (
    InputFlag("groups", PATH, "file whose line i is the group of training row i: all rows of a group are held out, or "
               "none; 'similar' if new rows will be unlike these: similar rows then form groups",
               default_text="rows are independent"),
    *FORMAT_FLAGS,
    *VECTORIZER_FLAGS,
    LABEL_TEXTS,
    InputFlag("feature_names", PATH,
               "file of the names of numeric features, one per line; for label texts and explanations"),
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UsageError` with one line and takes no abbreviated flags."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": Formatter, **options})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise the message with the choice that may have been meant, or with the command that shows the help."""
        choice = CHOICE.search(message)
        message = OTHER_SPELLINGS.sub(r"\1", message)
        message += suggest(choice[1], re.split("[', ]+", choice[2])) if choice else ""
        raise UsageError(message if message.endswith("?") else f"{message}; see {self.prog} --help")

    def refuse(self, unknown: Sequence[str], words: Sequence[str], values: dict[str, Any]) -> NoReturn:
        """Raise `UsageError` for unknown words of a command line, with what the user probably meant.

        values : what the parser has found. The command's `INSTEAD` says what to do in place of a flag, or of any word
        that is no flag, under the key "".
        """
        word = unknown[0].partition("=")[0]
        is_flag = word.startswith("-")
        instead = getattr(values["command"], "INSTEAD", {}).get(word if is_flag else "")
        if not is_flag and (flag := self._list_flag_before(word, words)):
            instead = f"separate the values of {flag} by commas"
        elif not is_flag and values.get("test", "") is None:
            instead = "pass test rows by --test"
        hint = f"; {instead}" if instead else self._nearest_flag(word)
        raise UsageError(f"unrecognized arguments: {' '.join(unknown)}{hint or f'; see {self.prog} --help'}")

    def _list_flag_before(self, word: str, words: Sequence[str]) -> str | None:
        """Return the flag of a list that a word follows as if it were a second value, as in `--hidden 64 64`."""
        actions = self._option_string_actions
        flags = (flag for flag, after in zip(words, words[2:], strict=False) if after == word and flag in actions)
        return next((flag for flag in flags if ",..." in str(actions[flag].metavar)), None)

    def _nearest_flag(self, word: str) -> str:
        """Return "; did you mean" and the flag, in any of its spellings, that is most like a word; empty if none is."""
        # Compare names without hyphens, which all flags begin with.
        by_name = {name.lstrip("-"): name for name in self._option_string_actions if "_" not in name}
        near = get_close_matches(word.lstrip("-").replace("_", "-"), by_name, n=1)
        return f"; did you mean {by_name[near[0]]!r}?" if near else ""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of descriptions and shows a flag by its first spelling and its type."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.dest == "help":
            return super()._format_action_invocation(action)
        flag = action.option_strings[0]
        if isinstance(action, BooleanOptionalAction):
            return f"{flag}, --no-{flag[2:]}"
        return flag if action.nargs == 0 else f"{flag} {action.metavar}"
