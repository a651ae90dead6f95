"""napkinXC (mwydmuch/napkinXC): a probabilistic label tree with logistic regression in its nodes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import scipy.sparse as sp
from napkinxc.models import PLT

from .runner import K, Problem, Runner, main


class NapkinXC(Runner):
    """A PLT over a tree from hierarchical k-means; exact tree search."""

    packages = ("napkinxc", "numpy", "scipy")
    settings: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "ensemble3": {"ensemble": 3}}

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Build the tree and train its nodes; napkinXC writes the model to disk meanwhile."""
        self.output = scratch / "plt"
        self.model = PLT(str(self.output), threads=problem.threads, seed=problem.seed, **parameters)
        self.model.fit(problem.X, problem.Y)

    def save(self, folder: Path) -> None:
        """Copy the model that training wrote."""
        shutil.copytree(self.output, folder, dirs_exist_ok=True)

    def serve(self, problem: Problem, folder: Path) -> None:
        """Load the weights into memory."""
        self.model.load()

    def use_one_thread(self) -> None:
        """Ask for one thread."""
        self.model.set_params(threads=1)

    def predict(self, X: sp.csr_matrix) -> Any:
        """Return the best K labels, a list of ids a row."""
        return self.model.predict(X, top_k=K)


if __name__ == "__main__":
    main(NapkinXC())
