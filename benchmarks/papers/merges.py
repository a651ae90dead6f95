"""What stands behind the results of merges: perturbed weights, momentum, and how many batches lie between merges.

`merges`: Adaptive SGD as published, with merges every 16 batches and every 100, then with one part changed. `rounds`:
our defaults, with momentum as published, and with rounds that may be as long as an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.combiners import shares
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.rounds import MEGA_BATCH, LocalWork
from xmlsgd.training.merging import Comm

from ..report import Table
from .beyond import compact
from .study import COLUMNS, Method, Study, compared

OFTEN = 16  # batches, as local SGD has at first with four workers
MOMENTUM = AdaptiveSGD.published().momentum  # 0.9; the default for four workers is 0.75


@dataclass
class SumToOne(AdaptiveSGD):
    """Adaptive SGD whose perturbed weights are made to sum to 1."""

    def merge_weights(self, comm: Comm, work: Mapping[int, LocalWork]) -> dict[int, float]:
        """Return the weights over their sum."""
        return shares(super().merge_weights(comm, work))


@dataclass
class AnyLength(LocalSGD):
    """Local SGD whose rounds become as long as an epoch while merges take more than `merging` of the time."""

    @property
    def merging_allowed(self) -> float:
        """Return the same share for all rounds."""
        return self.merging if self.round_rows < self.n_rows else 1.0


def merges(study: Study) -> None:
    """Compare the published rules with one part changed."""
    by_scenario(study, "merges", "What merges change", of_papers)


def rounds(study: Study) -> None:
    """Compare our defaults with rounds of other lengths, and another momentum."""
    by_scenario(study, "rounds", "What the length of rounds changes", ours)


def by_scenario(study: Study, name: str, title: str, methods: Callable[[Study, str], list[Method]]) -> None:
    """Run the methods on all scenarios of the study and publish their table."""
    found = {scenario: study.run(methods(study, scenario)) for scenario in study.scenarios}
    tables = {scenario: compared(runs, scenario) for scenario, runs in found.items()}
    rows = [[scenario, *row] for scenario, of_scenario in tables.items() for row in of_scenario.rows]
    notes = [f"{scenario}: {of_scenario.notes[0]}" for scenario, of_scenario in tables.items()]
    table = Table(f"{title} on {study.data}", ("scenario", *COLUMNS), rows, notes)
    study.publish(name, table, {scenario: compact(runs) for scenario, runs in found.items()})


def of_papers(study: Study, scenario: str) -> list[Method]:
    """Return Adaptive SGD as published and changed, and with our defaults."""
    batch, fleet = study.batch, study.fleet(scenario)

    def published(name: str, n_batches: int, kind: type[AdaptiveSGD] = AdaptiveSGD, **changed: Any) -> Method:
        changed["mega_batch"] = n_batches * batch
        return Method(f"{name}, every {n_batches}", lambda rate: replace(kind.published(batch, rate), **changed), fleet)

    methods = [
        method
        for n in (OFTEN, MEGA_BATCH)
        for method in (
            published("as published", n),
            published("weights that sum to 1", n, SumToOne),
            published("no perturbation", n, perturbation=0.0),
            published("no perturbation, momentum 0.75", n, perturbation=0.0, momentum=0.75),
        )
    ]
    often = f"our adaptive, every {OFTEN}"
    return [*methods, Method(often, lambda rate: AdaptiveSGD(batch, rate, mega_batch=OFTEN * batch), fleet)]


def ours(study: Study, scenario: str) -> list[Method]:
    """Return Adaptive SGD and what `auto` chooses with our defaults, then with one part changed."""
    batch, fleet = study.batch, study.fleet(scenario)
    return [
        Method("our adaptive", lambda rate: AdaptiveSGD(batch, rate), fleet),
        Method(f"... momentum {MOMENTUM:g}", lambda rate: AdaptiveSGD(batch, rate, momentum=MOMENTUM), fleet),
        Method(f"... every {MEGA_BATCH}", lambda rate: AdaptiveSGD(batch, rate, mega_batch=MEGA_BATCH * batch), fleet),
        Method("our auto", lambda rate: LocalSGD(batch, rate), fleet),
        Method("our auto, rounds of any length", lambda rate: AnyLength(batch, rate), fleet),
    ]
