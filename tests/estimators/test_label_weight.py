"""Labels that count more than others, and the propensities that a model knows of its own."""

from __future__ import annotations

import numpy as np
import pytest

from shared.planted import N_LABELS, planted, small
from shared.saved_models import rewrite
from xmlsgd import XMLEnsemble, evaluate_ranking, inverse_propensity, load_model
from xmlsgd.errors import DataError, DivergenceError, ModelFileError


@pytest.fixture(scope="module")
def skewed():
    """Rows in which half of the labels are rare."""
    X, Y = planted(900, seed=3)
    kept = np.flatnonzero((Y[:, : N_LABELS // 2].sum(axis=1) > 0) | (np.arange(900) % 6 == 0))
    return X[kept], Y[kept]


@pytest.fixture(scope="module", params=["network", "listed", "ensemble"])
def model(request, skewed):
    made = small(max_epochs=2, candidates=16 if request.param == "listed" else 0)
    made = XMLEnsemble(made, 2, random_state=0) if request.param == "ensemble" else made
    return made.fit(*skewed)


def test_a_model_knows_the_propensities_of_its_labels(model, skewed):
    np.testing.assert_array_equal(model.inverse_propensity(), inverse_propensity(skewed[1]))
    np.testing.assert_array_equal(model.inverse_propensity(0.6, 2.6), inverse_propensity(skewed[1], 0.6, 2.6))
    more = inverse_propensity(skewed[1], n_labels=N_LABELS + 3)
    np.testing.assert_array_equal(model.inverse_propensity(n_labels=N_LABELS + 3), more)
    with pytest.raises(DataError, match=f"n_labels: must be at least the {N_LABELS} labels of training, got 1"):
        model.inverse_propensity(n_labels=1)
    assert model.n_samples_seen_ == skewed[0].shape[0]


def test_weights_trade_precision_for_what_rare_labels_count(model, skewed):
    X, Y = planted(300, seed=9)
    q = model.inverse_propensity()

    def measured(weight):
        return evaluate_ranking(Y, model.predict_topk(X, 5, label_weight=weight)[0], skewed[1])

    plain, some, most = (measured(weight) for weight in (None, q**0.5, q))
    assert plain["PSP@1"] < some["PSP@1"] <= most["PSP@1"]
    assert measured(np.ones(N_LABELS)) == plain


def test_the_answer_has_all_forms(model):
    X, _ = planted(50, seed=9)
    q = model.inverse_propensity()
    labels, scores = model.predict_topk(X, 5, label_weight=q)
    assert (labels.dtype, scores.dtype) == (np.int32, np.float32)
    assert (np.diff(scores, axis=1) <= 0).all()
    log_odds = np.take_along_axis(model.decision_function(X), labels.astype(int), axis=1)
    log_odds = model.fitted_.calibration.log_odds(log_odds)
    if not isinstance(model, XMLEnsemble):  # whose scores of what not all members name are bounds
        np.testing.assert_allclose(scores, -np.logaddexp(0, -log_odds) + np.log(q[labels]), atol=1e-3)
    sparse = model.predict_topk(X, 5, label_weight=q, as_csr=True)
    np.testing.assert_allclose(np.sort(sparse.toarray()[0, np.sort(labels[0])]), np.sort(scores[0]))
    best, _ = model.predict_topk(X, 5, label_weight=q, labels=[3, 30])
    assert set(np.unique(best)) == {-1, 3, 30}
    chances = np.exp(scores) / q[labels]
    high, of_high = model.predict_topk(X, 5, label_weight=q, threshold=0.3, proba=True)
    np.testing.assert_array_equal(high, np.where(chances >= 0.3, labels, -1))
    np.testing.assert_allclose(of_high[high >= 0], chances[high >= 0], rtol=1e-5)


@pytest.mark.parametrize("compact", [False, True])
def test_what_was_counted_is_saved(model, tmp_path, compact):
    model.save(tmp_path / "m", compact=compact)
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.inverse_propensity(), model.inverse_propensity())
    again.save(tmp_path / "again", compact=compact)
    np.testing.assert_array_equal(load_model(tmp_path / "again").label_counts_, model.label_counts_)


def test_rows_that_come_later_are_counted_too_and_a_new_fit_counts_anew():
    X, Y = planted(300)
    model = small(max_epochs=1).fit(X[:200], Y[:200]).partial_fit(X[200:], Y[200:])
    np.testing.assert_array_equal(model.inverse_propensity(), inverse_propensity(Y))
    model.fit(X[:100], Y[:100])
    np.testing.assert_array_equal(model.inverse_propensity(), inverse_propensity(Y[:100]))
    names = small(max_epochs=1).partial_fit(X[:3], [["a"], ["b"], ["b"]]).partial_fit(X[:1], [["c"]])
    assert (names.label_counts_.tolist(), names.n_samples_seen_) == ([1, 2, 1], 4)


@pytest.mark.parametrize("change", [{"samples_seen": n} for n in (-1, "many", None, 10**30)])
def test_a_count_that_is_none_is_refused(skewed, tmp_path, change):
    small(max_epochs=1).fit(*skewed).save(tmp_path / "m")
    rewrite(tmp_path / "m", change)
    with pytest.raises(ModelFileError, match="samples_seen must be a number of at least 0, got"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("damped", [None, 1, "yes"])
def test_a_model_that_does_not_say_how_its_rows_are_read_is_refused(skewed, tmp_path, damped):
    small(max_epochs=1).fit(*skewed).save(tmp_path / "m")
    rewrite(tmp_path / "m", {"damped": damped})
    with pytest.raises(ModelFileError, match=r"damped must be true or false, got .*; fit the model again"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("count", [-1, 10**6])
def test_counts_that_its_rows_cannot_have_are_refused(skewed, tmp_path, count):
    small(max_epochs=1).fit(*skewed).save(tmp_path / "m")
    rewrite(tmp_path / "m", arrays={"classes_counts": np.full(N_LABELS, count)})
    with pytest.raises(ModelFileError, match=r"classes_counts must be between 0 and the \d+ rows, got"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("counts", [np.ones(3, np.int64), np.ones(N_LABELS, np.float32)])
def test_counts_of_other_labels_are_refused(skewed, tmp_path, counts):
    small(max_epochs=1).fit(*skewed).save(tmp_path / "m")
    rewrite(tmp_path / "m", arrays={"classes_counts": counts})
    with pytest.raises(ModelFileError, match=r"classes_counts must be int64 \(40,\), got"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (np.ones(3), "must have a number for each of 40 labels"),
        (2.0, "must have a number for each of 40 labels"),
        ("propensity", "must have a number for each of 40 labels"),
        (np.full(40, 1, "datetime64[D]"), "must have a number for each of 40 labels"),
        (["1"] * 40, "must have a number for each of 40 labels"),
        (np.zeros(N_LABELS), r"must be finite and above 0, got 0.0 for label 0; exclude=\[0\] leaves"),
        (np.r_[np.ones(39), np.nan], "must be finite and above 0, got nan for label 39"),
        (-np.ones(N_LABELS), "must be finite and above 0, got -1.0 for label 0"),
    ],
)
def test_weights_are_one_for_each_label_and_above_0(model, weight, said):
    with pytest.raises(DataError, match=f"label_weight: {said}"):
        model.predict_topk(planted(2)[0], label_weight=weight)


def test_the_counts_of_rows_that_diverged_do_not_count(skewed):
    X, Y = skewed
    model = small(optimizer="sgd").fit(X, Y)
    before = model.label_counts_.copy()
    model.set_params(learning_rate_init=1e30)
    with pytest.raises(DivergenceError):
        model.partial_fit(X, Y)
    np.testing.assert_array_equal(model.label_counts_, before)
    assert model.n_samples_seen_ == X.shape[0]


def test_members_of_an_ensemble_know_as_much_as_it_does(skewed, tmp_path):
    XMLEnsemble(small(max_epochs=1), 2, random_state=0).fit(*skewed).save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    for member in loaded.estimators_:
        np.testing.assert_array_equal(member.inverse_propensity(), loaded.inverse_propensity())


def test_before_fit_nothing_was_counted():
    assert not hasattr(small(), "label_counts_")


def test_classes_are_weighed_by_softmax(skewed):
    X, y = skewed[0], skewed[1].toarray().argmax(axis=1)
    model = small(max_epochs=2, loss="softmax").fit(X, y)
    rare = np.where(np.arange(len(model.classes_)) == 7, 1e6, 1.0)
    assert (model.predict_topk(X, 1, label_weight=rare)[0] == 7).all()


def test_a_series_by_label_is_not_read_by_position(model, skewed):
    X, pandas = skewed[0], pytest.importorskip("pandas")
    weight = pandas.Series(model.inverse_propensity(), index=model.classes_[::-1])
    with pytest.raises(DataError, match=r"label_weight: is read by position, got a Series .*series\[model.classes_\]"):
        model.predict_topk(X, label_weight=weight)
    np.testing.assert_array_equal(
        model.predict_topk(X, label_weight=weight.reset_index(drop=True))[0],
        model.predict_topk(X, label_weight=weight.tolist())[0],
    )
