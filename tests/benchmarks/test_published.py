"""The tables in README and docs/comparison.md are the latest measurements."""

from __future__ import annotations

import json
import re

import pytest

from shared.paths import ROOT

TABLES = {"README.md": ["tate-subjects-leaf"], "docs/comparison.md": ["yso-finna-sv", "yso-finna-fi"]}  # in order
NAMES = {
    ("ours", "default"): "xmlsgd",
    ("ours", "fast"): "xmlsgd, fast",
    ("ours", "accurate"): "xmlsgd, accurate",
    ("pecos", "default"): "PECOS 1.2.8",
    ("pecos", "man"): "PECOS 1.2.8, `tfn+man` negatives",
    ("napkinxc", "default"): "napkinXC 0.7.2",
    ("omikuji", "default"): "omikuji 0.5.2",
    ("omikuji", "bonsai"): "omikuji 0.5.2, Bonsai setting",
}


def published(data: str) -> dict[str, list[str]]:
    """Return what a table should say, by the name of the method."""
    runs = json.loads((ROOT / f"benchmarks/results/frontier-{data}.json").read_text())["result"]["runs"]
    return {
        NAMES[run["peer"], run["setting"]]: [
            *(f"{run['measures'][f'P@{k}']:.1f}" for k in (1, 3, 5)),
            f"{run['train_seconds']:.1f} s",
            f"{round(run['test_rows'] / run['predict_seconds'], -2):,.0f}",
            *(f"{run[size] / 1e6:,.0f}" for size in ("model_bytes", "peak_memory_bytes")),
        ]
        for run in runs
        if (run["peer"], run["setting"]) in NAMES
    }


@pytest.mark.parametrize("page", TABLES)
def test_a_table_has_the_latest_measurements(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    tables = re.findall(r"\| \| P@1 .*top-5 rows/s.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    for table, data in zip(tables, TABLES[page], strict=True):
        rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()]
        assert {name: cells for name, *cells in rows} == published(data)
