"""The benchmark of accuracy against cost: which runs are drawn where, and which of them are the frontier."""

from __future__ import annotations

import pytest

from benchmarks.frontier import COSTS, METHODS, draw, table, undominated
from benchmarks.peers.ours import Ours

MEASURED = {f"{name}@{k}": 10.0 for name in ("P", "nDCG", "PSP") for k in (1, 3, 5)}


def run(peer, setting, seconds, accuracy):
    return {
        "peer": peer,
        "setting": setting,
        "train_seconds": seconds,
        "predict_seconds": 2.0,
        "test_rows": 1000,
        "model_bytes": 3_000_000,
        "peak_memory_bytes": 5_000_000,
        "measures": {**MEASURED, "P@1": accuracy},
    }


RUNS = [run("ours", "default", 8.0, 77.0), run("pecos", "default", 7.0, 76.0), run("ours", "fast", 2.0, 75.0)]
LOST = {"peer": "omikuji", "setting": "default", "failure": "omikuji: stopped after 1 s"}


def test_the_frontier_leaves_out_what_is_neither_cheaper_nor_better():
    assert undominated([(3, 5), (1, 2), (2, 2), (4, 4), (1, 1), (5, 6)]) == [(1, 2), (3, 5), (5, 6)]


def test_every_setting_of_ours_on_the_frontier_exists():
    assert {name.partition(":")[2] or "default" for name in METHODS if name.startswith("ours")} <= set(Ours.settings)


def test_the_table_begins_with_the_fastest_and_says_who_failed():
    text = table("toy", [*RUNS, LOST]).markdown()
    assert text.index("xmlsgd (fast)") < text.index("pecos") < text.index("| xmlsgd |")
    assert "| xmlsgd (fast) | 75.00 | 10.00 |" in text
    assert text.splitlines()[4].endswith("| 2.0 | 2.000 | 3 | 5 |")
    assert "Left out: omikuji: omikuji: stopped after 1 s" in text


def test_the_plot_has_a_panel_a_cost_and_a_colour_a_method():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw(figure, RUNS)
    assert [panel.get_xlabel() for panel in figure.axes] == list(COSTS)
    seconds, model, prediction = figure.axes
    best, *points = seconds.lines
    assert best.get_xydata().tolist() == [[2, 75], [7, 76], [8, 77]]
    assert {line.get_label(): line.get_xydata().tolist() for line in points} == {
        "xmlsgd": [[8, 77]],
        "pecos": [[7, 76]],
        "xmlsgd (fast)": [[2, 75]],
    }
    ours, pecos, fast = points
    assert ours.get_color() == fast.get_color() != pecos.get_color()
    assert ours.get_marker() != fast.get_marker()
    assert {tuple(line.get_xdata()) for line in model.lines[1:]} == {(3.0,)}
    assert {tuple(line.get_xdata()) for line in prediction.lines[1:]} == {(2.0,)}
