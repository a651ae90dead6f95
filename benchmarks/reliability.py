"""Damage and faults: what is accepted wrongly, and what a failed or killed write leaves.

    python -m benchmarks.reliability [--seconds 120] [--seed 0] [--out FILE]

- `damage`: each byte flipped, and each length cut, of every file of a small store, model and checkpoint. Accepted
  wrongly is what is read without an error and differs from what was written.
- `faults`: every open, rename, fsync, mkdir, removal and map of writing and reading them fails in turn, and the disk is
  full at each size. Wrong is a plain error, a folder that is neither the old nor the new one, and other files left.
- `kills`: training in another process with a checkpoint at each step is killed at random times and called again, until
  it has made the model. Wrong is a call that fails, other parameters than without kills, and files left beside it.

Each stops where its share of the time is over; the counts say how many were tried. `kills` takes one whole run more.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.cli.machine import processor, versions
from xmlsgd.data.csr import Dataset
from xmlsgd.data.files.model_files import read_model, write_model
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.formats.store import open_store, write_store
from xmlsgd.data.synthetic import make_xmc
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.checkpoints import Checkpoint, read_checkpoint
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.learner import Job
from xmlsgd.training.loop import train

REFUSALS = (DataError, ModelFileError, OSError)
CALLS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.listdir", "os.scandir", "mmap.__new__")
ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)
Kind = tuple[Callable[[Path, int], None], Callable[[Path], Any]]  # write version 0 or 1; read what identifies it


def rows_of(version: int) -> Dataset:
    """Return small rows; two versions differ."""
    return make_xmc(12, 10, 6, nnz_per_row=3, labels_per_row=2, random_state=version)


def identify_rows(path: Path) -> Any:
    """Return all that a store holds."""
    found = open_store(path)
    arrays = (found.X.indptr, found.X.indices, found.X.data, found.Y.indptr, found.Y.indices)
    return [array.tolist() for array in arrays], found.X.shape, found.Y.shape


def identify_arrays(path: Path) -> Any:
    """Return all that a model's folder holds."""
    files = read_model(path)
    return files.description, {name: array.tolist() for name, array in files.arrays.items()}


def write_checkpoint(path: Path, version: int) -> None:
    """Train two steps and leave the checkpoint."""
    Checkpoint(path).remove()
    data = rows_of(0)
    job = Job(data, Network(data.n_features, data.n_labels, (4,)), Adam(), seed=version)
    checkpoint = Checkpoint(path, 0, keep=True)
    train(job, Sequential(6, 0.01), Serial([Reference()]), Schedule(1), (), checkpoint)


def identify_checkpoint(path: Path) -> Any:
    """Return all that a checkpoint holds but times."""
    saved = read_checkpoint(Checkpoint(path))
    if saved is None:
        return None
    return saved.seed, saved.steps, {name: array.tolist() for name, array in saved.arrays.arrays.items()}


def write_arrays(path: Path, version: int) -> None:
    """Write a model's folder."""
    arrays = {"params": np.arange(version, version + 9, dtype=np.float32)}
    write_model(path, {"version": version}, arrays)


KINDS: dict[str, Kind] = {
    "store": (lambda path, version: write_store(rows_of(version), path), identify_rows),
    "model": (write_arrays, identify_arrays),
    "checkpoint": (write_checkpoint, identify_checkpoint),
}


def damage(kind: Kind, place: Path, until: float) -> Counter[str]:
    """Flip each byte and cut each length of all files."""
    write, identify = kind
    write(place / "kept", 0)
    expected, found = identify(place / "kept"), Counter[str]()
    for file in sorted((place / "kept").iterdir()):
        good = file.read_bytes()
        damaged = [good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :] for at in range(len(good))]
        for content in [*damaged, *(good[:size] for size in range(len(good)))]:
            if time.monotonic() > until:
                return found
            file.write_bytes(content)
            try:
                got = identify(place / "kept")
            except REFUSALS:
                found["refused"] += 1
            else:
                found["harmless" if got == expected else "accepted wrongly"] += 1
        file.write_bytes(good)
    return found


class Faults:
    """Makes the n-th call of the system fail from now on; an audit hook, which cannot be removed, is at rest else."""

    def __init__(self) -> None:
        self.left, self.error, self.place = -1, 0, ""
        sys.addaudithook(self._audit)
        self._fsync = os.fsync
        os.fsync = self._failing_fsync  # type: ignore[assignment]

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left >= 0 and event in CALLS and (event == "mmap.__new__" or self.place in str(arguments[0])):
            self._count(str(arguments[0]))

    def _failing_fsync(self, descriptor: int) -> None:
        if self.left >= 0:
            self._count(None)
        self._fsync(descriptor)

    def _count(self, name: str | None) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(self.error, os.strerror(self.error), name)

    def run(self, call: Callable[[], Any], n: int, error: int) -> tuple[bool, Any]:
        """Return whether the n-th call of the system was reached, and what the call returned or raised."""
        self.left, self.error = n, error
        try:
            result = call()
        except Exception as failure:  # noqa: BLE001  judged by the caller
            result = failure
        reached, self.left = self.left < 0, -1
        return reached, result


def faults(injected: Faults, kind: Kind, place: Path, until: float) -> Counter[str]:
    """Fail at every call of the system, of writing over an earlier folder and of reading."""
    write, identify = kind
    found, path = Counter[str](), place / "kept"
    expected = []
    for version in (1, 0):
        write(path, version)
        expected.append(identify(path))
    for action in (lambda: write(path, 1), lambda: identify(path)):
        for error in ERRORS:
            n, reached = 0, True
            while reached and time.monotonic() < until:
                write(path, 0)
                injected.place = str(place)
                reached, result = injected.run(action, n, error)
                n += 1
                refused = isinstance(result, REFUSALS) or not isinstance(result, Exception)
                allowed = [*expected, None] if kind is KINDS["checkpoint"] else expected
                found["right" if refused and identify(path) in allowed else f"wrong: {result!r}"] += reached
    return found


def full_disk(kind: Kind, place: Path, until: float) -> Counter[str]:
    """Write over an earlier folder where no file may have more than so many bytes."""
    write, identify = kind
    found, path = Counter[str](), place / "kept"
    write(path, 1)
    later = identify(path)
    write(path, 0)
    earlier = identify(path)
    largest = max(file.stat().st_size for file in path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for size in range(0, largest + 64, 16):
        if time.monotonic() > until:
            break
        write(path, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            write(path, 1)
            result = None
        except Exception as failure:  # noqa: BLE001  judged below
            result = failure
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        right = (result is None or isinstance(result, REFUSALS)) and identify(path) in (earlier, later, None)
        found["right" if right else f"wrong: {result!r}"] += 1
    return found


def kills(place: Path, seconds: float, random_of: random.Random) -> Counter[str]:
    """Kill `xmlsgd train --checkpoint 0` at random times and call it again, until it has made the model."""
    write_libsvm(make_xmc(400, 60, 30, nnz_per_row=8, labels_per_row=2, random_state=0), place / "rows.txt")
    words = ["train", "rows.txt", "--hidden", "8", "--candidates", "0", "--threads", "1", "--seed", "0", "--quiet"]
    words += ["--epochs", "3", "--checkpoint", "0", "--out"]
    command = [sys.executable, "-m", "xmlsgd", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    for _ in range(2):  # the first one may compile
        started = time.monotonic()
        subprocess.run([*command, "whole", "--overwrite"], cwd=place, env=environment, check=True)
    usual, found = time.monotonic() - started, Counter[str]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        process = subprocess.Popen([*command, "m"], cwd=place, env=environment)
        try:
            code = process.wait(random_of.uniform(0.3, 1.1) * usual)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            found["killed"] += 1
            continue
        same = code == 0 and (place / "m" / "params.npy").read_bytes() == (place / "whole" / "params.npy").read_bytes()
        alone = sorted(entry.name for entry in place.iterdir()) == ["m", "rows.txt", "whole"]
        found["runs right" if same and alone else "runs wrong"] += 1
        shutil.rmtree(place / "m", ignore_errors=True)
    return found


def campaign(seconds: float, seed: int, with_kills: bool = True) -> dict[str, Any]:
    """Return the counts of all, within about so many seconds."""
    injected, results = Faults(), dict[str, Any]()
    share = seconds / (3 * len(KINDS) + 3 * with_kills)
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in KINDS.items():
            kind[0](Path(tempfile.mkdtemp(dir=folder), "first"), 0)  # what is imported and compiled once takes no share
            for tried in (damage, partial(faults, injected), full_disk):
                place = Path(tempfile.mkdtemp(dir=folder))
                title = getattr(tried, "__name__", "faults").replace("_", " ")
                results[f"{name}: {title}"] = dict(tried(kind, place, time.monotonic() + share))
        if with_kills:
            place = Path(folder, "kills")
            place.mkdir()
            results["kills"] = dict(kills(place, 3 * share, random.Random(seed)))
    return results


def wrong(results: dict[str, Any]) -> list[str]:
    """Return what went wrong, for each kind."""
    return [f"{name}: {what}" for name, found in results.items() for what in found if "wrong" in what and found[what]]


def main() -> int:
    """Run, print and write the counts; fail where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/reliability.json")
    given = parser.parse_args()
    logging.getLogger("xmlsgd").setLevel(logging.ERROR)  # of checkpoints that could not be written
    results = campaign(given.seconds, given.seed)
    told = {"seed": given.seed, "seconds": given.seconds, "results": results}
    Path(given.out).write_text(json.dumps({**told, "processor": processor(), "versions": versions()}, indent=1) + "\n")
    for name, found in results.items():
        print(name, ", ".join(f"{what} {n}" for what, n in found.items()))
    return bool(wrong(results))


if __name__ == "__main__":
    sys.exit(main())
