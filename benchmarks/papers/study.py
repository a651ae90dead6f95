"""What all studies share: one experiment, one grid of rates for all methods, seeds, medians and ranges."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from xmlsgd.algorithms.base import Algorithm
from xmlsgd.training.executors.scenarios import SCENARIOS, scenario
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.plots import plot_over_time
from xmlsgd.training.simulation import Experiment, Outcome, simulate

from ..report import Table, are_most, publish

REACHED = 0.95  # of the best median P@1 of a table, at the end: when each method gets there
FURTHER = 3  # rates at most beyond an edge of the grid
NOISY_POINTS = 3  # measurements whose mean counts for reaching it


@dataclass(frozen=True)
class Method:
    """A row of a table: its algorithm at a rate, and the devices it runs on.

    rates : () for those of the study. epochs_factor : times the epochs of the study that it trains for.
    """

    name: str
    make: Callable[[float], Algorithm]
    fleet: Sequence[VirtualDevice]
    rates: Sequence[float] = ()
    epochs_factor: int = 1


@dataclass(frozen=True)
class Criterion:
    """What runs are compared by: a measure, 1 or -1 where more or less of it is better, and that of a diverged run."""

    name: str
    sign: int = 1
    diverged: float = 0.0


PRECISION, LOSS = Criterion("P@1"), Criterion("loss", -1, float("inf"))


@dataclass(frozen=True)
class Runs:
    """The runs of a method, a seed each, at the best rate of the grid; and what every rate came to with the first."""

    rate: float
    outcomes: list[Outcome]
    grid: dict[float, float]


@dataclass(frozen=True)
class Study:
    """The experiment of all runs, the device of speed 1, rows a batch, rates and seeds, and where results go.

    scenarios : of the studies of unequal devices.
    """

    experiment: Experiment
    base: VirtualDevice
    batch: int
    rates: Sequence[float]
    seeds: int
    threads: int
    out: Path
    data: str
    scenarios: Sequence[str] = tuple(SCENARIOS)

    @property
    def costs(self) -> str:
        """Return what an update of a device of speed 1 takes, as text."""
        ms, per_row, per_feature = 1e3 * self.base.overhead, 1e6 * self.base.per_row, 1e9 * self.base.per_nnz
        return f"{ms:.3g} ms, {per_row:.3g} microseconds a row and {per_feature:.3g} ns a feature"

    def fleet(self, name: str) -> list[VirtualDevice]:
        """Return the devices of a scenario."""
        return scenario(name, self.base, self.experiment.rows, self.experiment.nnz, self.batch)

    def run(self, methods: Sequence[Method], *, soonest: bool = False, by: Criterion = PRECISION) -> dict[str, Runs]:
        """Run all methods, each at every rate with the first seed, then at its best rate with the others.

        The best rate was the best at the end, as `by` compares, or, with `soonest`, first at the target P@1.
        """
        tried = {method.name: self._tried(method, by) for method in methods}
        goal = target({name: Runs(0.0, [runs[best_rate(runs)]], {}) for name, runs in tried.items()})
        found = {}
        for method in methods:
            runs = tried[method.name]
            best = soonest_rate(runs, goal) if soonest else best_rate(runs, by)
            outcomes = [runs[best], *(self.run_once(method, best, seed) for seed in range(1, self.seeds))]
            found[method.name] = Runs(best, outcomes, {rate: settled(runs[rate], by) for rate in sorted(runs)})
            print(f"{method.name}: P@1 {median(finals(found[method.name])):.2f} at rate {best:g}", flush=True)
        return found

    def _tried(self, method: Method, by: Criterion) -> dict[float, Outcome]:
        """Return the runs of the first seed: at the rates of the grid, and beyond it while the best is at its edge."""
        tried = {rate: self.run_once(method, rate, 0) for rate in method.rates or self.rates}
        for _ in range(FURTHER):
            if (rate := next_rate(best_rate(tried, by), list(tried))) is None:
                break
            tried[rate] = self.run_once(method, rate, 0)
        return tried

    def run_once(self, method: Method, rate: float, seed: int) -> Outcome:
        """Return one run."""
        job, schedule = replace(self.experiment.job, seed=seed), self.experiment.schedule
        schedule = replace(schedule, epochs=method.epochs_factor * schedule.epochs)
        return simulate(replace(self.experiment, job=job, schedule=schedule), method.make(rate), method.fleet)

    @property
    def grid(self) -> str:
        """Return at which rates `run` tries a method, as text."""
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        return f"rates {rates} for everybody, and beyond these while the best is at their edge"

    def publish(self, name: str, table: Table, result: Mapping[str, Any], how: str | None = None) -> None:
        """Print a table and write it, with the runs behind it; `how` tells what was run in place of the grid."""
        job = self.experiment.job
        note = (
            f"{job.dataset.n_rows:,} rows, {self.experiment.schedule.epochs} epochs, {job.network.hidden[0]} hidden "
            f"units, batches of at most {self.batch} rows, {how or self.grid}; seeds: {self.seeds}, median and range. "
            f"Seconds are simulated: an update of a device of speed 1 takes {self.costs}."
        )
        notes = [*table.notes, note]
        publish(f"{name}-{self.data}", replace(table, notes=notes), result, self.threads, self.out)

    def draw(self, name: str, runs: Mapping[str, Runs], measure: str = "P@1") -> None:
        """Draw a measure over time, a line a run."""
        curves = {method: [outcome.curve for outcome in found.outcomes] for method, found in runs.items()}
        plot_over_time(curves, self.out / f"{name}-{self.data}.png", measure)


COLUMNS = ("method", "P@1", "seconds", "s to target", "rows to target", "rows/s", "busy %", "merging %", "rate")


def best_rate(tried: Mapping[float, Outcome], by: Criterion = PRECISION) -> float:
    """Return the rate that was the best at the end."""
    return max(tried, key=lambda rate: by.sign * settled(tried[rate], by))


def soonest_rate(tried: Mapping[float, Outcome], goal: float) -> float:
    """Return the rate that was first at the goal, or reached most if none was there."""
    points = {rate: point_at(outcome, goal) for rate, outcome in tried.items()}
    seconds = {rate: point["seconds"] for rate, point in points.items() if point is not None}
    return min(seconds, key=lambda rate: seconds[rate]) if seconds else best_rate(tried)


def next_rate(best: float, tried: Sequence[float]) -> float | None:
    """Return the rate with which a grid goes on, by its own steps, if its best is at an edge, else None."""
    ordered = sorted(tried)
    if len(ordered) < 2 or best not in (ordered[0], ordered[-1]):
        return None
    inner = ordered[1] if best == ordered[0] else ordered[-2]
    return float(f"{best * best / inner:.1g}")


def compared(runs: Mapping[str, Runs], title: str, notes: Sequence[str] = ()) -> Table:
    """Return the table that all methods have in common."""
    goal = target(runs)
    rows = []
    for name, found in runs.items():
        reached = points_at(found, goal)
        rows.append(
            [
                name,
                ranged(finals(found)),
                short(median([o.seconds for o in found.outcomes])),
                *(at_target([point[key] for point in reached], found) for key in ("seconds", "rows")),
                f"{median([o.rows_per_second for o in found.outcomes]):,.0f}",
                f"{100 * median([o.utilisation for o in found.outcomes]):.0f}",
                f"{100 * median([o.sync_share for o in found.outcomes]):.1f}",
                f"{found.rate:g}",
            ]
        )
    note = (
        f"The target is a P@1 of {goal:.2f}, {100 * REACHED:.0f} % of the best, over {NOISY_POINTS} measurements. "
        "Seconds and rows to it are medians of the runs that got there, where most did."
    )
    return Table(title, COLUMNS, rows, [note, *notes])


def target(runs: Mapping[str, Runs], of: Callable[[Iterable[float]], float] = max) -> float:
    """Return the P@1 whose time is compared: a share of what the best settled at or, with min, the worst."""
    return REACHED * of(median(finals(found)) for found in runs.values())


def smoothed(outcome: Outcome, by: Criterion) -> list[float]:
    """Return at each point of a run the mean of the last measurements, none for a run that diverged."""
    values = [point[by.name] for point in outcome.curve if not outcome.diverged]
    last = [values[max(i - NOISY_POINTS, 0) : i] for i in range(1, len(values) + 1)]
    return [sum(some) / len(some) for some in last]


def settled(outcome: Outcome, by: Criterion = PRECISION) -> float:
    """Return the mean of the last measurements at the end."""
    means = smoothed(outcome, by)
    return means[-1] if means else by.diverged


def point_at(outcome: Outcome, goal: float, by: Criterion = PRECISION) -> dict[str, Any] | None:
    """Return the first point of a run at which the mean of the last measurements reaches the goal."""
    points = zip(outcome.curve, smoothed(outcome, by), strict=False)
    return next((point for point, mean in points if by.sign * mean >= by.sign * goal), None)


def points_at(runs: Runs, goal: float, by: Criterion = PRECISION) -> list[dict[str, Any]]:
    """Return the point at which each run reached the goal, of those that did."""
    return [point for outcome in runs.outcomes if (point := point_at(outcome, goal, by)) is not None]


def at_target(values: Sequence[float], runs: Runs) -> str:
    """Return the median where most runs got there, else a dash."""
    return short(median(values)) if are_most(values, runs.outcomes) else "-"


def short(value: float) -> str:
    """Return a number to three places, whole from a thousand on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def finals(runs: Runs, by: Criterion = PRECISION) -> list[float]:
    """Return what each run settled at."""
    return [settled(outcome, by) for outcome in runs.outcomes]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def ranged(values: Sequence[float]) -> str:
    """Return the median and, of several, the range."""
    middle = f"{median(values):.2f}"
    return f"{middle} [{min(values):.2f}, {max(values):.2f}]" if len(values) > 1 else middle


def curves(outcome: Outcome) -> dict[str, list[float]]:
    """Return what was measured, and in which seconds, each to five places."""
    names = [name for name in (outcome.curve[0] if outcome.curve else ()) if name != "rows"]
    return {name: [float(f"{point[name]:.5g}") for point in outcome.curve] for name in names}


def as_json(runs: Mapping[str, Runs]) -> dict[str, Any]:
    """Return all runs as JSON takes them."""
    return {
        name: {
            "rate": found.rate,
            "grid": {f"{rate:g}": best if isfinite(best) else None for rate, best in found.grid.items()},
            "fleet": [{"name": d.name, "speed": d.speed, "noise": d.noise} for d in found.outcomes[0].fleet],
            "seeds": [
                {
                    "curves": curves(outcome),
                    "workers": outcome.workers,
                    "last": outcome.records[-1:],
                    "efficiency": outcome.efficiency,
                    "diverged": outcome.diverged,
                }
                for outcome in found.outcomes
            ],
        }
        for name, found in runs.items()
    }
