"""Optimizers: one file each, found by name (`data.registry`).

Only rows with a gradient are updated ("lazy" rows). A feature that does not occur in a batch keeps its weights and its
state; so does a label whose gradients were all dropped by sparsification. So the time for a step depends on the size of
the batch, not on the number of features.
"""

from __future__ import annotations

from ...data.registry import find_part, part_names
from ...errors import DataError
from .adagrad import Adagrad as Adagrad
from .adam import Adam as Adam
from .base import CLIP as CLIP
from .base import DECAY as DECAY
from .base import EPSILON as EPSILON
from .base import RATE as RATE
from .base import Optimizer as Optimizer
from .base import Update as Update
from .momentum import Momentum as Momentum
from .rmsprop import RMSprop as RMSprop
from .row_rmsprop import RowRMSprop as RowRMSprop
from .sgd import SGD as SGD


def optimizer_names() -> list[str]:
    """Return the names of all optimizers."""
    return part_names(__name__)


def find_optimizer(name: str) -> type[Optimizer]:
    """Return the class of a name; raise `DataError` for an unknown one, and if its module or class lacks a part."""
    kind = find_part(__name__, "optimizer", name, "OPTIMIZER", " or an Optimizer")
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise DataError(f"optimizer {name!r}: OPTIMIZER must be a class of Optimizer, got {kind!r}")
    kind.check_methods()
    return kind


def get_optimizer(optimizer: str | Optimizer, **numbers: float) -> Optimizer:
    """Return the optimizer of a name, with `numbers` as arguments; return an `Optimizer` unchanged.

    Raises `DataError` for unknown names, and for an `Optimizer` with numbers other than 0, as it has its own.
    """
    if isinstance(optimizer, Optimizer):
        if given := [name for name, number in numbers.items() if number]:
            raise DataError(f"{given[0]}: is part of the optimizer, got it beside {optimizer}; leave it out")
        return optimizer
    return find_optimizer(optimizer)(**numbers)
