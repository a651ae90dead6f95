"""Flags as data: from one entry follow the parser's argument, its line in the help and its other spellings."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .value_types import FILE, FLOAT, NAME, PATH, ValueType, name_among

GROUPS = (
    "arguments",
    "data",
    "model",
    "training",
    "workers",
    "server",
    "output",
)  # headings of the help, in this order


@dataclass(frozen=True)
class Flag:
    """A flag or, in the group "arguments", a positional argument.

    name : of the command's argument; the flag of `batch_size` is `--batch-size`. value_type : None for a switch.
    default : value without the flag; `default_text` says it in the help where the value itself would not.
    part_of : the argument of the command that collects this one with others, in a dictionary. omitted : without the
    flag there is no entry in that dictionary, and `default` is only shown. repeated : each use adds a value.
    """

    name: str
    value_type: ValueType | None
    help: str
    group: str
    default: Any = None
    default_text: str = ""
    synonyms: tuple[str, ...] = ()
    metavar: str = ""
    part_of: str = ""
    omitted: bool = False
    repeated: bool = False

    @property
    def flag(self) -> str:
        """Return the flag as the help shows it."""
        return "--" + self.name.replace("_", "-")

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the flag and its synonyms, each with hyphens and with underscores."""
        names = (self.flag, *self.synonyms)
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
        """Add the argument to a parser or to a group of one."""
        if self.group == "arguments" and self.value_type is not None:
            group.add_argument(self.name, type=self.value_type.read, metavar=self.metavar, help=self.help_text)
            return
        default = SUPPRESS if self.omitted else self.default
        options: dict[str, Any] = {"dest": self.name, "default": default, "help": self.help_text}
        if self.value_type is None:
            options["action"] = BooleanOptionalAction if self.omitted else "store_true"
        else:
            options |= {"type": self.value_type.read, "metavar": self.metavar or self.value_type.name}
            options |= {"action": "append"} if self.repeated else {}
        group.add_argument(*self.spellings, **options)


def add_flags(parser: ArgumentParser, flags: Sequence[Flag]) -> None:
    """Add flags to a parser, under the headings of their groups."""
    for heading in GROUPS:
        if members := [flag for flag in flags if flag.group == heading]:
            group = parser.add_argument_group(heading)
            for flag in members:
                flag.add_to(group)


def collect(flags: Sequence[Flag], values: dict[str, Any]) -> dict[str, Any]:
    """Return a command's arguments from the values that the parser has found."""
    arguments: dict[str, Any] = {flag.part_of: {} for flag in flags if flag.part_of}
    for flag in flags:
        if flag.name in values:
            (arguments[flag.part_of] if flag.part_of else arguments)[flag.name] = values[flag.name]
    return arguments


def positional(name: str, value_type: ValueType, metavar: str, text: str) -> Flag:
    """Return a positional argument."""
    return Flag(name, value_type, text, "arguments", metavar=metavar)


# Flags of several commands.
JSON_FILE = Flag("json", FILE, "write the results as JSON; - is standard output", "output")
OVERWRITE = Flag("overwrite", None, "replace what an earlier run wrote under this name", "output")
PROPENSITY_POWER = Flag(
    "propensity_power", FLOAT,
    "rank by probability x inverse propensity ^ FLOAT: 0 is best for P@k, 1 for PSP@k, values between for both",
    "model", default=0.0,
)  # fmt: skip
EVERYWHERE = (
    Flag("quiet", None, "print no notes and no progress", "output"),
    Flag("traceback", None, "show the traceback of an error", "output"),
)
# How data files are read: the fields of `FormatOptions`.
FORMAT_FLAGS = (
    Flag("format", name_among("auto", "rows", "raw", "csv", "jsonl", "annif"), "rows of numbers, or texts as raw "
         "text, CSV, JSON lines or an Annif corpus; auto looks at name and first lines",
         "data", "auto", part_of="format_options"),
    Flag("text_column", NAME, "texts in CSV and JSON lines", "data", "text", part_of="format_options"),
    Flag("label_column", NAME, "labels in CSV and JSON lines", "data", "labels", part_of="format_options"),
    Flag("label_separator", NAME, "what stands between labels in raw text and CSV", "data", ",",
         part_of="format_options"),
    Flag("vocabulary", PATH, "names of the subjects of an Annif corpus, `<uri><TAB>label` a line", "data",
         default_text="the URIs", part_of="format_options"),
    Flag("one_based", None, "features count from 1, as in LIBSVM files", "data", False, part_of="format_options"),
    Flag("one_based_labels", None, "labels count from 1", "data", False, part_of="format_options"),
    Flag("header", name_among("auto", "yes", "no"), "whether the first line holds the shape", "data", "auto",
         part_of="format_options"),
    Flag("duplicates", name_among("error", "sum"), "what to do about a feature that comes twice in a row", "data",
         "error", part_of="format_options"),
)  # fmt: skip
