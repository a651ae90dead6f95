"""Tests of dense features: their scale, and landmarks."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import XMLClassifier, XMLEnsemble, load_model
from xmlsgd.data.csr import CSR
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.estimators import dense_features, planning
from xmlsgd.estimators.dense_features import find_dense_features
from xmlsgd.estimators.inputs import damped_values
from xmlsgd.estimators.memory import estimate
from xmlsgd.estimators.training_data import GivenRows
from xmlsgd.metrics import evaluate_ranking

N_CENTERS, N_DENSE, N_SPARSE = 60, 40, 30


def parts(n: int, seed: int, factor: float = 1.0) -> tuple[sp.csr_array, sp.csr_array]:
    """Return rows near one of 60 centers, which decide the two labels, and three sparse features that tell nothing."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    centers, number = fixed.standard_normal((N_CENTERS, N_DENSE)), np.arange(N_CENTERS)
    labels = np.stack([number, N_CENTERS + number % 40], axis=1)
    of_row = rng.integers(0, N_CENTERS, n)
    dense = centers[of_row] + 0.3 * rng.standard_normal((n, N_DENSE))
    sparse = sp.csr_array((np.ones(3 * n), rng.integers(0, N_SPARSE, 3 * n), np.arange(0, 3 * n + 1, 3)))
    X = sp.hstack([sparse, sp.csr_array(factor * dense / np.sqrt(N_DENSE))], format="csr", dtype=np.float32)
    Y = sp.csr_array((np.ones(2 * n), labels[of_row].ravel(), np.arange(0, 2 * n + 1, 2)), shape=(n, 100))
    return X, Y


@pytest.fixture(scope="module")
def rows():
    return parts(600, seed=1)


@pytest.fixture(scope="module")
def test_rows():
    return parts(200, seed=2)


@pytest.fixture(scope="module")
def fitted(rows):
    return small().fit(*rows)


def small(**given) -> XMLClassifier:
    return XMLClassifier((16,), random_state=0, n_jobs=1, **given)


def p_at_1(model, X, Y) -> float:
    return evaluate_ranking(Y, model.predict_topk(X, k=5)[0])["P@1"]


def test_labels_that_dense_features_decide_are_found_beside_sparse_ones(test_rows, rows, monkeypatch):
    assert p_at_1(small(candidates=8).fit(*rows), *test_rows) > 95
    monkeypatch.setattr(planning, "find_dense_features", lambda X: None)
    with pytest.warns(UserWarning, match="nearest rows tell little"):
        without = small(candidates=8).fit(*rows)
    assert p_at_1(without, *test_rows) < 90


@pytest.mark.parametrize("factor", [1e-3, 50])
def test_the_scale_of_dense_features_hardly_matters(fitted, test_rows, factor):
    model = small().fit(*parts(600, seed=1, factor=factor))
    assert p_at_1(model, *parts(200, seed=2, factor=factor)) == pytest.approx(p_at_1(fitted, *test_rows), abs=1)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_rows_are_transformed_as_by_numpy(rows, n_threads):
    X = CSR.from_scipy(rows[0])
    found = find_dense_features(X)
    X = damped_values(X)
    transformed, dense = found.transform(X, n_threads).to_scipy().toarray(), X.to_scipy().toarray()[:, found.columns]
    similar = (dense - found.means) @ found.landmarks
    order = np.argsort(-similar, axis=1)[:, : dense_features.N_NEAREST + 1]
    values = np.take_along_axis(similar, order, axis=1)
    values = values[:, :-1] - values[:, -1:]
    values *= found.norm / np.linalg.norm(values, axis=1, keepdims=True)
    wanted = np.zeros_like(similar)
    np.put_along_axis(wanted, order[:, :-1], values, axis=1)
    np.testing.assert_allclose(transformed[:, : found.n_landmarks], wanted, rtol=1e-3, atol=1e-5)
    others = X.to_scipy().toarray()
    others[:, found.columns] *= np.float32(found.factor)
    np.testing.assert_allclose(transformed[:, found.n_landmarks :], others, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 50])
def test_dense_features_have_four_tenths_of_the_squares(factor):
    given = CSR.from_scipy(parts(600, seed=1, factor=factor)[0])
    X, found = damped_values(given), find_dense_features(given)
    squares = found.transform(X).to_scipy().power(2).toarray()[:, found.n_landmarks :]
    is_dense = np.isin(np.arange(squares.shape[1]), found.columns)
    of_dense, of_others = np.median(squares[:, is_dense].sum(axis=1)), np.median(squares[:, ~is_dense].sum(axis=1))
    assert of_dense / (of_dense + of_others) == pytest.approx(0.4, abs=1e-3)


def test_dense_features_alone_keep_their_scale(rows):
    assert find_dense_features(CSR.from_scipy(rows[0][:, N_SPARSE:])).factor == 1


@pytest.mark.parametrize("columns", [slice(N_SPARSE), slice(N_SPARSE + 31)])
def test_few_frequent_features_are_not_dense(rows, columns):
    assert find_dense_features(CSR.from_scipy(rows[0][:, columns])) is None


def test_frequent_features_without_values_below_zero_are_no_embedding(rows):
    X = rows[0].copy()
    X.data = np.abs(X.data)
    assert find_dense_features(CSR.from_scipy(X)) is None


def test_a_feature_that_nearly_all_rows_have_is_dense_and_a_frequent_word_is_not(rows):
    word = (np.random.default_rng(0).random(600) < 0.6).astype(np.float32)
    X = sp.hstack([rows[0], np.ones((600, 1), np.float32), word[:, None]], format="csr")
    assert find_dense_features(CSR.from_scipy(X)).columns.tolist() == list(range(N_SPARSE, N_SPARSE + N_DENSE + 1))


def test_a_row_without_dense_features_has_no_landmarks(fitted):
    dense, X = fitted.fitted_.features.dense, CSR.from_scipy(sp.eye_array(1, N_SPARSE + N_DENSE, format="csr"))
    indices, values = dense.transform(X).row(0)
    assert indices.tolist() == [dense.n_landmarks]
    assert values.tolist() == [1]


def test_a_loaded_model_predicts_the_same(fitted, test_rows, tmp_path):
    fitted.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_topk(test_rows[0]), fitted.predict_topk(test_rows[0]))


def test_a_compact_model_predicts_nearly_the_same(fitted, test_rows, tmp_path):
    fitted.save(tmp_path / "m", compact=True)
    assert p_at_1(load_model(tmp_path / "m"), *test_rows) == pytest.approx(p_at_1(fitted, *test_rows), abs=2)


def test_rows_that_are_alike_share_a_landmark():
    dense, few = sp.csr_array(np.random.default_rng(0).standard_normal((40, 50))), np.arange(1200) % 40
    found = find_dense_features(CSR.from_scipy(dense[few]))
    assert found.n_landmarks == 40
    nearest = found.transform(damped_values(CSR.from_scipy(dense))).to_scipy()[:, :40]
    np.testing.assert_array_equal(few[found.rows[nearest.argmax(axis=1)]], np.arange(40))
    assert np.diff(nearest.indptr).tolist() == [dense_features.N_NEAREST] * 40


def test_few_different_rows_have_no_landmarks():
    dense = np.random.default_rng(0).standard_normal((31, 50))
    assert find_dense_features(CSR.from_scipy(sp.csr_array(dense[np.arange(300) % 31]))) is None


@pytest.mark.parametrize("shift", [0, -1e5])
def test_landmarks_depend_on_neither_the_other_rows_nor_the_number_of_threads(shift):
    dense = np.float32(np.random.default_rng(0).standard_normal((300, 40)) + shift)
    X = CSR.from_scipy(sp.csr_array(dense))
    found = find_dense_features(X)
    X = damped_values(X)
    whole = found.transform(X, 1).to_scipy()
    np.testing.assert_array_equal(found.transform(X, 2).to_scipy().toarray(), whole.toarray())
    np.testing.assert_allclose(found.transform(X.span(7, 8)).to_scipy().toarray(), whole[[7]].toarray(), rtol=1e-3)


def test_one_class_a_row_and_dense_features_only_leave_the_network_alone(rows):
    X, y = rows[0][:, N_SPARSE:], rows[1].toarray().argmax(axis=1)
    decided = small().plan(X, y).to_dict()
    assert decided["candidates"]["value"] == 0
    assert "and a row has one class" in decided["candidates"]["reason"]
    assert "landmarks" not in decided
    assert small().plan(rows[0], y).to_dict()["candidates"]["value"] > 0


@pytest.mark.parametrize(
    "broken",
    [
        {"factor": 0.0},
        {"norm": -1.0},
        {"columns": np.arange(N_DENSE, dtype=np.int32) + N_SPARSE + 1},
        {"columns": np.zeros(N_DENSE, np.int32)},
    ],
)
def test_damaged_dense_features_are_refused(fitted, tmp_path, broken):
    model = small()
    features = fitted.fitted_.features
    model.fitted_ = replace(fitted.fitted_, features=replace(features, dense=replace(features.dense, **broken)))
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="dense must have factor and norm above 0, and dense_columns ascend"):
        load_model(tmp_path / "m")


def test_further_rows_may_have_more_features(rows, test_rows):
    model = small().fit(*rows)
    n_features, more = model.n_features_in_, sp.hstack([test_rows[0], sp.eye_array(200, 5)], format="csr")
    before = p_at_1(model, *test_rows)
    model.partial_fit(more, test_rows[1], label_texts=sp.eye_array(100, n_features + 5, format="csr"))
    assert model.n_features_in_ == n_features + 5
    assert model.network_.n_features == n_features + 5 + model.fitted_.features.n_landmarks
    assert p_at_1(model, more, test_rows[1]) >= before


def test_more_epochs_keep_the_landmarks(rows, test_rows):
    model = small(warm_start=True).fit(*rows)
    dense = model.fitted_.features.dense
    model.fit(*rows)
    assert model.fitted_.features.dense is dense
    assert p_at_1(model, *test_rows) > 95


def test_explanations_name_landmarks_and_features(fitted, test_rows):
    explanation = fitted.explain(test_rows[0][:1], k=1)[0][0]
    named = [part.feature for part in explanation.features]
    ordinary = {feature for feature in named if isinstance(feature, int)}
    assert ordinary
    assert ordinary <= set(test_rows[0][:1].indices.tolist())
    assert any(str(feature).startswith("near row ") for feature in named)


def test_classifiers_of_an_ensemble_share_landmarks(rows, test_rows, tmp_path):
    model = XMLEnsemble(small(), n_estimators=2, random_state=0).fit(*rows)
    first, second = (member.fitted_.features.dense for member in model.estimators_)
    np.testing.assert_array_equal(first.landmarks, second.landmarks)
    assert p_at_1(model, *test_rows) > 95
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_topk(test_rows[0]), model.predict_topk(test_rows[0]))


def test_the_plan_and_the_memory_count_landmarks(rows):
    plan, data = small()._planned(small()._read_rows(GivenRows(*rows)))
    assert {d.name: (d.value, d.reason) for d in plan.decisions}["landmarks"] == (600, "40 dense features")
    without = replace(plan, features=replace(plan.features, dense=None))
    added = estimate(plan, data)["data"] - estimate(without, data)["data"]
    assert added == 4 * N_DENSE * 600 + 8 * dense_features.N_NEAREST * 600


def test_a_model_with_landmarks_is_not_exported(fitted, tmp_path):
    pytest.importorskip("onnx")
    from xmlsgd.estimators.export import export_onnx

    with pytest.raises(DataError, match="has landmarks, which ONNX does not hold"):
        export_onnx(fitted, tmp_path / "m.onnx")
