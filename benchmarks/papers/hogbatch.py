"""Hogbatch and Adaptive Hogbatch on a GPU and a CPU: Ma, Rusu 2020 (arXiv 2004.08771), figures 5 to 8.

Time to a loss, and who made the updates. The CPU trains by eight threads, a tenth as fast as the GPU in all (S4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xmlsgd.algorithms.adaptive_hogbatch import AdaptiveHogbatch
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.simulation import Outcome

from ..report import Table, are_most
from .study import LOSS, Method, Runs, Study, as_json, finals, median, points_at, ranged

THREADS = 8  # of the CPU, a row each at first
GPU_BATCHES = 4  # of the batch at which the rate is the rate: the GPU's first size
CPU_ROWS = (1, 64)  # a thread, bounds
REACHED = 0.95  # of the loss reduction that the best method reaches
COLUMNS = ("method", "loss", "P@1", "seconds", "s to target", "updates %", "rows %", "busy %", "staleness", "rate")


def hogbatch(study: Study) -> None:
    """Run and publish the scenario."""
    runs = study.run(methods(study), by=LOSS)
    study.publish("hogbatch-S4", table(study, runs), as_json(runs))
    study.draw("hogbatch-S4", runs, "loss")


def methods(study: Study) -> list[Method]:
    """Return the GPU alone, both with fixed sizes, both with sizes that follow the update counts.

    The CPU alone, in updates of a row, would take hours to compute.
    """
    fleet = study.fleet("S4")
    gpu = Method("GPU", lambda rate: Sequential(GPU_BATCHES * study.batch, rate), fleet[:1])
    return [gpu, *unequal(study.batch, fleet)]


def unequal(batch: int, fleet: Sequence[VirtualDevice]) -> list[Method]:
    """Return Hogbatch and its adaptive form on GPUs and CPUs, which alternate, with sizes for each."""
    largest, n = GPU_BATCHES * batch, len(fleet) // 2
    sizes, threads = (largest, THREADS) * n, (1, THREADS) * n
    low, high = (max(largest // 8, 1), CPU_ROWS[0] * THREADS) * n, (largest, CPU_ROWS[1] * THREADS) * n
    return [
        Method("Hogbatch", lambda rate: Hogbatch(batch, rate, sizes=sizes, threads=threads), fleet),
        Method(
            "Adaptive Hogbatch",
            lambda rate: AdaptiveHogbatch(batch, rate, sizes=sizes, threads=threads, low=low, high=high),
            fleet,
        ),
    ]


def table(study: Study, runs: Mapping[str, Runs]) -> Table:
    """Return losses, times, and each device's share of the work, GPU first."""
    first = max(outcome.curve[0]["loss"] for found in runs.values() for outcome in found.outcomes if outcome.curve)
    best = min(median(finals(found, LOSS)) for found in runs.values())
    goal = first - REACHED * (first - best)
    rows = []
    for name, found in runs.items():
        reached = [point["seconds"] for point in points_at(found, goal, LOSS)]
        rows.append(
            [
                name,
                ranged(finals(found, LOSS)),
                ranged(finals(found)),
                f"{median([outcome.seconds for outcome in found.outcomes]):.1f}",
                f"{median(reached):.1f}" if are_most(reached, found.outcomes) else "-",
                *(shares(found.outcomes, key) for key in ("updates", "rows", "utilisation")),
                between(found.outcomes, "staleness"),
                f"{found.rate:g}",
            ]
        )
    note = (
        f"The target is a loss of {goal:.3f}, {100 * REACHED:.0f} % of the way from the first to the best. Shares, "
        "busy time and mean staleness: GPU / CPU."
    )
    return Table(f"Hogbatch on {study.data}, a GPU and a CPU of a tenth of its speed (S4)", COLUMNS, rows, [note])


def shares(outcomes: Sequence[Outcome], key: str) -> str:
    """Return each worker's share in percent: of all work, or busy of its own time."""
    found = []
    for w in range(len(outcomes[0].workers)):
        of = [sum(e[key] for e in o.workers) if key != "utilisation" else 1 for o in outcomes]
        found.append(median([100 * o.workers[w][key] / max(total, 1) for o, total in zip(outcomes, of, strict=True)]))
    return " / ".join(f"{share:.0f}" for share in found) or "100"


def between(outcomes: Sequence[Outcome], key: str) -> str:
    """Return a number of each worker."""
    workers = range(len(outcomes[0].workers))
    return " / ".join(f"{median([o.workers[w][key] for o in outcomes]):.1f}" for w in workers) or "0"
