"""The benchmark of prediction: batches and single rows, fastest first, and runs that lack a figure."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import runner
from benchmarks.prediction import table

RUN = {
    "peer": "ours",
    "setting": "default",
    "test_rows": 1000,
    "predict_seconds": 0.1,
    "predict_passes": [0.1],
    "measures": {"P@1": 77.0},
}


class Noting:
    """A runner that notes what it is asked."""

    def __init__(self):
        self.asked, self.threads = [], 2

    def use_one_thread(self):
        self.threads = 1

    def predict(self, X):
        self.asked.append((X.shape[0], self.threads, X.nnz))


def test_the_fastest_comes_first_and_a_run_without_single_rows_leaves_a_gap():
    timed = {
        **RUN,
        "peer": "pecos",
        "predict_seconds": 0.4,
        "single_row_seconds": 2.5e-4,
        "single_row_seconds_90": 3e-4,
    }
    ours = {**RUN, "predict_seconds_by_k": {"20": 0.2, "100": 1.0}}
    lines = table("toy", [timed, ours]).markdown().splitlines()
    assert lines[4] == "| xmlsgd | 10,000 | 4.00 | 5,000 | 1,000 | 77.00 | 1 |  |  |"
    assert lines[5] == "| pecos | 2,500 | 1.00 |  |  | 77.00 | 1 | 0.250 | 0.300 |"


def test_single_rows_are_asked_one_by_one_on_one_thread_after_a_warm_up(monkeypatch):
    X, noting = sp.csr_matrix(np.tril(np.ones((7, 7), np.float32))), Noting()
    monkeypatch.setattr(runner, "SINGLE_WARM_UP", 3)
    assert len(runner.single_rows(noting, X)) == 7
    assert noting.asked == [(1, 1, n) for n in (1, 2, 3, 1, 2, 3, 4, 5, 6, 7)]


def test_single_rows_stop_where_they_take_too_long(monkeypatch):
    monkeypatch.setattr(runner, "SINGLE_SECONDS", -1.0)
    assert len(runner.single_rows(Noting(), sp.csr_matrix(np.eye(9, dtype=np.float32)))) == 1


def test_other_k_are_timed_where_a_runner_is_asked_for_them(monkeypatch):
    class Asked(Noting):
        def predict_more(self, X, k):
            self.asked.append((X.shape[0], k))
            return None if self.threads == 1 else X

    X = sp.csr_matrix(np.ones((100, 3), np.float32))
    asked = Asked()
    assert list(runner.seconds_by_k(asked, X)) == [20, 100]
    assert asked.asked == [(64, 20), (100, 20), (64, 100), (100, 100)]
    asked.use_one_thread()
    assert runner.seconds_by_k(asked, X) == {}
