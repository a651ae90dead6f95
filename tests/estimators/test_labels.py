"""Names of labels keep their type and value; what is no label, no matrix and no parameter is refused in one line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from xmlsgd import CSR, DataError, DivergenceError, MemoryEstimateError, XMLClassifier
from xmlsgd.estimators.targets import read_labels

N = 20
X = sp.csr_array(np.random.default_rng(0).random((N, 4)).astype(np.float32))
Y = sp.csr_array(np.tile(np.eye(4, dtype=int), (N // 4, 1)))
BIG = 2**53 + 1  # the first integer that a float64 cannot hold


def quick(**parameters):
    """Return a classifier that learns little and fast."""
    return XMLClassifier(**{"hidden_layer_sizes": (8,), "max_epochs": 1, "random_state": 0, "n_jobs": 1, **parameters})


class Ragged:
    """Like a pandas GroupBy: iterated, it gives pairs whose parts differ in length."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return [i, list(range(i + 2))][: 3 - i] if i < 2 else [][i]


def halves(first, second):
    """Return N labels, the one and the other in turn."""
    return [first, second] * (N // 2)


def refused(call, *arguments, **named):
    """Return the one line with which a call is refused."""
    with pytest.raises(DataError) as caught:
        call(*arguments, **named)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 250
    return text


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (halves([BIG], [BIG + 1]), [BIG, BIG + 1]),
        (halves([2**63], [1]), [1, 2**63]),
        (halves(2**63 + 1, 1), [1, 2**63 + 1]),
        (np.array(halves(BIG, 3), dtype=object), [3, BIG]),
        (np.array(halves(2**64 - 1, 3), dtype=np.uint64), [3, 2**64 - 1]),
        (halves(["7"], ["8"]), ["7", "8"]),
        (halves("7", "8"), ["7", "8"]),
        (np.array(halves("pear", "fig"), dtype=object), ["fig", "pear"]),
        (np.array(halves(True, False)), [False, True]),
        (np.array(halves(2.0, 5.0), dtype=np.float32), [2.0, 5.0]),
        (np.array(halves(2, 5), dtype=np.int8), [2, 5]),
    ],
)
def test_labels_come_back_with_their_type_and_value_also_from_disk(tmp_path, labels, classes):
    model = quick().fit(X, labels)
    model.save(tmp_path / "model")
    for known in (model.classes_, XMLClassifier.load(tmp_path / "model").classes_):
        assert known.tolist() == classes
        assert {type(label) for label in known.tolist()} == {type(label) for label in classes}
        assert not isinstance(labels, np.ndarray) or labels.dtype == object or known.dtype == labels.dtype


def test_large_integers_that_come_later_stay_exact():
    model = quick().partial_fit(X, halves([BIG], [1])).partial_fit(X, halves([BIG + 2], [2**63 + 1]))
    assert model.classes_.tolist() == [1, BIG, BIG + 2, 2**63 + 1]
    one_class = quick().partial_fit(X, np.array(halves(BIG, 1)))
    one_class.partial_fit(X, np.array(halves(BIG + 1, 2**63 + 1), dtype=np.uint64))
    assert one_class.classes_.tolist() == [1, BIG, BIG + 1, 2**63 + 1]


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        (halves(["a"], ["b"]), halves([1], [2]), "Y: labels must be strings, as 'a' seen before, got 1"),
        (halves(1, 2), halves("a", "b"), "Y: labels must be integers, as 1 seen before, got 'a'"),
        (halves("a", "b"), halves(1, 2), "Y: labels must be strings, as 'a' seen before, got 1"),
        (Y, halves(["a"], ["b"]), "Y: labels must be integers, as 0 seen before, got 'a'"),
        (halves(1, 2), halves(2.0, 7.0), "Y: labels must be all of one type, got 1 and 7.0; strings suit all"),
    ],
)
def test_labels_of_another_type_are_never_mixed_in(first, later, message):
    model = quick().partial_fit(X, first)
    before = model.classes_.tolist(), model.params_.copy()
    assert refused(model.partial_fit, X, later) == message
    assert model.classes_.tolist() == before[0]
    assert np.array_equal(model.params_, before[1])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (halves([2**64], [1]), "Y: integer labels must fit 64 bits, got 1 to 18446744073709551616; pass strings"),
        (halves(2**63, -1), "Y: integer labels must fit 64 bits, got -1 to 9223372036854775808; pass strings"),
        (halves(1, "a"), "Y: row 1: labels must be all of one type, got 1 and 'a'; strings suit all"),
        (halves(1, 2.5), "Y: row 1: labels must be all of one type, got 1 and 2.5; strings suit all"),
        ([["a"], ["b"], [1], *[[2]] * (N - 3)], "Y: row 2: labels must be all of one type, got 'a' and 1; strings"),
        (np.array(halves("a", None), dtype=object), "Y: row 1: a label is missing, got None; leave such rows out"),
        (halves("a", float("nan")), "Y: row 1: a label is missing, got nan; leave such rows out"),
        (halves(1.0, float("nan")), "Y: row 1: a label is missing, got nan; leave such rows out"),
        (np.array(halves(1.0, np.nan)), "Y: row 1: Input y contains NaN"),
        (np.array([[0, 1], [np.nan, 1], *[[1, 0]] * (N - 2)]), "Y: row 1: Input y contains NaN; leave rows"),
        (halves(["a"], None), "Y: row 1: must be a list of labels, got None; [] is none"),
        (np.array(halves({}, {}), dtype=object), "Y: a label must be an integer or a string, got {}"),
        ([[1], 3, *[None] * (N - 2)], "Y: row 1: must be a list of labels, got 3"),
        (np.array([[0, 1], 3, *[None] * (N - 2)], dtype=object), "Y: row 1: must be a list of labels, got 3"),
        ([3, [1], *[[2]] * (N - 2)], "Y: row 0: must be a list of labels, got 3"),
        (halves([3, -1], [1, 2]), "Y: row 0: a label in a list must not be '' or -1, got -1; leave it out"),
        (halves(["a"], [""]), "Y: row 1: a label in a list must not be '' or -1, got ''; leave it out"),
        (halves([True], [1, 2]), "Y: row 0: a label must be an int or a string, got True"),
        (halves(["\ud800"], ["b"]), r"Y: a label must be text that UTF-8 can hold, got '\ud800'"),
        (halves("\ud800", "b"), r"Y: a label must be text that UTF-8 can hold, got '\ud800'"),
        (np.array(halves(1j, 2)), "Y: must hold real numbers, got complex128"),
        (np.array(halves("2020", "2021"), "datetime64[Y]"), "Y: must hold real numbers, got datetime64[Y]"),
        (np.array(halves(b"a", b"b")), "Y: classes must be numbers or strings, got |S1"),
        (np.ma.masked_array(halves(0, 1), mask=halves(0, 1)), "Y: masked arrays are not supported"),
        (Y.toarray().view(np.matrix), "Y: np.matrix is not supported"),
        (np.ones((N, 2, 2)), "Y: must have 1 or 2 dimensions, got shape (20, 2, 2)"),
        ({"a": 1}, "Y: must be a matrix, label lists or one class a row, got {'a': 1}"),
        ("abc", "Y: must be a matrix, label lists or one class a row, got 'abc'"),
        (7, "Y: must be a matrix, label lists or one class a row, got 7"),
        (Ragged(), "Y: must be a matrix, label lists or one class a row, got <"),
        (5 * Y, "Y: row 0: an indicator must hold 0 and 1, got 5 in column 0; pass Y != 0 to drop the values"),
        (0.5 * Y, "Y: row 0: an indicator must hold 0 and 1, got 0.5 in column 0"),
        (CSR.from_scipy(-1 * Y), "Y: row 0: an indicator must hold 0 and 1, got -1 in column 0"),
        (1j * Y, "Y: must hold real numbers, got complex128"),
    ],
)
def test_what_is_no_label_is_refused(labels, message):
    assert refused(quick().fit, X, labels).startswith(message)


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (["a,b", "a", "c", "b, c"], ","),
        (["fruit;red", "red", "fruit", "blue;red"], ";"),
        (["a|b", "b|a"], "|"),
        (["art; history; maps", "maps", "atlases; sea charts", "trade; wine"], "; "),
    ],
)
@pytest.mark.parametrize("form", [str, lambda label: [label]])
def test_labels_joined_in_one_string_are_told_from_classes(labels, separator, form):
    labels = (labels * N)[:N]
    with pytest.warns(UserWarning, match=rf"is one label, .* pass lists of them, as by text.split\('\{separator}'\)"):
        model = quick().fit(X, [form(label) for label in labels])
    assert set(model.classes_) == set(labels)


@pytest.mark.parametrize(
    "labels",
    [
        ["Smith, John", "Doe, Jane", "Smith, Jane", "John, Elton"],
        ["Art, French", "Art, Modern", "Art", "France -- History, Military"],
        ["Paris, France", "Lyon, France", "France", "Berlin, Germany", "Germany"],
        ["a,b", "c,d", "e", "f"],
        ["shoes|boots", "shoes|sandals", "shoes", "books|crime"],
    ],
)
def test_names_with_commas_are_taken_for_names(labels, recwarn):
    assert set(quick().fit(X, (labels * N)[:N]).classes_) == set(labels)
    assert not [each for each in recwarn if "is one label" in str(each.message)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("abcd", "label_names: must be a list of label names, got 'abcd'"),
        (4, "label_names: must be a list of label names, got 4"),
        (["a", 1, 2, 3], "label_names: labels must be all of one type, got 'a' and 1"),
        ([None] * 4, "label_names: a label must be an integer or a string, got None"),
        (np.eye(2), "label_names: must be a list of label names, got an array of shape (2, 2)"),
    ],
)
def test_what_is_no_list_of_names_is_refused(names, message):
    assert refused(quick().fit, X, Y, label_names=names).startswith(message)


@pytest.mark.parametrize("names", [np.array(["a", "a", "b"], dtype=object), np.array([1, 1, 2])])
def test_a_label_that_names_two_columns_is_refused_and_others_are_learned(names):
    label, _, other = names.tolist()
    labels = read_labels([[other], []], names)
    assert labels.Y.to_scipy().toarray().tolist() == [[0, 0, 1], [0, 0, 0]]
    message = f"Y: a label must name one column, got {label!r}, which names 2; pass an indicator matrix"
    for Y in ([[other], [label]], [other, label]):
        assert refused(read_labels, Y, names) == message


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([1, 3], "classes: must hold every label of Y, got 2 in Y; add it, or leave classes out"),
        ([], "classes: must hold every label of Y, got 1 in Y; add it, or leave classes out"),
        ([1, 2, 2], "classes: must hold every label once, got 2 twice"),
        (["1", "2"], "Y: labels must be strings, as '1' seen before, got 1"),
        (5, "classes: must be a list of label names, got 5"),
        ("12", "classes: must be a list of label names, got '12'"),
        ([[1], 2], "classes: a label must be an integer or a string, got [1]"),
    ],
)
def test_declared_classes_are_enforced(classes, message):
    model = quick()
    assert refused(model.partial_fit, X, halves(1, 2), classes=classes) == message
    assert not hasattr(model, "n_features_in_")


def test_later_classes_may_add_labels_but_drop_none():
    model = quick().partial_fit(X, halves(1, 2), classes=[1, 2])
    message = refused(model.partial_fit, X, halves(2, 3), classes=[2, 3])
    assert message == "classes: must hold every label seen before, got none that is 1"
    message = refused(model.partial_fit, X, halves(2, 3), classes=[1, 2])
    assert message == "classes: must hold every label of Y, got 3 in Y; add it, or leave classes out"
    assert model.partial_fit(X, halves(2, 3), classes=[4, 1, 2, 3]).classes_.tolist() == [1, 2, 4, 3]


def test_declared_classes_name_the_columns_of_a_matrix_in_their_order():
    assert quick().partial_fit(X, Y, classes=["d", "b", "c", "a"]).classes_.tolist() == ["d", "b", "c", "a"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"a": 1}, "X: must be a dense or sparse matrix of numbers, got {'a': 1}"),
        (None, "X: must be a dense or sparse matrix of numbers, got None"),
        (5, "X: must be a dense or sparse matrix of numbers, got 5"),
        (X.toarray().view(np.matrix), "X: np.matrix is not supported, got one; pass np.asarray of it"),
        (np.ma.masked_array(X.toarray(), mask=X.toarray() > 0.5), "X: masked arrays are not supported"),
        (1j * X.toarray(), "X: must hold real numbers, got complex64; Complex data not supported"),
        (1j * X, "X: must hold real numbers, got complex64; Complex data not supported"),
        (np.full((N, 4), "2020", "datetime64[Y]"), "X: must hold real numbers, got datetime64[Y]"),
        (np.ones(N), "X: Expected 2D array, got shape (20,). Reshape your data"),
        ([3, *["a text"] * (N - 1)], "X: row 0: must be a text, as others are, got 3; str() makes it one"),
        (np.ones((N, 4, 1)), "X: Found array with dim 3"),
        (np.full((N, 4), object()), "X: float() argument must be a string or a real number"),
        ([[1, 2], [3]], "X: setting an array element with a sequence."),
        (
            CSR(np.array([0, 1]), np.array([2], np.int32), np.array([np.nan], np.float32), 4),
            "X: values must be finite, got nan in row 0",
        ),
        (CSR(np.array([0, 2]), np.array([2, 1], np.int32), np.ones(2, np.float32), 4), "X: indices: must rise"),
        (CSR([0, 1], [2], [1.0], 4), "X: must be of three 1-D arrays, got [0, 1], [2]"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused_by_fit_and_predict(bad, message):
    assert refused(quick().fit, bad, Y).startswith(message)
    assert refused(quick().fit(X, Y).predict, bad).startswith(message)


def test_a_flaw_of_our_rows_is_found_in_every_block(monkeypatch):
    monkeypatch.setattr("xmlsgd.data.csr.CHECKED_ENTRIES", 3)
    sound = CSR.from_scipy(X)
    quick().fit(sound, Y)
    for at in range(1, sound.nnz):
        data, indices = sound.data.copy(), sound.indices.copy()
        data[at] = np.inf
        row = at // 4
        text = refused(quick().fit, CSR(sound.indptr, indices, data, 4), Y)
        assert text == f"X: values must be finite, got inf in row {row}"
        if at % 4:
            indices[at] = indices[at - 1]
            text = refused(quick().fit, CSR(sound.indptr, indices, sound.data, 4), Y)
            assert text == f"X: indices: must rise within a row, but row {row} does not"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({0: -1}, "class_weight: a weight must be a finite number of at least 0, got -1 for 0"),
        ({0: np.nan}, "class_weight: a weight must be a finite number of at least 0, got nan for 0"),
        ({1: np.inf}, "class_weight: a weight must be a finite number of at least 0, got inf for 1"),
        ({0: "x"}, "class_weight: a weight must be a finite number of at least 0, got 'x' for 0"),
        ({0: 0, 1: 0}, "class_weight: must leave rows of a weight above 0, got none"),
        ({0: 1e38}, "class_weight: weights of rows must be 0 or 1e-20 to 1e+09, got 1e+38 in row 0; scale them"),
        ({2: 1}, "class_weight: must name classes of Y, got 2"),
    ],
)
def test_a_class_weight_out_of_range_is_refused(weights, message):
    assert refused(quick(class_weight=weights).fit, X, halves(0, 1)).startswith(message)


def test_rows_of_a_class_of_weight_zero_are_not_learned():
    wrong = np.repeat([0, 1, 2], [N // 2, N // 2, N])
    both = sp.vstack([X, X]).tocsr()
    model = quick(class_weight={2: 0}, max_epochs=200).fit(both, wrong)
    assert model.predict_proba(X)[:, 2].max() < 0.5
    assert set(model.predict(X)) <= {0, 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": "x"}, "threshold: must be a probability in [0, 1], 'micro' or 'macro', got 'x'"),
        ({"threshold": np.nan}, "threshold: must be a probability in [0, 1], 'micro' or 'macro', got nan"),
    ],
)
def test_a_strange_threshold_is_refused(arguments, message):
    assert refused(quick().fit(X, Y).predict_topk, X, **arguments) == message


@pytest.mark.parametrize("callbacks", [3, [3]])
def test_what_is_no_callback_is_refused(callbacks):
    assert refused(quick().fit, X, Y, callbacks=callbacks) == "callbacks: must be a list of Callback objects, got 3"


FORM = "Y: must have the form of the training labels"


@pytest.mark.parametrize(
    ("learned", "given", "message"),
    [
        (Y, Y[:, :3], "Y: must have a column for each of the 4 labels named or seen before, got 3"),
        (Y, sp.hstack([Y, Y]).tocsr(), "Y: must have the 4 columns of the model, got 8"),
        (Y, halves(0, 1), f"{FORM}, label lists or an indicator matrix, got one class a row"),
        (halves(0, 1), Y, f"{FORM}, one class a row, got label lists or an indicator matrix"),
        (halves(0, 1), halves("0", "1"), "Y: labels must be integers, as 0 seen before, got '0'"),
        (halves(["a"], ["b"]), halves([1], [2]), "Y: labels must be strings, as 'a' seen before, got 1"),
        (Y, None, "Y: must be a matrix, label lists or one class a row, got None"),
    ],
)
def test_a_score_against_other_labels_is_refused(learned, given, message):
    assert refused(quick().fit(X, learned).score, X, given) == message


def test_a_score_counts_unknown_labels_as_missed():
    assert quick().fit(X, halves(["a"], ["b"])).score(X, [["z"]] * N) == 0


@pytest.mark.parametrize("warm", [False, True])
def test_a_diverged_refit_leaves_the_earlier_model(warm):
    model = quick(warm_start=warm).fit(X, Y)
    before = dict(vars(model)), model.params_.copy(), model.predict_topk(X)[1]
    wider = sp.hstack([X, X]).tocsr()
    for rows in (X, wider):
        with pytest.raises(DivergenceError):
            model.set_params(learning_rate_init=1e38).fit(1e4 * rows, Y)
        model.set_params(learning_rate_init="auto")
        assert vars(model).keys() == before[0].keys()
        assert np.array_equal(model.params_, before[1])
        assert np.array_equal(model.predict_topk(X)[1], before[2])
    assert (model.n_epochs_, model.n_features_in_, len(model.history_)) == (1, 4, 1)


def test_a_diverged_first_fit_leaves_an_unfitted_model():
    for learn in (quick(learning_rate_init=1e38).fit, quick(learning_rate_init=1e38).partial_fit):
        with pytest.raises(DivergenceError):
            learn(1e4 * X, Y)
        assert [name for name in vars(learn.__self__) if name.endswith("_")] == []


def test_a_diverged_partial_fit_that_grew_leaves_the_earlier_model():
    model = quick().partial_fit(X, halves(["a"], ["b"]))
    before, params = model.fitted_, model.params_.copy()
    with pytest.raises(DivergenceError):
        model.set_params(learning_rate_init=1e38).partial_fit(1e4 * sp.hstack([X, X]).tocsr(), halves(["c"], ["b"]))
    assert model.classes_.tolist() == ["a", "b"]
    assert model.fitted_ is before
    assert model.n_features_in_ == 4
    assert np.array_equal(model.params_, params)


def test_a_huge_label_number_is_refused_before_memory_is_taken():
    wide = sp.csr_array((np.ones(1, np.float32), np.array([2_000_000_000]), [0, 1]), shape=(1, 2_000_000_001))
    with pytest.raises(MemoryEstimateError, match=r"parameters .* names 16\.0 GB"):
        quick(hidden_layer_sizes=(4096,)).fit(X[:1], wide)


@pytest.mark.parametrize("Y", [[["caf\u00e9"], ["cafe\u0301"]], ["caf\u00e9", "cafe\u0301"]])
def test_a_label_that_files_would_write_otherwise_is_warned_of_and_kept(Y):
    with pytest.warns(UserWarning, match=r"the label 'cafe\\u0301' is decomposed Unicode"):
        names = read_labels(Y).classes
    assert list(names) == ["cafe\u0301", "caf\u00e9"]
    assert len(recorded_by(lambda: read_labels(Y, names))) == 0


@pytest.mark.parametrize("Y", [[["a ", "b"], ["a"]], ["a ", "b", "a"]])
def test_spaces_at_the_ends_of_a_name_are_warned_of_and_kept(Y):
    with pytest.warns(UserWarning, match="1 of 3 labels begin or end with a space, such as 'a '; .*pass label.strip"):
        assert list(read_labels(Y).classes) == ["a", "a ", "b"]


def test_spaces_in_declared_classes_are_warned_of():
    with pytest.warns(UserWarning, match="classes: 1 of 2 labels begin or end with a space, such as ' c'"):
        quick().partial_fit(X, [["a"]] * X.shape[0], classes=["a", " c"])


def recorded_by(run):
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        run()
    return recorded


def test_many_classes_of_strings_are_no_regression():
    assert recorded_by(lambda: read_labels([f"class {i}" for i in range(30)])) == []
