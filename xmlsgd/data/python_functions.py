"""A real data set that every machine has: predict from the words of a Python function which names it calls.

The rows are the functions of the installed standard library and of this package's own dependencies. Their files are
parsed, never imported. A row's text is made of the words of the function's name, arguments and docstring
(`def read_json(path)` gives "read json path"); its labels are the names that its body calls (`open`, `loads`).
All functions of a file are in the same split, so that near-duplicates do not leak into the test split.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError
from .csr import Dataset
from .label_names import index_labels
from .text import Documents
from .vectorizer import TextVectorizer

PACKAGES = ("joblib", "llvmlite", "numba", "numpy", "scipy", "sklearn", "threadpoolctl", "tqdm")
MIN_COUNT = 5  # a label must occur in at least so many training rows
TEST_ONE_IN = 10  # one file in ten is a test file
# Tests of the standard library are left out, as many builds of Python come without them; the other folders are code of
# other projects.
SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "_vendor", "_bundled", "__pycache__"}
MIN_WORDS = 2  # one word ("close") says too little to learn from
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
BUILTINS = frozenset(dir(builtins))
_WITHOUT_PARTS = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
LEAVES = frozenset({ast.Name, ast.Constant, ast.alias}.union(*(base.__subclasses__() for base in _WITHOUT_PARTS)))


class Function(NamedTuple):
    """A function in a file, such as "json/decoder.py": its words, and the names that it calls."""

    file: str
    text: str
    calls: tuple[str, ...]


def python_functions_texts() -> tuple[Documents, Documents]:
    """Return the texts and label names of the train and the test functions; parsing takes about 15 seconds.

    Labels of fewer than `MIN_COUNT` training rows are dropped, then rows without a label. Raises `DataError` if no
    Python source is installed.
    """
    return select_labels(*split(parse_functions(list(source_files(PACKAGES))), TEST_ONE_IN), MIN_COUNT)


def source_files(packages: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the Python files of the standard library and the installed `packages`, in a fixed order."""
    yield from _files_below(Path(sysconfig.get_path("stdlib")), "stdlib", SKIPPED_FOLDERS)
    for package in packages:
        spec = importlib.util.find_spec(package)  # imports nothing, as the name is top-level
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from _files_below(Path(folder), package, SKIPPED_FOLDERS - {"test", "tests"})


def parse_functions(files: Sequence[tuple[str, Path]]) -> list[Function]:
    """Return the distinct functions of the files; a file that cannot be read or parsed is skipped."""
    found: dict[tuple[str, tuple[str, ...]], Function] = {}
    for name, path in files:
        with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            for text, calls in functions_of(path.read_bytes()):
                found.setdefault((text, calls), Function(name, text, calls))
    return list(found.values())


def functions_of(source: bytes | str) -> list[tuple[str, tuple[str, ...]]]:
    """Return (text, called names) of each function in a Python source, in the order of the source.

    Calls of builtins and assertions are left out, as they tell nothing about the purpose of a function; then functions
    without a call, and those with a single word. Calls in a nested function also count for the outer one.
    """
    found: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, set[str]]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes in the parsed source
        stack: list[tuple[ast.AST, tuple[set[str], ...]]] = [(ast.parse(source), ())]
    while stack:
        node, callers = stack.pop()
        if isinstance(node, FUNCTION):
            callers = (*callers, set())
            found.append((node, callers[-1]))
        elif isinstance(node, ast.Call) and callers and (name := _called_name(node)):
            for calls in callers:
                calls.add(name)
        stack += [(child, callers) for child in ast.iter_child_nodes(node) if type(child) not in LEAVES]
    found.sort(key=lambda item: (item[0].lineno, item[0].col_offset))
    rows = ((_words(node), tuple(sorted(calls))) for node, calls in found if calls)
    return [(" ".join(words), calls) for words, calls in rows if len(words) >= MIN_WORDS]


def split(functions: Sequence[Function], one_in: int) -> tuple[Documents, Documents]:
    """Return training and test splits: a hash of the file name puts one file in `one_in` into the test split."""
    parts: list[list[Function]] = [[], []]
    for function in functions:
        digest = hashlib.blake2b(function.file.encode(), digest_size=8).digest()
        parts[int.from_bytes(digest, "little") % one_in == 0].append(function)
    if not all(parts):
        raise DataError(f"demo: needs the source files of Python, got {len(functions)} functions; install them")
    train, test = (Documents([f.text for f in part], [f.calls for f in part]) for part in parts)
    return train, test


def select_labels(train: Documents, test: Documents, min_count: int) -> tuple[Documents, Documents]:
    """Return both splits with only the labels of at least `min_count` training rows, and rows with such a label."""
    counts = Counter(name for names in train.labels or () for name in names)
    kept = {name for name, count in counts.items() if count >= min_count}
    return _with_labels(train, kept), _with_labels(test, kept)


def vectorized(train: Documents, test: Documents) -> tuple[Dataset, Dataset, TextVectorizer]:
    """Return both splits as TF-IDF rows, and the vectorizer; it and the label columns come from the training split."""
    vectorizer = TextVectorizer().fit(train.texts)
    Y, names = index_labels(train.labels or ())
    Y_test, _ = index_labels(test.labels or (), names)
    X, X_test = (vectorizer.rows_of(part.texts) for part in (train, test))
    return Dataset(X, Y, names), Dataset(X_test, Y_test, names), vectorizer


def _with_labels(part: Documents, kept: set[str]) -> Documents:
    labels = [tuple(name for name in names if name in kept) for names in part.labels or ()]
    chosen = [(text, names) for text, names in zip(part.texts, labels, strict=True) if names]
    return Documents([text for text, _ in chosen], [names for _, names in chosen])


def _files_below(root: Path, name: str, skipped: set[str]) -> Iterator[tuple[str, Path]]:
    """Yield (`name/relative/path.py`, path) of the Python files below `root`, sorted, without links to folders."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - skipped)
        for file in sorted(files):
            if file.endswith(".py"):
                path = Path(folder, file)
                yield f"{name}/{path.relative_to(root).as_posix()}", path


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
