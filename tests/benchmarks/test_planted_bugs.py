"""The table of planted bugs fits the source: a bug whose text has changed is no longer planted."""

from __future__ import annotations

import pytest

from benchmarks.planted_bugs import plant, report
from benchmarks.planted_bugs_table import BUGS, Bug
from shared.paths import ROOT


def test_every_bug_changes_one_place_and_names_tests_that_exist():
    for bug in BUGS:
        assert (ROOT / bug.file).read_text().count(bug.old) == 1, f"{bug.name}: update its text in the table"
        assert bug.old != bug.new
        assert bug.tests
        assert all((ROOT / test).exists() for test in bug.tests), bug.name
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 30


def test_a_text_that_occurs_twice_is_refused(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(ValueError, match=r"^none: the text must occur once in a\.py, it occurs 2 times"):
        plant(Bug("room", "none", "a.py", "x = 1", "x = 2", ()), tmp_path)


def test_bugs_without_a_result_are_in_the_table():
    text = report({BUGS[0].name: {"outcome": "found", "test": "t", "seconds": "1", "commit": "c"}})
    assert f"1 of {len(BUGS)} bugs are found" in text
    assert text.count("not run") == len(BUGS) - 1
