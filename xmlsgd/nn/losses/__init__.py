"""Losses of the logits and labels of a row: one file each, found by name (`data.registry`)."""

from __future__ import annotations

from ...data.registry import find_part, part_names
from ...errors import DataError
from .base import Loss as Loss


def loss_names() -> list[str]:
    """Return the names of all losses."""
    return part_names(__name__)


def find_loss(name: str) -> Loss:
    """Return the loss of a name; raise `DataError` for an unknown one, and if its module defines no `Loss`."""
    loss = find_part(__name__, "loss", name, "LOSS")
    if not isinstance(loss, Loss):
        raise DataError(f"loss {name!r}: LOSS must be a Loss, got {loss!r}; see CONTRIBUTING.md")
    return loss
