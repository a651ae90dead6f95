"""Functions in installed Python sources: which files there are, the words of a function, the names that it calls."""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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


def source_files(packages: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the Python files of the standard library and the installed `packages`, in a fixed order."""
    yield from _files_below(Path(sysconfig.get_path("stdlib")), "stdlib", SKIPPED_FOLDERS)
    for package in packages:
        spec = importlib.util.find_spec(package)  # of a top-level name: finds it, imports nothing
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from _files_below(Path(folder), package, SKIPPED_FOLDERS - {"test", "tests"})


def parse_functions(files: Sequence[tuple[str, Path]]) -> list[Function]:
    """Return the distinct functions of the files; a file that cannot be read or parsed is skipped."""
    found: dict[tuple[str, tuple[str, ...]], Function] = {}
    collecting = gc.isenabled()
    gc.disable()  # syntax trees are many small objects and die by their reference counts
    try:
        for name, path in files:
            with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                for text, calls in functions_of(path.read_bytes()):
                    found.setdefault((text, calls), Function(name, text, calls))
    finally:
        if collecting:
            gc.enable()
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


def _files_below(root: Path, name: str, skipped: frozenset[str]) -> Iterator[tuple[str, Path]]:
    """Yield (`name/relative/path.py`, path) of the Python files below `root`, sorted, links to folders not followed."""
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
