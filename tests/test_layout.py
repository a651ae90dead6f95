"""Test files stand alone: what several need is in a module of `shared`, or a fixture of their folder.

No line of a kernel is longer than Python's may be, which the linter sees to.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from shared.paths import ROOT, TESTS

FILES = sorted(TESTS.rglob("*.py"))


def imported(file):
    """Yield the names of the modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_no_file_of_tests_imports_tests_or_fixtures_from_another():
    found = [
        f"{file.relative_to(ROOT)}: imports {name}; move what is shared to a module of tests/shared"
        for file in FILES
        for name in imported(file)
        if name.rpartition(".")[2].startswith(("test_", "conftest"))
    ]
    assert not found, "\n".join(found)


def test_test_files_of_different_folders_have_different_names():
    """Pytest imports them by their names alone."""
    names = Counter(file.name for file in FILES if file.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_only_tests_and_fixtures_lie_outside_shared():
    scripts = [TESTS / "sanitize.py", TESTS / "real_cupy.py"]
    outside = [file for file in FILES if TESTS / "shared" not in file.parents and file not in scripts]
    assert [str(file.relative_to(ROOT)) for file in outside if not file.name.startswith(("test_", "conftest."))] == []


def test_no_line_of_a_kernel_is_longer_than_one_of_python():
    longest = int(re.search(r"(?m)^line-length = (\d+)", (ROOT / "pyproject.toml").read_text())[1])
    folders = [ROOT / "xmlsgd" / "devices" / "cuda", *(TESTS / "shared" / name for name in ("fake_gpu", "fake_cuda"))]
    sources = [file for folder in folders for file in folder.rglob("*") if file.suffix in (".cu", ".cuh", ".h", ".cpp")]
    assert len(sources) >= 9
    for source in sources:
        for number, line in enumerate(source.read_text().splitlines(), 1):
            assert len(line) <= longest, f"{source.relative_to(ROOT)}:{number}: {len(line)} characters"
