"""`import xmlsgd` is cheap, and each public name is where the package says."""

from __future__ import annotations

import configparser
import subprocess
import sys

import pytest

import xmlsgd
from shared.paths import ROOT


def run(code: str) -> str:
    """Return what `code` prints in a fresh interpreter."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_loads_neither_numba_nor_scikit_learn_nor_a_gpu_library():
    loaded = run("import sys, xmlsgd; dir(xmlsgd); print(*sys.modules)").split()
    heavy = {"numba", "llvmlite", "sklearn", "scipy", "matplotlib", "tqdm", "cupy"}
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("module", ["data", "data.csr", "data.public", "training.loop", "estimators", "metrics"])
def test_importing_a_module_without_kernels_loads_no_numba(module):
    loaded = run(f"import sys, xmlsgd.{module}; print(*sys.modules)").split()
    assert "numba" not in loaded


@pytest.mark.parametrize("name", xmlsgd.__all__)
def test_public_name_resolves(name):
    value = getattr(xmlsgd, name)
    assert name in dir(xmlsgd)
    assert getattr(value, "__name__", name) == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'xmlsgd' has no attribute 'no_such_name'"):
        xmlsgd.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_that_of_the_metadata():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert xmlsgd.__version__ == config["metadata"]["version"]


def test_a_user_without_a_gpu_meets_no_gpu_library_and_no_warning():
    code = """
import sys, warnings
warnings.simplefilter("error")
from xmlsgd import XMLClassifier, make_xmc
data = make_xmc(60, 20, 10, nnz_per_row=5, labels_per_row=2)
XMLClassifier((4,), max_epochs=1, n_jobs=1).fit(data.X, data.Y).predict_topk(data.X, 1)
print(*[name for name in sys.modules if name.startswith(("cupy", "nvidia", "cuda"))])
"""
    assert run(code).split() == []
