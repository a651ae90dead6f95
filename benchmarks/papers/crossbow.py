"""Crossbow: learners a device. Koliousis and others 2019 (PVLDB 12(11)), figures 12 to 15.

Learners of a device share its arithmetic and hide each other's overheads: m of them work at 1/m of its speed each,
with an overhead of their own. One learner with a small batch leaves most of the device idle. Plain SGD has the model of
one learner, without its merges. P@1 is also that of rows whose labels are rare, and frequent, in the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR
from xmlsgd.estimators.inference import Measure
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.plots import save_figure

from ..report import Table, are_most
from .study import Criterion, Method, Runs, Study, as_json, finals, median, points_at, ranged, target

LEARNERS = (1, 2, 4, 8)
PLAIN = "plain SGD"
SMALL = 4  # the batch of a learner is that of the study over this
IDLE = 3.0  # overhead of a step of one learner over its arithmetic: it fills a quarter of the device
# Of thirds of the test rows, by how many training rows have their most frequent label.
OF_THIRDS = [Criterion(f"P@1 {third}") for third in ("rare", "middle", "frequent")]
COLUMNS = (
    "learners", "P@1", "by frequency", "rows/s", "times one", "epochs to target", "s to target", "merging %", "rate"
)  # fmt: skip


def crossbow(study: Study) -> None:
    """Run and publish all numbers of learners."""
    measure, Y = study.experiment.measure, study.experiment.job.dataset.Y
    assert isinstance(measure, Measure)
    study = replace(study, experiment=replace(study.experiment, measure=ByFrequency(measure, Y)))
    runs = study.run([plain(study), *(method(study, k) for k in LEARNERS)])
    found = table(study, runs)
    study.publish("crossbow", found, as_json(runs))
    study.draw("crossbow", runs)
    draw(study, runs)


class ByFrequency:
    """Measures P@1 also of thirds of the rows of `measure`, by how many rows of Y have their most frequent label."""

    def __init__(self, measure: Measure, Y: CSR) -> None:
        rows, counts = measure.rows, Y.column_counts()
        most = [counts[rows.Y.row(i)[0]].max(initial=0) for i in range(rows.n_rows)]
        thirds = zip(OF_THIRDS, np.array_split(np.argsort(most, kind="stable"), len(OF_THIRDS)), strict=True)
        self.measure = measure
        self.of_thirds = {of.name: replace(measure, rows=rows.take(third)) for of, third in thirds}

    def __call__(self, flat: np.ndarray) -> dict[str, float]:
        """Measure the model `flat`, float32 (n_params,)."""
        return self.measure(flat) | {name: measure(flat)["P@1"] for name, measure in self.of_thirds.items()}


def method(study: Study, k: int) -> Method:
    """Return Crossbow with `k` learners on one device."""
    batch = batch_of(study)
    return Method(f"{k}", lambda rate: Crossbow(batch, rate, sync_every=1), learners(study, k))


def plain(study: Study) -> Method:
    """Return what one learner trains, without merges."""
    batch = batch_of(study)
    return Method(PLAIN, lambda rate: Sequential(batch, rate), learners(study, 1))


def batch_of(study: Study) -> int:
    """Return the batch of a learner."""
    return max(study.batch // SMALL, 1)


def learners(study: Study, k: int) -> list[VirtualDevice]:
    """Return the learners of one device."""
    work = batch_of(study) * (study.base.per_row + study.base.per_nnz * study.experiment.nnz)
    return [replace(study.base, overhead=IDLE * work, speed=1 / k, name=f"learner {i}") for i in range(k)]


def epochs_to_target(study: Study, runs: Runs, goal: float) -> float | None:
    """Return the median epochs until the goal, None where most runs missed it."""
    points = points_at(runs, goal)
    if not are_most(points, runs.outcomes):
        return None
    return median([point["rows"] / study.experiment.job.dataset.n_rows for point in points])


def table(study: Study, runs: Mapping[str, Runs]) -> Table:
    """Return throughput and epochs to the target by learners."""
    goal = target(runs, min)
    one = median([outcome.rows_per_second for outcome in runs[str(LEARNERS[0])].outcomes])
    rows = []
    for name, found in runs.items():
        speed = median([outcome.rows_per_second for outcome in found.outcomes])
        epochs = epochs_to_target(study, found, goal)
        rows.append(
            [
                name,
                ranged(finals(found)),
                " / ".join(f"{median(finals(found, third)):.1f}" for third in OF_THIRDS),
                f"{speed:,.0f}",
                f"{speed / one:.2f}",
                "-" if epochs is None else f"{epochs:.2f}",
                "-" if epochs is None else f"{epochs * study.experiment.job.dataset.n_rows / speed:.1f}",
                f"{100 * median([outcome.sync_share for outcome in found.outcomes]):.1f}",
                f"{found.rate:g}",
            ]
        )
    note = (
        f"The target is a P@1 of {goal:.2f}, which all numbers of learners get to. Batches of {batch_of(study)} rows; "
        f"a step of one learner is {IDLE:g} parts overhead, one part arithmetic. Plain SGD is one learner that merges "
        "nothing. By frequency: P@1 of thirds of the test rows, whose most frequent label is rare / in between / "
        "frequent."
    )
    return Table(f"Crossbow on {study.data}: learners of one device", COLUMNS, rows, [note])


def draw(study: Study, runs: Mapping[str, Runs]) -> None:
    """Draw throughput and epochs to the target by learners."""
    goal = target(runs, min)
    ks, runs = LEARNERS, {f"{k}": runs[f"{k}"] for k in LEARNERS}
    speeds = [median([outcome.rows_per_second for outcome in found.outcomes]) for found in runs.values()]
    reached = [
        (k, e) for k, found in zip(ks, runs.values(), strict=True) if (e := epochs_to_target(study, found, goal))
    ]

    def panels(figure):  # type: ignore[no-untyped-def]
        throughput, epochs = figure.subplots(1, 2)
        throughput.plot(ks, speeds, "o-")
        epochs.plot([k for k, _ in reached], [e for _, e in reached], "o-", color="C1")
        throughput.set(xlabel="learners", ylabel="rows a second", ylim=(0, None))
        epochs.set(xlabel="learners", ylabel="epochs to the target", ylim=(0, None))
        for panel in (throughput, epochs):
            panel.grid(alpha=0.3)

    save_figure(panels, study.out / f"crossbow-learners-{study.data}.png", "")
