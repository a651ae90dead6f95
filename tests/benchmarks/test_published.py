"""What README's tables say of us and the peers is what was measured last."""

from __future__ import annotations

import json
import re

import pytest

from shared.paths import ROOT

DATA_SETS = ("tate-subjects-leaf", "yso-finna-sv", "yso-finna-fi")  # in the order of the tables
NAMES = {
    ("ours", "default"): "xmlsgd",
    ("ours", "fast"): "xmlsgd, fast",
    ("ours", "accurate"): "xmlsgd, accurate",
    ("pecos", "default"): "PECOS 1.2.8",
    ("pecos", "man"): "PECOS 1.2.8, `tfn+man` negatives",
    ("napkinxc", "default"): "napkinXC 0.7.2",
    ("omikuji", "default"): "omikuji 0.5.2",
}


def published(data: str) -> dict[str, list[str]]:
    """Return what a table should say, by the name of the method."""
    runs = json.loads((ROOT / f"benchmarks/results/frontier-{data}.json").read_text())["result"]["runs"]
    return {
        NAMES[run["peer"], run["setting"]]: [
            *(f"{run['measures'][f'P@{k}']:.1f}" for k in (1, 3, 5)),
            f"{run['train_seconds']:.1f} s",
            f"{run['test_rows'] / run['predict_seconds']:,.0f}",
            *(f"{run[size] / 1e6:,.0f}" for size in ("model_bytes", "peak_memory_bytes")),
        ]
        for run in runs
        if (run["peer"], run["setting"]) in NAMES
    }


@pytest.mark.parametrize(("data", "place"), [(data, place) for place, data in enumerate(DATA_SETS)])
def test_readme_says_what_was_measured_last(data, place):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| \| P@1 .*\n\|[-|]+\n((?:\|.*\n)+)", readme)
    assert len(tables) == len(DATA_SETS)
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in tables[place].splitlines()]
    assert {name: cells for name, *cells in rows} == published(data)
