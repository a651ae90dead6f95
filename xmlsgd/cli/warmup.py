"""Compile all kernels now, so that no later run has to wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .kernels import compile_kernels
from .parameters import add_parameters, given_parameters
from .results import show

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    add_parameters(parser, ("precision", "n_jobs"))


def run(args: Namespace) -> None:
    """Compile, and say how long it took."""
    started = time.perf_counter()
    compile_kernels(given_parameters(args))
    show(args, f"kernels are compiled ({time.perf_counter() - started:.1f} s)")
