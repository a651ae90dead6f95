"""Results as Markdown and JSON, one pair of files a table."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .machine import describe

RESULTS = Path(__file__).resolve().parent / "results"
NUMBERS = re.compile(r"\[\n[-+.\de,\s]+\]")  # a list of numbers in indented JSON
ABSOLUTE = re.compile(r"(?<![\w.])/(?:[^\s/:'\"|]+/)+")  # the folders of an absolute path


@dataclass(frozen=True)
class Table:
    """A table: a title, the names of its columns, rows of text, and lines that follow."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """Return the table as Markdown, numbers to the right."""
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows)]
        notes = [line for note in self.notes for line in ("", without_folders(note))]
        return "\n".join([f"## {self.title}", "", *lines, *notes, ""])


def are_most(reached: Sized, runs: Sized) -> bool:
    """Return whether what is known of those runs that got somewhere is of most of all runs."""
    return 2 * len(reached) > len(runs)


def without_folders(text: str) -> str:
    """Return the text with the last parts of absolute paths only."""
    return ABSOLUTE.sub("", text)


def publish(
    name: str, table: Table | Sequence[Table], result: Any, threads: int, out: Path = RESULTS, shown: bool = True
) -> None:
    """Print tables, and write them as `NAME.md` and, with the machine and all that was measured, as `NAME.json`."""
    machine, tables = describe(threads), [table] if isinstance(table, Table) else table
    text = "\n".join([*(each.markdown() for each in tables), f"{origin(machine)}\n"])
    if shown:
        print(f"\n{text}", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text)
    told = json.dumps({"machine": machine, "result": result}, indent=1)
    told = NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), told)  # a line each: there are thousands
    (out / f"{name}.json").write_text(without_folders(told))


def origin(machine: dict[str, Any]) -> str:
    """Return the line below a table."""
    return (
        f"{machine['date'][:10]}, commit {machine['commit']}, {machine['cpu']}, {machine['threads']} threads: "
        f"`{machine['command']}`"
    )


def megabytes(n_bytes: float) -> str:
    """Return bytes as megabytes."""
    return f"{n_bytes / 1e6:,.0f}"


def per_second(value: float) -> str:
    """Return a rate of rows."""
    return f"{value:,.0f}"
