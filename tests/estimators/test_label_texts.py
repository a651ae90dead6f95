"""Label texts: words of labels as evidence, for labels with and without training rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import TextVectorizer, XMLClassifier, XMLEnsemble
from xmlsgd.candidates.knn import LABEL_ROW_VOTES
from xmlsgd.data.csr import CSR
from xmlsgd.errors import DataError
from xmlsgd.estimators.held_out import folds_to_hold_out
from xmlsgd.estimators.initial_model import grown_start
from xmlsgd.estimators.training_data import GivenRows, read_training_data

N_ROWS, N_LABELS = 1200, 150
UNSEEN = 5  # the last labels have no row
NAMES = [f"word{2 * i} word{2 * i + 1}" for i in range(N_LABELS - UNSEEN)]
NAMES += [f"word{2 * i} word{2 * i + 3}" for i in range(UNSEEN)]
WORDS = [f"word{i}" for i in range(2 * N_LABELS)]
LABEL_ROWS = N_LABELS


@pytest.fixture(scope="module", autouse=True)
def few_folds() -> None:
    """Have as many folds as users have."""


def library() -> tuple[list[str], sp.csr_array]:
    """Return texts with one of the two words of their label, and an indicator; no row has the last labels."""
    random = np.random.default_rng(0)
    label = random.integers(N_LABELS - UNSEEN, size=N_ROWS)
    others = [f"other{i}" for i in range(40)]
    texts = [f"{random.choice(NAMES[each].split())} {' '.join(random.choice(others, 3))}" for each in label]
    Y = sp.csr_array((np.ones(N_ROWS, np.float32), (np.arange(N_ROWS), label)), shape=(N_ROWS, N_LABELS))
    return texts, Y


def classifier(**parameters: object) -> XMLClassifier:
    settings = {"candidates": 16, "max_epochs": 4, "n_jobs": 1, "random_state": 0, "learning_rate_init": 0.03}
    return XMLClassifier((16,), **({"vectorizer": TextVectorizer()} | settings | parameters))


@pytest.fixture(scope="module")
def taught() -> XMLClassifier:
    """Return a classifier that was given label texts."""
    texts, Y = library()
    return classifier().fit(texts, Y, label_texts=NAMES)


def rank_of_unseen(model: XMLClassifier) -> list[bool]:
    """Return whether each label without rows is among the best five of the text that names it."""
    unseen = np.arange(N_LABELS - UNSEEN, N_LABELS)
    best, _ = model.predict_topk([NAMES[label] for label in unseen], k=5)
    return (best == unseen[:, None]).any(axis=1).tolist()


def test_a_label_without_training_rows_is_found_by_its_text(taught):
    assert all(rank_of_unseen(taught))


@pytest.mark.parametrize("make", [classifier, lambda: XMLEnsemble(classifier(), 2)], ids=["classifier", "ensemble"])
def test_a_label_is_found_by_a_word_that_only_its_text_has(make):
    texts, Y = library()
    model = make().fit(texts, Y, label_texts=[*NAMES[:-1], "unheard-of"])
    best, _ = model.predict_topk(["unheard"], k=3)
    assert N_LABELS - 1 in best[0]


def test_label_texts_count_beside_rows_with_weights(taught):
    texts, Y = library()
    model = classifier().fit(texts, Y, sample_weight=np.ones(N_ROWS), label_texts=NAMES)
    assert np.array_equal(model.predict_topk(NAMES)[0], taught.predict_topk(NAMES)[0])


def test_without_texts_a_label_without_training_rows_is_not_found():
    texts, Y = library()
    assert not any(rank_of_unseen(classifier().fit(texts, Y)))


def test_label_rows_are_not_counted(taught):
    _, Y = library()
    assert taught.n_samples_seen_ == N_ROWS
    assert taught.label_counts_.tolist() == np.asarray(Y.sum(axis=0)).astype(int).tolist()
    assert taught.candidates_.knn.Y.n_rows == N_ROWS + LABEL_ROWS


def test_the_plan_says_that_label_texts_were_used(taught):
    assert taught.plan_.to_dict()["label_rows"]["value"] == LABEL_ROWS


def test_only_rows_that_were_given_are_held_out():
    texts, Y = library()
    given = classifier()
    data = read_training_data(given, GivenRows(texts, Y, label_texts=NAMES))
    plan = classifier().plan(texts, Y)
    assert data.all_rows.n_rows == N_ROWS + LABEL_ROWS
    for weight in (None, np.ones(data.all_rows.n_rows, np.float32)):
        folds = folds_to_hold_out(replace(data, weight=weight), plan.held_out_size, plan.n_folds, 0)
        assert len(folds) == plan.n_folds > 1
        assert np.concatenate(folds).max() < N_ROWS


def test_rows_of_numbers_with_feature_names_are_learned_as_texts(taught):
    texts, Y = library()
    X = taught.vectorizer_.transform(texts)
    model = classifier().fit(X, Y, label_texts=NAMES, feature_names=taught.vectorizer_.words)
    assert np.array_equal(model.predict_topk(X)[0], taught.predict_topk(texts)[0])


def test_a_matrix_of_label_features_is_learned_as_texts(taught):
    texts, Y = library()
    X, P = taught.vectorizer_.transform(texts), taught.vectorizer_.transform(NAMES)
    for matrix in (P, CSR.from_scipy(P), P.toarray()):
        model = classifier().fit(X, Y, label_texts=matrix)
        assert np.array_equal(model.predict_topk(X)[0], taught.predict_topk(texts)[0])


def test_texts_by_label_bring_labels_that_no_list_has():
    texts, Y = library()
    lists = [[NAMES[label]] for label in Y.indices]
    model = classifier().fit(texts, lists, label_texts={name: name for name in NAMES})
    new = sorted(NAMES[N_LABELS - UNSEEN :])
    assert model.classes_[-UNSEEN:].tolist() == new
    best, _ = model.predict_topk(new, k=5)
    assert [name in model.classes_[labels] for name, labels in zip(new, best, strict=True)] == [True] * UNSEEN


def test_labels_may_have_no_text():
    texts, Y = library()
    model = classifier().fit(texts, Y, label_texts=[None, "", "?", *NAMES[3:]])
    assert model.plan_.to_dict()["label_rows"]["value"] == LABEL_ROWS - 3


def test_every_classifier_of_an_ensemble_learns_label_texts():
    texts, Y = library()
    model = XMLEnsemble(classifier(), 2).fit(texts, Y, label_texts=NAMES)
    assert all(each.candidates_.knn.Y.n_rows == N_ROWS + LABEL_ROWS for each in model.estimators_)


def test_partial_fit_learns_a_new_label_by_its_text():
    texts, Y = library()
    lists = [[NAMES[label]] for label in Y.indices]
    model = classifier().fit(texts, lists)
    new = NAMES[-1]
    model.partial_fit(texts[:20], lists[:20], label_texts={new: new})
    assert model.n_samples_seen_ == N_ROWS + 20
    assert new in model.classes_[model.predict_topk([new], k=5)[0][0]]
    assert model.candidates_.knn.weight[N_ROWS:].tolist() == [1] * 20 + [LABEL_ROW_VOTES]


@pytest.mark.parametrize("candidates", [16, 0])
def test_later_rows_lower_no_bias_that_a_label_text_has_taught(candidates):
    texts, Y = library()
    model = classifier(candidates=candidates).fit(texts, Y, label_texts=[*NAMES[:-1], None])
    fitted, given = model.fitted_, N_LABELS - UNSEEN  # a label that later rows have
    later = CSR.from_scipy(sp.csr_array((np.ones(3), ([0, 1, 2], [given] * 3)), shape=(9, N_LABELS), dtype=np.float32))
    start = grown_start(fitted, model.plan_, later)
    old, new = (fitted.network.layout.views(params)["b1"] for params in (fitted.params, start.params))
    assert np.array_equal(new[:given], old[:given])
    assert new[given] == fitted.network.biases_of(np.full(1, 3), N_ROWS + 9) > old[given]
    assert np.array_equal(new[given + 1 : -1], old[given + 1 : -1])
    assert new[-1] == fitted.network.biases_of(np.zeros(1), N_ROWS + 9)  # it had no text


def test_a_saved_model_answers_with_label_texts_as_before(taught, tmp_path):
    texts, _ = library()
    taught.save(tmp_path / "model")
    model = XMLClassifier.load(tmp_path / "model")
    assert np.array_equal(model.predict_topk(texts)[0], taught.predict_topk(texts)[0])


def test_a_checkpoint_is_of_a_run_with_the_same_label_texts(tmp_path):
    from xmlsgd.training.checkpoints import checksum_of_rows

    texts, Y = library()
    given = classifier()
    sums = {
        checksum_of_rows(read_training_data(given, GivenRows(texts, Y, label_texts=each)).all_rows)
        for each in (None, NAMES, NAMES[::-1])
    }
    assert len(sums) == 3


@pytest.mark.parametrize(
    ("label_texts", "feature_names", "message"),
    [
        (NAMES[:-1], WORDS, r"a text for each of 150 labels, got 149"),
        ({"x": "y"}, WORDS, r"must name labels of Y, got 'x'"),
        (NAMES, None, r"pass feature_names"),
        (NAMES, WORDS[1:], r"a word for each of 300 features, got 299"),
        (NAMES, [*WORDS[:-1], WORDS[0]], r"must differ, got 'word0' twice"),
        ([1] * N_LABELS, WORDS, r"label 0: must be a string or None, got 1"),
        ("word1", WORDS, r"must be a list, a dictionary or a matrix"),
        (np.zeros((N_LABELS, 3)), None, r"must have shape \(150, 300\), labels by features, got \(150, 3\)"),
        (np.full((N_LABELS, 2 * N_LABELS), np.nan), None, r"label_texts: .*finite"),
    ],
)
def test_label_texts_that_do_not_fit_are_refused(label_texts, feature_names, message):
    _, Y = library()
    X = sp.csr_array(np.ones((N_ROWS, len(WORDS)), np.float32))
    with pytest.raises(DataError, match=message):
        classifier().fit(X, Y, label_texts=label_texts, feature_names=feature_names)


@pytest.mark.parametrize("compact", [False, True])
def test_an_explanation_tells_the_text_of_a_label_from_rows(taught, tmp_path, compact):
    taught.save(tmp_path / "model", compact=compact)
    for model in (taught, XMLClassifier.load(tmp_path / "model")):
        ((found,),) = model.explain([NAMES[-1]], labels=[N_LABELS - 1])
        assert [each.row for each in found.neighbors] == [None]  # it has no other row
        assert "text of the label" in str(found)
        assert found.to_dict()["neighbors"][0]["row"] is None
        ((found,),) = model.explain([NAMES[0]], labels=[0])
        rows = [each.row for each in found.neighbors]
        assert None in rows
        assert all(row is None or 0 <= row < N_ROWS for row in rows)


def test_rows_that_are_added_behind_label_rows_are_numbered_after_the_rows(taught, tmp_path):
    taught.save(tmp_path / "model")
    model = XMLClassifier.load(tmp_path / "model")
    model.partial_fit(["word0 other1", "word0 other2"], [[0], [0]], label_texts=NAMES)
    ((found,),) = model.explain(["word0 other2"], labels=[0])
    assert found.neighbors[0].row == N_ROWS + 1
    assert len(model.candidates_.label_rows) >= LABEL_ROWS
    assert model.candidates_.label_rows.max() < model.candidates_.knn.Y.n_rows


def test_the_text_of_a_label_is_one_neighbor_however_often_it_was_learned(taught, tmp_path):
    """An ensemble's mean would add the similarities of two."""
    taught.save(tmp_path / "model")
    model = XMLClassifier.load(tmp_path / "model")
    model.partial_fit(["word0 other1"], [[0]], label_texts=NAMES)
    ensemble = XMLEnsemble(n_estimators=2)
    ensemble._set_members([model, model])
    for each in (model, ensemble):
        ((found,),) = each.explain([NAMES[-1]], labels=[N_LABELS - 1])
        (text,) = found.neighbors
        assert text.row is None
        assert text.similarity == pytest.approx(1, abs=1e-5)
        votes = next(term for term in found.terms if term.name == "neighbors")
        assert np.log(text.share) == pytest.approx(votes.value, abs=1e-4)


def test_a_series_or_a_table_of_texts_is_not_read_by_position():
    pandas = pytest.importorskip("pandas")
    texts, Y = library()
    by_label = pandas.Series(NAMES, index=np.arange(N_LABELS)[::-1])
    with pytest.raises(DataError, match=r"label_texts: is read by position, .* pass series.to_dict\(\)"):
        XMLClassifier(max_epochs=1).fit(texts, Y, label_texts=by_label)
    with pytest.raises(DataError, match=r"label_texts: must be texts by label, got a table .*; pass \{label: text\}"):
        XMLClassifier(max_epochs=1).fit(texts, Y, label_texts=by_label.to_frame())


def test_names_of_features_may_come_one_by_one_or_from_an_earlier_call():
    X = sp.csr_array(sp.random_array((600, 60), density=0.1, rng=np.random.default_rng(0), dtype=np.float32))
    Y = sp.csr_array(np.eye(61, dtype=np.float32)[np.arange(600) % 60])
    model = XMLClassifier((8,), max_epochs=1, random_state=0, n_jobs=1)
    with pytest.raises(DataError, match="feature_names: must have a word for each of 60 features, got 5"):
        model.fit(X, Y, feature_names=5)
    words = [f"word{i}" for i in range(60)]
    texts = {60: "word7"}
    first, second = (
        model.fit(X, Y, feature_names=names, label_texts=texts).params_.copy() for names in (words, iter(words))
    )
    np.testing.assert_array_equal(first, second)
    model.partial_fit(X, Y, label_texts={3: "word4"})
