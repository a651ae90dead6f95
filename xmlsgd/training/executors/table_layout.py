"""Which arrays of the table each worker trains, and the shape of the table that they make.

Workers that write the shared model in place share its optimizer state, on purpose without locks. A worker that pushes
differences has a state of its own: a copy of a shared one would undo what others wrote to it meanwhile, and the state
of a worker that dies in the middle of a step is dropped with its copy of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...nn.network import state_layout
from ..messages import Sharing
from ..shared_parameters import Shape, WorkerArrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...nn.network import Network
    from ...nn.optimizers import Optimizer


def worker_arrays(sharing: Sequence[Sharing], copies: bool = False) -> list[WorkerArrays]:
    """Return the arrays of each worker, given how it meets the shared model.

    copies : whether workers in place step on copies, too. Either all workers have replicas or none.
    """
    if Sharing.REPLICAS in sharing:
        return [WorkerArrays(1 + w, w, marks=w) for w in range(len(sharing))]
    own = [kind is Sharing.DELTA for kind in sharing]
    n_copies = len(sharing) if copies else sum(own)
    copy, state, arrays = 0, 0 if all(own) else 1, []  # the first state is shared, if any worker writes in place
    for has_own in own:
        if not (copies or has_own):
            arrays.append(WorkerArrays(0, 0))
            continue
        copy += 1
        arrays.append(WorkerArrays(copy, state if has_own else 0, base=copy + n_copies))
        state += has_own
    return arrays


def table_shape(network: Network, optimizer: Optimizer, arrays: Sequence[WorkerArrays]) -> Shape:
    """Return the shape of the table of a run."""
    layout = network.layout
    return Shape(
        layout.size,
        state_layout(layout, optimizer).size,
        replicas=max(worker.params if worker.base is None else worker.base for worker in arrays),
        states=1 + max(worker.state for worker in arrays),
        marks=network.n_features + network.n_labels,
    )
