"""Adaptive SGD against its rivals, and step by step: Ma, Rusu, Wu, Sim 2021 (arXiv 2110.07029), figures 6 to 10.

On four devices that differ by 32 % (S2), and strongly (S3). The ablation starts from the elastic baseline, with equal
shares, and adds one part of the method after the other; at last, longer steps of the merged model replace its momentum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.combiners import equal
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.outer import HeavyBall
from xmlsgd.algorithms.rounds import LocalWork
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.training.executors.virtual_device import VirtualDevice, fastest
from xmlsgd.training.merging import Comm

from .study import Method, Study, as_json, compared
from .worker_plot import plot_workers

MERGES = 8  # an epoch
LOW = 8  # times the smallest batch is the largest, as published
ADAPTIVE = "+ momentum: Adaptive SGD"
OUTER_RATES = (2.0, 4.0)  # momentum 0.75 makes a step four times as long in the end
RATES = (0.1, 0.3, 1.0, 3.0, 10.0)  # of longer steps, which want smaller ones


@dataclass
class EqualWeights(AdaptiveSGD):
    """Adaptive SGD whose merges take the plain mean."""

    def merge_weights(self, comm: Comm, work: Mapping[int, LocalWork]) -> dict[int, float]:
        """Return equal weights."""
        return equal(work)


@dataclass
class LongSteps(AdaptiveSGD):
    """Adaptive SGD without momentum, whose merges move the model by `outer_rate` times the difference."""

    outer_rate: float = 1.0

    def outer_of(self, n_workers: int) -> HeavyBall:
        """Return the longer step."""
        return HeavyBall(0.0, self.outer_rate)


def adaptive(study: Study) -> None:
    """Run and publish both scenarios, as far as the study has them."""
    for name, what in (("S2", "devices 1:.9:.8:.7"), ("S3", "devices 1:1:.5:.25")):
        if name not in study.scenarios:
            continue
        fleet = study.fleet(name)
        runs = study.run(methods(study, fleet))
        found = compared(runs, f"Adaptive SGD on {study.data}, {what} ({name})")
        study.publish(f"adaptive-{name}", found, as_json(runs))
        study.draw(f"adaptive-{name}", runs)
        records = runs[ADAPTIVE].outcomes[0].records
        names = [device.name for device in fleet]
        plot_workers(records, study.out / f"adaptive-{name}-workers-{study.data}.png", names)


def methods(study: Study, fleet: Sequence[VirtualDevice]) -> list[Method]:
    """Return the rivals and the steps from elastic averaging to Adaptive SGD."""
    batch = study.batch
    low = max(batch // LOW, 1)
    mega = max(-(-study.experiment.job.dataset.n_rows // MERGES), len(fleet) * batch)

    def step(name: str, kind: type[AdaptiveSGD] = AdaptiveSGD, **settings: Any) -> Method:
        rates = settings.pop("rates", ())
        settings = {"low": low, "mega_batch": mega, "straggler_timeout": math.inf, **settings}
        return Method(name, lambda rate: kind(batch, rate, **settings), fleet, rates)

    return [
        Method("one device", lambda rate: Sequential(batch, rate), [fastest(fleet)]),
        Method("synchronous", lambda rate: Synchronous(batch, rate), fleet),
        Method("Crossbow", lambda rate: Crossbow(batch, rate, sync_every=1), fleet),
        Method("elastic", lambda rate: Elastic(batch, rate, mega_batch=mega), fleet),
        step("+ dynamic scheduling", EqualWeights, low=batch, momentum=0.0),
        step("+ batch size scaling", EqualWeights, momentum=0.0),
        step("+ normalized weights", momentum=0.0),
        step(ADAPTIVE),
        *(step(f"steps times {r:g} for momentum", LongSteps, outer_rate=r, rates=RATES) for r in OUTER_RATES),
    ]
