"""Fuzz each parser, guided by the branches that it takes: Linux with `pip install atheris` alone.

Each parser is run in a process of its own, as Python, whose branches atheris sees: kernels are not compiled. It gets
its input without a file, or from one in memory: a disk would take most of the time. It may return or refuse an input by
an error of the package. Wrong is any other error, and an input that takes over a second. Afterwards each input of the
corpus, those that reach new branches, is parsed again: memory may be at most 20 times the input and 50 MB. An input
that fails is written beside the corpus, and belongs into a test.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .machine import describe
from .report import Table, publish

SLOWEST, MEMORY_FACTOR, MEMORY_MB = 1, 20, 50  # seconds of the processor; of the input; and beside it
RUNS = 10**7  # of a parser at most
HANG = 60  # seconds of the clock, which run on a busy machine as well
LONGEST = 256  # bytes of an input: Python takes 2 us for each
SEEDS = {
    # The first two make RUNS runs before their time is over, and leave the rest of it to the others.
    "request": (b'{"texts": ["a"], "limit": 3, "threshold": 0.5, "documents": [{"text": "a", "labels": ["b"]}]}',),
    "form": (b"text=a+b&limit=3&threshold=0.5&text=%C3%A9",),
    "libsvm": (b"2 9 5\n0,3 0:1.25 4:-2e-3 8:7\n 1:0.5 # x\n", b"\xef\xbb\xbf1:1 2:1e39\n\n2,1\r\n"),
    "texts": (b'"Woolf, Virginia",novel\ta text\nb\t"c"\n', b"\xff\xfe\n"),
    "names": (b"one\ntwo\n", "\ufeffé\r\n".encode()),
    "label texts": (b"one\ta text\ntwo\n",),
    "vocabulary": (b"<a:b>\tone\n<a:c>\tone\tnote\n\n",),
    "csv": (b'text,labels\n"a ""b"", c","d,""e, f"""\n',),
    "jsonl": (b'{"text": "a", "labels": ["b", "c"]}\n\n',),
    "annif": (b"a text\t<a:b> <a:c>\nanother\t\n",),
    "model": (b'{"format": "xmlsgd-model", "version": 1, "files": {"model.json": {"bytes": 2, "sha256": "x"}}}',),
    "array": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" + b" " * 60 + b"\n",),
}
MEMORY = Path("/dev/shm")  # where files of parsers are


def parsers(folder: Path) -> dict[str, Callable[[bytes], Any]]:
    """Return what parses bytes, by name; `folder` takes the files of parsers that read some."""
    from xmlsgd.data import documents, text, vocabulary
    from xmlsgd.data.document_options import DocumentOptions
    from xmlsgd.data.files import reading
    from xmlsgd.data.files.folders import _map_array, read_folder
    from xmlsgd.data.files.manifest import MODEL
    from xmlsgd.data.parser.parse import Options, parse
    from xmlsgd.errors import DataError, ModelFileError
    from xmlsgd.serving import requests

    files: Any = reading
    path = folder / "input"
    path.touch()
    (folder / MODEL.description).write_text("{}")
    options = DocumentOptions(names={"a:b": "one"})

    def of_file(read: Callable[[Path], Any], file: Path = path) -> Callable[[bytes], Any]:
        def run(data: bytes) -> None:
            file.write_bytes(data)
            read(file)

        return refusing((DataError, ModelFileError), run)

    def of_text(read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
        def run(data: bytes) -> None:
            usual = files.open_regular
            files.open_regular = lambda _: contextlib.nullcontext(io.BytesIO(data))
            try:
                read(path)
            finally:
                files.open_regular = usual

        return refusing((DataError,), run)

    def of_documents(form: str) -> Callable[[bytes], Any]:
        return of_text(lambda file: documents.read_documents(file, form, True, options))

    def libsvm(data: bytes) -> None:
        duplicates = ("error", "sum")[len(data) % 2]
        parse(data + b"\n", Options(True, True, False, duplicates), None, None)

    answered = functools.partial(refusing, (requests.RequestError,))
    fields = {
        "limit": answered(requests.limit_of), "threshold": answered(requests.threshold_of),
        "text": answered(requests.text_of), "texts": answered(requests.texts_of),
        "documents": answered(requests.documents_of),
    }  # fmt: skip

    def request(data: bytes, read: Callable[[bytes], Any]) -> None:
        found = read(data)
        for name, check in fields.items():
            check(found.get(name))

    return {
        "libsvm": libsvm,
        "texts": of_text(lambda file: text.read_raw_text(file, labelled=True)),
        "names": of_text(lambda file: text.read_label_names(file, 2)),
        "label texts": of_text(text.read_label_texts),
        "vocabulary": of_text(vocabulary.read_vocabulary),
        **{form: of_documents(form) for form in ("csv", "jsonl", "annif")},
        "model": of_file(lambda file: read_folder(folder), folder / "MANIFEST.json"),
        "array": of_file(_map_array),
        "request": answered(functools.partial(request, read=requests.json_of)),
        "form": answered(functools.partial(request, read=requests.form_of)),
    }


def refusing(errors: tuple[type[Exception], ...], run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what runs, and takes these errors for an answer."""

    def answered(data: Any) -> None:
        with contextlib.suppress(*errors):
            run(data)

    return answered


def timed(run: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    """Return what runs, and raises where that takes the processor too long, twice: collecting garbage may, once."""

    def seconds(data: bytes) -> float:
        started = time.process_time()
        run(data)
        return time.process_time() - started

    def within(data: bytes) -> None:
        if seconds(data) > SLOWEST and (took := seconds(data)) > SLOWEST:
            raise TimeoutError(f"{took:.1f} s")

    return within


def fuzz_here(name: str, folder: str, corpus: str, seconds: str) -> None:
    """Fuzz until the time is over, and end this process."""
    import atheris  # installed on demand

    with atheris.instrument_imports(include=["xmlsgd.data", "xmlsgd.serving.requests", "xmlsgd.errors"]):
        from xmlsgd.data.parser import kernels

        in_python = kernels.parse_block.py_func
        # Of bytes of NumPy, which Numba widens, Python would make sums that do not fit.
        kernels.parse_block = lambda text, *others: in_python(text.tolist(), *others)
        run = parsers(Path(folder))[name]
    warnings.simplefilter("ignore")  # each would be printed
    options = [f"-runs={RUNS}", f"-max_total_time={seconds}", f"-timeout={HANG}", f"-max_len={LONGEST}"]
    options += [f"-artifact_prefix={corpus}-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, corpus], timed(run))
    atheris.Fuzz()


def fuzz(name: str, place: Path, seconds: int) -> dict[str, Any]:
    """Fuzz in another process; return what was counted."""
    corpus = place / name.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(SEEDS[name]):
        (corpus / f"seed{i}").write_bytes(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        here = "import sys; from benchmarks.fuzz import fuzz_here; fuzz_here(*sys.argv[1:])"
        command = [sys.executable, "-c", here, name, folder, str(corpus), str(seconds)]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.monotonic() - started
        slowest, factor = measured(parsers(Path(folder))[name], corpus)
    machine = describe(1)
    found = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    return {
        "runs": int(found[1]) if found else 0, "seconds": took, "corpus": len(list(corpus.iterdir())),
        "slowest of the corpus": slowest, "MB beyond 20 times the input": factor,
        "failed": "" if done.returncode == 0 else done.stderr[-2000:],
        "measured": f"{machine['date'][:10]}, {machine['commit']}",
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


def run(seconds: float, out: Path, corpora: Path, names: Sequence[str] = ()) -> list[str]:
    """Fuzz each parser in turn, within about so many seconds, publish the counts, and return what went wrong.

    With names only those are fuzzed, and the rows of the others stay in the table.
    """
    table = out / "fuzz.json"
    known = json.loads(table.read_text())["result"] if names and table.exists() else {}
    names, fuzzed, end = names or tuple(SEEDS), dict[str, dict[str, Any]](), time.monotonic() + seconds
    for i, name in enumerate(names):
        fuzzed[name] = fuzz(name, corpora, max(round((end - time.monotonic()) / (len(names) - i)), 1))
    found = {name: counts for name in SEEDS if (counts := {**known, **fuzzed}.get(name))}
    rows = [
        [each, f"{counts['runs']:,}", f"{counts['seconds']:,.0f}", f"{counts['corpus']:,}",
         f"{1e3 * counts['slowest of the corpus']:.0f}", f"{max(counts['MB beyond 20 times the input'], 0):.1f}",
         "yes" if counts["failed"] else "no", counts["measured"]]
        for each, counts in found.items()
    ]  # fmt: skip
    columns = ("parser", "runs", "seconds", "corpus", "slowest, ms", "MB beyond 20 times the input", "failed", "date")
    publish("fuzz", Table("Parsers under coverage-guided fuzzing", columns, rows), found, 1, out)
    return [
        f"{name}: slow, large, or failed: {counts['failed']}" for name, counts in fuzzed.items()
        if counts["failed"] or counts["slowest of the corpus"] > SLOWEST
        or counts["MB beyond 20 times the input"] > MEMORY_MB
    ]  # fmt: skip
