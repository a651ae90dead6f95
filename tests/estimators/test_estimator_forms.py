"""The forms of features and labels that the classifier takes, and in which it answers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MultiLabelBinarizer

from shared.planted import N_LABELS, small
from xmlsgd import CSR, DataError
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.metrics import precision_at_k


def test_label_lists_of_strings_keep_their_names(rows, held_out):
    X, Y = rows
    names = [f"topic {label:02d}" for label in range(N_LABELS)]
    lists = [[names[label] for label in row.indices] for row in Y]
    model = small().fit(X, lists)
    assert model.classes_.tolist() == names
    with pytest.raises(ValueError, match="read-only"):
        model.classes_[0] = "another"
    best, _ = model.predict_topk(held_out[0], 1)
    assert precision_at_k(held_out[1], best, 1)[0] > 0.95
    predicted = model.predict(held_out[0])
    assert sp.issparse(predicted)
    assert predicted.shape == held_out[1].shape


def test_labels_that_scikit_learn_reads_from_files_are_integers(tmp_path):
    (tmp_path / "rows.txt").write_text("1,3 1:1\n20 2:1\n 1:1\n")
    X, labels = load_svmlight_file(tmp_path / "rows.txt", multilabel=True)
    assert labels == [(1.0, 3.0), (20.0,), ()]
    assert small().fit(X, labels).classes_.tolist() == [1, 3, 20]


def test_label_lists_of_ints_are_names_not_columns():
    X = sp.csr_array(np.eye(4))
    model = small(max_epochs="auto").fit(X, [[1000], (7,), {7, 1000}, [-3]])
    assert model.classes_.tolist() == [-3, 7, 1000]
    assert model.predict(X).toarray().tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0]]


def test_indicators_of_all_kinds_give_the_same_model(rows):
    X, Y = rows
    ours = CSR.from_scipy(Y)
    forms = [Y, Y.toarray(), Y.tocsc(), ours, Y.toarray().astype(bool), Y.toarray().astype(object), sp.csr_matrix(Y)]
    first, *others = (small(max_epochs=2).fit(X, form).params_ for form in forms)
    for other in others:
        assert np.array_equal(first, other)


def test_zeros_stored_in_an_indicator_are_no_labels(rows):
    X, Y = rows
    with_zeros = (Y + sp.csr_array(np.ones(Y.shape, int))).tocsr()
    with_zeros.data -= 1
    assert with_zeros.nnz == Y.shape[0] * Y.shape[1]
    assert np.array_equal(small(max_epochs=1).fit(X, with_zeros).params_, small(max_epochs=1).fit(X, Y).params_)


def test_predict_answers_in_the_form_of_the_training_labels(rows):
    X, Y = rows
    sparse, dense = small().fit(X, Y).predict(X), small().fit(X, Y.toarray()).predict(X)
    assert sp.issparse(sparse)
    assert isinstance(dense, np.ndarray)
    assert np.array_equal(sparse.toarray(), dense)
    assert (dense == Y.toarray()).mean() > 0.99


def test_label_names_name_the_columns_of_an_indicator(rows):
    X, Y = rows
    model = small(max_epochs=1).fit(X, Y, label_names=[f"l{i}" for i in range(N_LABELS)])
    assert model.classes_[3] == "l3"
    with pytest.raises(DataError, match="Y: must have a column for each of the 3 named labels, got 40"):
        small().fit(X, Y, label_names=["a", "b", "c"])


@pytest.mark.parametrize(
    "names", [np.array(["x", "y", "z"]), np.array([10, -4, 7]), np.array([0.5, 2.0, 1.0])[[2, 1, 2]]]
)
def test_classes_are_predicted_by_name(names):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    X = np.eye(3)[y] + 0.1 * rng.normal(size=(200, 3))
    if names.dtype.kind == "f":
        names = np.array([1.0, 2.0, 3.0])
    model = small().fit(X, names[y])
    assert model.predict(X).tolist() == names[y].tolist()
    assert model.score(X, names[y]) == 1
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(200))


def test_features_of_all_kinds_give_the_same_model(rows):
    X, Y = rows
    shuffled = X.copy()
    for i in range(X.shape[0]):
        span = slice(X.indptr[i], X.indptr[i + 1])
        shuffled.indices[span], shuffled.data[span] = shuffled.indices[span][::-1], shuffled.data[span][::-1]
    shuffled.has_sorted_indices = False
    forms = [X, X.toarray(), X.tocsc(), CSR.from_scipy(X), sp.csr_matrix(X), shuffled, X.toarray(order="F")]
    first, *others = (small(max_epochs=2).fit(form, Y).params_ for form in forms)
    for other in others:
        assert np.array_equal(first, other)


def test_the_callers_matrices_stay_as_they_are(rows):
    X = sp.csr_matrix((np.ones(4), [2, 0, 1, 1], [0, 2, 4]), shape=(2, 3))
    Y = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), [1, 0, 1], [0, 2, 3]), shape=(2, 2))
    before = [a.copy() for m in (X, Y) for a in (m.data, m.indices, m.indptr)]
    small(max_epochs=1).fit(X, Y)
    for array, kept in zip([a for m in (X, Y) for a in (m.data, m.indices, m.indptr)], before, strict=True):
        assert np.array_equal(array, kept)


def test_mapped_rows_are_read_in_place(rows, tmp_path):
    X, Y = (CSR.from_scipy(matrix) for matrix in rows)
    mapped = []
    for name, part in (("X", X), ("Y", Y)):
        for field in ("indptr", "indices", "data"):
            np.save(tmp_path / f"{name}{field}.npy", getattr(part, field))
        indptr, indices, data = (
            np.load(tmp_path / f"{name}{field}.npy", mmap_mode="r") for field in ("indptr", "indices", "data")
        )
        mapped.append(CSR(indptr, indices, data, part.n_cols))
    model = small(max_epochs=2)
    assert model.estimate_memory(*mapped)["data"] == 0
    assert np.array_equal(model.fit(*mapped).params_, small(max_epochs=2).fit(X, Y).params_)


TEXTS = ["red apple fruit", "green apple fruit", "fast red car", "slow green car"] * 10
TAGS = [["fruit", "red"], ["fruit", "green"], ["car", "red"], ["car", "green"]] * 10


@pytest.mark.parametrize("as_sequence", [list, tuple, np.array], ids=["list", "tuple", "array"])
def test_texts_are_learned_as_they_are(as_sequence):
    model = small().fit(as_sequence(TEXTS), TAGS)
    best, _ = model.predict_topk(["an apple that is red"], 2)
    assert set(model.classes_[best[0]]) == {"fruit", "red"}
    assert model.vectorizer_.words == ["apple", "car", "fast", "fruit", "green", "red", "slow"]
    assert model.vectorizer is None
    assert model.fit(["a single pair of words"] * 8, [["x"]] * 8).vectorizer_.words[-1] == "words", "fit begins anew"


def test_a_vectorizer_is_copied_and_fitted_unless_it_has_words():
    fresh, fitted = TextVectorizer(min_df=11), TextVectorizer(min_df=1).fit([*TEXTS, "some word of its own"])
    assert small(vectorizer=fresh).fit(TEXTS, TAGS).vectorizer_.words == ["apple", "car", "fruit", "green", "red"]
    assert not fresh.is_fitted
    assert clone(small(vectorizer=fresh)).fit(TEXTS, TAGS).n_features_in_ == 5
    model = small(vectorizer=fitted).fit(fitted.transform(TEXTS), TAGS)
    assert model.vectorizer_.words == fitted.words
    assert model.classes_[model.predict_topk(["a fast car"], 1)[0]] == "car"
    with pytest.raises(
        DataError, match=r"a TextVectorizer or None \(put another one before the .* in a Pipeline\), got 'tfidf'"
    ):
        small(vectorizer="tfidf").fit(TEXTS, TAGS)


def test_a_model_keeps_its_words_whatever_becomes_of_the_vectorizer_that_was_given():
    given = TextVectorizer().fit(TEXTS)
    model = small(vectorizer=given).fit(TEXTS, TAGS)
    before = model.predict_topk(TEXTS, 1)[1]
    given.fit(["other words"])
    assert np.array_equal(model.predict_topk(TEXTS, 1)[1], before)


def test_rows_of_a_vectorizer_that_lacks_words_learned_since_are_refused_with_a_remedy():
    given = TextVectorizer().fit(TEXTS)
    model = small(vectorizer=given).fit(TEXTS, TAGS).partial_fit(["blue car"], [["car"]])
    assert model.predict_topk(model.vectorizer_.transform(TEXTS), 1)[0].shape == (len(TEXTS), 1)
    with pytest.raises(DataError, match=r"X has 7 features, .* 8 features as input; pass texts, or rows by vec"):
        model.predict_topk(given.transform(TEXTS), 1)


def test_a_matrix_of_label_texts_cannot_have_the_words_of_new_texts():
    model = small().fit(TEXTS, TAGS)
    label_features = model.vectorizer_.transform(model.classes_.tolist())
    with pytest.raises(DataError, match=r"\(4, 8\), labels by features, got \(4, 7\); words of new texts"):
        model.partial_fit(["blue car"], [["car"]], label_texts=label_features)


def test_a_pipeline_may_begin_with_a_vectorizer_and_be_cloned(tmp_path):
    steps = [("words", TextVectorizer(min_df=11)), ("model", small())]
    for pipeline in (Pipeline(steps), clone(Pipeline(steps)), Pipeline(steps, memory=str(tmp_path))):
        fitted = pipeline.fit(TEXTS, TAGS)
        assert fitted[0].words == ["apple", "car", "fruit", "green", "red"]
        best, _ = fitted[-1].predict_topk(fitted[:-1].transform(["a red apple"]), 2)
        assert set(fitted[-1].classes_[best[0]]) == {"fruit", "red"}


def test_texts_and_numbers_are_columns_of_one_pipeline():
    columns = ColumnTransformer([("text", TextVectorizer(), 0), ("number", MaxAbsScaler(), [1])])
    X = np.array([TEXTS, range(len(TEXTS))], dtype=object).T
    binary = MultiLabelBinarizer(sparse_output=True).fit_transform(TAGS)
    search = GridSearchCV(make_pipeline(columns, small()), {"columntransformer__text__max_features": [5]}, cv=2)
    search.fit(X, binary)
    best = pickle.loads(pickle.dumps(search.best_estimator_))
    words = best[0].get_feature_names_out().tolist()
    assert words == ["text__apple", "text__car", "text__fruit", "text__green", "text__red", "number__x1"]
    assert np.array_equal(best.predict(X).toarray(), search.predict(X).toarray())


def test_a_search_changes_options_of_the_vectorizer_of_a_classifier():
    binary = MultiLabelBinarizer(sparse_output=True).fit_transform(TAGS)
    search = GridSearchCV(small(vectorizer=TextVectorizer()), {"vectorizer__max_features": [3]}, cv=2)
    assert search.fit(TEXTS, binary).best_estimator_.n_features_in_ == 3


def test_the_clone_of_a_fitted_vectorizer_keeps_its_words():
    words = TextVectorizer().fit(TEXTS)
    assert clone(words).words == clone(small(vectorizer=words)).vectorizer.words == words.words


@pytest.mark.parametrize("nothing", [[None], np.array([None], dtype=object), [float("nan")] * 2])
def test_missing_texts_alone_are_told_from_a_matrix(nothing):
    with pytest.raises(DataError, match=r"^X: row 0: must be a text or numeric features, got .*; write '' where there"):
        small().fit(TEXTS, TAGS).predict_topk(nothing)


def test_a_model_of_rows_of_numbers_refuses_texts():
    model = small().fit(TEXTS, TAGS)
    model.fit(TextVectorizer().fit_transform(TEXTS), TAGS)
    with pytest.raises(DataError, match=r"X: must be rows as those that were learned, got texts; fit\(texts, y\)"):
        model.predict_topk(TEXTS)


def test_a_table_of_one_column_of_texts_is_its_column():
    texts, table = small().fit(TEXTS, TAGS), small().fit(np.array(TEXTS, dtype=object)[:, None], TAGS)
    assert table.vectorizer_.words == texts.vectorizer_.words
    for X in (np.array(TEXTS)[:, None], np.array(TEXTS, dtype=object)[:, None]):
        np.testing.assert_array_equal(table.predict_topk(X)[0], texts.predict_topk(TEXTS)[0])


def test_a_warm_start_keeps_the_words_and_partial_fit_adds_new_ones_behind():
    model = small(warm_start=True).fit(TEXTS, TAGS)
    words = model.vectorizer_.words
    more, tags = [*TEXTS, "blue car"], [*TAGS, ["blue"]]
    assert model.fit(more, tags).vectorizer_.words == words
    assert model.partial_fit(["blue car"] * 4, [["car"]] * 4).vectorizer_.words == [*words, "blue"]
    assert small().partial_fit(TEXTS, TAGS).vectorizer_.words == words


def test_parameters_are_searched_on_texts():
    binary = MultiLabelBinarizer(sparse_output=True).fit_transform(TAGS)
    search = GridSearchCV(small(max_epochs=3), {"vectorizer": [TextVectorizer(max_features=1), None]}, cv=2)
    assert search.fit(TEXTS, binary).best_params_ == {"vectorizer": None}
    assert search.best_estimator_.predict_topk(["red car"], 1)[0].shape == (1, 1)


@pytest.mark.parametrize("dtype", ["f2", ">f4", ">i8"])
def test_dense_input_of_types_that_scipy_does_not_know_is_taken(rows, dtype):
    X, Y = ((factor * matrix[:64]).toarray().astype(dtype) for factor, matrix in zip((100, 1), rows, strict=True))
    assert small(max_epochs=1).fit(X, Y).predict_topk(X, 1)[0].shape == (64, 1)
