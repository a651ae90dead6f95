"""Write the samples of this folder and of the package: `python data/make_sample.py data xmlsgd/data/sample`.

The rows are functions of the standard library, whose sources are parsed, never imported. The text of a function is made
of the words of its name, arguments and docstring; its labels are the names that its body calls.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import lzma
import os
import re
import sys
import sysconfig
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xmlsgd.data.python_functions import vectorized
from xmlsgd.data.text import RawText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xmlsgd.data.csr import Dataset

SAMPLE_MODULES = (
    *("asyncio", "concurrent", "email", "html", "http", "importlib", "json", "logging", "multiprocessing", "urllib"),
    *("wsgiref", "xml", "xmlrpc"),
)
SAMPLE_WORDS = 25  # of a text, and
SAMPLE_DIGITS = 4  # of a feature value: the files stay small
SAMPLE_MIN_COUNT = 3
SAMPLE_TEST_SHARE = 6
PACKAGE_WORDS, PACKAGE_MIN_COUNT, PACKAGE_TEST_SHARE = 40, 5, 10  # of the sample in the package, of all modules
# The standard library's own tests are left out because many builds of Python come without them; the others are code
# of other projects.
SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "idle_test", "site-packages", "dist-packages", "_vendor", "_bundled", "__pycache__")
)
MIN_WORDS = 2  # one word ("close") says too little to learn from
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
BUILTINS = frozenset(dir(builtins))


class Function(NamedTuple):
    """A function of the file `file` (`json/decoder.py`): its words and the names it calls."""

    file: str
    text: str
    calls: tuple[str, ...]


def write_sample(functions: Sequence[Function], folder: str | Path) -> None:
    """Write a small data set of some standard modules into `folder`, as raw text and as XMC text.

    `train_raw.txt` and `test_raw.txt` read `label1,label2<TAB>text`; `train.txt` and `test.txt` hold the same rows in
    XMC text; line l of `labels.txt` names label l, line f of `features.txt` feature f, both from 0.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    short = shortened([f for f in functions if f.file.split("/")[1] in SAMPLE_MODULES], SAMPLE_WORDS)
    raw_train, raw_test = select_labels(*split(short, SAMPLE_TEST_SHARE), SAMPLE_MIN_COUNT)
    train, test, vectorizer = vectorized(raw_train, raw_test)
    for name, raw, dataset in (("train", raw_train, train), ("test", raw_test, test)):
        _write_lines(folder / f"{name}_raw.txt", _raw_lines(raw))
        _write_lines(folder / f"{name}.txt", _xmc_lines(dataset))
    _write_lines(folder / "labels.txt", train.label_names or ())
    _write_lines(folder / "features.txt", vectorizer.words)


def write_package_sample(functions: Sequence[Function], folder: str | Path) -> None:
    """Write the functions of all standard modules into `folder`, as raw text packed by xz."""
    short = shortened(functions, PACKAGE_WORDS)
    parts = select_labels(*split(short, PACKAGE_TEST_SHARE), PACKAGE_MIN_COUNT)
    for name, raw in zip(("train", "test"), parts, strict=True):
        text = "".join(f"{line}\n" for line in _raw_lines(raw))
        Path(folder, f"{name}.txt.xz").write_bytes(lzma.compress(text.encode()))


def shortened(functions: Sequence[Function], n_words: int) -> list[Function]:
    """Return functions with at most so many words."""
    return [f._replace(text=" ".join(f.text.split()[:n_words])) for f in functions]


def parse_library() -> list[Function]:
    """Return the distinct functions of the standard library."""
    library = Path(sysconfig.get_path("stdlib"))
    return parse_functions([(f"stdlib/{name}", path) for name, path in source_files(library)])


def source_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (`relative/path.py`, path) of the Python files below `root`, sorted, links to folders not followed."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for file in sorted(files):
            if file.endswith(".py"):
                path = Path(folder, file)
                yield path.relative_to(root).as_posix(), path


def parse_functions(files: Sequence[tuple[str, Path]]) -> list[Function]:
    """Return the distinct functions of the files; a file that cannot be read or parsed is skipped."""
    found: dict[tuple[str, tuple[str, ...]], Function] = {}
    for name, path in files:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            for text, calls in functions_of(path.read_bytes()):
                found.setdefault((text, calls), Function(name, text, calls))
    return list(found.values())


def functions_of(source: bytes | str) -> list[tuple[str, tuple[str, ...]]]:
    """Return (text, called names) of each function in a Python source, in the order of the source.

    Left out are calls of builtins and of assertions, which say nothing of a function's purpose, then functions without
    a call and those with a single word. Calls in a nested function count for the outer one too.
    """
    found: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, set[str]]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the source's own invalid escapes are not the user's business
        stack: list[tuple[ast.AST, tuple[set[str], ...]]] = [(ast.parse(source), ())]
    while stack:
        node, callers = stack.pop()
        if isinstance(node, FUNCTION):
            callers = (*callers, set())
            found.append((node, callers[-1]))
        elif isinstance(node, ast.Call) and callers and (name := _called_name(node)):
            for calls in callers:
                calls.add(name)
        stack += [(child, callers) for child in ast.iter_child_nodes(node)]
    found.sort(key=lambda item: (item[0].lineno, item[0].col_offset))
    rows = ((_words(node), tuple(sorted(calls))) for node, calls in found if calls)
    return [(" ".join(words), calls) for words, calls in rows if len(words) >= MIN_WORDS]


def _called_name(call: ast.Call) -> str | None:
    """Return `f` of the calls `f()` and `x.f()`; None for other calls, builtins and assertions."""
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    return None if name is None or name in BUILTINS or name.startswith("assert") else str(name)


def _words(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the lower-case words of name, arguments and docstring: `readJSON_file` gives read, json, file."""
    a = function.args
    arguments = (*a.posonlyargs, *a.args, *filter(None, (a.vararg,)), *a.kwonlyargs, *filter(None, (a.kwarg,)))
    names = (function.name, *(arg.arg for arg in arguments if arg.arg not in ("self", "cls")))
    words = WORD.findall(" ".join((*names, ast.get_docstring(function, clean=False) or "")))
    return [word.lower() for word in words if len(word) > 1]


def split(functions: Sequence[Function], test_share: int) -> tuple[RawText, RawText]:
    """Return train and test parts, one file in `test_share` to test, by a hash of its name: the same everywhere."""
    parts: list[list[Function]] = [[], []]
    for function in functions:
        digest = hashlib.blake2b(function.file.encode(), digest_size=8).digest()
        parts[int.from_bytes(digest, "little") % test_share == 0].append(function)
    train, test = (RawText([f.text for f in part], [f.calls for f in part]) for part in parts)
    return train, test


def select_labels(train: RawText, test: RawText, min_count: int) -> tuple[RawText, RawText]:
    """Return both parts with the labels of at least `min_count` training rows, without rows that have none of them."""
    counts = Counter(name for names in train.labels or () for name in names)
    kept = {name for name, count in counts.items() if count >= min_count}
    return _with_labels(train, kept), _with_labels(test, kept)


def _with_labels(part: RawText, kept: set[str]) -> RawText:
    rows = (
        (text, tuple(filter(kept.__contains__, names)))
        for text, names in zip(part.texts, part.labels or (), strict=True)
    )
    chosen = [(text, names) for text, names in rows if names]
    return RawText([text for text, _ in chosen], [names for _, names in chosen])


def _raw_lines(raw: RawText) -> Iterator[str]:
    """Yield lines `label1,label2<TAB>text`."""
    return map("\t".join, zip(map(",".join, raw.labels or ()), raw.texts, strict=True))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _xmc_lines(dataset: Dataset) -> Iterator[str]:
    """Yield the header and the rows in XMC text, values with `SAMPLE_DIGITS` digits."""
    yield f"{dataset.n_rows} {dataset.n_features} {dataset.n_labels}"
    for i in range(dataset.n_rows):
        labels, _ = dataset.Y.row(i)
        entries = (f"{feature}:{value:.{SAMPLE_DIGITS}g}" for feature, value in zip(*dataset.X.row(i), strict=True))
        yield f"{','.join(map(str, labels))} {' '.join(entries)}"


if __name__ == "__main__":
    library = parse_library()
    write_sample(library, sys.argv[1])
    write_package_sample(library, sys.argv[2])
