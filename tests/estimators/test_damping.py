"""Damped values of X: models with candidates learn them, and read all rows alike."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import XMLClassifier, XMLEnsemble, load_model, make_xmc
from xmlsgd.data.csr import CSR
from xmlsgd.estimators import dense_features, inputs
from xmlsgd.estimators.inputs import damped_values

SETTINGS = {"hidden_layer_sizes": (8,), "max_epochs": 2, "random_state": 0, "n_jobs": 1, "precision": "float32"}


def damped(X):
    return sp.csr_array(damped_values(CSR.from_scipy(X)).to_scipy())


@pytest.fixture(scope="module")
def parts():
    """Training, new and test rows, with positive and negative values of different sizes; test rows have no labels."""
    data = make_xmc(400, 60, 20, nnz_per_row=6, labels_per_row=2)
    X, Y = (sp.csr_array(each.to_scipy()) for each in (data.X, data.Y))
    rng = np.random.default_rng(0)
    X.data = (rng.normal(size=X.nnz) * 10 ** rng.uniform(-2, 2, X.nnz)).astype(np.float32)
    return (X[:300], Y[:300]), (X[300:350], Y[300:350]), X[350:]


@pytest.fixture
def undamped(monkeypatch):
    """Return a function that switches damping off, so that rows are learned as they are given."""

    def switch():
        for module in (inputs, dense_features):
            monkeypatch.setattr(module, "damped_values", lambda X: X)

    return switch


def test_values_are_raised_to_three_quarters_with_their_signs():
    X = CSR.from_scipy(sp.csr_array(np.array([[0, 16, -81], [1e-30, 0, 3e38]], np.float32)))
    found = damped_values(X)
    assert np.allclose(found.data, [8, -27, 1e-30**0.75, 3e38**0.75], rtol=1e-6, atol=0)
    assert found.indices is X.indices
    assert X.data.tolist() == CSR.from_scipy(X.to_scipy()).data.tolist()
    assert found.data.dtype == np.float32


@pytest.mark.parametrize(("candidates", "expected"), [(0, False), (8, True)])
def test_models_with_candidates_learn_damped_values(parts, tmp_path, candidates, expected):
    model = XMLClassifier(candidates=candidates, **SETTINGS).fit(*parts[0])
    model.save(tmp_path / "m")
    assert model.fitted_.features.damped is load_model(tmp_path / "m").fitted_.features.damped is expected
    assert np.array_equal(load_model(tmp_path / "m").predict_topk(parts[2])[0], model.predict_topk(parts[2])[0])


@pytest.mark.parametrize("kind", [XMLClassifier, lambda **given: XMLEnsemble(XMLClassifier(**given), n_estimators=2)])
def test_rows_are_damped_wherever_they_are_read(parts, undamped, kind):
    """A model answers as one that does not damp, but is given damped rows, in every method that reads rows."""
    (X, Y), (new, of_new), test = parts
    texts = sp.csr_array(X[:20])  # features of labels
    results = []
    for change in (lambda X: X, damped):
        if change is damped:
            undamped()
        model = kind(candidates=8, **SETTINGS)
        model.fit(change(X), Y, eval_set=(change(new), of_new), label_texts=change(texts))
        rows = change(test)
        answers = [*model.predict_topk(rows, 3), model.decision_function(rows), model.predict_proba(rows)]
        answers.append([part.score for part in model.explain(rows[:1])[0]])
        first = model if isinstance(model, XMLClassifier) else model.estimators_[0]
        answers.append([record["P@1"] for record in first.history_])
        first.partial_fit(change(new), of_new, label_texts=change(texts))
        results.append([*answers, first.decision_function(rows)])
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_warm_start_reads_rows_like_the_first_call(parts):
    alone = XMLClassifier(candidates=0, warm_start=True, **SETTINGS).fit(*parts[0])
    assert not alone.set_params(candidates=8).fit(*parts[0]).fitted_.features.damped
    whole = XMLClassifier(candidates=8, warm_start=True, **SETTINGS).fit(*parts[0])
    assert whole.fit(*parts[0]).fitted_.features.damped
