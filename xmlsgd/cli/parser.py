"""The parser: errors in one line that suggest what was meant, and help that shows one spelling per flag."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from ..errors import suggest
from .exit_codes import UsageError

CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")  # argparse's words
OTHER_SPELLINGS = re.compile(r"^(argument [^\s/:]+)(?:/[^\s:]+)+")


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

    def nearest_flag(self, word: str) -> str:
        """Return a suggestion of the flag, in any of its spellings, that a word may have meant."""
        return suggest(word.partition("=")[0], self._option_string_actions)


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of descriptions and shows a flag by its first spelling and its type."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.dest == "help":
            return super()._format_action_invocation(action)
        flag = action.option_strings[0]
        if isinstance(action, argparse.BooleanOptionalAction):
            return f"{flag}, --no-{flag[2:]}"
        return flag if action.nargs == 0 else f"{flag} {action.metavar}"
