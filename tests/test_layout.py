"""Test files stand alone: what several need is in a module of `shared`, or a fixture of their folder."""

from __future__ import annotations

import ast

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


def test_only_tests_and_fixtures_lie_outside_shared():
    script = TESTS / "sanitize.py"
    outside = [file for file in FILES if TESTS / "shared" not in file.parents and file != script]
    assert [str(file.relative_to(ROOT)) for file in outside if not file.name.startswith(("test_", "conftest."))] == []
