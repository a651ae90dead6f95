"""The plot of the workers of a run."""

from __future__ import annotations

import pytest

from benchmarks.papers.worker_plot import draw_workers, plot_workers

WORKERS = [
    {"epoch": epoch, "seconds": 10.0 * (epoch + 1), "loss": 1.0, "workers": entries}
    for epoch, entries in enumerate(
        (
            [{"worker": 0, "busy": 10.0, "batch": 64}, {"worker": 1, "busy": 5.0, "batch": 64}],
            [{"worker": 0, "busy": 10.0, "batch": 64}, {"worker": 1, "busy": 9.0, "batch": 32}],
        )
    )
]


def test_the_plot_of_workers_shows_batch_sizes_and_the_busy_share_of_the_run():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw_workers(figure, WORKERS, ["gpu"])
    sizes, shares = figure.axes
    shown = {line.get_label(): line.get_xydata().tolist() for line in sizes.lines}
    assert shown == {"gpu": [[1, 64], [2, 64]], "worker 1": [[1, 64], [2, 32]]}
    assert [bar.get_height() for bar in shares.patches] == [100.0, 70.0]


def test_the_plot_of_workers_is_a_file_and_one_worker_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    assert plot_workers(WORKERS, tmp_path / "workers.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="a run of several workers, got none"):
        plot_workers([{"epoch": 0, "seconds": 1.0}], tmp_path / "one.png")
    assert [file.name for file in tmp_path.iterdir()] == ["workers.png"]
