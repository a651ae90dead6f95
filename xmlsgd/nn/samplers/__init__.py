"""Samplers: which labels a batch trains; a file each, found by its name (`registry`).

All of them, or the batch's own true labels and some that no row of it has. A row and a label that it does not have
teach little, and most of a step goes into such pairs. That a whole batch shares its labels keeps the work a product of
dense matrices.
"""

from __future__ import annotations

from ...data.registry import find_part
from ...errors import DataError
from .all import ALL_LABELS as ALL_LABELS
from .base import Batch as Batch
from .base import Sampler as Sampler


def find_sampler(name: str) -> type[Sampler]:
    """Return the class of a name; `DataError` for an unknown one, and where its module lacks something."""
    kind = find_part(__name__, "sampler", name, "SAMPLER")
    if not (isinstance(kind, type) and issubclass(kind, Sampler)):
        raise DataError(f"sampler {name!r}: SAMPLER must be a class of Sampler, got {kind!r}")
    if kind.draw is Sampler.draw and kind.begin is Sampler.begin:
        raise DataError(f"sampler {name!r}: {kind.__name__} does not define draw; see Sampler.draw")
    return kind
