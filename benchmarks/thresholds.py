"""Micro F1 of test rows at the learned threshold and at all others: `python -m benchmarks.thresholds --data FOLDER`.

"Best" is the best of all thresholds for all labels, chosen on the test rows themselves, which no method can know. How
far the learned one may be below it by chance is told by drawing test rows again (bootstrap). FOLDER is what
`load_folder` reads, with a test split.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xmlsgd import XMLClassifier
from xmlsgd.data.csr import Dataset

from .prepare import command_line, train_and_test
from .report import Table, publish

RANKED = 100  # labels of a row: no threshold in question passes more
CHOICES = np.arange(1, 100) / 100
DRAWS = 1000
THREADS = 2


def counts_of(model: XMLClassifier, test: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return hits and predicted labels of each row at each choice, int64 (n, choices)."""
    labels, probabilities = model.predict_topk(test.X, min(RANKED, len(model.classes_)), proba=True)
    truth = test.Y.has(labels)
    passed = [(probabilities >= choice) & (labels >= 0) for choice in CHOICES]
    return np.stack([(each & truth).sum(1) for each in passed], 1), np.stack([each.sum(1) for each in passed], 1)


def measure(train: Dataset, test: Dataset, seed: int) -> dict[str, float]:
    """Return micro F1 at 0.5, at the learned and at the best threshold, in percent, and the bootstrap's error."""
    model = XMLClassifier(n_jobs=THREADS, random_state=seed).fit(train.X, train.Y)
    hits, predicted = counts_of(model, test)
    n_true = np.diff(test.Y.indptr)

    def f1(rows: Any) -> np.ndarray:
        return 200 * hits[rows].sum(0) / (predicted[rows].sum(0) + n_true[rows].sum())

    curve, learned = f1(slice(None)), round(100 * model.thresholds_["micro"]) - 1
    rng, best = np.random.default_rng(seed), int(curve.argmax())
    draws = (f1(rng.integers(0, test.n_rows, test.n_rows)) for _ in range(DRAWS))
    error = np.std([draw[learned] - draw[best] for draw in draws])
    return {
        "at 0.5": curve[49], "learned": curve[learned], "best": curve[best], "standard error": float(error),
        "threshold": CHOICES[learned], "best threshold": CHOICES[best],
    }  # fmt: skip


def main(words: list[str] | None = None) -> None:
    """Measure and write the table."""
    given = command_line("thresholds", __doc__).parse_args(words)
    found: dict[str, list[dict[str, float]]] = {}
    for folder in given.data:
        train, test = train_and_test(folder)
        found[folder.resolve().name] = [measure(train, test, seed) for seed in range(given.seeds)]
    columns = ["micro F1", "at 0.5", "learned", "best", "learned - best", "standard error", "thresholds"]
    rows = []
    for name, runs in found.items():
        mean = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
        thresholds = ", ".join(f"{run['threshold']:.2f} ({run['best threshold']:.2f})" for run in runs)
        shown = [f"{mean[key]:.2f}" for key in ("at 0.5", "learned", "best")]
        rows.append(
            [name, *shown, f"{mean['learned'] - mean['best']:+.2f}", f"{mean['standard error']:.2f}", thresholds]
        )
    notes = [f"Means of {given.seeds} seeds. Thresholds by seed, in brackets the best one of the test rows."]
    publish("thresholds", Table("One threshold for all labels", columns, rows, notes), found, THREADS, given.out)


if __name__ == "__main__":
    main()
