"""What reliability costs, as shares of training.

Functions are timed where they are called in training, by the processor time of their thread: other work on the machine
disturbs that little, and both sides of a share alike. The time of the disk is not in it.

- checkpoints: one checkpoint, as a share of the ten minutes between two; and identifying the run, once, and asking at
  each step whether one is due, as shares of the training.
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

EPOCHS = 10  # as by default without candidates
LIMITS = {"checkpoints": 3.0, "supervision": 1.0, "checksums": 1.0}  # percent of training
WATCHING = ("tick", "starts", "works", "heard", "lost", "overdue")


@contextmanager
def timed(of: Any, *names: str) -> Iterator[dict[str, float]]:
    """Yield the processor seconds that calls of functions take while the context lasts, and their number."""
    spent = {"seconds": 0.0, "calls": 0}

    def watched(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            started = time.thread_time()
            try:
                return run(*given, **options)
            finally:
                spent["seconds"] += time.thread_time() - started
                spent["calls"] += 1

        return call

    with ExitStack() as patches:
        for name in names:
            patches.enter_context(patch.object(of, name, watched(getattr(of, name))))
        yield spent


def measure(folder: Path) -> dict[str, Any]:
    """Train, save and load once; return processor seconds and sizes."""
    rows = make_xmc(20_000, 20_000, 5000, nnz_per_row=40, labels_per_row=4, random_state=0)
    model = XMLClassifier((128,), max_epochs=EPOCHS, candidates=0, n_jobs=1, random_state=0)
    checkpoint = Checkpoint(folder / "checkpoint", minutes=10, keep=True)
    with (
        timed(CheckpointWriter, "__init__") as beginning,
        timed(CheckpointWriter, "due") as asking,
        timed(CheckpointWriter, "write") as writing,
    ):
        started = time.process_time()
        model.fit(rows.X, rows.Y, checkpoint=checkpoint)
        seconds = time.process_time() - started
    training = seconds - sum(part["seconds"] for part in (beginning, asking, writing))
    with timed(manifest, "sha256_of") as saving:
        model.save(folder / "model")
    (folder / "model" / manifest.VERIFIED).unlink()  # or they would not be compared
    with timed(manifest, "sha256_of") as loading:
        XMLClassifier.load(folder / "model")
    several = XMLClassifier((128,), max_epochs=1, candidates=0, devices="cpu*2", n_jobs=2, random_state=0)
    with timed(Liveness, *WATCHING) as supervising:
        several.fit(rows.X, rows.Y)
    size = sum(file.stat().st_size for file in (folder / "checkpoint").iterdir())
    each = writing["seconds"] / max(writing["calls"], 1)
    always = beginning["seconds"] + asking["seconds"]
    return {
        "training": training, "checkpoint": each, "checkpoint bytes": size,
        "checkpoints written": writing["calls"], "beginning": beginning, "asking": asking, "saving": saving,
        "loading": loading, "supervising": supervising,
        "percent": {
            "checkpoints": 100 * (each / (60 * checkpoint.minutes) + always / training),
            "supervision": 100 * supervising["seconds"] / (training / EPOCHS),
            "checksums": 100 * (saving["seconds"] + loading["seconds"]) / training,
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
    seconds = statistics.median(each["checkpoint"] for each in found)
    training = statistics.median(each["training"] for each in found)
    note = (
        f"Processor seconds, medians of {repeats} rounds, in which both sides of a share were measured one after the "
        f"other. A checkpoint of {last['checkpoint bytes'] / 1e6:.0f} MB takes {seconds:.2f} s of ten minutes, without "
        f"the disk; the run is identified once, and {last['asking']['calls']:,} times a step asks whether one is due. "
        f"Checksums are those of one save and one load, beside {training:.1f} s of training, {EPOCHS} epochs."
    )
    table = Table("Costs of reliability", ["", "% of training", "at most"], rows, [note])
    publish("overhead", table, found, 1, out)
    return [f"{name}: {percent[name]:.2f} % of training" for name, limit in LIMITS.items() if percent[name] > limit]
