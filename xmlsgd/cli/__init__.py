"""The command line: one module of `commands/` per command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from .. import __version__
from . import commands
from .exit_codes import open_closed_streams, run_guarded
from .flags import EVERYWHERE, Parser, add_flags, collect
from .input_options import InputOptions
from .machine import check_address_space, limit_threads
from .messages import STDOUT, Console, log_lines
from .output_files import check_files

COMMANDS = (
    "demo", "train", "tune", "learn", "evaluate", "report", "predict", "serve", "convert", "export", "simulate",
    "compile", "info",
)  # fmt: skip
ALIASES = {"evaluate": ["test"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and return its exit code.

    0: success. 1: a run failed. 2: wrong usage or bad input. 130: Ctrl-C. 143, 129: SIGTERM, SIGHUP. 141: the reader of
    the output has closed it.
    """
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    return run_guarded(lambda: run_command(words), traceback="--traceback" in words)


def run_command(words: Sequence[str]) -> None:
    """Parse the words of a command line and call the `run` function of its command."""
    args, unknown = new_parser().parse_known_args(words)
    values: dict[str, Any] = vars(args)
    command = values["command"]
    if unknown:
        values["parser"].refuse(unknown, words, values)
    check_address_space()
    check_files(command.FLAGS, values)
    arguments = collect(command.FLAGS, values)
    if "input_options" in arguments:
        arguments["input_options"] = InputOptions.of_flags(**arguments["input_options"])
    limit_threads(arguments.get("parameters", {}))
    taken = STDOUT in (values.get("json"), values.get("out"))
    console = Console(values["quiet"], taken, **arguments.pop("console", {}))
    with log_lines(console):
        command.run(**arguments, console=console)


def new_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="xmlsgd", description="Extreme multi-label classification. Flags: xmlsgd COMMAND --help")
    parser.add_argument("--version", action="version", version=f"xmlsgd {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = import_module(f"{commands.__name__}.{name}")
        text = str(command.__doc__).strip()
        usage = " ".join(["xmlsgd", name, *(flag.metavar for flag in command.FLAGS if flag.group == "arguments")])
        sub = subparsers.add_parser(
            name, aliases=ALIASES.get(name, []), usage=f"{usage} [flags]", help=text.split("\n")[0],
            description=text, epilog="examples:\n" + command.EXAMPLES,
        )  # fmt: skip
        sub.set_defaults(command=command, parser=sub)
        add_flags(sub, (*command.FLAGS, *EVERYWHERE))
    return parser
