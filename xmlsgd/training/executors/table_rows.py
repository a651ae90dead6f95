"""Which rows of the table each worker trains, and the shape of the table that they make.

Workers that write the shared model in place share its optimizer state, on purpose without locks. A worker that pushes
differences has a state of its own: a copy of a shared one would undo what others wrote to it meanwhile, and the state
of a worker that dies in the middle of a step is dropped with its copy of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...nn.network import state_layout
from ..messages import Sharing
from ..shared_parameters import Shape, WorkerRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...nn.network import Network
    from ...nn.optimizers import Optimizer


def rows_of(sharing: Sequence[Sharing], copies: bool = False) -> list[WorkerRows]:
    """Return the rows of each worker, given how it meets the shared model; `copies`: those in place step on copies too.

    Either all workers have replicas or none.
    """
    if Sharing.REPLICAS in sharing:
        return [WorkerRows(1 + w, w, marks=w) for w in range(len(sharing))]
    own = [kind is Sharing.DELTA for kind in sharing]
    n_copies = len(sharing) if copies else sum(own)
    copy, state, rows = 0, 0 if all(own) else 1, []  # the first state is shared, if any worker writes in place
    for has_own in own:
        if not (copies or has_own):
            rows.append(WorkerRows(0, 0))
            continue
        copy += 1
        rows.append(WorkerRows(copy, state if has_own else 0, base=copy + n_copies))
        state += has_own
    return rows


def table_shape(network: Network, optimizer: Optimizer, rows: Sequence[WorkerRows]) -> Shape:
    """Return the shape of the table of a run."""
    layout = network.layout
    return Shape(
        layout.size,
        state_layout(layout, optimizer).size,
        replicas=max(worker.params if worker.base is None else worker.base for worker in rows),
        states=1 + max(worker.state for worker in rows),
        marks=network.n_features + network.n_labels,
    )
