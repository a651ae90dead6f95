"""The learning curve and the bar: what they show, and that they leave nothing behind when they fail."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from xmlsgd.training.history import History, seconds_of_all_runs
from xmlsgd.training.messages import Report
from xmlsgd.training.plots import draw, draw_over_time, plot_learning_curve, plot_over_time
from xmlsgd.training.progress_bar import ProgressBar, in_batches

RECORDS = [
    {"epoch": 0, "rows": 10, "seconds": 1.5, "loss": 3.0, "P@1": 50.0, "P@3": 30.0},
    {"epoch": 1, "rows": 20, "seconds": 3.0, "loss": 2.0, "P@1": 60.0, "P@3": 40.0},
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_the_plot_is_a_png_and_no_other_file_stays(tmp_path):
    path = plot_learning_curve(RECORDS, tmp_path / "curve.png", "a run")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]


def test_the_plot_shows_loss_by_epoch_and_precision_by_seconds():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw(figure, RECORDS)
    losses, precision = figure.axes
    assert losses.lines[0].get_xydata().tolist() == [[1, 3.0], [2, 2.0]]
    shown = {line.get_label(): line.get_xydata().tolist() for line in precision.lines}
    assert shown == {"P@1": [[1.5, 50.0], [3.0, 60.0]], "P@3": [[1.5, 30.0], [3.0, 40.0]]}


def test_the_seconds_of_several_runs_follow_each_other():
    again = [{"epoch": 2, "first_epoch": 2, "rows": 30, "seconds": 0.5, "loss": 1.0, "P@1": 65.0}]
    other = [
        {"epoch": 3, "first_epoch": 3, "rows": 70, "seconds": 9.0, "loss": 1.0},
        {"epoch": 4, "first_epoch": 3, "rows": 140, "seconds": 18.0, "loss": 1},
    ]
    records = [*RECORDS, *again, *other]
    assert seconds_of_all_runs(records) == [1.5, 3.0, 3.5, 12.5, 21.5]
    assert seconds_of_all_runs([]) == []
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw(figure, records)
    assert figure.axes[1].lines[0].get_xydata().tolist() == [[1.5, 50.0], [3.0, 60.0], [3.5, 65.0]]


def test_a_run_without_measures_has_one_panel():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw(figure, [{"epoch": 0, "rows": 10, "seconds": 1.0, "loss": 3.0}])
    assert len(figure.axes) == 1


def test_a_plot_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="nosuchformat"):
        plot_learning_curve(RECORDS, tmp_path / "curve.nosuchformat")
    assert not list(tmp_path.iterdir())


def test_plots_do_not_load_matplotlib_before_they_are_drawn():
    assert "matplotlib" not in vars(sys.modules["xmlsgd.training.plots"])


def watch(monkeypatch, stream):
    """Return what a bar over two epochs of 100 rows writes to `stream` in place of standard error."""
    monkeypatch.setattr(sys, "stderr", stream)
    center = np.zeros(1, np.float32)
    with ProgressBar() as bar:
        bar.start(100, 2, center)
        for epoch in range(2):
            bar.span(Report(0, 100, 500, 250.0, 0.1))
            assert bar.epoch({"epoch": epoch, "loss": 2.5, "P@1": 61.234}, center) is False
        bar.finish(center)
    return stream.getvalue()


def test_the_bar_shows_epoch_rate_loss_and_precision_on_a_terminal(monkeypatch):
    shown = watch(monkeypatch, Terminal())
    for part in ("epoch 2/2", "200/200", "rows/s", "loss=2.5", "P@1=61.23"):
        assert part in shown


class Clock:
    """A clock that goes on by `seconds` each time that it is read."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def monotonic(self):
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize(
    ("seconds", "first", "others"),
    [
        (2.4, [], 0),
        (5, ["epoch 1/2: 50%, 10 rows/s, loss=2.5, P@1=61.23, 10 s left"], 1),
        (
            60,
            [
                f"epoch 1/2: 50%, {rest} s left"
                for rest in ("2 rows/s, loss=2.5, 60", "1 rows/s, loss=2.5, P@1=61.23, 120")
            ],
            2,
        ),
    ],
    ids=["a run of seconds", "short epochs", "long epochs"],
)
def test_where_there_is_no_terminal_an_epoch_is_a_line_and_none_follows_at_once(seconds, first, others, monkeypatch):
    monkeypatch.setattr("xmlsgd.training.progress_bar.time", Clock(seconds))
    shown = watch(monkeypatch, io.StringIO()).splitlines()
    assert shown[: len(first)] == first
    assert len(shown) == len(first) + others


def test_a_run_goes_on_where_its_lines_are_not_read(monkeypatch):
    class Left(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("xmlsgd.training.progress_bar.time", Clock(60))
    assert watch(monkeypatch, Left()) == ""


def test_the_bar_is_silent_where_there_is_no_stream(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert list(in_batches(3, 2, "rows"))[-1].tolist() == [2]


def test_a_run_that_breaks_off_ends_the_line_of_the_bar(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = ProgressBar()
    bar.start(100, 1, np.zeros(1, np.float32))
    with pytest.raises(KeyboardInterrupt), bar:
        raise KeyboardInterrupt
    assert stream.getvalue().endswith("\n")


def test_batches_cover_all_rows_once():
    assert [rows.tolist() for rows in in_batches(7, 3, "predict")] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(in_batches(0, 3, "predict")) == []


def test_history_and_plot_agree_on_a_file(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.start(10, 2, np.zeros(1, np.float32))
    for record in RECORDS:
        history.epoch(record, np.zeros(1, np.float32))
    assert plot_learning_curve(history.records, tmp_path / "curve.svg").stat().st_size > 0


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
