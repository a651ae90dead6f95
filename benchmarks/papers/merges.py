"""What stands behind the results of merges: perturbed weights, momentum, and how much time merges may take.

Adaptive SGD as published, with merges every 16 batches and every 100, then with one part changed; and what `auto`
chooses, with two shares of the time for merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.combiners import shares
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.rounds import BATCHES, Work
from xmlsgd.training.merging import Comm

from ..report import Table
from .beyond import compact
from .study import COLUMNS, Method, Study, compared

OFTEN = 16  # batches, as local SGD has at first with four workers
SHARES = (LocalSGD.merging, 0.3)  # of the time that merges of local SGD may take


@dataclass
class SumToOne(AdaptiveSGD):
    """Adaptive SGD whose perturbed weights are made to sum to 1."""

    def merge_weights(self, comm: Comm, work: Mapping[int, Work]) -> dict[int, float]:
        """Return the weights over their sum."""
        return shares(super().merge_weights(comm, work))


def merges(study: Study) -> None:
    """Run all scenarios and publish their table."""
    found = {name: study.run(methods(study, name)) for name in study.scenarios}
    tables = {name: compared(runs, name) for name, runs in found.items()}
    rows = [[name, *row] for name, of_scenario in tables.items() for row in of_scenario.rows]
    notes = [f"{name}: {of_scenario.notes[0]}" for name, of_scenario in tables.items()]
    table = Table(f"What merges change on {study.data}", ("scenario", *COLUMNS), rows, notes)
    study.publish("merges", table, {name: compact(runs) for name, runs in found.items()})


def methods(study: Study, scenario: str) -> list[Method]:
    """Return Adaptive SGD as published and changed, with our defaults, and what `auto` chooses."""
    batch, fleet = study.batch, study.fleet(scenario)

    def published(name: str, n_batches: int, kind: type[AdaptiveSGD] = AdaptiveSGD, **changed: Any) -> Method:
        changed["mega_batch"] = n_batches * batch
        return Method(f"{name}, every {n_batches}", lambda rate: replace(kind.published(batch, rate), **changed), fleet)

    def chosen(merging: float) -> Method:
        name = f"our auto, merges {merging:g} of the time"
        return Method(name, lambda rate: LocalSGD(batch, rate, merging=merging), fleet)

    of_papers = [
        method
        for n in (OFTEN, BATCHES)
        for method in (
            published("as published", n),
            published("weights that sum to 1", n, SumToOne),
            published("no perturbation", n, perturbation=0.0),
            published("no perturbation, momentum 0.75", n, perturbation=0.0, momentum=0.75),
        )
    ]
    ours = Method(
        f"our adaptive, every {OFTEN}", lambda rate: AdaptiveSGD(batch, rate, mega_batch=OFTEN * batch), fleet
    )
    return [*of_papers, ours, *map(chosen, SHARES)]
