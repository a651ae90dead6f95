"""Train on rows that stay on disk, in a memory-mapped store, and continue with rows that arrive later.

    python examples/larger_than_memory.py

A store is a folder of plain arrays. Kernels read the rows of a batch from the mapped pages, and the operating system
keeps in memory what fits. `xmlsgd convert train.txt store` converts text of any size, block by block.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from xmlsgd import Dataset, XMLClassifier, make_xmc
from xmlsgd.data.formats.store import open_store, write_store
from xmlsgd.data.synthetic import split_rows
from xmlsgd.metrics import precision_at_k

BATCHES = 4


def main() -> None:
    rows, test = split_rows(make_xmc(6000, 1000, 200, nnz_per_row=20, labels_per_row=3, random_state=0))
    with tempfile.TemporaryDirectory() as folder:
        write_store(rows, Path(folder, "rows"))
        stored = open_store(Path(folder, "rows"))  # milliseconds, whatever its size

        model = XMLClassifier(hidden_layer_sizes=(64,), optimizer="adagrad", max_epochs=8, random_state=0)
        half = np.arange(stored.n_rows // 2)
        model.fit(stored.X.take(half), stored.Y.take(half))
        print(f"P@1 after half of the rows: {percent(model, test):.2f}")

        later = np.array_split(np.arange(stored.n_rows // 2, stored.n_rows), BATCHES)
        for number, batch in enumerate(later, 1):
            model.partial_fit(stored.X.take(batch), stored.Y.take(batch))
            print(f"P@1 after batch {number} of {BATCHES}:    {percent(model, test):.2f}")

        model = XMLClassifier(hidden_layer_sizes=(64,), optimizer="adagrad", max_epochs=8, random_state=0)
        model.fit(stored.X, stored.Y)  # read in place, never copied
        print(f"P@1 of all rows at once:    {percent(model, test):.2f}")


def percent(model: XMLClassifier, test: Dataset) -> float:
    """Return P@1 in percent."""
    labels, _ = model.predict_topk(test.X, k=1)
    return 100 * float(precision_at_k(test.Y, labels, 1)[0])


if __name__ == "__main__":
    main()
