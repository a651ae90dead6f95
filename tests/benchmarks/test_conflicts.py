"""Lost updates: none of one worker, and all that a worker overwrites."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import conflicts
from benchmarks.constant_gradients import ConstantGradients
from shared import toy
from shared.paths import DATA as FUNCTIONS
from xmlsgd.training.executors.serial import Serial

DATA = toy.random_data(130, 12, 7)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_that_take_turns_lose_nothing(batch, n_workers):
    found = conflicts.lost_updates(DATA, 4, batch, Serial([ConstantGradients(1) for _ in range(n_workers)]))
    n = 130 - 130 % batch
    rows = np.arange(n)
    assert found["b0"] == (4 * n, 0)
    assert found["W0"] == (4 * len(DATA.X.take(rows).indices), 0)
    assert found["b1"] == (7 * n - len(DATA.Y.take(rows).indices), 0)
    assert found["W1"] == (4 * found["b1"][0], 0)


class Overwriting(ConstantGradients):
    """Undoes, when it is done, what was written since it began: every fifth step loses its own update."""

    steps = 0

    def input_step(self, X, rows, dZ, layer, *given):
        before = layer.W.copy()
        super().input_step(X, rows, dZ, layer, *given)
        self.steps += 1
        if self.steps % 5 == 0:
            layer.W[:] = before


def test_what_is_overwritten_is_counted_where_it_was():
    found = conflicts.lost_updates(DATA, 4, 1, Serial([Overwriting(1)]))
    made, lost = found["W0"]
    assert 0.1 * made < lost < 0.3 * made
    assert [found[name][1] for name in ("W1", "b1", "b0")] == [0, 0, 0]


def test_processes_leave_a_table(tmp_path):
    """What two processes lose, if anything, is left to the machine."""
    words = ["--data", str(FUNCTIONS), "--rows", "64", "--batches", "16", "--rounds", "1", "--hidden", "4"]
    conflicts.main([*words, "--out", str(tmp_path)])
    assert "| data, 16 | " in (tmp_path / "conflicts.md").read_text()
    ((found,),) = json.loads((tmp_path / "conflicts.json").read_text())["result"].values()
    assert found["b0"][0] == 4 * 64
    assert all(0 <= lost < made for made, lost in found.values())
