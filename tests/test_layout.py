"""Test files stand alone: what several need is in a module that says what it is, or a fixture of their folder."""

from __future__ import annotations

import ast

from paths import ROOT, TESTS


def imported(file):
    """Yield the names of the modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_no_file_of_tests_imports_tests_or_fixtures_from_another():
    found = [
        f"{file.relative_to(ROOT)}: imports {name}; move what is shared to a module of its own in tests/"
        for file in sorted(TESTS.rglob("*.py"))
        for name in imported(file)
        if name.rpartition(".")[2].startswith(("test_", "conftest"))
    ]
    assert not found, "\n".join(found)
