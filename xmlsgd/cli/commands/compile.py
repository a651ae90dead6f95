"""Compile all kernels now, for one thread and for several, so that no later run has to wait.

It fails if kernels cannot be kept for later runs.
"""

from __future__ import annotations

import time
from typing import Any

from ..messages import Console
from ..parameters import parameter_flags

FLAGS = parameter_flags("precision", "n_jobs")
EXAMPLES = "  xmlsgd compile"


def run(parameters: dict[str, Any], console: Console) -> None:
    """Compile all kernels and report the duration; raise `OSError` if they cannot be kept."""
    from ...data.files.numba_cache import not_kept
    from ...data.parser.parse import Options, parse
    from ...estimators.workers import make_device, thread_count
    from ...nn.losses import find_loss, loss_names
    from ...nn.optimizers import find_optimizer, optimizer_names
    from ..training_runs import compile_kernels

    not_kept.clear()
    started = time.perf_counter()
    losses = [find_loss(name) for name in loss_names()]
    optimizers = [find_optimizer(name)() for name in optimizer_names()]
    parse(b"0 0:1\n", Options(), None, None)
    for n_threads in sorted({1, thread_count(parameters.get("n_jobs"))}):
        compile_kernels({**parameters, "n_jobs": n_threads})
        device = make_device("cpu", n_threads, parameters.get("precision", "auto"))
        for rounding in (False, True):
            device.load_kernels(losses, optimizers, rounding=rounding)
    if not_kept:
        raise OSError(f"not all kernels are compiled and kept: {not_kept[0]}")
    console.show(f"kernels are compiled ({time.perf_counter() - started:.1f} s)")
