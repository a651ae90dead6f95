"""Beyond the papers: our rules against theirs on the scenarios S1 to S8, by the time to a P@1.

Ours are what `auto` chooses for devices with memories of their own, and Adaptive SGD with our defaults. Whatever merges
in rounds has rounds of as many rows, at first those of `LocalSGD.steps` batches a device; Adaptive SGD also
has the 100 batches that were published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from xmlsgd.algorithms import choose_algorithm
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.adaptive_hogbatch import AdaptiveHogbatch
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.omnivore import Omnivore
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.training.executors.virtual_device import VirtualDevice, fastest

from ..report import Table, are_most
from .hogbatch import unequal
from .study import REACHED, Method, Runs, Study, curves, finals, median, points_at, target

AUTO, ADAPTIVE = OURS = "our auto", "our adaptive"
FIRST, UNDECIDED, LATER = "first", "undecided", "later"


def beyond(study: Study) -> None:
    """Run all scenarios, and publish the table as far as it is after each."""
    found: dict[str, dict[str, Runs]] = {}
    title = "-".join(["beyond", *dict.fromkeys((study.scenarios[0], study.scenarios[-1]))])
    for name in study.scenarios:
        print(f"{name}:", flush=True)
        found[name] = study.run(methods(study, name), soonest=True)
        study.publish(title, table(study.data, found), {name: compact(runs) for name, runs in found.items()})


def methods(study: Study, scenario: str) -> list[Method]:
    """Return the papers' rules, then ours."""
    batch, fleet = study.batch, study.fleet(scenario)
    mega = LocalSGD.steps * batch * len(fleet)
    return [
        Method("one device", lambda rate: Sequential(batch, rate), [fastest(fleet)]),
        Method("synchronous", lambda rate: Synchronous(batch, rate), fleet),
        Method("elastic", lambda rate: Elastic(batch, rate, mega_batch=mega), fleet),
        Method("Crossbow", lambda rate: Crossbow.published(batch, rate), fleet),
        Method("Omnivore", lambda rate: Omnivore(batch, rate), fleet),
        *(unequal(batch, fleet) if scenario == "S4" else hogbatches(batch, fleet)),
        Method("Adaptive SGD", lambda rate: replace(AdaptiveSGD.published(batch, rate), mega_batch=mega), fleet),
        Method("Adaptive SGD, 100", lambda rate: AdaptiveSGD.published(batch, rate), fleet),
        Method(ADAPTIVE, lambda rate: AdaptiveSGD(batch, rate, mega_batch=mega), fleet),
        Method(AUTO, lambda rate: choose_algorithm(batch, rate, len(fleet), one_memory=False), fleet),
    ]


def hogbatches(batch: int, fleet: Sequence[VirtualDevice]) -> list[Method]:
    """Return Hogbatch and its adaptive form on devices of one kind, whose sizes begin equal."""
    return [
        Method("Hogbatch", lambda rate: Hogbatch(batch, rate), fleet),
        Method("Adaptive Hogbatch", lambda rate: AdaptiveHogbatch(batch, rate, high=(batch,)), fleet),
    ]


def seconds_to(runs: Runs, goal: float) -> list[float]:
    """Return the seconds of all runs to the goal, infinity for one that missed it; [] where most did."""
    reached = [point["seconds"] for point in points_at(runs, goal)]
    missed = len(runs.outcomes) - len(reached)
    return [*reached, *missed * [inf]] if are_most(reached, runs.outcomes) else []


def verdict(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return how our seconds stand against those of the best of the others; either may be empty: never there."""
    if max(ours, default=inf) < min(theirs, default=inf):
        return FIRST
    return LATER if max(theirs, default=inf) < min(ours, default=inf) else UNDECIDED


def table(data: str, found: Mapping[str, Mapping[str, Runs]]) -> Table:
    """Return seconds to the target by method and scenario, and how ours stand against the best of the others."""
    names = list(next(iter(found.values())))
    rows, verdicts = [], {name: list[str]() for name in OURS}
    for scenario, runs in found.items():
        goal = target(runs)
        seconds = {name: seconds_to(of_method, goal) for name, of_method in runs.items()}
        theirs = {name: taken for name, taken in seconds.items() if name not in OURS and taken}
        rival = min(theirs, key=lambda name: median(theirs[name])) if theirs else ""
        row = [scenario, f"{goal:.1f}", *(cell(seconds[name]) for name in names), rival or "-"]
        for name in OURS:
            word = verdict(seconds[name], theirs.get(rival, []))
            part = f" ({median(seconds[name]) / median(theirs[rival]):.2f})" if rival and seconds[name] else ""
            row.append(word + part)
            verdicts[name].append(word)
        rows.append(row)
    note = (
        f"Seconds to the target, {100 * REACHED:.0f} % of what the best of a scenario settled at, or - where most "
        "seeds missed it. A seed that missed it counts as later than all others, and stands as - in a range. Ours is "
        "undecided where its range and that of the best of the others meet; in brackets, its seconds over those."
    )
    counts = [f"{name}: {counted(told)}." for name, told in verdicts.items()]
    columns = ["scenario", "target P@1", *names, "best of the others", *(f"{name} is" for name in OURS)]
    return Table(f"Beyond the papers on {data}: seconds to a P@1", columns, rows, [note, *counts])


def counted(words: Sequence[str]) -> str:
    """Return how often each verdict was given."""
    return ", ".join(f"{word} {words.count(word)}" for word in (FIRST, UNDECIDED, LATER))


def cell(seconds: Sequence[float]) -> str:
    """Return median and range, a dash for a method that did not get there."""
    if not seconds:
        return "-"
    last = f"{max(seconds):.3f}" if max(seconds) < inf else "-"
    return f"{median(seconds):.3f} [{min(seconds):.3f}, {last}]"


def compact(runs: Mapping[str, Runs]) -> dict[str, Any]:
    """Return the runs of a scenario for JSON, without what each worker did."""
    return {
        name: {
            "rate": found.rate,
            "grid": {f"{rate:g}": reached for rate, reached in found.grid.items()},
            "P@1": finals(found),
            "busy": [round(outcome.utilisation, 4) for outcome in found.outcomes],
            "merging": [round(outcome.sync_share, 4) for outcome in found.outcomes],
            "curves": [
                {name: values for name, values in curves(outcome).items() if name in ("seconds", "P@1")}
                for outcome in found.outcomes
            ],
        }
        for name, found in runs.items()
    }
