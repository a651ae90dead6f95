"""What all measurements of one call share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .launch import Launcher

RATE = 6e-3  # of networks that are trained without the estimator


@dataclass(frozen=True)
class Plan:
    """How peers are started, where intermediate files and results go, how much is measured."""

    launcher: Launcher
    work: Path
    out: Path
    rounds: int = 3
    steps: int = 128  # of training, timed in a round
    variants: tuple[str, ...] | None = None  # of PyTorch; None for all
    peers: tuple[str, ...] = ()  # PEER or PEER:SETTING
    parameters: dict[str, Any] = field(default_factory=dict)  # of XMLClassifier
    reuse: bool = False  # runs of an earlier call
    epochs: int = 3  # of the runs of several workers
    algorithms: tuple[str, ...] = ()  # of several workers; () for all
    seeds: int = 1  # of whole runs, of which the mean is told

    @property
    def threads(self) -> int:
        """Return the threads of everybody."""
        return self.launcher.threads

    def folder(self, kind: str, prepared: Path) -> Path:
        """Return a folder for the intermediate files of a measurement."""
        path = self.work / kind / prepared.name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def given(self) -> list[str]:
        """Return the option that hands the parameters to our runner."""
        return ["--parameters", json.dumps(self.parameters)] if self.parameters else []
