"""Learning on: parts of the data, new labels, new features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from shared.planted import planted, small
from xmlsgd import XMLClassifier
from xmlsgd.data.csr import CSR
from xmlsgd.estimators.initial_model import grown_start
from xmlsgd.nn.network import state_layout


def test_partial_fit_in_parts_learns_all_of_them(rows, held_out):
    X, Y = rows
    model = small()
    for _ in range(12):
        for part in np.array_split(np.arange(600), 3):
            model.partial_fit(X[part], Y[part])
    assert model.n_epochs_ == 36
    assert model.score(*held_out) > 0.95


def test_new_labels_and_features_are_learned_and_old_ones_kept():
    X, Y = planted(600)
    few, rest = np.arange(20), np.arange(20, 40)
    old = np.asarray(Y[:, rest].sum(axis=1) == 0).ravel()
    X_old, Y_old = X[old][:, :60], Y[old][:, few]
    model = small()
    for _ in range(60):
        model.partial_fit(X_old, Y_old)
    before = model.score(X_old, Y_old)
    assert before > 0.95
    scores = model.decision_function(X_old)
    model.partial_fit(X[:1], Y[:1])
    assert model.n_features_in_ == 120
    assert len(model.classes_) == 40
    padded = sp.csr_array((X_old.data, X_old.indices, X_old.indptr), shape=(X_old.shape[0], 120))
    assert np.abs(model.decision_function(padded)[:, :20] - scores).max() < 1
    for _ in range(60):
        model.partial_fit(X, Y)
    assert model.score(X, Y) > 0.95


def test_parameters_that_a_model_had_keep_the_state_of_the_optimizer(rows):
    X, Y = rows
    model = small().partial_fit(X[:, :60], Y[:, :20])
    earlier, plan = model.fitted_, model.partial_fit(X, Y).plan_
    start = grown_start(earlier, plan, CSR.from_scipy(Y))
    old, new = (
        state_layout(network.layout, plan.optimizer).views(state)
        for network, state in ((earlier.network, earlier.optimizer.state), (plan.network, start.state))
    )
    for name, state in old.items():
        assert state.any()
        np.testing.assert_array_equal(new[name][: len(state)], state)
        assert not new[name][len(state) :].any()


def test_epochs_of_partial_fit_are_counted_from_those_of_fit(rows):
    """So that it does not take the rows in the order of an earlier epoch."""
    model = small(max_epochs=2).fit(*rows).partial_fit(*rows)
    assert [(record["epoch"], record["first_epoch"]) for record in model.history_] == [(0, 0), (1, 0), (2, 2)]


def test_weights_of_new_features_are_drawn_by_the_seed_of_the_model(rows):
    X, Y = rows
    drawn = []
    for seed in (0, 1, 1):
        model = small(random_state=seed).partial_fit(X[:, :60], Y)
        model.partial_fit(sp.hstack([X, sp.csr_array((600, 1))]), Y)
        drawn.append(model.fitted_.network.layout.views(model.params_)["W0"][-1])
    np.testing.assert_array_equal(drawn[1], drawn[2])
    assert (drawn[0] != drawn[1]).all()


@pytest.mark.parametrize(("method", "counts"), [("fit", False), ("partial_fit", True)])
def test_the_level_of_sample_weights_counts_in_partial_fit_alone(rows, method, counts):
    """Rows that come later may weigh more or less than those before."""
    learned = [
        getattr(small(optimizer="sgd", max_epochs=1), method)(*rows, sample_weight=np.full(600, weight)).params_
        for weight in (1.0, 3.0)
    ]
    assert (np.abs(learned[0] - learned[1]).max() > 1e-3) == counts


def test_partial_fit_adds_new_names_behind_the_old():
    X = np.eye(4)
    model = small().partial_fit(X[:2], [["pear"], ["fig"]])
    model.partial_fit(X, [["fig"], ["apple", "pear"], ["kiwi"], []])
    assert model.classes_.tolist() == ["fig", "pear", "apple", "kiwi"]


@pytest.mark.filterwarnings("ignore:X. 100% of the rows")
@pytest.mark.parametrize("candidates", [0, 2])
def test_partial_fit_learns_from_rows_without_labels_alone(candidates):
    """Someone may have refused all that was suggested."""
    texts = ["read a file", "open a book"] * 60
    model = small(candidates=candidates).fit(texts, [["file"], ["book"]] * 60)
    before = model.predict_proba(["read a file"]).max()
    model.partial_fit(["read a file"] * 60, [[]] * 60)
    assert model.n_samples_seen_ == 180
    assert model.predict_proba(["read a file"]).max() < before


def test_partial_fit_learns_words_of_new_texts_and_of_the_names_of_new_labels(tmp_path):
    texts = [f"read a {name}" for name in ("file", "book")] * 30
    model = small(candidates=4).fit(texts, [["file"], ["book"]] * 30)
    before = model.fitted_
    model.partial_fit(["a yzzyva"] * 20, [["beetle"]] * 20, label_texts={"snail": "univalve"})
    assert model.vectorizer_.words == [*before.features.vectorizer.words, "univalve", "yzzyva"]
    assert model.n_features_in_ == before.network.n_features + 2
    model.save(tmp_path / "m")
    for each in (model, XMLClassifier.load(tmp_path / "m")):
        assert each.classes_[each.predict_topk(["yzzyva", "the book"], k=1)[0][:, 0]].tolist() == ["beetle", "book"]
        ((why,),) = each.explain(["yzzyva"], k=1)
        assert why.label == "beetle"
        assert "yzzyva" in str(why)


def test_partial_fit_takes_the_names_of_classes_to_come():
    X, y = np.eye(3), np.array(["b", "c", "b"])
    model = small().partial_fit(X, y, classes=["a", "b", "c"])
    assert model.classes_.tolist() == ["a", "b", "c"]
    for _ in range(100):
        model.partial_fit(X, np.array(["a", "b", "d"]))
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert model.predict(X).tolist() == ["a", "b", "d"]


def test_a_warm_start_grows_too(rows):
    X, Y = rows
    model = small(warm_start=True, max_epochs=3).fit(X[:, :100], Y[:, :30])
    model.fit(X, Y)
    assert model.n_features_in_ == 120
    assert len(model.classes_) == 40


def test_a_network_that_fit_has_trained_learns_more_rows_at_a_low_rate():
    X, Y = planted(4000)
    fitted, grown = small(max_epochs=1).fit(X, Y), small().partial_fit(X, Y)
    assert fitted.fitted_.thresholds is not None
    low, full = (model.partial_fit(X[:10], Y[:10]).plan_.learning_rate for model in (fitted, grown))
    assert low == pytest.approx(full / 20)
    fitted.set_params(learning_rate_init=0.01).partial_fit(X[:10], Y[:10])
    assert fitted.plan_.learning_rate == 0.01


@pytest.mark.parametrize("candidates", [0, 8])
def test_rows_of_weight_zero_are_not_counted(rows, candidates):
    X, Y = rows
    weight = np.arange(600) % 3
    model = small(max_epochs=1, candidates=candidates).fit(X, Y, sample_weight=weight)
    model.partial_fit(X[:4], Y[:4], sample_weight=[0, 1, 1, 0])
    learned = np.asarray(Y[weight > 0].sum(axis=0) + Y[1:3].sum(axis=0)).ravel()
    assert model.n_samples_seen_ == 402
    np.testing.assert_array_equal(model.label_counts_, learned)


def test_a_warm_start_holds_out_the_same_rows_where_some_have_weight_zero(rows, recwarn):
    model = small(max_epochs=1, warm_start=True, early_stopping=True)
    for _ in range(2):
        model.fit(*rows, sample_weight=np.arange(600) % 3)
    assert not [each for each in recwarn if "early_stopping" in str(each.message)]
