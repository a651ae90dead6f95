"""omikuji (tomtung/omikuji): a forest of three balanced label trees, the Parabel of Prabhu et al. 2018, in Rust."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import omikuji
import scipy.sparse as sp

from .runner import K, Problem, Runner, main, row_slices


class Omikuji(Runner):
    """Trains from text only; predicts one row a call, here from several Python threads, as calls release the GIL.

    `Model.train_on_data` reads the text and trains in one call. Here its two halves are called one after the other,
    so that reading the text is not counted as training.
    """

    packages = ("omikuji", "numpy", "scipy")
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        # The README's Bonsai-like preset: shallow and wide trees by unbalanced k-means.
        "bonsai": {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3},
    }

    def load(self, problem: Problem) -> None:
        """Read the training text."""
        self.pool, self.threads = omikuji._ThreadPoolHandle(problem.threads), problem.threads
        path = omikuji.ffi.new("char[]", str(problem.folder / "train.txt").encode())
        self.data = omikuji.lib.load_omikuji_data_set(path, self.pool.ptr)
        if self.data == omikuji.ffi.NULL:
            raise RuntimeError("omikuji did not read train.txt")

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Train the forest."""
        chosen = omikuji.Model.default_hyper_param()
        for name, value in parameters.items():
            setattr(chosen, name, value)
        model = omikuji.lib.train_omikuji_model(self.data, chosen, self.pool.ptr)
        if model == omikuji.ffi.NULL:
            raise RuntimeError("omikuji did not train")
        self.model = omikuji.Model(model, self.pool)

    def save(self, folder: Path) -> None:
        """Write the model as omikuji does."""
        self.model.save(str(folder / "model"))

    def serve(self, problem: Problem, folder: Path) -> None:
        """Make dense weights of the denser ones, omikuji's own step for faster prediction."""
        omikuji.lib.free_omikuji_data_set(self.data)
        self.model.densify_weights(0.05)

    def predict(self, X: sp.csr_matrix) -> list[list[tuple[int, float]]]:
        """Return the best K labels and scores, row by row."""
        pairs = list(zip(X.indices.tolist(), X.data.tolist(), strict=True))

        def of_rows(rows: list[slice]) -> list[list[tuple[int, float]]]:
            return [self.model.predict(pairs[row], top_k=K) for row in rows]

        rows = row_slices(X)
        if self.threads == 1:
            return of_rows(rows)
        parts = [rows[i * len(rows) // self.threads : (i + 1) * len(rows) // self.threads] for i in range(self.threads)]
        with ThreadPoolExecutor(self.threads) as threads:
            return list(itertools.chain.from_iterable(threads.map(of_rows, parts)))

    def use_one_thread(self) -> None:
        """Call from this thread alone."""
        self.threads = 1

    def ranking(self, predicted: list[list[tuple[int, float]]]) -> Any:
        """Drop the scores."""
        return super().ranking([[label for label, _ in row] for row in predicted])


if __name__ == "__main__":
    main(Omikuji())
