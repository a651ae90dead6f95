"""What crosses between coordinator and workers: small frozen records of numbers, never data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One batch for one worker: rows `start` to `stop` of the order of `epoch`, at `learning_rate`."""

    worker: int
    epoch: int
    start: int
    stop: int
    learning_rate: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says of a finished step: `loss` is the sum over its rows, `nnz` their stored features."""

    worker: int
    rows: int
    nnz: int
    loss: float
    seconds: float
