"""Samplers: they choose the labels that a batch trains; one file each, found by name (`data.registry`).

They choose all labels, or the true labels of the batch and some that no row of it has. Pairs of a row and a label that
it does not have teach little, but cost most of a step. All rows of a batch share its labels, so that a step remains a
product of dense matrices.
"""

from __future__ import annotations

from ...data.registry import find_part
from ...errors import DataError
from .all import ALL_LABELS as ALL_LABELS
from .base import Batch as Batch
from .base import Sampler as Sampler
from .base import true_among as true_among


def find_sampler(name: str) -> type[Sampler]:
    """Return the class of a name; raise `DataError` for an unknown one, and if its module or class lacks a part."""
    kind = find_part(__name__, "sampler", name, "SAMPLER")
    if not (isinstance(kind, type) and issubclass(kind, Sampler)):
        raise DataError(f"sampler {name!r}: SAMPLER must be a class of Sampler, got {kind!r}")
    if kind.draw is Sampler.draw and kind.begin is Sampler.begin:
        raise DataError(f"sampler {name!r}: {kind.__name__} does not define draw; see Sampler.draw")
    return kind
