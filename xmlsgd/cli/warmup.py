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
    from ..datasets.libsvm_parse import Options, parse
    from ..estimators.fleet import make_device
    from ..estimators.threads import thread_count
    from ..losses import LOSSES

    started = time.perf_counter()
    parameters = given_parameters(args)
    compile_kernels(parameters)
    parse(b"0 0:1\n", Options(True, True, "auto", "error"), None, None)
    for n_threads in {1, thread_count(parameters.get("n_jobs"))}:  # one thread has kernels of its own
        device = make_device("cpu", n_threads, parameters.get("precision", "auto"))
        for rounding in (False, True):
            device.warm_up(LOSSES.values(), rounding=rounding)
    show(args, f"kernels are compiled ({time.perf_counter() - started:.1f} s)")
