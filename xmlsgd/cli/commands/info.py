"""Show versions, processor and what of it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine import gpu, processor, versions
from ..outputs import check_file
from ..parameters import place
from ..results import answer, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("--json", type=place, metavar="FILE", help="write the same as JSON, - for stdout")


def run(args: Namespace) -> None:
    """Print a line for each fact."""
    check_file(args.json, "--json")
    facts = {**versions(), **processor(), "gpu": gpu()}
    answer(args, "\n".join(f"{name:<14} {value}" for name, value in facts.items()))
    write_json(args.json, facts)
