"""Damage and faults: what is accepted wrongly, and what a failed or killed write leaves.

- `damage`: each byte flipped, and each length cut, of every file of a small store, checkpoint, and saved models: plain,
  compact, an ensemble. Accepted wrongly is what is read without an error and differs from what was written.
- `faults`: every system call on a file (`faults.c`: open, read, write, fsync, rename, mmap, ...) fails in turn
  while these are written over earlier ones and read, by `train`, `convert`, and a server that learns as well. Wrong is
  an internal error, an error that blames a file, a folder that is neither the old nor the new one, a success without
  the new one, and other files left once it is written again. Reads and writes that do half must change nothing.
- `full disk`: the same, where no file may have more than so many bytes.
- `kills`: training in another process with a checkpoint at each step is killed at random times and called again, until
  it has made the model. Wrong is a call that fails, other parameters than without kills, and files left beside it.

Each takes at most half of the time that is left, and says where that cut it short; `kills` takes one whole run more.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.synthetic import make_xmc

from .faults import Faults, why_no_faults
from .report import Table, publish
from .written_kinds import ERRORS, FAULTS, KINDS, REFUSALS, Kind, written

CUT = "cut short"  # the time was over
LONGEST = "xmlsgd train"  # of all kinds, by far: it comes last
KILLING = 300.0  # seconds of kills at most; `benchmarks.kills` counts hundreds in runs that start faster


def damage(kind: Kind, place: Path, seconds: float) -> Counter[str]:
    """Flip each byte and cut each length of all files."""
    path, found = place / "kept", Counter[str]()
    expected, until = written(kind, path, 0), time.monotonic() + seconds
    for file in sorted(path.iterdir()):
        good = file.read_bytes()
        damaged = (good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :] for at in range(len(good)))
        for content in itertools.chain(damaged, (good[:size] for size in range(len(good)))):
            if time.monotonic() > until:
                found[CUT] = 1
                return found
            file.write_bytes(content)
            try:
                got = kind.identify(path)
            except REFUSALS:
                found["refused"] += 1
            else:
                found["harmless" if got == expected else "accepted wrongly"] += 1
        file.write_bytes(good)
    return found


def faults(kind: Kind, place: Path, seconds: float) -> Counter[str]:
    """Let every system call fail, of writing over an earlier folder and of reading it."""
    found, path, injected, also = Counter[str](), place / "kept", Faults(), kind.also()
    later, earlier = (written(kind, path, version) for version in (1, 0))
    kept, names = Path(tempfile.mkdtemp(dir=place.parent), "kept"), sorted(os.listdir(place))
    shutil.copytree(path, kept)
    until = time.monotonic() + seconds
    for writes, action in ((True, lambda: kind.write(path, 1)), (False, lambda: kind.identify(path))):
        for error in (*ERRORS, 0):
            for n in itertools.count():
                if time.monotonic() > until:
                    found[CUT] = 1
                    return found
                call, result = injected.run(action, place, n, error)
                if not call:
                    restore(kept, path)
                    break
                failed, now = isinstance(result, Exception), state_of(kind, path)
                if failed and (error == 0 or not isinstance(result, FAULTS)):
                    verdict = f"wrong: {without_names(repr(result), place)}"
                elif now not in (earlier, later, *also):
                    verdict = "wrong: torn"
                elif not failed and (now if writes else result) not in ((later if writes else earlier), *also):
                    verdict = "wrong: nothing is said"
                else:
                    verdict = "right"
                for name in set(os.listdir(place)).difference(names):
                    if name in str(result):  # the model or the history of a run that failed, as its error says
                        remove(place / name)
                if sorted(os.listdir(place)) != names:
                    kind.write(path, 0)
                    if sorted(os.listdir(place)) != names:
                        verdict = "wrong: left files"
                restore(kept, path)
                found[verdict if verdict == "right" else f"{verdict} after {without_names(call, place)}"] += 1
    return found


def restore(kept: Path, path: Path) -> None:
    """Put a copy of a folder into the place of another."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(kept, path)


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def state_of(kind: Kind, path: Path) -> Any:
    """Return what identifies the folder that is left, or the error of one that is torn."""
    try:
        return kind.identify(path)
    except Exception as error:  # noqa: BLE001  judged by the caller
        return repr(error)


def without_names(text: str, place: Path) -> str:
    """Return a text without names that differ from run to run."""
    return re.sub(r"\.[0-9a-f]{8}\.partial", "", text.replace(str(place), ""))


def full_disk(kind: Kind, place: Path, seconds: float) -> Counter[str]:
    """Write over an earlier folder where no file may have more than so many bytes."""
    found, path, also = Counter[str](), place / "kept", kind.also()
    later, earlier = (written(kind, path, version) for version in (1, 0))
    largest = max(file.stat().st_size for file in path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    until = time.monotonic() + seconds
    for size in range(0, largest + 64, max(16, largest // 256)):
        if time.monotonic() > until:
            found[CUT] = 1
            break
        kind.write(path, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            kind.write(path, 1)
            result = None
        except Exception as failure:  # noqa: BLE001  judged below
            result = failure
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        right = (result is None or isinstance(result, FAULTS)) and state_of(kind, path) in (earlier, later, *also)
        found["right" if right else f"wrong: {without_names(repr(result), place)}"] += 1
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


def campaign(seconds: float) -> dict[str, dict[str, int]]:
    """Return the counts of all kinds, within about so many seconds."""
    modules: dict[str, Any] = sys.modules  # type: ignore[assignment]
    modules["matplotlib"] = None  # drawing curves would take most of the time
    results, end = dict[str, dict[str, int]](), time.monotonic() + 0.8 * seconds
    reason = why_no_faults()
    trials = (damage, full_disk) if reason else (damage, faults, full_disk)
    parts = [(name, kind, tried) for name, kind in KINDS.items() for tried in trials]
    parts = [part for part in parts if part[1].damaged or part[2] is not damage]
    parts.sort(key=lambda part: part[0] == LONGEST)
    if reason:
        results["faults"] = {f"skipped: {reason}": 1}
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS.values():  # what is imported and compiled once takes no share
            written(kind, Path(tempfile.mkdtemp(dir=folder), "kept"), 1)
        for i, (name, kind, tried) in enumerate(parts):
            now = time.monotonic()
            place = Path(tempfile.mkdtemp(dir=folder))
            # Half of what is left: most end early, and equal shares would cut the large ones short. The last takes all.
            found = tried(kind, place, max((end - now) / min(len(parts) - i, 2), 1.0))
            results[f"{name}: {tried.__name__.replace('_', ' ')}"] = dict(found)
        place = Path(folder, "kills")
        place.mkdir()
        results["kills"] = dict(kills(place, min(seconds / 5, KILLING), random.Random(0)))
    return results


def wrong(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return what went wrong, for each kind."""
    return [f"{name}: {what}" for name, found in results.items() for what, n in found.items() if "wrong" in what and n]


def run(seconds: float, out: Path) -> list[str]:
    """Count within about so many seconds, publish the counts, and return what went wrong."""
    results, rows = campaign(seconds), []
    for name, found in results.items():
        count = {"right": 0, "wrong": 0}
        for what, n in found.items():
            if what != CUT:
                count["wrong" if "wrong" in what else "right"] += n
        rows.append([name, *(f"{n:,}" for n in count.values()), "no" if CUT in found else "yes"])
    note = (
        "Damage: refused, or read as it was written. Faults, full disks and kills: nothing lost, torn or left behind."
    )
    publish("damage", Table("Damage, faults and kills", ["", "right", "wrong", "whole"], rows, [note]), results, 1, out)
    return wrong(results)
