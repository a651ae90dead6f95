"""Omnivore: compute groups. Hadjis, Zhang, Mitliagkas, Iter, Re 2016 (arXiv 1606.04487), figures 5 to 9 and section 4.

What groups cost and bring, on four equal devices (S1): the momentum that asynchrony amounts to, seconds an update as
predicted and as simulated, what g groups reach in g times the epochs, which takes them about as long as one group, and
what the tuner chooses against the whole grid of groups, momentum and rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xmlsgd.algorithms.omnivore import Omnivore, implicit_momentum
from xmlsgd.algorithms.omnivore_tuner import MOMENTA, divisors
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.simulation import Outcome

from ..report import Table
from .efficiency import HardwareEfficiency, fit_momentum, quadratic_path
from .study import Method, Runs, Study, as_json, compared, finals, median

SCENARIO, WORKERS = "S1", 4
TUNED = "tuned"
SHARED = 3  # vectors of an update besides its members' replicas: the model, what the group has read, the velocity
TRIAL_UPDATES = 150  # of one group, in a trial: after 20, what is best for 20 was chosen and lost 26 points of P@1
# Of the model of asynchrony: rate, updates and replicas of a descent on a quadratic.
RATE, UPDATES, REPLICAS = 0.2, 60, 20_000
COLUMNS = (
    "groups", "1 - 1/g", "fitted, at random", "fitted, in turn", "ms an update, predicted", "simulated", "error %"
)  # fmt: skip


def omnivore(study: Study) -> None:
    """Run and publish the grid, the tuner, and the models of efficiency."""
    grid = [method(study, g, m) for g in divisors(WORKERS) for m in MOMENTA]
    longer = [method(study, g, m, epochs_factor=g) for g in divisors(WORKERS)[1:] for m in MOMENTA]
    runs = study.run([*grid, *longer, tuned(study)])
    chosen = verdict({name: runs[name] for name in (*(point.name for point in grid), TUNED)})
    found = compared(runs, f"Omnivore on {study.data}, four equal devices ({SCENARIO})", [chosen])
    study.publish("omnivore", found, as_json(runs))
    study.draw("omnivore", runs)
    without_momentum = {name: runs[name] for name in map(name_of, divisors(WORKERS))}
    study.publish("omnivore-efficiency", efficiency(study, runs), as_json(without_momentum))


def name_of(g: int, momentum: float = 0.0, epochs_factor: int = 1) -> str:
    """Return the name of a point of the grid."""
    return f"g = {g}, m = {momentum:g}" + (f", {epochs_factor} x epochs" if epochs_factor > 1 else "")


def method(study: Study, g: int, momentum: float, epochs_factor: int = 1) -> Method:
    """Return a point of the grid, but for its rate."""
    batch = study.batch
    return Method(
        name_of(g, momentum, epochs_factor),
        lambda rate: Omnivore(batch, rate, groups=g, momentum=momentum, split="rows"),
        fleet(study),
        epochs_factor=epochs_factor,
    )


def fleet(study: Study) -> list[VirtualDevice]:
    """Return the devices, with all work in the rows: the model knows of no rows that keep a group waiting."""
    nnz = study.experiment.nnz
    return [replace(d, per_row=d.per_row + d.per_nnz * nnz, per_nnz=0.0) for d in study.fleet(SCENARIO)]


def tuned(study: Study) -> Method:
    """Return the tuner, which begins with the largest rate of the grid."""
    batch = study.batch
    seconds = TRIAL_UPDATES * model(study, 0.0).update_seconds(1)
    return Method(
        TUNED,
        lambda rate: Omnivore(batch, rate, tune=True, slice_seconds=seconds, split="rows"),
        fleet(study),
        (max(study.rates),),
    )


def model(study: Study, vector: float) -> HardwareEfficiency:
    """Return the model of the four devices, with `vector` seconds to read and write a model in a merge."""
    compute = study.batch * (study.base.per_row + study.base.per_nnz * study.experiment.nnz)
    return HardwareEfficiency(WORKERS, compute, overhead=study.base.overhead, server=SHARED * vector, exchange=vector)


def verdict(runs: Mapping[str, Runs]) -> str:
    """Return what the tuner chose, and what that cost against the best of the grid."""
    chosen = runs[TUNED].outcomes[0].records[-1]["algorithm"]
    grid = {name: median(finals(found)) for name, found in runs.items() if name != TUNED}
    best = max(grid, key=lambda name: grid[name])
    regret = grid[best] - median(finals(runs[TUNED]))
    return (
        f"The tuner chose {name_of(chosen['groups'], chosen['momentum'])} at rate {chosen['learning_rate']:g}; best of "
        f"the grid: {best} at rate {runs[best].rate:g}. Regret: {regret:.2f} points of P@1."
    )


def efficiency(study: Study, runs: Mapping[str, Runs]) -> Table:
    """Return what is predicted and what was found for each number of groups."""
    rows = []
    for g in divisors(WORKERS):
        outcome = runs[name_of(g)].outcomes[0]
        predicted = model(study, vector_seconds(outcome, g)).update_seconds(g)
        simulated = outcome.seconds / sum(record["merges"] for record in outcome.records)
        paths = (quadratic_path(g, RATE, UPDATES, REPLICAS, in_turn=in_turn) for in_turn in (False, True))
        rows.append(
            [
                f"{g}",
                f"{implicit_momentum(g):.3f}",
                # One group moves by the gradient alone, which no fit can tell from momentum.
                *("-" if g == 1 else f"{fit_momentum(path, path)[0]:.3f}" for path in paths),
                f"{1000 * predicted:.2f}",
                f"{1000 * simulated:.2f}",
                f"{100 * (simulated / predicted - 1):+.1f}",
            ]
        )
    note = (
        "Momentum is fitted to the mean path of a descent on a quadratic, with groups that finish at random or in "
        "turn. Simulated seconds count the start and the end of every epoch, when groups have no company."
    )
    return Table(f"Omnivore on {study.data}: what groups amount to, and what they cost", COLUMNS, rows, [note])


def vector_seconds(outcome: Outcome, g: int) -> float:
    """Return the seconds that a merge takes for each vector that it reads and writes."""
    records: list[dict[str, Any]] = outcome.records
    a_merge = sum(record["merge_seconds"] for record in records) / sum(record["merges"] for record in records)
    return a_merge / (WORKERS / g + SHARED)
