"""Fuzz a parser, guided by the branches that it takes: `python -m benchmarks.fuzz libsvm`, Linux with atheris alone.

    pip install atheris
    python -m benchmarks.fuzz [PARSER ...] [--seconds 600] [--runs 10000000] [--corpus FOLDER]

Each parser is run in a process of its own, as Python, whose branches atheris sees: kernels are not compiled. It may
return or refuse an input by an error of the package. Wrong is any other error, and an input that takes over a second.
Afterwards each input of the corpus, those that reach new branches, is parsed again: memory may be at most 20 times the
input and 50 MB. An input that fails is written to FOLDER, and belongs into a test.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .report import RESULTS, Table, publish

SLOWEST, MEMORY_FACTOR, MEMORY_MB = 1, 20, 50  # seconds of the processor; of the input; and beside it
HANG = 60  # seconds of the clock, which run on a busy machine as well
LONGEST = 512  # bytes of an input: Python takes 2 us for each
SEEDS = {
    "libsvm": (b"2 9 5\n0,3 0:1.25 4:-2e-3 8:7\n 1:0.5 # x\n", b"\xef\xbb\xbf1:1 2:1e39\n\n2,1\r\n"),
    "texts": (b'"Woolf, Virginia",novel\ta text\nb\t"c"\n', b"\xff\xfe\n"),
    "names": (b"one\ntwo\n", "\ufeffé\r\n".encode()),
    "model": (b'{"format": "xmlsgd-model", "version": 1, "files": {"model.json": {"bytes": 2, "sha256": "x"}}}',),
    "array": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" + b" " * 60 + b"\n",),
    "request": (b'{"texts": ["a"], "limit": 3, "threshold": 0.5, "documents": [{"text": "a", "labels": ["b"]}]}',),
}


def parsers(folder: Path) -> dict[str, Callable[[bytes], Any]]:
    """Return what parses bytes, by name; `folder` takes the files of parsers that read some."""
    from xmlsgd.data.files.folders import _map_array, read_folder
    from xmlsgd.data.files.manifest import MODEL
    from xmlsgd.data.parser.parse import Options, parse
    from xmlsgd.data.text import read_label_names, read_raw_text
    from xmlsgd.errors import DataError, ModelFileError
    from xmlsgd.serving import requests

    path = folder / "input"
    (folder / MODEL.description).write_text("{}")

    def of_file(read: Callable[[Path], Any], file: Path = path) -> Callable[[bytes], Any]:
        def run(data: bytes) -> None:
            file.write_bytes(data)
            read(file)

        return refusing((DataError, ModelFileError), run)

    def libsvm(data: bytes) -> None:
        for duplicates in ("error", "sum"):
            parse(data + b"\n", Options(True, True, False, duplicates), None, None)

    def request(data: bytes) -> None:
        found = json.loads(data)
        requests.limit_of(found.get("limit"))
        requests.threshold_of(found.get("threshold"))
        requests.texts_of(found.get("texts"))
        requests.documents_of(found.get("documents"))

    not_json = (ValueError, RecursionError, AttributeError, requests.RequestError)
    return {
        "libsvm": libsvm,
        "texts": of_file(lambda file: read_raw_text(file, labelled=True)),
        "names": of_file(lambda file: read_label_names(file, 2)),
        "model": of_file(lambda file: read_folder(folder), folder / "MANIFEST.json"),
        "array": of_file(_map_array),
        "request": refusing(not_json, request),
    }


def refusing(errors: tuple[type[Exception], ...], run: Callable[[bytes], None]) -> Callable[[bytes], Any]:
    """Return what runs, and takes these errors for an answer."""

    def answered(data: bytes) -> None:
        with contextlib.suppress(*errors):
            run(data)

    return answered


def timed(run: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    """Return what runs, and raises where that takes the processor too long."""

    def within(data: bytes) -> None:
        started = time.process_time()
        run(data)
        if (took := time.process_time() - started) > SLOWEST:
            raise TimeoutError(f"{took:.1f} s")

    return within


def fuzz_here(name: str, folder: Path, corpus: Path, seconds: int, runs: int) -> None:
    """Fuzz until the time is over, and end this process."""
    import atheris  # installed on demand

    with atheris.instrument_imports(include=["xmlsgd.data", "xmlsgd.serving.requests", "xmlsgd.errors"]):
        from xmlsgd.data.parser import kernels

        in_python = kernels.parse_block.py_func
        # Of bytes of NumPy, which Numba widens, Python would make sums that do not fit.
        kernels.parse_block = lambda text, *others: in_python(text.tolist(), *others)
        run = parsers(folder)[name]
    options = [f"-runs={runs}", f"-max_total_time={seconds}", f"-timeout={HANG}", f"-max_len={LONGEST}"]
    options += [f"-artifact_prefix={corpus}-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], timed(run))
    atheris.Fuzz()


def fuzz(name: str, place: Path, seconds: int, runs: int) -> dict[str, Any]:
    """Fuzz in another process; return what was counted."""
    corpus, folder = place / name, place / f"{name}.files"
    for each in (corpus, folder):
        each.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(SEEDS[name]):
        (corpus / f"seed{i}").write_bytes(seed)
    command = [sys.executable, "-m", "benchmarks.fuzz", name, "--here", "--corpus", str(place)]
    command += ["--seconds", str(seconds), "--runs", str(runs)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    took = time.monotonic() - started
    slowest, factor = measured(parsers(folder)[name], corpus)
    return {
        "runs": int(found[1]) if found else 0, "seconds": took, "corpus": len(list(corpus.iterdir())),
        "slowest of the corpus": slowest, "MB beyond 20 times the input": factor,
        "failed": "" if done.returncode == 0 else done.stderr[-2000:],
    }  # fmt: skip


def measured(run: Callable[[bytes], Any], corpus: Path) -> tuple[float, float]:
    """Return the most seconds and the most memory, in MB beyond 20 times the input, of an input of the corpus."""
    seconds, memory = 0.0, 0.0
    for file in corpus.iterdir():
        data = file.read_bytes()
        run(data)
        started = time.process_time()
        run(data)
        seconds = max(seconds, time.process_time() - started)
        tracemalloc.start()
        run(data)
        memory = max(memory, (tracemalloc.get_traced_memory()[1] - MEMORY_FACTOR * len(data)) / 1e6)
        tracemalloc.stop()
    return seconds, memory


def main() -> int:
    """Fuzz each parser in turn, and write the counts; fail where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parsers", nargs="*", metavar="PARSER", help=f"of {', '.join(SEEDS)}; all by default")
    parser.add_argument("--seconds", type=int, default=600, help="for each parser (%(default)s)")
    parser.add_argument("--runs", type=int, default=10**7, help="of each parser at most (%(default)s)")
    parser.add_argument("--corpus", type=Path, default=Path("corpus"), help="inputs that are kept (%(default)s)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in the process that is fuzzed
    given = parser.parse_args()
    if unknown := set(given.parsers) - set(SEEDS):
        parser.error(f"no parser {unknown.pop()}; there are {', '.join(SEEDS)}")
    if given.here:
        (name,) = given.parsers
        fuzz_here(name, given.corpus / f"{name}.files", given.corpus / name, given.seconds, given.runs)
    before = RESULTS / "fuzz.json"
    found = json.loads(before.read_text())["result"] if before.exists() else {}
    for name in given.parsers or SEEDS:
        found[name] = fuzz(name, given.corpus.absolute(), given.seconds, given.runs)
        rows = [
            [each, f"{counts['runs']:,}", f"{counts['seconds']:,.0f}", f"{counts['corpus']:,}",
             f"{1e3 * counts['slowest of the corpus']:.0f}", f"{max(counts['MB beyond 20 times the input'], 0):.1f}",
             "yes" if counts["failed"] else "no"]
            for each, counts in found.items()
        ]  # fmt: skip
        columns = ("parser", "runs", "seconds", "corpus", "slowest, ms", "MB beyond 20 times the input", "failed")
        publish("fuzz", Table("Parsers under coverage-guided fuzzing", columns, rows), found, 1, RESULTS)
    wrong = [name for name, counts in found.items() if counts["failed"] or counts["slowest of the corpus"] > SLOWEST
             or counts["MB beyond 20 times the input"] > MEMORY_MB]  # fmt: skip
    print((RESULTS / "fuzz.md").read_text(), *(found[name]["failed"] for name in wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
