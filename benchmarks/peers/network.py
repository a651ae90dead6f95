"""The network of xmlsgd alone, with a rule for the labels that a batch trains, in the running interpreter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

import xmlsgd
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.estimators.defaults import CANDIDATE_NEGATIVES
from xmlsgd.estimators.inference import Scorer
from xmlsgd.nn.samplers import ALL_LABELS, Sampler
from xmlsgd.nn.samplers.uniform import UniformNegatives

from ..samplers.comparison import network_of, train_with
from ..samplers.lsh import LSH
from .ours import PACKAGES
from .runner import K, Problem, Runner, arguments, main

WARM_UP_ROWS = 512
SAMPLERS: dict[str, Sampler] = {
    "all": ALL_LABELS,
    "shared": UniformNegatives(CANDIDATE_NEGATIVES),
    "lsh": LSH("dwta", hashes=8),  # SLIDE's choice for Amazon-670K: DWTA, 8 codes, 50 tables
}


class NetworkAlone(Runner):
    """A network of one hidden layer after some epochs."""

    packages = PACKAGES
    settings: ClassVar[dict[str, dict[str, Any]]] = {
        "all": {"hidden": 128, "epochs": 1, "batch": 1024, "rate": 4e-2},
        "shared": {"hidden": 128, "epochs": 1, "batch": 1024, "rate": 4e-2},
        "lsh": {"hidden": 128, "epochs": 1, "batch": 256, "rate": 6e-3},
    }

    def __init__(self, setting: str, given: dict[str, Any]) -> None:
        """Take the rule, and parameters that go before those of the setting."""
        self.sampler = SAMPLERS[setting]
        self.parameters = {**type(self).settings[setting], **given}
        self.settings = {setting: self.parameters}  # type: ignore[misc]

    def load(self, problem: Problem) -> None:
        """Load the kernels."""
        self.device, self.rows = CPU(problem.threads), Dataset(CSR.from_scipy(problem.X), CSR.from_scipy(problem.Y))
        n = min(WARM_UP_ROWS, self.rows.n_rows)
        few = Dataset(self.rows.X.span(0, n), self.rows.Y.span(0, n))
        train_with(self.sampler, few, self.device, **{**self.parameters, "epochs": 1})

    def train(self, problem: Problem, parameters: dict[str, Any], scratch: Path) -> None:
        """Train for the epochs while the rate falls linearly to zero."""
        self.params, _, self.size = train_with(self.sampler, self.rows, self.device, **parameters)

    def save(self, folder: Path) -> None:
        """Write the parameters."""
        np.save(folder / "params.npy", self.params)

    def predict(self, X: sp.csr_matrix) -> np.ndarray:
        """Return the exact best K labels."""
        scorer = Scorer(network_of(self.rows, self.parameters["hidden"]), self.params, self.device)
        labels: np.ndarray = scorer.top_k(CSR.from_scipy(X), K)[0]
        return labels

    def extra(self) -> dict[str, Any]:
        """Return the version, the epochs and the mean number of labels that a batch trained."""
        return {"xmlsgd": xmlsgd.__version__, "epochs": self.parameters["epochs"], "labels_per_batch": self.size}


def main_network() -> None:
    """Run a rule from the command line."""
    parser = arguments(NetworkAlone.settings)
    parser.set_defaults(setting="shared")
    parser.add_argument("--parameters", type=json.loads, default={}, help="hidden, epochs, batch and rate, as JSON")
    args = parser.parse_args()
    main(NetworkAlone(args.setting, args.parameters), args)


if __name__ == "__main__":
    main_network()
