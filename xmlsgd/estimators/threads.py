"""How many threads work: as many as a caller asks for, or as the work can feed."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from ..data.cores import usable_threads
from ..errors import DataError, shorten

if TYPE_CHECKING:
    from ..data.csr import CSR
    from ..nn.network import Network

# 0.2 ms of a core: on a busy machine, threads that wait for each other five times a step cost more than they bring.
FLOPS_PER_THREAD = 2e7
LIST_FLOPS = 2.5e6  # 25 microseconds of a core


def thread_count(n_jobs: int | None, flops: float = math.inf) -> int:
    """Return the threads of `n_jobs`: -1 for all cores that this process may use, -2 for all but one, and so on.

    None is for as many as `flops`, the work of a step or of a prediction, can feed. At least one and at most all cores:
    more threads than cores only cost memory. One in a process that was forked after kernels had started threads.
    """
    if n_jobs is None:
        return int(min(usable_threads(), max(flops / FLOPS_PER_THREAD, 1)))
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise DataError(f"n_jobs: must be None or an integer other than 0, got {shorten(n_jobs)}")
    return min(int(n_jobs), usable_threads()) if n_jobs > 0 else max(usable_threads() + 1 + int(n_jobs), 1)


def flops(network: Network, X: CSR, n_rows: int, listed: bool = False) -> float:
    """Return about how many floating-point operations the layers take forward on `n_rows` rows like those of X.

    listed : with candidates in place of the output layer.
    """
    widths = [*network.hidden] if listed else [*network.hidden, network.n_labels]
    dense = sum(a * b for a, b in itertools.pairwise(widths))
    return n_rows * (2.0 * (dense + network.hidden[0] * X.nnz / max(X.n_rows, 1)) + listed * LIST_FLOPS)
