"""Fuzz each parser, guided by the branches that it takes: Linux with `pip install atheris` alone.

Each parser is run in a process of its own, as Python, whose branches atheris sees: kernels are not compiled. It gets
its input without a file, or from one in memory: a disk would take most of the time. It may return or refuse an input by
an error of the package. Wrong is any other error, and an input that takes over a second. Afterwards each input of the
corpus, those that reach new branches, is parsed again: memory may be at most 20 times the input and 50 MB.

The corpus of a parser is kept in a file beside the results, with the number of runs since it began: the next call goes
on from there. Remove the file to begin anew. An input that fails is written beside it, and belongs into a test.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .fuzz_targets import MEMORY, SEEDS, SLOWEST, parsers
from .machine import describe
from .report import RESULTS, Table, publish

MEMORY_FACTOR, MEMORY_MB = 20, 50  # memory may be so many times the input, and so much beside it
CORPORA = "corpora"  # the folder of corpora in that of results


@dataclass(frozen=True)
class Corpus:
    """Inputs of a parser that each reach a branch of their own, and how they were found.

    since : date and commit of the first run. inputs : a character a byte.
    """

    since: str
    runs: int = 0
    seconds: float = 0.0
    inputs: list[str] = field(default_factory=list)

    def bytes(self) -> list[bytes]:
        """Return the inputs."""
        return [text.encode("latin-1") for text in self.inputs]


def corpus_file(name: str, results: Path = RESULTS) -> Path:
    """Return the file of a parser's corpus."""
    return results / CORPORA / f"{name.replace(' ', '-')}.json"


def read_corpus(name: str, results: Path = RESULTS) -> Corpus:
    """Return the corpus of a parser; its seeds, as inputs of no run, if there is none."""
    file = corpus_file(name, results)
    if file.exists():
        return Corpus(**json.loads(file.read_text()))
    return Corpus(today(), inputs=[seed.decode("latin-1") for seed in SEEDS[name]])


def today() -> str:
    """Return the date and the commit."""
    machine = describe(1)
    return f"{machine['date'][:10]}, {machine['commit']}"


def fuzz(name: str, results: Path, seconds: int) -> dict[str, Any]:
    """Fuzz in another process, write the corpus, and return what was counted since it began."""
    corpus, file = read_corpus(name, results), corpus_file(name, results)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        inputs = Path(folder) / "corpus"
        inputs.mkdir()
        for i, data in enumerate(corpus.bytes()):
            (inputs / str(i)).write_bytes(data)
        here = "import sys; from benchmarks.fuzz_targets import fuzz_here; fuzz_here(*sys.argv[1:])"
        command = [sys.executable, "-c", here, name, folder, str(inputs), str(file.with_suffix("")), str(seconds)]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.monotonic() - started
        found = sorted(each.read_bytes() for each in inputs.iterdir())
        slowest, factor = measured(parsers(Path(folder))[name], found)
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    corpus = Corpus(
        corpus.since, corpus.runs + (int(runs[1]) if runs else 0), corpus.seconds + took,
        [data.decode("latin-1") for data in found],
    )  # fmt: skip
    file.write_text(json.dumps(asdict(corpus), indent=0) + "\n")
    return {
        "runs": corpus.runs, "seconds": corpus.seconds, "corpus": len(found),
        "slowest of the corpus": slowest, "MB beyond 20 times the input": factor,
        "failed": "" if done.returncode == 0 else done.stderr[-2000:],
        "since": corpus.since, "measured": today(),
    }  # fmt: skip


def measured(run: Callable[[bytes], Any], corpus: Iterable[bytes]) -> tuple[float, float]:
    """Return the most seconds and the most memory, in MB beyond 20 times the input, of an input of the corpus."""
    seconds, memory = 0.0, 0.0
    for data in corpus:
        run(data)
        started = time.process_time()
        run(data)
        seconds = max(seconds, time.process_time() - started)
        tracemalloc.start()
        run(data)
        memory = max(memory, (tracemalloc.get_traced_memory()[1] - MEMORY_FACTOR * len(data)) / 1e6)
        tracemalloc.stop()
    return seconds, memory


def run(seconds: float, out: Path, names: Sequence[str] = ()) -> list[str]:
    """Fuzz each parser in turn, within about so many seconds, publish the counts, and return what went wrong.

    With names only those are fuzzed, and the rows of the others stay in the table.
    """
    table = out / "fuzz.json"
    known = json.loads(table.read_text())["result"] if names and table.exists() else {}
    names, fuzzed, end = names or tuple(SEEDS), dict[str, dict[str, Any]](), time.monotonic() + seconds
    for i, name in enumerate(names):
        fuzzed[name] = fuzz(name, out, max(round((end - time.monotonic()) / (len(names) - i)), 1))
    found = {name: counts for name in SEEDS if (counts := {**known, **fuzzed}.get(name))}
    rows = [
        [each, f"{counts['runs']:,}", f"{counts['seconds']:,.0f}", f"{counts['corpus']:,}",
         f"{1e3 * counts['slowest of the corpus']:.0f}", f"{max(counts['MB beyond 20 times the input'], 0):.1f}",
         "yes" if counts["failed"] else "no", counts["since"], counts["measured"]]
        for each, counts in found.items()
    ]  # fmt: skip
    columns = (
        "parser", "runs", "seconds", "corpus", "slowest, ms", "MB beyond 20 times the input", "failed",
        "first run", "last run",
    )  # fmt: skip
    publish("fuzz", Table("Parsers under coverage-guided fuzzing", columns, rows), found, 1, out)
    return [
        f"{name}: slow, large, or failed: {counts['failed']}" for name, counts in fuzzed.items()
        if counts["failed"] or counts["slowest of the corpus"] > SLOWEST
        or counts["MB beyond 20 times the input"] > MEMORY_MB
    ]  # fmt: skip
