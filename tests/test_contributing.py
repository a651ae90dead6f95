"""The recipes of CONTRIBUTING.md: one file adds a part, which is found by name and refused if incomplete."""

from __future__ import annotations

import importlib
import json
import sys
import textwrap
from types import ModuleType

import pytest

import xmlsgd.metrics
from shared.paths import DATA
from xmlsgd import DataError, XMLClassifier, make_xmc
from xmlsgd.cli import main

SMALL = {"hidden_layer_sizes": (4,), "candidates": 0, "max_epochs": 1, "n_jobs": 1, "random_state": 0}


@pytest.fixture
def add_part(tmp_path, monkeypatch):
    """Return a function that writes a module into a folder which is appended to a package's `__path__`."""

    def add(package: ModuleType, name: str, source: str) -> None:
        folder = tmp_path / package.__name__
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delattr(package, name, raising=False)
        full = f"{package.__name__}.{name}"
        added.append(full)
        importlib.invalidate_caches()

    added: list[str] = []
    yield add
    for full in added:
        sys.modules.pop(full, None)


@pytest.fixture(scope="module")
def data():
    return make_xmc(200, 60, 20, nnz_per_row=5, labels_per_row=2, random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a saved model of the rows in `data/`."""
    path = tmp_path_factory.mktemp("contributing") / "model"
    assert main(["train", str(DATA / "train.txt"), "--out", str(path), "--quiet", *flags(SMALL)]) == 0
    return path


def flags(parameters: dict[str, object]) -> list[str]:
    """Return parameters as flags of the command line."""
    texts = {name: ",".join(map(str, v)) if isinstance(v, tuple) else str(v) for name, v in parameters.items()}
    return [word for name, text in texts.items() for word in (f"--{name}", text)]


def test_a_metric_is_one_file(add_part, folder, tmp_path, data):
    add_part(
        xmlsgd.metrics,
        "hit_rate",
        '''
        """Share of rows with a true label among the top k."""

        import numpy as np

        from .comparison import compare


        def hit_rate_at_k(Y_true, predicted, k=5):
            """Return the hit rate at 1..k."""
            return np.maximum.accumulate(compare(Y_true, predicted, k).hits, axis=1).mean(axis=0)
        ''',
    )
    model = XMLClassifier(**SMALL).fit(data.X, data.Y)
    found = xmlsgd.metrics.evaluate_ranking(data.Y, model.predict_topk(data.X)[0], metrics=["hit_rate"])
    assert found["hit_rate@1"] == found["P@1"] <= found["hit_rate@5"]
    out = tmp_path / "result.json"
    words = ["evaluate", str(folder), str(DATA / "test.txt"), "--metric", "hit_rate", "--json", str(out), "--quiet"]
    assert main(words) == 0
    result = json.loads(out.read_text())
    assert result["hit_rate@1"] == pytest.approx(result["P@1"])
    with pytest.raises(DataError, match=r"metric: must be one of coverage, hit_rate, .*; got 'hits'"):
        xmlsgd.metrics.metric("hits")
