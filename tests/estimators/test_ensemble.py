"""Several classifiers as one: what it answers, what it keeps of a run that fails, how it is saved."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from shared.failing import Failing
from shared.planted import N_LABELS, planted, small
from shared.running_mean import RunningMean
from shared.saved_models import rewrite, same_answers
from shared.sklearn_rules import EXPECTED_TO_FAIL
from xmlsgd import DataError, MemoryEstimateError, ModelFileError, XMLClassifier, XMLEnsemble, load_model
from xmlsgd.data.csr import CSR
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.estimators import memory
from xmlsgd.estimators.inference.rankings import best_of_means
from xmlsgd.training.callbacks import EarlyStopping
from xmlsgd.training.history import History, runs_of
from xmlsgd.training.kept_model import KeptModel


def ensemble(n=3, **parameters):
    """Return quick classifiers with a fixed seed as one."""
    return XMLEnsemble(small(**{"max_epochs": 2, **parameters}), n, random_state=0)


@pytest.fixture(scope="module")
def network(rows):
    return ensemble(max_epochs=12, candidates=0).fit(*rows)


@pytest.fixture(scope="module")
def listed(rows):
    return ensemble(candidates=16).fit(*rows)


@pytest.mark.processor
def test_scores_are_the_means_of_those_of_the_classifiers(network, held_out):
    X, _ = held_out
    each = [member.decision_function(X) for member in network.estimators_]
    assert np.abs(each[0] - each[1]).max() > 0.1
    np.testing.assert_allclose(network.decision_function(X), np.mean(each, axis=0), atol=1e-5)
    np.testing.assert_allclose(
        network.decision_function(X, labels=[7, 3]), network.decision_function(X)[:, [7, 3]], atol=1e-5
    )
    np.testing.assert_allclose(network.predict_proba(X), 1 / (1 + np.exp(-np.mean(each, axis=0))), atol=1e-5)


@pytest.mark.processor
def test_the_best_labels_are_those_with_the_best_means(network, held_out):
    X, _ = held_out
    labels, scores = network.predict_topk(X, 5)
    Z = network.decision_function(X)
    assert (labels == np.argsort(-Z, axis=1, kind="stable")[:, :5]).mean() > 0.99
    # A label has the last score of a classifier that does not name it, which is too much.
    exact = np.take_along_axis(Z, labels.astype(int), axis=1)
    assert (scores > exact - 1e-4).all()
    assert (np.diff(scores, axis=1) <= 0).all()
    every, of_every = network.predict_topk(X, N_LABELS + 7)
    assert every.shape == (200, N_LABELS)
    np.testing.assert_allclose(of_every, -np.sort(-Z, axis=1), atol=1e-4)


@pytest.mark.parametrize("kind", [pytest.param("network", marks=pytest.mark.processor), "listed"])
def test_the_best_label_is_the_same_for_every_k(kind, held_out, request):
    model, (X, Y) = request.getfixturevalue(kind), held_out
    best = model.predict_topk(X, 1)[0][:, 0]
    for k in (2, 5, 12):
        np.testing.assert_array_equal(model.predict_topk(X, k)[0][:, 0], best)
    assert model.score(X, Y) == pytest.approx(np.mean(Y.toarray()[np.arange(200), best]))


def test_the_class_of_a_row_is_the_most_probable(rows, held_out):
    model = ensemble().fit(rows[0], rows[1].toarray().argmax(axis=1))
    X, _ = held_out
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])


def test_the_threads_of_prediction_are_those_of_the_classifier_that_it_clones(network, held_out):
    model = copy.deepcopy(network).set_params(estimator__n_jobs=1)
    model.predict_topk(held_out[0])
    assert all(1 in member.fitted_._scorers for member in model.estimators_)


def test_a_callback_of_several_runs_forgets_the_one_before(rows, tmp_path):
    kept, average = KeptModel(), RunningMean()
    early = EarlyStopping("P@1", 9, 0.0, kept)
    history = History(tmp_path / "history.jsonl")
    model = ensemble(2, max_epochs=3).fit(*rows, eval_set=rows, callbacks=[early, average, history])
    kept.close()
    first, second = model.estimators_
    assert [record["epoch"] for record in history.records] == [0, 1, 2] * 2
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 6
    assert history.records[2]["averaged"] == history.records[5]["averaged"]
    assert np.abs(first.params_ - second.params_).max() > 0.01
    found, mean = (second.network_.layout.views(each) for each in (second.params_, average.mean))
    for name in found.keys() - {second.network_.output_bias}:  # which has counted the held-out rows since
        np.testing.assert_array_equal(found[name], mean[name])
    assert [len(run) for run in runs_of(history.records)] == [3, 3]


def test_means_of_labels_that_are_not_named_by_all_worked_by_hand():
    labels = [np.array([[4, 2, 9]]), np.array([[2, 7, -1]])]
    scores = [np.array([[5.0, 3.0, 1.0]], np.float32), np.array([[4.0, 2.0, -np.inf]], np.float32)]
    best, means = best_of_means(list(zip(labels, scores, strict=True)))
    # 4: (5 + 2) / 2, 2: (3 + 4) / 2, and the smaller goes first; 9: (1 + 2) / 2, 7: (1 + 2) / 2.
    assert best.tolist() == [[2, 4, 7, 9, -1, -1]]
    assert means.tolist() == [[3.5, 3.5, 1.5, 1.5, -np.inf, -np.inf]]


def test_means_that_float32_rounds_to_one_number_are_equals():
    scores = [np.array([[1 + 2**-23, 1.0]], np.float32), np.array([[1.0, 1.0]], np.float32)]
    best, means = best_of_means([(np.array([[5, 3]]), each) for each in scores])
    assert best.tolist() == [[3, 5, -1, -1]]
    assert means[0, :2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["network", "listed"])
def test_columns_thresholds_and_sparse_answers_are_those_of_a_classifier(kind, held_out, request):
    model, (X, _) = request.getfixturevalue(kind), held_out
    labels, scores = model.predict_topk(X, 5, labels=[3, 8, 20])
    assert set(np.unique(labels)) == {-1, 3, 8, 20}
    np.testing.assert_array_equal(labels[:, 3:], -1)
    assert (scores[:, 3:] == -np.inf).all()
    sure, of_sure = model.predict_topk(X, 5, threshold=0.5)
    assert (of_sure[sure >= 0] >= 0).all()
    assert (sure < 0).any()
    answer = model.predict_topk(X, 5, as_csr=True)
    assert isinstance(answer, sp.csr_array)
    assert answer.shape == (200, N_LABELS)
    assert model.predict_topk(CSR.from_scipy(X).span(0, 0))[0].shape == (0, 5)


def test_a_row_by_itself_has_the_answer_that_it_has_among_others(listed, held_out):
    X, _ = held_out
    labels, scores = listed.predict_topk(X)
    for i in (0, 7):
        alone, of_alone = listed.predict_topk(X[[i]])
        np.testing.assert_array_equal(alone[0], labels[i])
        np.testing.assert_allclose(of_alone[0], scores[i], rtol=1e-4)


def test_with_candidates_it_is_at_least_as_precise_as_its_classifiers_on_average(listed, held_out):
    X, Y = held_out
    assert listed.estimators_[0].candidates_ is not None
    assert listed.score(X, Y) >= np.mean([member.score(X, Y) for member in listed.estimators_]) - 0.005
    assert listed.predict(X).shape == (200, N_LABELS)


def test_a_loaded_ensemble_has_the_seeds_of_itself_and_of_its_estimator(rows, tmp_path):
    ensemble = XMLEnsemble(small(random_state=7, max_epochs=1), 2, random_state=3).fit(*rows)
    ensemble.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert (again.random_state, again.estimator.random_state) == (3, 7)


def test_a_seed_gives_the_same_ensemble_of_different_classifiers(rows, network):
    again = clone(network).fit(*rows)
    assert [m.random_state for m in again.estimators_] == [m.random_state for m in network.estimators_]
    assert len({member.fitted_.seed for member in again.estimators_}) == 3
    assert same_answers(again, network, rows[0])
    assert not same_answers(clone(network).set_params(random_state=1).fit(*rows), network, rows[0])


def test_without_a_seed_of_its_own_it_has_that_of_the_classifier(rows, network):
    model = XMLEnsemble(network.estimator, 3).fit(*rows)
    assert same_answers(model, network, rows[0])
    assert model.random_state is None


def test_fit_leaves_the_classifier_that_it_clones_as_it_is(rows):
    model = ensemble().set_params(estimator__max_epochs=1, n_estimators=2).fit(*rows)
    assert [record["estimator"] for record in model.history_] == [0, 1]
    assert model.n_epochs_ == 2
    assert model.estimator.random_state == 0
    assert not hasattr(model.estimator, "history_")


@pytest.mark.parametrize(("form", "kind"), [("lists", list), ("classes", np.ndarray), ("dense", np.ndarray)])
def test_labels_have_the_forms_that_a_classifier_takes(rows, form, kind):
    X, Y = rows
    dense = Y.toarray()
    y = {"lists": [np.flatnonzero(row).tolist() for row in dense], "classes": dense.argmax(axis=1), "dense": dense}[
        form
    ]
    assert isinstance(y, kind)
    model, one = ensemble(2).fit(X, y), small(max_epochs=1).fit(X, y)
    assert type(model.predict(X)) is type(one.predict(X))
    assert model.predict(X).shape == one.predict(X).shape
    assert model.label_form_ == one.label_form_
    np.testing.assert_array_equal(model.classes_, one.classes_)


def test_names_of_labels_that_come_one_by_one_are_those_of_all_classifiers(rows):
    model = ensemble(2).fit(*rows, label_names=iter([f"label {j}" for j in range(N_LABELS)]))
    assert model.classes_[3] == "label 3"
    assert model.estimators_[1].classes_[3] == "label 3"


def test_an_error_in_validation_rows_names_them(rows):
    X, Y = rows
    with pytest.raises(DataError, match="eval_set: X has 2 features, but XMLEnsemble is expecting 120 features"):
        ensemble(2).fit(X, Y, eval_set=(X[:, :2], Y))


@pytest.mark.parametrize("vectorizer", [None, TextVectorizer(min_df=3)], ids=["by default", "given"])
def test_texts_go_through_one_vectorizer_and_are_saved_with_it(tmp_path, vectorizer):
    texts = [f"word{i % 7} word{i % 5} common" for i in range(80)]
    model = ensemble(2, vectorizer=vectorizer)
    assert model.estimate_memory(texts, [[i % 7] for i in range(80)])["total"] > 0
    model.fit(
        texts, [[f"seven{i % 7}"] for i in range(80)], eval_set=(texts[:9], [[f"seven{i % 7}"] for i in range(9)])
    )
    assert model.history_[-1]["P@1"] >= 0
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.classes_[again.predict_topk(texts[:2], 1)[0]].shape == (2, 1)
    assert same_answers(again, model, texts)
    assert str(again.estimator.vectorizer) == str(vectorizer)
    assert all(each.vectorizer is vectorizer for each in model.estimators_)


@pytest.mark.parametrize("kind", ["network", "listed"])
@pytest.mark.parametrize("compact", [False, True])
def test_what_was_saved_answers_as_before(kind, compact, rows, request, tmp_path):
    model = request.getfixturevalue(kind)
    model.save(tmp_path / "m", compact=compact)
    for again in (load_model(tmp_path / "m"), load_model(tmp_path / "m", verify=False)):
        assert isinstance(again, XMLEnsemble)
        assert again.n_estimators == 3
        assert again.random_state == 0
        assert again.get_params()["estimator__candidates"] == model.estimator.candidates
        assert again.history_ == model.history_
        if compact:
            assert np.mean(again.predict_topk(rows[0], 1)[0] == model.predict_topk(rows[0], 1)[0]) > 0.98
        else:
            assert same_answers(again, model, rows[0])
        again.save(tmp_path / "again", compact=compact)
        assert same_answers(load_model(tmp_path / "again"), again, rows[0])
    assert same_answers(pickle.loads(pickle.dumps(model)), model, rows[0])


def test_either_estimator_is_read_by_one_function_which_the_classifier_names(network, fitted, rows, tmp_path):
    network.save(tmp_path / "m")
    fitted.save(tmp_path / "one")
    assert isinstance(load_model(tmp_path / "one"), XMLClassifier)
    assert same_answers(load_model(tmp_path / "one"), fitted, rows[0])
    with pytest.raises(ModelFileError, match=r"m: must hold an XMLClassifier, got 'XMLEnsemble'; xmlsgd\.load_model"):
        XMLClassifier.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: {"members": []}, "members must be a list of descriptions"),
        (lambda told: {"members": 3}, "members must be a list of descriptions, got 3"),
        (lambda told: {"members": [*told["members"], None]}, "members must be a list of descriptions"),
        (lambda told: {"members": [*told["members"], told["members"][0]]}, "member3_params must be float32"),
        (
            lambda told: {
                "members": [
                    told["members"][0],
                    {**told["members"][1], "network": {**told["members"][1]["network"], "loss": "softmax"}},
                ]
            },
            "must agree",
        ),
        (
            lambda told: {"members": [*told["members"][:2], {**told["members"][2], "label_form": "lists"}]},
            "must agree in features, labels, loss and form",
        ),
        (
            lambda told: {"parameters": {"n_estimators": 3, "random_state": "x"}},
            "parameters must be n_estimators, random_state",
        ),
        (lambda told: {"parameters": {"n_estimators": 7}}, "parameters must be n_estimators, random_state"),
        (lambda told: {"estimator": "Ridge"}, "must hold an XMLClassifier, got 'Ridge'"),
    ],
)
def test_an_altered_ensemble_is_refused(network, tmp_path, change, message):
    network.save(tmp_path / "m")
    rewrite(tmp_path / "m", change(json.loads((tmp_path / "m" / "model.json").read_text())))
    with pytest.raises(ModelFileError, match=message):
        load_model(tmp_path / "m")


def test_a_classifier_of_another_shape_is_refused(network, rows, tmp_path):
    other = small(max_epochs=1).fit(*planted(200, n_labels=N_LABELS - 1))
    mixed = clone(network)
    mixed._set_members([network.estimators_[0], other])
    mixed.save(tmp_path / "m")
    with pytest.raises(
        ModelFileError, match=r"m: members must agree in .*, got \(120, 40, 'bce', 'sparse'\) and \(117, 39, '"
    ):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(("steps", "learned"), [(25, 1), (60, 1), (90, 2)])
def test_of_a_run_that_an_error_ends_whole_classifiers_are_kept_or_the_first_as_far_as_it_came(rows, steps, learned):
    model = ensemble(batch_size=32)  # 38 steps each
    with pytest.raises(KeyError):
        model.fit(*rows, callbacks=[Failing(KeyError, steps)])
    assert len(model.estimators_) == learned
    whole = ensemble(learned, batch_size=32).fit(*rows)
    assert same_answers(model, whole, rows[0]) == (steps > 38)
    assert model.score(*rows) > 0.05


def test_a_refused_fit_leaves_the_earlier_ensemble(rows):
    model = ensemble(1).fit(*rows)
    for X, y in ((rows[0], rows[1][:5]), (rows[0][:, :3], None), (rows[0] * np.nan, rows[1])):
        with pytest.raises(DataError):
            model.fit(X, y)
        assert model.n_features_in_ == 120
        assert model.predict_topk(rows[0])[0].shape == (600, 5)
    with pytest.raises(DataError):
        ensemble().fit(rows[0], None)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_estimators": 0}, "n_estimators: must be a positive integer, got 0"),
        ({"n_estimators": 10**30}, "n_estimators: 1000000000000000000000000000000 need about .*; .* fit, and smaller"),
        ({"n_estimators": True}, "n_estimators: must be a positive integer, got True"),
        ({"estimator": "forest"}, "estimator: must be an XMLClassifier or None, got 'forest'"),
        ({"random_state": "x"}, "random_state: must be None, an integer"),
        ({"estimator__loss": "mse"}, "loss must be one of"),
    ],
)
def test_parameters_out_of_range_are_refused(rows, parameters, message):
    with pytest.raises((DataError, MemoryEstimateError), match=message):
        ensemble().set_params(**parameters).fit(*rows)


def test_the_memory_of_no_classifiers_is_not_estimated(rows):
    with pytest.raises(DataError, match="n_estimators: must be a positive integer, got 'x'"):
        ensemble("x").estimate_memory(*rows)


def test_the_plan_is_that_of_each_classifier_with_the_memory_of_all(rows):
    model = ensemble()
    plan = model.plan(*rows)
    assert not hasattr(model, "fitted_")
    *decisions, told = plan.decisions
    assert (told.name, told.value) == ("memory", memory.readable(model.estimate_memory(*rows)["total"]))
    assert told.value != small(max_epochs=2).plan(*rows).decisions[-1].value
    assert [tuple(decisions)] * 3 == [each.plan_.decisions for each in model.fit(*rows).estimators_]


def test_more_classifiers_than_the_memory_holds_are_refused_with_how_many_fit(rows, monkeypatch):
    three = ensemble().estimate_memory(*rows)
    model = ensemble().fit(*rows)
    assert three["trained"] >= sum(member.params_.nbytes for member in model.estimators_[:2])
    assert model.estimate_memory(*rows)["earlier_model"] == sum(member.params_.nbytes for member in model.estimators_)
    monkeypatch.setattr(memory, "memory_limit", lambda: (three["total"] - 1) / memory.SHARE)
    with pytest.raises(MemoryEstimateError, match=r"n_estimators: 3 need about .*; 2 fit, and smaller hidden_layer"):
        ensemble().fit(*rows)
    monkeypatch.setattr(memory, "memory_limit", lambda: three["total"] / memory.SHARE + 1)
    assert ensemble().fit(*rows).score(*rows) > 0


@parametrize_with_checks(
    [XMLEnsemble(XMLClassifier((32,), max_epochs=8), 1)], expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL
)
def test_the_ensemble_keeps_the_rules_of_scikit_learn(estimator, check):
    check(estimator)
