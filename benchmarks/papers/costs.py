"""What algorithms cost: the papers' experiments on the simulated clock, by devices that compute nothing.

Who gets which rows, and when, depends on durations alone: seeds change the order of the rows, and the noise of devices.
A second table asks how fast CPUs must be to be of use beside as many GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.omnivore_tuner import divisors

from ..fidelity import Still
from ..report import Table
from . import adaptive, hogbatch, omnivore
from .study import Method, Runs, Study, median, ranged

FLEETS = {"S2": "1:.9:.8:.7", "S3": "1:1:.5:.25", "S4": "a GPU, a CPU", "S1": "1:1:1:1"}
COLUMNS = ("devices", "method", "s an epoch", "rows/s", "busy %", "merging %", "updates %")
DEVICES = (2, 4, 8)  # half of them CPUs
RATIOS = (2, 4, 10, 30)  # times as fast as a CPU a GPU is
ALONE = "GPUs alone"
UNLEARNED = "devices that compute nothing, so that nothing is learned"


def costs(study: Study) -> None:
    """Run and publish both tables."""
    study = replace(study, experiment=replace(study.experiment, device=Still(), measure=lambda flat: {}))
    found = {name: timed(study, of_fleet) for name, of_fleet in methods(study).items()}
    study.publish("costs", table(study, found), {name: as_json(runs) for name, runs in found.items()}, UNLEARNED)
    beside = {(n, ratio): timed(study, mixed(study, n, ratio)) for n in DEVICES for ratio in RATIOS}
    result = {f"{n} devices, 1:{ratio}": as_json(runs) for (n, ratio), runs in beside.items()}
    study.publish("ratios", table_of_ratios(study, beside), result, UNLEARNED)


def timed(study: Study, methods: Sequence[Method]) -> dict[str, Runs]:
    """Run all methods with all seeds, at a rate that changes no duration."""
    rate, seeds = study.rates[0], range(study.seeds)
    return {method.name: Runs(rate, [study.run_once(method, rate, seed) for seed in seeds], {}) for method in methods}


def methods(study: Study) -> dict[str, list[Method]]:
    """Return the methods of the papers' experiments by scenario."""
    return {
        **{name: adaptive.methods(study, study.fleet(name)) for name in ("S2", "S3")},
        "S4": hogbatch.methods(study),
        "S1": [omnivore.method(study, g, 0.0) for g in divisors(omnivore.WORKERS)],
    }


def mixed(study: Study, n: int, ratio: int) -> list[Method]:
    """Return methods for n devices, half of them CPUs, and Hogbatch on the GPUs alone."""
    gpu, cpu = study.fleet("S4")
    fleet, batch = [gpu, replace(cpu, speed=gpu.speed / ratio)] * (n // 2), study.batch
    largest = hogbatch.GPU_BATCHES * batch
    return [
        Method(ALONE, lambda rate: Hogbatch(batch, rate, sizes=(largest,)), [gpu] * (n // 2)),
        *hogbatch.unequal(batch, fleet),
        Method("Adaptive SGD, ours", lambda rate: AdaptiveSGD(largest, rate), fleet),
    ]


def table(study: Study, found: Mapping[str, Mapping[str, Runs]]) -> Table:
    """Return what an epoch takes, by devices and method."""
    epochs = study.experiment.schedule.epochs
    rows = [
        [
            f"{FLEETS[name]} ({name})",
            method,
            ranged([outcome.seconds / epochs for outcome in runs.outcomes]),
            f"{median([outcome.rows_per_second for outcome in runs.outcomes]):,.0f}",
            f"{100 * median([outcome.utilisation for outcome in runs.outcomes]):.0f}",
            f"{100 * median([outcome.sync_share for outcome in runs.outcomes]):.1f}",
            hogbatch.shares(runs.outcomes, "updates"),
        ]
        for name, of_fleet in found.items()
        for method, runs in of_fleet.items()
    ]
    return Table(f"What an epoch costs on {study.data}", COLUMNS, rows)


def table_of_ratios(study: Study, found: Mapping[tuple[int, int], Mapping[str, Runs]]) -> Table:
    """Return rows a second over those of the GPUs alone, by number of devices and speed of a CPU."""
    names = [name for name in next(iter(found.values())) if name != ALONE]
    rows = []
    for (n, ratio), runs in found.items():
        speeds = {name: median([outcome.rows_per_second for outcome in of.outcomes]) for name, of in runs.items()}
        relative = (f"{speeds[name] / speeds[ALONE]:.2f}" for name in names)
        rows.append([f"{n}", f"1/{ratio}", f"{speeds[ALONE]:,.0f}", *relative, f"{1 + 1 / ratio:.2f}"])
    note = (
        f"Rows a second over those of the GPUs alone by Hogbatch, half of the devices being CPUs of "
        f"{hogbatch.THREADS} threads; of all speeds together at the right."
    )
    columns = ["devices", "speed of a CPU", f"{ALONE}, rows/s", *names, "speeds"]
    return Table(f"CPUs beside GPUs on {study.data}", columns, rows, [note])


def as_json(runs: Mapping[str, Runs]) -> dict[str, Any]:
    """Return what the tables are of, each a number for every seed."""
    return {
        name: {
            "seconds": [outcome.seconds for outcome in found.outcomes],
            "busy": [outcome.utilisation for outcome in found.outcomes],
            "merging": [outcome.sync_share for outcome in found.outcomes],
        }
        for name, found in runs.items()
    }
