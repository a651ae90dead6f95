"""The command line: a file of `commands/` a verb, named by it. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from .. import __version__
from . import commands
from .failures import UsageError, guarded, open_closed_streams
from .logs import logs_said
from .machine import limit_threads
from .parser import Parser, canonical, formatted

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = ("demo", "train", "evaluate", "predict", "convert", "simulate", "bench", "warmup", "info")
ALIASES = {"evaluate": ["test"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's own) and return its exit code.

    0: done. 1: a run failed. 2: wrong usage or bad input. 130: Ctrl-C. 143, 129: SIGTERM, SIGHUP. 141: whoever
    read the output has left.
    """
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: dispatch(words), traceback="--traceback" in words)


def dispatch(words: Sequence[str]) -> None:
    """Parse the words and run their verb."""
    args, strange = new_parser().parse_known_args(canonical(words))
    if strange:
        second = not strange[0].startswith("-") and getattr(args, "test", "") is None
        near = args.parser.nearest_flag(strange[0])
        hint = "; test rows go behind --test" if second else near or f"; see xmlsgd {args.verb} --help"
        raise UsageError(f"unrecognized arguments: {' '.join(strange)}{hint}")
    limit_threads(args)
    with logs_said(args):
        import_module(f"{commands.__name__}.{args.verb}").run(args)


def new_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="xmlsgd", description="Sparse neural networks for extreme multi-label classification.")
    parser.add_argument("--version", action="version", version=f"xmlsgd {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="VERB", required=True)
    for verb in VERBS:
        module = import_module(f"{commands.__name__}.{verb}")
        text = str(module.__doc__).strip()
        one = subparsers.add_parser(
            verb, aliases=ALIASES.get(verb, []), help=text.split("\n")[0], description=text, formatter_class=formatted
        )
        one.set_defaults(verb=verb, parser=one)
        module.add_arguments(one)
        one.add_argument("--quiet", action="store_true", help="no notes and no progress")
        one.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser
