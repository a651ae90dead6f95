"""Reading XMC text: ours, scikit-learn, napkinXC, in turns; and opening the store that was made of it.

All parse the same unpacked file, just written and so in the system's file cache; scikit-learn gets it without the
header, which it does not know. Every turn is a process of its own.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import statistics
from pathlib import Path
from typing import Any

from xmlsgd.data.formats.libsvm import read_libsvm
from xmlsgd.data.formats.store import write_store
from xmlsgd.data.parser.blocks import HEADER

from .launch import RunnerFailed
from .plan import Plan
from .report import Table, megabytes, publish

ENVIRONMENTS = {"ours": "ours", "napkinxc": "napkinxc", "sklearn": "sklearn", "store": "ours"}
NAMES = {
    "ours": "xmlsgd read_libsvm",
    "napkinxc": "napkinXC load_libsvm_file",
    "sklearn": "scikit-learn load_svmlight_file",
    "store": "xmlsgd open_store",
}
OPENERS: dict[str, Any] = {".txt": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def parsing(source: Path, plan: Plan) -> None:
    """Measure, print and write the table of one data set's training text."""
    work = plan.folder("parsing", source.resolve())
    files = unpack(source, work)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in ENVIRONMENTS}
    failures: dict[str, str] = {}
    for turn in range(plan.rounds):
        for name, environment in ENVIRONMENTS.items():
            if name in failures:
                continue
            out = work / f"{name}-{turn}.json"
            try:
                found = plan.launcher.run(environment, files[name], out, "--parser", name, module="parsers")
            except RunnerFailed as error:
                failures[name] = str(error)
                print(failures[name], flush=True)
                continue
            results[name].append(found)
            print(f"round {turn + 1}: {NAMES[name]} {found['seconds']:.4f} s", flush=True)
    size = files["ours"].stat().st_size
    result = {"bytes": size, "turns": results, "failures": failures}
    publish(f"parsing-{work.name}", table(work.name, size, results), result, plan.threads, plan.out)
    shutil.rmtree(work)


def unpack(source: Path, work: Path) -> dict[str, Path]:
    """Write the training text, the same without header, and a store of it; return what each contestant reads."""
    packed = next(path for path in sorted(source.glob("*train.txt*")) if path.suffix in OPENERS)
    text, headless, store = work / "train.txt", work / "headless.txt", work / "store"
    with OPENERS[packed.suffix](packed, "rb") as lines, text.open("wb") as whole, headless.open("wb") as rows:
        first = lines.readline()
        whole.write(first)
        if not HEADER.match(first):
            rows.write(first)
        while block := lines.read(1 << 22):
            whole.write(block)
            rows.write(block)
    write_store(read_libsvm(text), store)
    return {"ours": text, "napkinxc": text, "sklearn": headless, "store": store}


def table(name: str, size: int, results: dict[str, list[dict[str, Any]]]) -> Table:
    """Return the table: medians, and how many times faster ours is."""
    medians = {key: statistics.median(turn["seconds"] for turn in turns) for key, turns in results.items() if turns}
    rows = []
    for key, seconds in sorted(medians.items(), key=lambda item: item[1]):
        peak = statistics.median(turn["peak_memory_bytes"] for turn in results[key])
        speed = "" if key == "store" else f"{size / seconds / 1e6:,.0f}"
        rows.append([NAMES[key], f"{seconds:.4f}", speed, f"{seconds / medians['ours']:.4g}", megabytes(peak)])
    columns = ["reader", "seconds", "MB/s", "seconds over xmlsgd's parser", "peak MB"]
    return Table(f"Reading the training rows of {name}, {megabytes(size)} MB of text", columns, rows)
