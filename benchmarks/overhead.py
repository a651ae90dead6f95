"""What reliability costs, as shares of training.

Functions are timed where they are called in training, so that a busy machine disturbs little: by the processor time of
their thread, and checkpoints by the clock, too, since training waits for the disk.

- checkpoints: one checkpoint, as a share of the ten minutes between two, and asking at each step whether one is due.
- supervision: what the coordinator of two worker processes does in an epoch to know that they live.
- checksums: those of the files of the saved model, when it is written and when it is read.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from xmlsgd import XMLClassifier
from xmlsgd.data.files import manifest
from xmlsgd.data.synthetic import make_xmc
from xmlsgd.training.checkpoints import Checkpoint
from xmlsgd.training.checkpoints.writer import CheckpointWriter
from xmlsgd.training.executors.liveness import Liveness

from .report import Table, publish

EPOCHS = 3
LIMITS = {"checkpoints": 3.0, "supervision": 1.0, "checksums": 1.0}  # percent of training
WATCHING = ("tick", "starts", "works", "heard", "gone", "overdue")


@contextmanager
def timed(of: Any, *names: str) -> Iterator[dict[str, float]]:
    """Yield the seconds that calls of functions take while the context lasts, and their number."""
    spent = {"cpu": 0.0, "clock": 0.0, "calls": 0}

    def watched(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            clock, cpu = time.perf_counter(), time.thread_time()
            try:
                return run(*given, **options)
            finally:
                spent["cpu"] += time.thread_time() - cpu
                spent["clock"] += time.perf_counter() - clock
                spent["calls"] += 1

        return call

    with ExitStack() as patches:
        for name in names:
            patches.enter_context(patch.object(of, name, watched(getattr(of, name))))
        yield spent


def measure(folder: Path) -> dict[str, Any]:
    """Train, save and load once; return seconds and sizes."""
    rows = make_xmc(20_000, 20_000, 5000, nnz_per_row=40, labels_per_row=4, random_state=0)
    model = XMLClassifier((128,), max_epochs=EPOCHS, candidates=0, n_jobs=1, random_state=0)
    checkpoint = Checkpoint(folder / "checkpoint", minutes=10, keep=True)
    with timed(CheckpointWriter, "_write") as writing, timed(CheckpointWriter, "due") as asking:
        started = time.process_time()
        model.fit(rows.X, rows.Y, checkpoint=checkpoint)
        training = time.process_time() - started
    with timed(manifest, "sha256_of") as saving:
        model.save(folder / "model")
    (folder / "model" / manifest.VERIFIED).unlink()  # or they would not be compared
    with timed(manifest, "sha256_of") as loading:
        XMLClassifier.load(folder / "model")
    several = XMLClassifier((128,), max_epochs=1, candidates=0, devices="cpu*2", n_jobs=2, random_state=0)
    with timed(Liveness, *WATCHING) as supervising:
        several.fit(rows.X, rows.Y)
    size = sum(file.stat().st_size for file in (folder / "checkpoint").iterdir())
    interval = 60 * checkpoint.minutes
    each = {name: writing[name] / max(writing["calls"], 1) for name in ("cpu", "clock")}
    return {
        "training": training, "checkpoint": each, "checkpoint bytes": size,
        "checkpoints written": writing["calls"], "asking": asking, "saving": saving, "loading": loading,
        "supervising": supervising,
        "percent": {
            "checkpoints": 100 * (each["clock"] / interval + asking["cpu"] / training),
            "supervision": 100 * supervising["cpu"] / (training / EPOCHS),
            "checksums": 100 * (saving["cpu"] + loading["cpu"]) / training,
        },
    }  # fmt: skip


def run(repeats: int, out: Path) -> list[str]:
    """Measure, publish the medians, and return the shares that are above their limits."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder)))
    percent = {name: statistics.median(each["percent"][name] for each in found) for name in LIMITS}
    last = found[-1]
    rows = [[name, f"{percent[name]:.3f}", f"{limit:g}"] for name, limit in LIMITS.items()]
    clock = statistics.median(each["checkpoint"]["clock"] for each in found)
    note = (
        f"A checkpoint of {last['checkpoint bytes'] / 1e6:.0f} MB takes {clock:.2f} s, disk included, of ten minutes;"
        f" {last['asking']['calls']:,} times a step asks whether one is due. Checksums are those of one save and one"
        f" load, beside {last['training']:.1f} CPU-seconds of training. Medians of {repeats}."
    )
    table = Table("Costs of reliability", ["", "% of training", "at most"], rows, [note])
    publish("overhead", table, found, 1, out)
    return [f"{name}: {percent[name]:.2f} % of training" for name, limit in LIMITS.items() if percent[name] > limit]
