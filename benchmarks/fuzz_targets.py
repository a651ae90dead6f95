"""The fuzzed parsers, each as a function of bytes, and the process that fuzzes one of them.

Nothing of the package is imported here before atheris can instrument it: branches of modules that were there earlier
would guide nobody.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

SLOWEST = 1  # seconds of the processor
RUNS = 10**7  # in one process at most
HANG = 60  # seconds of the clock, which run on a busy machine as well
LONGEST = 256  # bytes of an input: Python takes 2 us for each
MEMORY = Path("/dev/shm")  # where files of parsers are
NUMPY_FILES = "numpy.lib._format_impl"  # which reads the headers of arrays
DESCRIPTION = b"{}"  # of a model
MANIFEST = b'{"format": "xmlsgd-model", "version": 1, "files": {"model.json": {"bytes": 2, "sha256": "%s"}}}'
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
    "model": (MANIFEST % hashlib.sha256(DESCRIPTION).hexdigest().encode(), MANIFEST % b"x"),
    "array": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" + b" " * 60 + b"\n",),
}


def parsers(folder: Path) -> dict[str, Callable[[bytes], Any]]:
    """Return what parses bytes, by name; `folder` takes the files of parsers that read some."""
    from xmlsgd.data import documents, text, vocabulary
    from xmlsgd.data.document_formats import DocumentOptions
    from xmlsgd.data.files import reading
    from xmlsgd.data.files.folders import map_array, read_folder
    from xmlsgd.data.files.manifest import MODEL
    from xmlsgd.data.parser.parse import Options, parse
    from xmlsgd.errors import DataError, ModelFileError
    from xmlsgd.serving import requests

    files: Any = reading
    path = folder / "input"
    path.touch()
    (folder / MODEL.description).write_bytes(DESCRIPTION)
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
        parse(data + b"\n", Options(True, True, duplicates), None, None)

    answered = functools.partial(refusing, (requests.RequestError,))
    fields = {
        "limit": answered(requests.limit_of),
        "threshold": answered(functools.partial(requests.threshold_of, micro=0.5)),
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
        "array": of_file(map_array),
        "request": answered(functools.partial(request, read=requests.json_of)),
        "form": answered(functools.partial(request, read=requests.form_of)),
    }


def refusing(errors: tuple[type[Exception], ...], run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls `run` and ignores these errors."""

    def answered(data: Any) -> None:
        with contextlib.suppress(*errors):
            run(data)

    return answered


def timed(run: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    """Return a function that raises an error if `run` is too slow twice: once, it may have collected garbage."""

    def seconds(data: bytes) -> float:
        started = time.process_time()
        run(data)
        return time.process_time() - started

    def within(data: bytes) -> None:
        if seconds(data) > SLOWEST and (took := seconds(data)) > SLOWEST:
            raise TimeoutError(f"{took:.1f} s")

    return within


def fuzz_here(name: str, folder: str, corpus: str, failed: str, seconds: str) -> None:
    """Fuzz until the time is over, and end this process; failed : where names of inputs that fail begin."""
    import atheris  # installed on demand

    if "xmlsgd" in sys.modules:
        raise RuntimeError("modules of the package were imported before they could be instrumented")
    os.chdir(folder)  # a short path: to take it apart again and again is a good part of a run
    with atheris.instrument_imports(include=["xmlsgd.data", "xmlsgd.serving.requests", "xmlsgd.errors", NUMPY_FILES]):
        from xmlsgd.data.parser import kernels

        in_python = kernels.parse_block.py_func
        # Of bytes of NumPy, which Numba widens, Python would make sums that do not fit.
        kernels.parse_block = lambda text, *others: in_python(text.tolist(), *others)
        run = parsers(Path())[name]
    warnings.simplefilter("ignore")  # each would be printed
    options = [f"-runs={RUNS}", f"-max_total_time={seconds}", f"-timeout={HANG}", f"-max_len={LONGEST}"]
    options += [f"-artifact_prefix={failed}-", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, corpus], timed(run))
    atheris.Fuzz()
