"""The candidate model as part of a classifier: ranking, saving and further training."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import DEVICE, SETTINGS
from xmlsgd import XMLClassifier
from xmlsgd.candidates.linear import LinearClassifiers
from xmlsgd.candidates.stacking import LogisticStacking
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats.store import open_store, write_store
from xmlsgd.devices.cpu.kernel_cache import all_forms
from xmlsgd.devices.cpu.kernels.logits import best_of
from xmlsgd.devices.cpu.kernels.topk import merge_best
from xmlsgd.errors import DivergenceError
from xmlsgd.estimators.defaults import auto_candidates
from xmlsgd.estimators.inference import Scorer
from xmlsgd.estimators.inference.candidate_scorer import CandidateScorer, logits_of_pairs
from xmlsgd.estimators.inputs import damped_values
from xmlsgd.metrics import precision_at_k
from xmlsgd.training.learner import Learner


@pytest.fixture(scope="module")
def few(many):
    """Return some of the rows, where a model need not be good."""
    return Dataset(many[0].X.span(0, 1200), many[0].Y.span(0, 1200))


def test_many_labels_get_candidates_and_rank_better_with_them(many, model):
    alone = XMLClassifier(**SETTINGS, candidates=0, max_epochs=model.n_epochs_).fit(many[0].X, many[0].Y)
    assert alone.candidates_ is None
    assert model.candidates_.n_voted == 64
    with_it, without = (precision_at_k(many[1].Y, m.predict_topk(many[1].X)[0], 5) for m in (model, alone))
    assert with_it[0] > without[0] + 0.05
    assert with_it[4] > without[4]


def test_the_best_labels_are_those_of_the_decision_function(many, model):
    X = many[1].X.take(np.arange(50))
    labels, scores = model.predict_topk(X, 3)
    whole = model.decision_function(X)
    np.testing.assert_allclose(np.take_along_axis(whole, labels, axis=1), scores, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.sort(whole, axis=1)[:, :-4:-1], scores, rtol=1e-3, atol=0.1)
    some = np.array([5, 700, 3, 1000])
    np.testing.assert_allclose(model.decision_function(X, labels=some), whole[:, some], rtol=1e-3, atol=1e-3)
    best, _ = model.predict_topk(X, 2, labels=some)
    np.testing.assert_array_equal(best[:, 0], some[whole[:, some].argmax(axis=1)])


@pytest.mark.parametrize("n_jobs", [1, 2, None])
def test_a_row_by_itself_gets_the_answer_that_it_gets_among_others(many, model, n_jobs):
    X = many[1].X.span(0, 12)
    answering = copy.copy(model).set_params(n_jobs=n_jobs)
    labels, scores = answering.predict_topk(X)
    for i in range(X.n_rows):
        one = X.to_scipy()[[i]]
        for row in (X.span(i, i + 1), one, one.astype(np.float64), one.toarray()):
            found, found_scores = answering.predict_topk(row)
            np.testing.assert_array_equal(found[0], labels[i])
            np.testing.assert_array_equal(found_scores[0], scores[i])


def test_a_model_that_learns_on_answers_by_what_it_has_learned(many, tmp_path):
    X, Y = many[0].X.span(0, 5000), many[0].Y.span(0, 5000)
    model = XMLClassifier(**SETTINGS, candidates=16, max_epochs=1).fit(X, Y)
    before = [model.predict_topk(rows)[1] for rows in (many[1].X, many[1].X.span(0, 1))]
    model.partial_fit(many[1].X, many[1].Y).save(tmp_path / "model")
    after = [model.predict_topk(rows)[1] for rows in (many[1].X, many[1].X.span(0, 1))]
    loaded = XMLClassifier.load(tmp_path / "model")
    for old, new, rows in zip(before, after, (many[1].X, many[1].X.span(0, 1)), strict=True):
        assert (old != new).any()
        np.testing.assert_array_equal(loaded.predict_topk(rows)[1], new)


def test_probabilities_of_candidates_are_calibrated(many, model):
    labels, scores = model.predict_topk(many[1].X, 5)
    chances = 1 / (1 + np.exp(-scores))
    truth = many[1].Y.to_scipy().toarray()[np.arange(len(labels))[:, None], labels] != 0
    assert chances.mean() == pytest.approx(truth.mean(), abs=0.1)


def test_more_labels_than_candidates_can_be_ranked(many, model):
    X = many[1].X.take(np.arange(20))
    labels, scores = model.predict_topk(X, 1100)
    assert (np.sort(labels, axis=1) == np.arange(1100)).all()
    assert (np.diff(scores, axis=1) <= 0).all()


def test_a_row_that_no_training_row_is_like_gets_the_labels_of_the_network(model):
    X = sp.csr_array((2, 1500), dtype=np.float32)
    labels, scores = model.predict_topk(X, 5)
    expected, logits = Scorer(model.network_, model.params_, DEVICE).top_k(CSR.from_scipy(X), 5)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(scores, logits, rtol=1e-5)
    np.testing.assert_allclose(np.sort(model.decision_function(X))[:, :-6:-1], logits, rtol=1e-5)
    explained = model.explain(X[:1], labels=model.classes_[labels[0, :1]])[0][0]
    assert not explained.is_candidate
    assert explained.score == pytest.approx(logits[0, 0], rel=1e-5)


def test_a_saved_model_keeps_its_candidate_model(many, model, tmp_path):
    X = many[1].X.take(np.arange(100))
    model.save(tmp_path / "model")
    loaded = XMLClassifier.load(tmp_path / "model")
    for a, b in zip(model.predict_topk(X), loaded.predict_topk(X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_same_seed_gives_the_same_bits(many, model):
    again = XMLClassifier(**SETTINGS).fit(many[0].X, many[0].Y)
    for a, b in zip(model.predict_topk(many[1].X), again.predict_topk(many[1].X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_partial_fit_adds_its_rows_to_the_index(many):
    whole, fresh = many
    model = XMLClassifier(**SETTINGS).fit(whole.X, whole.Y)
    wider = CSR(fresh.X.indptr, fresh.X.indices, fresh.X.data, 1501)
    model.partial_fit(wider, CSR(fresh.Y.indptr, fresh.Y.indices, fresh.Y.data, 1100))
    assert model.candidates_.knn.Y.n_rows == 9000
    np.testing.assert_array_equal(model.candidates_.knn.Y.row(8000)[0], fresh.Y.row(0)[0])


@pytest.mark.parametrize("n_classes", [2, 30, 300])
def test_one_class_a_row_has_candidates_too(many, n_classes):
    X, y = many[0].X, np.char.add("c", (many[0].Y.indices[many[0].Y.indptr[:-1]] % n_classes).astype(str))
    model, alone = (XMLClassifier(**SETTINGS, candidates=size).fit(X.span(0, 6000), y[:6000]) for size in ("auto", 0))
    assert (model.plan_.n_candidates, model.network_.loss) == (min(64, n_classes), "bce")
    assert (alone.plan_.n_candidates, alone.network_.loss) == (0, "softmax")
    rows = X.span(6000, 8000)
    probabilities = model.predict_proba(rows)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    best = model.predict(rows)
    assert (best == model.classes_[probabilities.argmax(axis=1)]).mean() > 0.99
    assert (best == y[6000:]).mean() > (alone.predict(rows) == y[6000:]).mean()
    assert probabilities.max(axis=1).mean() == pytest.approx((best == y[6000:]).mean(), abs=0.05)
    assert model.score(rows, y[6000:]) == (best == y[6000:]).mean()


def test_probabilities_of_classes_sum_to_1_however_far_the_scores(many):
    X, y = many[0].X, np.arange(8000) % 3
    model = XMLClassifier(**SETTINGS, max_epochs=1).fit(X.span(0, 1000), y[:1000])
    for factor in (1e-30, 1.0, 1e6, 1e15):
        far = CSR(X.indptr[:201], X.indices[: X.indptr[200]], X.data[: X.indptr[200]] * np.float32(factor), X.n_cols)
        probabilities = model.predict_proba(far)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(far))


def test_interactions_of_few_features_are_learned():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 10, (2500, 4))
    (a, b, c, d), X = (values > 4).T, sp.csr_array(np.eye(10, dtype=np.float32)[values].reshape(2500, 40))
    y = a & b | c & d
    model, alone = (XMLClassifier(**SETTINGS, candidates=size).fit(X[:1500], y[:1500]) for size in ("auto", 0))
    assert model.plan_.n_candidates == 2
    assert model.score(X[1500:], y[1500:]) > alone.score(X[1500:], y[1500:]) - 0.05 > 0.9


def test_no_warning_of_few_labels_and_empty_rows(many, recwarn):
    X, Y = many[0].X.span(0, 600), many[0].Y.span(0, 600)
    kept = np.where(np.arange(600) % 5 == 0, 0, np.diff(X.indptr))
    entries = np.repeat(kept > 0, np.diff(X.indptr))
    sparser = CSR(np.concatenate([[0], np.cumsum(kept)]), X.indices[entries], X.data[entries], X.n_cols)
    XMLClassifier(**SETTINGS).fit(sparser, Y.indices[Y.indptr[:-1]] % 3)
    assert [str(each.message) for each in recwarn if "candidates" in str(each.message)] == []


def test_softmax_that_is_asked_for_has_no_candidates(many):
    model = XMLClassifier(**SETTINGS, loss="softmax").fit(many[0].X, np.arange(8000) % 1100)
    assert (model.plan_.n_candidates, model.network_.loss) == (0, "softmax")


def test_weights_of_rows_count_in_every_path(many):
    """Rows of weight 0 are as good as none."""
    X, Y = many[0].X, many[0].Y
    weight = np.ones(8000)
    weight[4000:] = 0
    model = XMLClassifier(**SETTINGS, candidates=32, max_epochs=2).fit(X, Y, sample_weight=weight)
    assert not model.candidates_.knn.weight[4000:].any()
    assert model.candidates_.knn.weight[:4000].all()


def test_the_labels_of_rows_of_weight_zero_change_nothing(many):
    """Whatever order they come in, so that the starting biases, which follow their counts, stay the same.

    The zeros that they add change how vector code associates a sum.
    """
    X, Y = many[0].X.take(np.arange(2000)), many[0].Y
    other = Y.take(np.concatenate([np.arange(1000), np.arange(1999, 999, -1)]))
    settings = {**SETTINGS, "candidates": 32, "max_epochs": 1, "negatives": "all"}

    def fitted(labels, weight):
        model = XMLClassifier(**settings).fit(X, labels, sample_weight=np.repeat([1.0, weight], 1000))
        return model.params_, *model.predict_topk(many[1].X, 3)

    for a, b in zip(fitted(Y.take(np.arange(2000)), 0), fitted(other, 0), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    for a, b in zip(fitted(Y.take(np.arange(2000)), 1), fitted(other, 1), strict=True):
        assert np.abs(a - b).max() > 0.01


def test_a_row_with_few_candidates_gets_more_labels_from_the_network(many, model):
    counts = np.bincount(many[0].X.indices, minlength=1500)
    rare = np.argsort(counts)[:40]
    X = sp.csr_array((np.ones(40, np.float32), (np.arange(40), rare)), shape=(40, 1500))
    whole = model.decision_function(X)
    candidates, _ = model.candidates_.score(
        CSR.from_scipy(X), lambda X, labels: np.zeros(labels.shape, np.float32), DEVICE
    )
    n_candidates = (candidates >= 0).sum(axis=1)
    k = int(n_candidates.min()) + 2
    labels, scores = model.predict_topk(X, k)
    np.testing.assert_allclose(np.take_along_axis(whole, labels, axis=1), scores, rtol=1e-3, atol=1e-3)
    few = n_candidates < k  # they include candidates with a margin below -1
    np.testing.assert_allclose(np.sort(whole[few], axis=1)[:, : -k - 1 : -1], scores[few], rtol=1e-3, atol=0.05)
    assert (np.diff(np.sort(labels, axis=1), axis=1) > 0).all()


def test_the_best_of_a_list_are_those_of_all_its_scores_and_ties_go_to_the_smaller_label():
    rng = np.random.default_rng(0)
    labels = np.argsort(rng.random((20, 50)), axis=1)[:, :30].astype(np.int32)
    labels[0, 2:] = -1
    scores = np.where(labels >= 0, -(labels % 25) / 5, 9).astype(np.float32)  # of two labels the same
    best, best_scores = np.empty((20, 5), np.int32), np.empty((20, 5), np.float32)
    for i in range(20):
        best_of(labels[i], scores[i], best[i], best_scores[i])
    scores[labels < 0] = -np.inf
    order = np.lexsort((labels, -scores))[:, :5]
    wanted = np.where(np.isfinite(np.take_along_axis(scores, order, axis=1)), np.take_along_axis(labels, order, 1), -1)
    np.testing.assert_array_equal(best, wanted)
    np.testing.assert_array_equal(best_scores, np.take_along_axis(scores, order, axis=1))


def test_of_two_lists_the_smaller_of_equal_labels_is_first_whichever_has_it():
    labels, scores = np.int32([[9, 4, -1]]), np.float32([[3, 2, 5]])
    others, their_scores = np.int32([[4, 2, 7, -1]]), np.float32([[9, 2, 2, 9]])
    best, found = np.empty((1, 2), np.int32), np.empty((1, 2), np.float32)
    merge_best.alone(0, 1, labels, scores, others, their_scores, best, found)
    assert (best.tolist(), found.tolist()) == ([[9, 2]], [[3, 2]])


@pytest.mark.parametrize(("k", "n_with_margins"), [(3, 40), (30, 60)])
def test_the_selection_of_a_model_decides_which_candidates_get_margins(many, model, k, n_with_margins):
    """At least 40 of the 128, and twice as many as are asked for."""
    X, by_network = many[1].X.take(np.arange(50)), LogisticStacking(1.0, 0.0, 0.0, 0.0, 0.0)
    candidates = replace(model.candidates_, stacking=model.candidates_.stacking._replace(selection=by_network))
    changed = copy.copy(model)
    changed.fitted_ = replace(model.fitted_, candidates=candidates)
    labels, inputs = candidates.inputs(damped_values(X), logits_of_pairs(changed._scorer(X), DEVICE), DEVICE)
    scores = candidates.stacking.scores(labels, inputs, candidates.n_excluding, DEVICE)
    order = np.argsort(np.where(labels >= 0, -inputs.logits, np.inf), axis=1)
    scores[np.arange(50)[:, None], order[:, n_with_margins:]] = -np.inf
    best = np.argsort(-scores, axis=1)[:, :k]
    found, _ = changed.predict_topk(X, k)
    np.testing.assert_array_equal(found, np.take_along_axis(labels, best, axis=1))
    assert (found != model.predict_topk(X, k)[0]).any()


def test_labels_that_are_no_candidates_rank_first_where_all_candidates_score_low(many, model):
    """Also if the network alone would rank the candidates first."""
    X, stacking = many[1].X.take(np.arange(50)), model.candidates_.stacking
    low = stacking._replace(regression=stacking.regression._replace(intercept=-100.0))
    changed = copy.copy(model)
    changed.fitted_ = replace(model.fitted_, candidates=replace(model.candidates_, stacking=low))
    scores, found = changed.decision_function(X), changed.predict_topk(X, 80)[0]
    least = np.take_along_axis(scores, found, axis=1).min(axis=1)
    np.testing.assert_allclose(least, -np.sort(-scores, axis=1)[:, 79], rtol=1e-4)


@pytest.mark.parametrize(
    ("n_rows", "n_labels", "a_row", "size"),
    [
        (100, 192, 1, 64),
        (99, 192, 1, 0),
        (100, 3, 1, 3),
        (100, 9999, 8, 64),
        (100, 9999, 20, 160),
        (100, 9999, 40, 256),
        (100, 1600, 20, 100),
    ],
)
def test_candidates_are_used_from_100_rows_on_and_more_of_them_for_more_labels_a_row(n_rows, n_labels, a_row, size):
    Y = CSR(np.arange(11) * a_row, np.tile(np.arange(a_row, dtype=np.int32), 10), np.ones(10 * a_row), n_labels)
    assert auto_candidates(n_rows, Y, "bce")[0] == size
    assert auto_candidates(n_rows, Y, "softmax") == (0, "loss softmax")


def test_rows_of_weight_0_do_not_count_among_the_100(many):
    X, Y = many[0].X.span(0, 600), many[0].Y.span(0, 600)
    weight = (np.arange(600) < 99).astype(np.float32)
    assert XMLClassifier(**SETTINGS, max_epochs=1).fit(X, Y, weight).plan_.n_candidates == 0
    weight[99] = 1
    assert XMLClassifier(**SETTINGS, max_epochs=1).fit(X, Y, weight).plan_.n_candidates == 64


def test_a_store_in_memory_maps_is_learned_as_arrays_are(many, model, tmp_path):
    write_store(many[0], tmp_path / "store")
    mapped = open_store(tmp_path / "store")
    again = XMLClassifier(**SETTINGS).fit(mapped.X, mapped.Y)
    np.testing.assert_array_equal(model.predict_topk(many[1].X)[0], again.predict_topk(many[1].X)[0])


def test_rows_in_memory_maps_compile_no_kernel_of_their_own(many, model, tmp_path):
    write_store(many[1], tmp_path / "store")
    mapped = open_store(tmp_path / "store").X
    assert not mapped.indptr.flags.writeable
    expected = model.predict_topk(many[1].X)
    forms = all_forms()
    before = [len(form.signatures) for form in forms]
    for got, wanted in zip(model.predict_topk(mapped), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert [len(form.signatures) for form in forms] == before


@pytest.mark.parametrize("compact", [False, True])
def test_activations_within_the_call_that_ranks_are_those_of_the_kernel_before_it(
    many, model, tmp_path, monkeypatch, compact
):
    model.save(tmp_path / "model", compact=compact)
    model = XMLClassifier.load(tmp_path / "model")  # other tests do not get the scorers of this one
    X, answers = many[1].X, [model.predict_topk(many[1].X)]
    monkeypatch.setattr("xmlsgd.estimators.inference.candidate_scorer.ROWS_A_CALL", 7)
    answers.append(model.predict_topk(X))
    model.fitted_.forget_scorers()
    monkeypatch.setattr(CandidateScorer, "_in_one_call", False)
    answers.append(model.predict_topk(X))
    for labels, scores in answers[1:]:
        np.testing.assert_array_equal(labels, answers[0][0])
        np.testing.assert_array_equal(scores, answers[0][1])


def test_a_deep_network_ranks_candidates_by_its_last_activations(many, few, tmp_path):
    model = XMLClassifier((16, 8), candidates=16, max_epochs=1, n_jobs=1, random_state=0).fit(few.X, few.Y)
    X = many[1].X.span(0, 30)
    labels, scores = model.predict_topk(X, 3)
    np.testing.assert_allclose(
        np.take_along_axis(model.decision_function(X), labels, axis=1), scores, rtol=1e-3, atol=1e-3
    )
    model.save(tmp_path / "model", compact=True)
    same = XMLClassifier.load(tmp_path / "model").predict_topk(X, 3)[0] == labels
    assert same.mean() > 0.9
    assert model.predict_topk(X.span(0, 0))[0].shape == (0, 5)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_an_error_while_the_candidate_model_is_trained_keeps_the_network(few, monkeypatch, error):
    def failing(*arguments):
        raise error

    monkeypatch.setattr(LinearClassifiers, "fit_and_score", failing)
    model = XMLClassifier((8,), candidates=16, max_epochs=1, n_jobs=1, random_state=0)
    with pytest.raises(type(error)):
        model.fit(few.X, few.Y)
    assert model.candidates_ is None
    assert model.predict_topk(few.X.span(0, 3), 2)[0].shape == (3, 2)


def test_ctrl_c_in_a_partial_fit_that_adds_features_keeps_a_whole_model(few, tmp_path):
    X, Y = few.X.to_scipy(), few.Y.to_scipy()
    model = XMLClassifier((8,), candidates=16, max_epochs=1, n_jobs=1, random_state=0).fit(X[:, :1000], Y)
    with pytest.MonkeyPatch.context() as patch:
        run = Learner.train_span

        def step(self, *args):
            run(self, *args)
            raise KeyboardInterrupt

        patch.setattr(Learner, "train_span", step)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[:600], Y[:600])
    labels = model.predict_topk(X[:20], 3)[0]
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(XMLClassifier.load(tmp_path / "model").predict_topk(X[:20], 3)[0], labels)


def test_a_diverged_partial_fit_adds_no_rows(few):
    model = XMLClassifier((8,), candidates=16, max_epochs=1, n_jobs=1, random_state=0).fit(few.X, few.Y)
    before = model.candidates_.knn.Y.n_rows
    model.set_params(optimizer="sgd", learning_rate_init=1e38)
    with pytest.raises(DivergenceError):
        model.partial_fit(few.X.span(0, 300), few.Y.span(0, 300))
    assert model.candidates_.knn.Y.n_rows == before
