"""Compile all kernels now, so that no later run has to wait: those for one thread, and those for several."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..kernels import compile_kernels
from ..parameters import add_parameters, given_parameters
from ..results import show

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    add_parameters(parser, ("precision", "n_jobs"))


def run(args: Namespace) -> None:
    """Compile, and say how long it took."""
    from ...estimators.threads import thread_count
    from ..background import meanwhile

    started = time.perf_counter()
    parameters = given_parameters(args)
    n_threads = thread_count(parameters.get("n_jobs"))
    if n_threads == 1:
        compile_others(parameters, n_threads)
    else:  # two halves, which take about as long, on two cores; what both need is compiled by the first to need it
        with meanwhile(compile_others, parameters, n_threads):
            compile_kernels({**parameters, "n_jobs": n_threads})
    show(args, f"kernels are compiled ({time.perf_counter() - started:.1f} s)")


def compile_others(parameters: dict[str, Any], n_threads: int) -> None:
    """Compile what runs of one thread need, what reads files, and for either number of threads all losses."""
    from ...data.libsvm_parse import Options, parse
    from ...estimators.placement import make_device
    from ...nn.losses import LOSSES

    compile_kernels({**parameters, "n_jobs": 1})
    parse(b"0 0:1\n", Options(True, True, "auto", "error"), None, None)
    for threads in sorted({1, n_threads}):
        device = make_device("cpu", threads, parameters.get("precision", "auto"))
        for rounding in (False, True):
            device.warm_up(LOSSES.values(), rounding=rounding)
