"""Explanations: parts sum to scores, and each part is what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import fit_trees_to, with_trees
from xmlsgd import XMLClassifier, XMLEnsemble, make_xmc
from xmlsgd.candidates.knn import KNNIndex
from xmlsgd.candidates.model import n_voted_in_prediction
from xmlsgd.candidates.weighting import unit_rows
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.devices.cpu import CPU
from xmlsgd.errors import DataError
from xmlsgd.estimators.inference.explanation import (
    COOCCURRENCE,
    LINEAR,
    NEIGHBORS,
    NETWORK,
    Explanation,
    FeaturePart,
    Neighbor,
    Term,
    _proposers,
)
from xmlsgd.estimators.inputs import damped_values

DEVICE = CPU(1, precision="float32")
QUICK = {"hidden_layer_sizes": (16,), "max_epochs": 2, "random_state": 0, "n_jobs": 1, "precision": "float32"}
N_TEST = 60


@pytest.fixture(scope="module")
def parts() -> tuple[Dataset, Dataset]:
    whole = make_xmc(1500 + N_TEST, 300, 120, nnz_per_row=8, labels_per_row=3, random_state=0)
    train, test = (Dataset(whole.X.take(r), whole.Y.take(r)) for r in np.split(np.arange(1500 + N_TEST), [1500]))
    return train, test


@pytest.fixture(scope="module")
def X(parts) -> CSR:
    return parts[1].X


@pytest.fixture(scope="module")
def logistic(parts) -> XMLClassifier:
    model = XMLClassifier(**QUICK, candidates=16).fit(parts[0].X, parts[0].Y)
    model.fitted_ = replace(model.fitted_, candidates=with_trees(model.candidates_, None))
    return model


@pytest.fixture(scope="module")
def boosted(logistic) -> XMLClassifier:
    """The same model with trees of examples: training rows for real ones would take longer."""
    rng = np.random.default_rng(0)
    known = np.stack(
        [rng.normal(-2, 2, 4000), *rng.random((1, 4000)), rng.normal(-0.5, 1, 4000), *rng.random((2, 4000))]
    )
    known[4] *= 100
    truth = rng.random(4000) < 1 / (1 + np.exp(4 - known[0] - 4 * known[1] * (1 + known[3]) - 2 * known[2]))
    frequency = logistic.candidates_.knn.frequency(120)
    trees = fit_trees_to(np.ascontiguousarray(known.T, np.float32), truth, np.zeros(4000), frequency)
    model = XMLClassifier(**QUICK, candidates=16)
    model.fitted_ = replace(logistic.fitted_, candidates=with_trees(logistic.candidates_, trees))
    return model


@pytest.fixture(scope="module")
def network(parts) -> XMLClassifier:
    return XMLClassifier(**{**QUICK, "hidden_layer_sizes": (16, 8)}, candidates=0).fit(parts[0].X, parts[0].Y)


def compact(model, folder):
    model.save(folder / "model", compact=True)
    return XMLClassifier.load(folder / "model").set_params(n_jobs=1)


@pytest.mark.parametrize("form", ["as trained", "compact"])
@pytest.mark.parametrize("name", ["logistic", "boosted", "network"])
def test_terms_sum_to_the_scores_of_the_ranking(name, form, X, tmp_path, request):
    model = request.getfixturevalue(name)
    model = compact(model, tmp_path) if form == "compact" else model
    labels, scores = model.predict_topk(X, 5)
    found = model.explain(X)
    np.testing.assert_array_equal([[each.column for each in row] for row in found], labels)
    np.testing.assert_array_equal(np.float32([[each.score for each in row] for row in found]), scores)
    sums = [[sum(term.contribution for term in each.terms) for each in row] for row in found]
    np.testing.assert_allclose(sums, scores, atol=1e-5)


@pytest.mark.parametrize("form", ["as trained", "compact"])
def test_words_neighbors_and_co_occurrence_sum_to_the_inputs_of_the_stacking(logistic, X, form, tmp_path):
    model = compact(logistic, tmp_path) if form == "compact" else logistic
    candidates = model.candidates_
    X_damped = damped_values(X)
    scaled = unit_rows(X_damped, candidates.feature_weights, DEVICE)
    with DEVICE.start():
        labels, votes = candidates.knn.votes(scaled, n_voted_in_prediction(candidates.n_voted), DEVICE)
        labels, shares = candidates.cooccurrence.candidates(scaled, labels, DEVICE)
        margins = candidates.linear.margins(unit_rows(X_damped, None, DEVICE), labels, DEVICE)
    n_checked = 0
    for i, row in enumerate(model.explain(X)):
        for each in (each for each in row if each.is_candidate):
            (place,) = np.flatnonzero(labels[i] == each.column)
            vote = votes[i, place] if place < votes.shape[1] else 0
            assert sum(part.contribution for part in each.features) + each.bias == pytest.approx(
                margins[i, place], abs=1e-5
            )
            assert sum(neighbor.share for neighbor in each.neighbors) == pytest.approx(vote, abs=1e-5)
            assert sum(part.contribution for part in each.cooccurrence) == pytest.approx(shares[i, place], abs=1e-5)
            n_checked += 1
    assert n_checked > 4 * N_TEST


def test_the_co_occurrence_of_a_row_is_read_once_however_many_words_it_has(logistic, X):
    class Counted(np.ndarray):
        reads = 0

        def __getitem__(self, key):
            Counted.reads += 1
            return np.asarray(self)[key]

    candidates = logistic.candidates_
    shares = candidates.cooccurrence.shares
    counted = CSR(shares.indptr, shares.indices.view(Counted), shares.data, shares.n_cols)
    counting = replace(candidates, cooccurrence=replace(candidates.cooccurrence, shares=counted))
    row = X.span(0, 1)
    assert row.nnz > 2
    found = _proposers(counting, unit_rows(damped_values(row), candidates.feature_weights, DEVICE), np.arange(120))
    assert sum(map(len, found)) > 2
    assert Counted.reads == 1


def test_the_similarity_of_a_neighbor_is_the_cosine_of_weighted_rows(logistic, parts):
    rows, train = (
        unit_rows(damped_values(part.X), logistic.candidates_.feature_weights, DEVICE).to_scipy()
        for part in (parts[1], parts[0])
    )
    cosines = (rows @ train.T).toarray()
    Y = parts[0].Y.to_scipy().toarray() != 0
    for i, row in enumerate(logistic.explain(parts[1].X)):
        for each in row:
            assert [n.similarity for n in each.neighbors] == pytest.approx([cosines[i, n.row] for n in each.neighbors])
            assert all(Y[n.row, each.column] for n in each.neighbors)


def test_a_weight_times_the_value_of_a_word_is_its_part_of_the_margin(logistic, X):
    weights = logistic.candidates_.linear.weights.to_scipy().toarray()
    values = unit_rows(damped_values(X), None, DEVICE).to_scipy().toarray()
    for i, row in enumerate(logistic.explain(X)):
        for each in (each for each in row if each.is_candidate):
            for feature, part in each.features:
                assert part == pytest.approx(weights[each.column, feature] * values[i, feature], abs=1e-6)


def test_a_label_that_is_no_candidate_is_scored_by_the_network_alone(logistic, boosted, X):
    row = X.span(0, 1)
    ranked, _ = logistic.predict_topk(row, 120)
    for model in (logistic, boosted):
        (found,) = model.explain(row, ranked[0])
        others = [each for each in found if not each.is_candidate]
        assert len(others) > 40
        assert {tuple(term.name for term in each.terms) for each in others} == {("network", "intercept")}
        assert not any(each.features or each.neighbors or each.cooccurrence for each in others)
        for each in others:
            assert sum(term.contribution for term in each.terms) == pytest.approx(each.score, abs=1e-5)


def test_a_word_of_a_network_contributes_its_value_times_the_derivative(network, X):
    row = X.span(3, 4).to_scipy()
    (found,) = network.explain(row, k=3)
    for each in found:
        assert sum(part.contribution for part in each.features) + each.bias == pytest.approx(each.score, abs=1e-5)
        for feature, part in each.features:
            near = np.repeat(row.toarray().astype(np.float64), 2, axis=0)
            near[:, feature] *= [1 + 1e-3, 1 - 1e-3]
            above, below = network.decision_function(near, labels=[each.column])[:, 0]
            assert part == pytest.approx((above - below) / 2e-3, abs=2e-3)


def parts_of_trees(logistic, boosted, rows):
    """Yield the explanations of candidates, and what the trees add to each of their terms."""
    for x in rows:
        (row,) = boosted.explain(x)
        (plain,) = logistic.explain(x, [each.column for each in row])
        by_column = {each.column: each for each in plain}
        for each in (each for each in row if each.is_candidate):
            terms = zip(each.terms, by_column[each.column].terms, strict=True)
            yield each, {one.name: one.contribution - two.contribution for one, two in terms}


def test_an_input_of_the_trees_that_is_as_in_a_row_without_features_contributes_nothing(logistic, boosted):
    empty = sp.csr_array((1, 300), dtype=np.float32)
    bias = boosted.candidates_.linear.bias
    (found,) = boosted.explain(empty, [0, 1])
    assert not any(each.is_candidate for each in found)
    rows = sp.csr_array(np.eye(300, dtype=np.float32))
    n_unvoted = 0
    for each, parts in parts_of_trees(logistic, boosted, [rows[[i]] for i in range(300)]):
        if not each.neighbors:
            assert parts[NEIGHBORS] == pytest.approx(0, abs=1e-9)
            n_unvoted += 1
        assert each.bias == bias[each.column]
    assert n_unvoted > 2


def test_trees_of_one_input_each_contribute_what_they_differ_from_a_row_without_features(logistic, boosted, X):
    trees = boosted.candidates_.stacking.trees
    depth_one = replace(trees, threshold=np.where(np.arange(trees.threshold.shape[1]) == 0, trees.threshold, np.inf))
    depth_one = replace(depth_one, threshold=depth_one.threshold.astype(np.float32))
    model = XMLClassifier(**QUICK, candidates=16)
    model.fitted_ = replace(logistic.fitted_, candidates=with_trees(logistic.candidates_, depth_one))
    leaves = trees.value[:, [0, trees.value.shape[1] // 2]].astype(np.float64)
    mine = trees.feature[:, 0] == 1
    assert mine.any()
    for each, parts in parts_of_trees(logistic, model, [X.span(i, i + 1) for i in range(X.n_rows)]):
        votes = sum(neighbor.share for neighbor in each.neighbors)
        right = votes > trees.threshold[mine, 0]
        expected = np.where(right, leaves[mine, 1] - leaves[mine, 0], 0).sum()
        assert parts[NEIGHBORS] == pytest.approx(expected, abs=1e-5)


def test_an_ensemble_explains_by_the_means_of_its_classifiers(parts, X):
    model = XMLEnsemble(XMLClassifier(**QUICK, candidates=16), 2, random_state=0).fit(parts[0].X, parts[0].Y)
    row = X.span(0, 1)
    scores = [each.score for each in model.explain(row, k=20)[0]]
    assert scores == sorted(scores, reverse=True)
    for each in model.explain(row)[0]:
        members = [member.explain(row, [each.column])[0][0] for member in model.estimators_]
        assert each.score == pytest.approx(model.decision_function(row)[0, each.column], abs=1e-5)
        assert sum(term.contribution for term in each.terms) == pytest.approx(each.score, abs=1e-5)
        assert each.bias == pytest.approx(np.mean([member.bias for member in members]))
        words = {part.feature for member in members for part in member.features}
        assert {part.feature for part in each.features} == words


def test_words_and_labels_have_names_where_the_model_has_them():
    texts = ["read a file", "write a file", "read json", "write json"] * 5
    model = XMLClassifier((8,), max_epochs=20, random_state=0, n_jobs=1).fit(texts, [[t.split()[0]] for t in texts])
    ((best,),) = model.explain(["read json"], k=1)
    assert best.label == "read"
    assert best.features[0].feature == "read"
    assert [term.name for term in best.terms] == [NETWORK]
    assert str(best).startswith("read  score ")
    assert "read +" in str(best).splitlines()[1]


def test_labels_may_be_asked_for_by_their_names_which_must_be_known():
    texts = ["read a file", "write a file"] * 5
    model = XMLClassifier((4,), max_epochs=1, random_state=0, n_jobs=1).fit(texts, [[t.split()[0]] for t in texts])
    by_name, by_column = (model.explain(texts[:2], labels) for labels in (["write", "read"], [1, 0]))
    assert [[each.label for each in row] for row in by_name] == [["write", "read"]] * 2
    assert by_name == by_column
    with pytest.raises(DataError, match="labels: must be of classes_, got 'open'"):
        model.explain(texts[:1], ["read", "open"])


def test_features_that_begin_or_end_with_a_space_are_shown_in_quotes():
    features = (FeaturePart(" fi", 0.5), FeaturePart("read file", 0.2), FeaturePart(7, 0.1))
    terms = tuple(Term(name, 1.0, 1.0, 1.0) for name in (LINEAR, COOCCURRENCE))
    shown = str(Explanation("a", 0, 2.0, terms, features, cooccurrence=features[:2])).splitlines()
    assert shown[1].endswith("+1.000  ' fi' +0.5, read file +0.2, 7 +0.1")
    assert shown[2].endswith("+1.000  ' fi' 0.5, read file 0.2")


def test_neighbors_are_shown_in_the_order_of_the_shares_beside_them():
    neighbors = (
        Neighbor(7, 0.9, 0.2),
        Neighbor(None, 0.8, 0.3),
        Neighbor(4, 0.7, 0.1),
    )  # a text weighs more than a row
    shown = str(Explanation("a", 0, 2.0, (Term(NEIGHBORS, 0.6, 1.0, 2.0),), neighbors=neighbors))
    assert shown.endswith("text of the label 0.3, row 7 0.2, row 4 0.1")


@pytest.mark.parametrize("form", ["as trained", "saved", "compact"])
def test_features_of_rows_of_numbers_have_the_words_that_were_given(parts, form, tmp_path):
    words = [f"word {i}" for i in range(300)]
    model = XMLClassifier(**QUICK, candidates=16).fit(parts[0].X, parts[0].Y, feature_names=words)
    if form != "as trained":
        model.save(tmp_path / "model", compact=form == "compact")
        model = XMLClassifier.load(tmp_path / "model")
    row = parts[1].X.span(0, 1)
    ((best,),) = model.explain(row, k=1)
    assert {part.feature for part in best.features} <= {words[i] for i in row.row(0)[0]}
    assert not hasattr(model, "feature_names_in_")


def test_words_of_fewer_features_are_refused_and_are_forgotten_where_features_are_added(parts):
    model = XMLClassifier((4,), max_epochs=1, random_state=0, n_jobs=1, candidates=0)
    with pytest.raises(ValueError, match="feature_names: must have a word for each of 300 features, got 2"):
        model.fit(parts[0].X, parts[0].Y, feature_names=["a", "b"])
    model.fit(parts[0].X, parts[0].Y, feature_names=[f"word {i}" for i in range(300)])
    X, Y = parts[1].X, parts[1].Y
    model.partial_fit(X, Y)
    assert isinstance(model.explain(X.span(0, 1), k=1)[0][0].features[0].feature, str)
    wider = CSR(X.indptr, X.indices, X.data, 301)
    model.partial_fit(wider, Y)
    assert isinstance(model.explain(wider.span(0, 1), k=1)[0][0].features[0].feature, int)


def test_an_ensemble_names_the_words_that_were_given(parts):
    words = [f"word {i}" for i in range(300)]
    model = XMLEnsemble(XMLClassifier((4,), max_epochs=1, random_state=0, n_jobs=1, candidates=0), 2)
    model.fit(parts[0].X, parts[0].Y, feature_names=words)
    assert model.explain(parts[1].X.span(0, 1), k=1)[0][0].features[0].feature in words


def test_words_without_names_are_numbers(network, X):
    ((best,),) = network.explain(X.span(0, 1), k=1)
    assert {part.feature for part in best.features} <= set(X.row(0)[0].tolist())
    assert best.label == best.column


def test_an_explanation_is_immutable_and_can_be_written_as_json(logistic, X):
    ((best,),) = logistic.explain(X.span(0, 1), k=1)
    with pytest.raises(AttributeError):
        best.score = 0
    found = json.loads(json.dumps(best.to_dict()))
    assert found["label"] == best.label
    assert found["terms"][0] == best.terms[0]._asdict()
    assert len(found["features"]) == len(best.features)
    assert len(str(best).splitlines()) == 6


def test_labels_that_are_asked_for_are_explained_in_their_order(logistic, X):
    asked = np.arange(110, -1, -10)
    scores = logistic.decision_function(X.span(0, 2), labels=asked)
    found = logistic.explain(X.span(0, 2), asked, k=3)
    assert [[each.column for each in row] for row in found] == [asked.tolist()] * 2
    np.testing.assert_array_equal(np.float32([[each.score for each in row] for row in found]), scores)


def test_neighbors_of_a_compact_model_of_one_feature_have_the_cosines_of_the_model(tmp_path):
    X = sp.csr_array(np.arange(1, 401, dtype=np.float32)[:, None])
    Y = sp.csr_array(np.eye(4, dtype=np.float32)[np.arange(400) % 4])
    model = XMLClassifier(**QUICK, candidates=4).fit(X, Y)
    model.save(tmp_path / "small", compact=True)
    ((explanation, *_),) = XMLClassifier.load(tmp_path / "small").explain(X[:1])
    assert explanation.neighbors
    assert [each.similarity for each in explanation.neighbors] == pytest.approx([1] * len(explanation.neighbors))


def test_numbers_of_neighbors_have_a_type_for_rows_not_for_labels(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("xmlsgd.data.csr.MAX_UINT16", 400)  # enough for 300 features and 120 labels, not for 1,500 rows
    XMLClassifier(**QUICK, candidates=16).fit(parts[0].X, parts[0].Y).save(tmp_path / "small", compact=True)
    small, votes, kinds = XMLClassifier.load(tmp_path / "small"), KNNIndex.votes, set()

    def watched(self, *given):
        kinds.add((self.Y.n_cols, self.Y.indices.dtype.type))
        return votes(self, *given)

    monkeypatch.setattr(KNNIndex, "votes", watched)
    small.explain(parts[1].X.span(0, 2))
    assert kinds == {(120, np.uint16), (1500, np.int32)}


def test_the_repr_of_an_explanation_is_short_and_print_shows_all(logistic, X):
    ((explanation, *_),) = logistic.explain(X.span(0, 1))
    assert repr(explanation).startswith("Explanation(label=")
    assert len(repr(explanation)) < 200
    assert "neighbors" in str(explanation)
