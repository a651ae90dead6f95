"""Plots of several runs over time."""

from __future__ import annotations

import pytest

from benchmarks.papers.curves import draw_over_time, plot_over_time

RECORDS = [
    {"epoch": 0, "rows": 10, "seconds": 1.5, "loss": 3.0, "P@1": 50.0},
    {"epoch": 1, "rows": 20, "seconds": 3.0, "loss": 2.0, "P@1": 60.0},
]


def test_runs_of_a_method_share_colour_and_name_over_time():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    other = [{"epoch": 0, "seconds": 2.0, "P@1": 40.0}]
    draw_over_time(figure, {"adaptive": [RECORDS, other], "elastic": [other]}, "P@1")
    first, second, third = figure.axes[0].lines
    assert first.get_xydata().tolist() == [[1.5, 50.0], [3.0, 60.0]]
    assert second.get_xydata().tolist() == [[2.0, 40.0]]
    assert first.get_color() == second.get_color() != third.get_color()
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["adaptive", "elastic"]


def test_a_plot_of_several_runs_is_a_file(tmp_path):
    assert plot_over_time({"adaptive": [RECORDS]}, tmp_path / "time.svg").stat().st_size > 0
    assert [file.name for file in tmp_path.iterdir()] == ["time.svg"]


def test_a_plot_of_no_runs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one record, got none"):
        plot_over_time({"adaptive": [[]]}, tmp_path / "time.png")
    assert not list(tmp_path.iterdir())
