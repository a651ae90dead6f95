"""How a network with a shortlist is learned: on rows of which some are left to the blend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..candidates import HELD_OUT_BOOSTED, HELD_OUT_LOGISTIC, CandidateModel, fit_candidates, held_out_rows
from .inference import Scorer
from .inference.candidates import pair_scores

if TYPE_CHECKING:
    from .task import Task


@dataclass(frozen=True, eq=False)
class Listing:
    """A shortlist to be: the task for the network, in which rows of `held_out` weigh nothing."""

    task: Task
    weight: np.ndarray | None
    held_out: np.ndarray

    @classmethod
    def begin(cls, task: Task, seed: int) -> Listing:
        """Choose the rows that neither path may learn, none of weight 0."""
        given = np.ones(task.n_rows, np.float32) if task.weight is None else task.weight
        rows = np.flatnonzero(given)
        held_out = rows[held_out_rows(len(rows), seed, HELD_OUT_BOOSTED if task.boosted else HELD_OUT_LOGISTIC)]
        if not len(held_out):
            return cls(task, task.weight, held_out)
        learned = given.copy()
        learned[held_out] = 0
        return cls(replace(task, weight=learned), task.weight, held_out)

    def finish(self, params: np.ndarray) -> CandidateModel:
        """Learn the shortlist of a network with these parameters."""
        task, cpu = self.task, self.task.cpu
        logits = pair_scores(Scorer(task.network, params, task.device), cpu)
        return fit_candidates(task.dataset, self.weight, self.held_out, task.shortlist_size, logits, cpu, task.boosted)
