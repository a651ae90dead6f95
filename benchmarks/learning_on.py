"""Learn nine tenths of the rows by `fit`, one by `partial_fit`: `python -m benchmarks.learning_on --data FOLDER`.

The tenth is drawn at random, or holds all rows of labels drawn at random, which are new then. Accuracy and processor
time are compared with `fit` on all rows, in one process and on one thread, the methods in turns. FOLDER is what
`load_folder` reads, with a test split.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from xmlsgd import XMLClassifier, evaluate_ranking
from xmlsgd.data.csr import Dataset
from xmlsgd.metrics import recall_at_k

from .prepare import command_line, train_and_test
from .report import Table, publish

SHARE = 10  # one row of so many is learned by `partial_fit`
WARM_ROWS = 600  # by which kernels are compiled before the clock runs


def random_rows(train: Dataset, rng: np.random.Generator) -> np.ndarray:
    """Return a random tenth of the rows, as a mask."""
    is_late = np.zeros(train.n_rows, bool)
    is_late[rng.permutation(train.n_rows)[: train.n_rows // SHARE]] = True
    return is_late


def rows_of_labels(train: Dataset, rng: np.random.Generator) -> np.ndarray:
    """Return all rows of labels drawn at random until they are a tenth of the rows, as a mask.

    Labels that a hundredth of the rows have are left out: a few of them would be the tenth.
    """
    rows_of_label = train.Y.to_scipy().T.tocsr()
    counts, is_late = np.diff(rows_of_label.indptr), np.zeros(train.n_rows, bool)
    for label in rng.permutation(np.flatnonzero(counts < train.n_rows / 100)):
        if is_late.sum() >= train.n_rows // SHARE:
            break
        is_late[rows_of_label.indices[rows_of_label.indptr[label] : rows_of_label.indptr[label + 1]]] = True
    return is_late


SPLITS: dict[str, Callable[[Dataset, np.random.Generator], np.ndarray]] = {
    "random rows": random_rows, "rows of new labels": rows_of_labels,
}  # fmt: skip


def measure(train: Dataset, test: Dataset, is_late: np.ndarray, seed: int) -> dict[str, Any]:
    """Return the measures of each step, in percent, and its processor seconds."""
    early, late = (train.take(np.flatnonzero(chosen)) for chosen in (~is_late, is_late))
    is_new = (early.Y.column_counts() == 0) & (late.Y.column_counts() > 0)
    unseen = test.Y.where(is_new[test.Y.indices])
    new_rows = np.flatnonzero(np.diff(unseen.indptr))

    def step(call: Callable[..., XMLClassifier], rows: Dataset) -> dict[str, float]:
        started = time.process_time()
        model = call(rows.X, rows.Y)
        seconds = time.process_time() - started
        labels, _ = model.predict_topk(test.X, 5)
        found = evaluate_ranking(test.Y, labels)
        recall = recall_at_k(unseen.take(new_rows), labels[new_rows], 5)[-1] if len(new_rows) else 0.0
        return {name: found[name] for name in ("P@1", "P@3", "P@5")} | {"R@5 new": 100 * recall, "seconds": seconds}

    model = XMLClassifier(n_jobs=1, random_state=seed)
    steps = {
        "`fit` on all rows": step(XMLClassifier(n_jobs=1, random_state=seed).fit, train),
        "`fit` on nine tenths": step(model.fit, early),
        "then `partial_fit`": step(model.partial_fit, late),
    }
    return {"new labels": int(is_new.sum()), "steps": steps}


def table(found: dict[str, list[dict[str, Any]]]) -> Table:
    """Return means over seeds."""
    columns = ["", "P@1", "P@3", "P@5", "R@5 of new labels", "processor s", "P@1 by seed"]
    rows, notes = [], []
    for title, runs in found.items():
        for name in runs[0]["steps"]:
            steps = [run["steps"][name] for run in runs]
            means = [np.mean([step[key] for step in steps]) for key in ("P@1", "P@3", "P@5", "R@5 new", "seconds")]
            shown = [f"{mean:.2f}" for mean in means[:3]] + [f"{mean:.1f}" for mean in means[3:]]
            rows.append([f"{title}, {name}", *shown, ", ".join(f"{step['P@1']:.2f}" for step in steps)])
        full, _, more = ([run["steps"][name] for run in runs] for name in runs[0]["steps"])
        apart = [b["P@1"] - a["P@1"] for a, b in zip(full, more, strict=True)]
        time_share = sum(step["seconds"] for step in more) / sum(step["seconds"] for step in full)
        n_new = ", ".join(str(run["new labels"]) for run in runs)
        notes.append(
            f"{title} ({n_new} new labels): P@1 {np.mean(apart):+.2f} beside all rows, in {100 * time_share:.1f} % of "
            "the processor time."
        )
    return Table("Rows that are learned later", columns, rows, notes)


def main(words: list[str] | None = None) -> None:
    """Measure and write the table."""
    given = command_line("learning_on", __doc__).parse_args(words)
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in given.data:
        train, test = train_and_test(folder)
        few = train.take(np.arange(min(WARM_ROWS, train.n_rows)))
        measure(few, test.take(np.arange(min(WARM_ROWS, test.n_rows))), random_rows(few, np.random.default_rng(0)), 0)
        for kind, split in SPLITS.items():
            title = f"{folder.resolve().name}, {kind}"
            found[title] = [
                measure(train, test, split(train, np.random.default_rng(seed)), seed) for seed in range(given.seeds)
            ]
    publish("learning-on", table(found), found, 1, given.out)


if __name__ == "__main__":
    main()
