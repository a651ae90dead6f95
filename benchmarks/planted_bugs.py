"""Plant a bug, run the fast tests that should find it, and tell whether they did: `python -m benchmarks.planted_bugs`.

Each bug replaces one text in one file of a temporary copy of the tree; the tests named beside it run there with `-x`.
A bug is found if a test fails. Results go to `benchmarks/results/planted-bugs.md`, after every bug.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .machine import describe, git_commit
from .planted_bugs_table import BUGS, Bug
from .report import RESULTS, Table, origin

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("xmlsgd", "tests", "benchmarks", "examples", "docs", "data", ".ci")
FILES = ("setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
NO_TEST_COLLECTED = 5  # pytest's exit status


def plant(bug: Bug, tree: Path) -> None:
    """Replace the bug's text in a tree; raise `ValueError` unless the text occurs exactly once."""
    path = tree / bug.file
    source = path.read_text() if path.exists() else ""
    if (count := source.count(bug.old)) != 1:
        raise ValueError(f"{bug.name}: the text must occur once in {bug.file}, it occurs {count} times: {bug.old!r}")
    path.write_text(source.replace(bug.old, bug.new))


def copy_tree(target: Path) -> None:
    """Copy what the tests need, compiled kernels included."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("results"))
    for name in FILES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, target / name)


def run_tests(tree: Path, tests: tuple[str, ...], timeout: float) -> tuple[str, str]:
    """Return "found" or "not found", or why the tests did not run, and the test that failed first."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            [*command, *tests], cwd=tree, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return "timed out", f"no end within {timeout:.0f} s"
    if done.returncode == 0:
        return "not found", ""
    if done.returncode == NO_TEST_COLLECTED:
        return "no test", ""
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return "found", failed[0].partition("[")[0] if failed else done.stdout.strip()[-100:]


def main() -> int:
    """Plant the bugs one after another; return 1 if one is not found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_bugs", description=__doc__)
    parser.add_argument("--areas", nargs="+", choices=list(dict.fromkeys(bug.area for bug in BUGS)), help="only these")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of one run (%(default)g)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes (benchmarks/results)")
    parser.add_argument("--missing", action="store_true", help="only bugs that have no result yet")
    args = parser.parse_args()
    file = args.out / "planted-bugs.json"
    results: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.exists() else {}
    bugs = [bug for area in args.areas or [None] for bug in BUGS if area in (None, bug.area)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        for bug in bugs:
            if args.missing and bug.name in results:
                continue
            begun = time.monotonic()
            sound = shutil.copy2(tree / bug.file, tree / "sound")  # with its time of change, for compiled kernels
            plant(bug, tree)
            outcome, test = run_tests(tree, bug.tests, args.timeout)
            shutil.copy2(sound, tree / bug.file)
            seconds = f"{time.monotonic() - begun:.0f}"
            results[bug.name] = {"outcome": outcome, "test": test, "seconds": seconds, "commit": git_commit()}
            print(bug.area, bug.name, outcome, test, seconds, sep=" | ", flush=True)
            file.write_text(json.dumps(results, indent=1))
            (args.out / "planted-bugs.md").write_text(report(results))
    missed = [bug.name for bug in bugs if results[bug.name]["outcome"] != "found"]
    print(f"{len(bugs)} bugs, {len(missed)} not found: {', '.join(missed) or 'none'}")
    return bool(missed)


def report(results: dict[str, dict[str, str]]) -> str:
    """Return the table of all bugs, those without a result included."""
    none = {"outcome": "not run", "test": "", "seconds": "", "commit": ""}
    known = [(bug, results.get(bug.name, none)) for bug in BUGS]
    rows = [[b.name, b.area, b.file, r["outcome"], r["test"], r["seconds"], r["commit"]] for b, r in known]
    found = sum(result["outcome"] == "found" for _, result in known)
    note = f"{found} of {len(rows)} bugs are found by the fast tests named in benchmarks/planted_bugs_table.py."
    table = Table("Planted bugs", ("bug", "area", "file", "result", "by", "seconds", "commit"), rows, [note])
    return f"{table.markdown()}\n{origin(describe(1))}\n"


if __name__ == "__main__":
    sys.exit(main())
