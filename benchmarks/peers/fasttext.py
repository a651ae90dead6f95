"""fastText (facebookresearch/fastText, Joulin et al. 2017): averaged word embeddings and a linear output layer.

It reads words, not values: a feature becomes a word, present or absent, and TF-IDF weights are lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import fasttext
import scipy.sparse as sp

from .runner import K, Problem, Runner, main, row_slices

LABEL = "__label__"


def sentences(X: sp.csr_matrix) -> list[str]:
    """Return a line of words for every row."""
    indices = X.indices.tolist()
    return [" ".join([f"f{j}" for j in indices[row]]) for row in row_slices(X)]


class FastText(Runner):
    """Supervised fastText."""

    packages = ("fasttext-wheel", "numpy", "scipy")
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        # Hierarchical softmax at the rate and epochs of fastText's tutorial, its advice for many labels.
        "many-labels": {"loss": "hs", "lr": 0.5, "epoch": 25},
        "ova": {"loss": "ova", "lr": 0.5, "epoch": 25},
    }

    def load(self, problem: Problem) -> None:
        """Write the rows as text; fastText reads them while it trains."""
        self.path = problem.folder / "train.fasttext.txt"
        Y = problem.Y
        names = [f"{LABEL}{label}" for label in range(Y.shape[1])]
        rows = zip(row_slices(Y), sentences(problem.X), strict=True)
        lines = (" ".join([*(names[j] for j in Y.indices[row]), words]) for row, words in rows)
        self.path.write_text("\n".join(lines) + "\n")

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Train on the text."""
        self.model = fasttext.train_supervised(str(self.path), thread=problem.threads, verbose=0, **parameters)

    def save(self, folder: Path) -> None:
        """Write the one binary."""
        self.model.save_model(str(folder / "model.bin"))
        self.path.unlink()

    def predict(self, X: sp.csr_matrix) -> Any:
        """Return the names of the best K labels; making the text is part of it."""
        return self.model.predict(sentences(X), k=K)[0]

    def ranking(self, predicted: list[list[str]]) -> Any:
        """Turn names into label ids."""
        return super().ranking([[int(name[len(LABEL) :]) for name in row] for row in predicted])


if __name__ == "__main__":
    main(FastText())
