"""Devices that end their process; worker processes import this module, so it imports little."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from xmlsgd.data.csr import CSR
from xmlsgd.devices.base import EXACT
from xmlsgd.devices.reference import Reference


class Killed(Reference):
    """Ends its process in the middle of a step that trains one of the `fatal` rows, once each."""

    def __init__(self, folder: Path, fatal: Collection[int]) -> None:
        self.folder, self.fatal = folder, fatal

    def input_step(self, X: CSR, rows: np.ndarray, *given: Any) -> None:
        """Step, after a kill where it is due."""
        self.die(rows)
        super().input_step(X, rows, *given)

    def die(self, rows: np.ndarray) -> None:
        """Kill this process for a fatal row that has killed none."""
        for row in set(rows.tolist()) & set(self.fatal):
            if not (self.folder / str(row)).exists():
                (self.folder / str(row)).touch()
                os.kill(os.getpid(), signal.SIGKILL)


class Marking(Killed):
    """Adds 1 to the weight of a row's feature when the row is trained, and changes nothing else."""

    def input_forward(self, X: CSR, rows: np.ndarray, layer: Any) -> np.ndarray:
        """Return zeros."""
        return np.zeros((len(rows), layer.W.shape[1]), np.float32)

    def output_step(self, A: Any, targets: Any, layer: Any, loss: Any, update: Any, rounding: Any = EXACT) -> Any:
        """Change nothing."""
        return 0.0, A

    def input_step(self, X: CSR, rows: np.ndarray, dZ: Any, layer: Any, *given: Any) -> None:
        """Mark half of the rows, then the others, with the kill between them."""
        half = len(rows) // 2
        layer.W[X.columns_of(rows[:half])] += 1
        self.die(rows)
        layer.W[X.columns_of(rows[half:])] += 1
