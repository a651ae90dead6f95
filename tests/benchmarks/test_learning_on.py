"""The benchmark of rows that are learned later: its splits, its steps, and its table."""

from __future__ import annotations

import numpy as np

from benchmarks import learning_on
from shared.planted import planted, small
from xmlsgd import evaluate_ranking
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.synthetic import make_xmc


def test_a_tenth_of_the_rows_is_learned_later_at_random_or_all_rows_of_some_labels():
    rows = make_xmc(1000, 120, 300, nnz_per_row=8, labels_per_row=2)
    new = {}
    for kind, split in learning_on.SPLITS.items():
        is_late = split(rows, np.random.default_rng(0))
        assert 100 <= is_late.sum() < 110
        late, early = (rows.Y.take(np.flatnonzero(chosen)).column_counts() for chosen in (is_late, ~is_late))
        new[kind] = np.count_nonzero((late > 0) & (early == 0))
    assert new["rows of new labels"] > 2 * new["random rows"] > 0


def test_each_step_is_measured_on_the_test_rows(monkeypatch):
    train, test = (Dataset(*map(CSR.from_scipy, planted(n, seed))) for n, seed in ((300, 0), (100, 1)))
    monkeypatch.setattr(learning_on, "XMLClassifier", lambda **_: small(candidates=0, max_epochs=3))
    is_late = train.Y.to_scipy()[:, [0]].toarray().ravel() > 0
    found = learning_on.measure(train, test, is_late, 0)
    assert found["new labels"] == 1
    model = small(candidates=0, max_epochs=3)
    all_rows = np.ones(train.n_rows, bool)
    calls = [("fit", all_rows), ("fit", ~is_late), ("partial_fit", is_late)]
    for step, (call, chosen) in zip(found["steps"].values(), calls, strict=True):
        part = train.take(np.flatnonzero(chosen))
        labels, _ = getattr(model, call)(part.X, part.Y).predict_topk(test.X, 5)
        assert step["P@5"] == evaluate_ranking(test.Y, labels)["P@5"]


def test_the_table_has_means_over_seeds_and_the_share_of_the_time():
    def step(accuracy, seconds):
        return {"P@1": accuracy, "P@3": 1.0, "P@5": 1.0, "R@5 new": 0.0, "seconds": seconds}

    runs = [
        {"new labels": 3, "steps": {"all": step(a, 10.0), "nine": step(1.0, 9.0), "then": step(a - 0.5, 0.5)}}
        for a in (80.0, 82.0)
    ]
    found = learning_on.table({"set": runs})
    assert found.rows[0] == ["set, all", "81.00", "1.00", "1.00", "0.0", "10.0", "80.00, 82.00"]
    assert found.notes == ["set (3, 3 new labels): P@1 -0.50 beside all rows, in 5.0 % of the processor time."]
    assert found.rows[2][1] == "80.50"
