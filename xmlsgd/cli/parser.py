"""What all verbs share of their flags: one-line errors, and spellings that the field uses for one thing."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, NoReturn

from ..errors import suggest
from .failures import UsageError
from .parameters import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Spellings of flags that are no parameters of the estimator.
SYNONYMS = {
    "--k": ("-k", "--top-k", "--topk"),
    "--out": ("-o", "--output"),
    "--n-estimators": ("--n_estimators",),
}


CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")  # as argparse says it


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UsageError` with one line, and takes no abbreviated flags."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"allow_abbrev": False, **options})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise the message with the choice that may have been meant, or the command that shows all."""
        choice = CHOICE.search(message)
        message += suggest(choice[1], re.split("[', ]+", choice[2])) if choice else ""
        raise UsageError(message if message.endswith("?") else f"{message}; see {self.prog} --help")

    def nearest_flag(self, word: str) -> str:
        """Return the flag, in any of its spellings, that a word may have meant: `; did you mean '--lr'?`."""
        own = self._option_string_actions
        return suggest(word.partition("=")[0], [*own, *(other for other, flag in spellings().items() if flag in own)])


def formatted(prog: str) -> argparse.HelpFormatter:
    """Return a formatter that keeps the lines of descriptions and gives flags room."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=34)


def canonical(words: Sequence[str]) -> list[str]:
    """Return the words with each known flag spelled as its parameter: `--epochs=5` becomes `--max-epochs=5`."""
    known = spellings()
    words = list(words)
    end = words.index("--") if "--" in words else len(words)
    for i, word in enumerate(words[:end]):
        flag, equals, value = word.partition("=")
        words[i] = f"{known.get(flag, flag)}{equals}{value}"
    return words


def spellings() -> dict[str, str]:
    """Return the flag of each of its spellings."""
    known = {other: flag for flag, others in SYNONYMS.items() for other in others}
    for parameter in PARAMETERS:
        known |= dict.fromkeys((f"--{parameter.name}", *parameter.synonyms), parameter.flag)
        known |= {name.replace("-", "_").replace("__", "--", 1): parameter.flag for name in parameter.synonyms}
    return known
