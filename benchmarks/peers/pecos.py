"""PECOS XR-Linear (amzn/pecos): linear one-versus-all classifiers on a tree of labels clustered by their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

from .runner import K, Problem, Runner, main, rank_csr


class Pecos(Runner):
    """PIFA label embeddings, hierarchical k-means, XR-Linear; prediction with beam search."""

    packages = ("libpecos", "torch", "numpy", "scipy")
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"negative_sampling_scheme": "tfn"},
        # matcher-aware negatives are the other scheme that PECOS documents.
        "man": {"negative_sampling_scheme": "tfn+man"},
    }

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Cluster the labels and train the tree."""
        self.threads = problem.threads
        embedding = LabelEmbeddingFactory.create(problem.Y, problem.X, method="pifa")
        clusters = Indexer.gen(embedding, threads=problem.threads, seed=problem.seed)
        self.model = XLinearModel.train(problem.X, problem.Y, C=clusters, threads=problem.threads, **parameters)

    def save(self, folder: Path) -> None:
        """Write the model as PECOS does."""
        self.model.save(str(folder))

    def serve(self, problem: Problem, folder: Path) -> None:
        """Load for prediction only, which is PECOS's fast form."""
        self.model = XLinearModel.load(str(folder), is_predict_only=True)

    def use_one_thread(self) -> None:
        """Ask for one thread."""
        self.threads = 1

    def predict(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Return the scores of the best K labels, with the default beam."""
        return self.model.predict(X, only_topk=K, threads=self.threads)

    def ranking(self, predicted: sp.csr_matrix) -> np.ndarray:
        """Return the columns by falling score."""
        return rank_csr(predicted)


if __name__ == "__main__":
    main(Pecos())
