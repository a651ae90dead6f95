"""What the classifier takes, learns and answers."""

from __future__ import annotations

import copy
import json
import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from xmlsgd import CSR, DataError, DivergenceError, MemoryEstimateError, XMLClassifier
from xmlsgd.devices import bf16
from xmlsgd.estimators import memory
from xmlsgd.history import History, Monitor
from xmlsgd.metrics import precision_at_k
from xmlsgd.optimizers import Adam, Optimizer

N_LABELS, N_FEATURES = 40, 120


def planted(n_rows, seed=0, n_labels=N_LABELS):
    """Return X (n, F) and Y (n, L): every label has three features of its own, rows have one to three labels."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n_rows, n_labels), dtype=np.int64)
    for row in Y:
        row[rng.choice(n_labels, rng.integers(1, 4), replace=False)] = 1
    own = np.kron(np.eye(n_labels), np.ones(3))[:, :N_FEATURES]
    X = Y @ own * rng.uniform(0.5, 1.5, (n_rows, own.shape[1]))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


def small(**parameters):
    """Return a quick classifier with a fixed seed."""
    return XMLClassifier(**{"hidden_layer_sizes": (32,), "random_state": 0, "n_jobs": 1, **parameters})


@pytest.fixture(scope="module")
def rows():
    return planted(600)


@pytest.fixture(scope="module")
def held_out():
    return planted(200, seed=1)


@pytest.fixture(scope="module")
def fitted(rows):
    return small().fit(*rows)


# Learning


@pytest.mark.parametrize("loss", ["bce", "softmax", "squared_hinge"])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "row_adagrad", "momentum", "sgd", Adam(beta1=0.8)])
def test_every_loss_learns_with_every_optimizer(rows, held_out, loss, optimizer):
    model = small(loss=loss, optimizer=optimizer).fit(*rows)
    assert model.score(*held_out) > 0.9


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_precisions_learn(rows, held_out, precision):
    if precision == "bfloat16" and not bf16.HAS_AVX512_BF16:
        pytest.skip("this processor has no bfloat16 products")
    assert small(precision=precision).fit(*rows).score(*held_out) > 0.95


@pytest.mark.parametrize(
    "parameters",
    [
        {"hidden_layer_sizes": (48, 32)},
        {"input_dropout": 0.1, "hidden_dropout": 0.2},
        {"weight_decay": 0.01, "clip_norm": 1.0},
        {"average_weights": 0.5},
        {"learning_rate": "cosine", "warm_up": 0.1},
        {"learning_rate": "constant", "warm_up": 0},
        {"batch_size": 7},
        {"batch_size": 10_000, "max_epochs": 200},
    ],
)
def test_a_network_of_other_parameters_learns(rows, held_out, parameters):
    assert small(**parameters).fit(*rows).score(*held_out) > 0.9


def test_one_seed_and_one_thread_give_the_same_bits(rows):
    first, second, other = (small(random_state=seed, hidden_dropout=0.1).fit(*rows) for seed in (5, 5, 6))
    assert first.params_.tobytes() == second.params_.tobytes()
    assert first.params_.tobytes() != other.params_.tobytes()


def test_more_threads_learn_as_well(rows, held_out):
    one, two = (small(n_jobs=n, max_epochs=6).fit(*rows) for n in (1, 2))
    assert two.score(*held_out) == pytest.approx(one.score(*held_out), abs=0.02)
    assert two.loss_curve_[-1] == pytest.approx(one.loss_curve_[-1], rel=0.01)


def test_rows_of_no_weight_are_not_learned(rows):
    X, Y = rows
    wrong = sp.csr_array(np.roll(Y.toarray(), 1, axis=1))
    weight = np.repeat([1.0, 0.0], X.shape[0])
    model = small().fit(sp.vstack([X, X]), sp.vstack([Y, wrong]), sample_weight=weight)
    assert model.score(X, Y) > 0.95
    assert model.score(X, Y, sample_weight=weight[: X.shape[0]]) == model.score(X, Y)


def test_balanced_classes_find_the_rare_one():
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=600) < 0.05).astype(int)
    X = rng.normal(size=(600, 4)) + y[:, None]
    plain, balanced = (small(class_weight=w).fit(X, y) for w in (None, "balanced"))
    assert (balanced.predict(X) == 1).sum() > (plain.predict(X) == 1).sum()


def test_a_warm_start_goes_on_from_the_last_fit(rows):
    model = small(max_epochs=3, warm_start=True).fit(*rows)
    first = model.loss_curve_[-1]
    model.fit(*rows)
    assert model.n_epochs_ == 6
    assert model.loss_curve_[3] < model.loss_curve_[0]
    assert model.loss_curve_[-1] < first


def test_a_second_fit_starts_anew(rows):
    model = small(max_epochs=2).fit(*rows)
    before = model.params_.copy()
    assert np.array_equal(model.fit(*rows).params_, before)
    assert model.n_epochs_ == len(model.history_) == 2


@pytest.mark.parametrize("warm", [False, True])
def test_a_refused_fit_leaves_the_model_as_it_was(rows, held_out, warm):
    X, Y = rows
    model = small(max_epochs=2, warm_start=warm).fit(X, Y)
    before = model.predict_topk(held_out[0])
    for bad_X, bad_Y in ((X[:, :50], Y[:5]), (sp.hstack([X, X]).tocsr(), Y[:5]), (X, None)):
        with pytest.raises(DataError):
            model.fit(bad_X, bad_Y)
        with pytest.raises(DataError):
            model.partial_fit(bad_X, bad_Y)
    assert np.array_equal(model.predict_topk(held_out[0])[1], before[1])


def test_parameters_set_after_fit_do_not_change_the_learned_shape(rows, held_out):
    model = small(max_epochs=2).fit(*rows)
    before = model.predict_topk(held_out[0])
    model.set_params(hidden_layer_sizes=(8,), loss="softmax")
    assert np.array_equal(model.predict_topk(held_out[0])[1], before[1])
    with pytest.raises(DataError, match=r"hidden_layer_sizes: must stay \(32,\) when learning goes on, got \(8,\)"):
        model.partial_fit(*rows)


def test_another_optimizer_goes_on_with_a_state_of_its_own(rows):
    model = small(max_epochs=2).fit(*rows)
    model.set_params(optimizer="adagrad", learning_rate_init=0.01).partial_fit(*rows)
    assert model.optimizer_state_.size < 2 * model.params_.size
    assert model.loss_curve_[-1] < model.loss_curve_[0]


# Watching


def test_history_holds_precision_on_the_eval_set(rows, held_out):
    model = small(max_epochs=4).fit(*rows, eval_set=held_out)
    assert [record["epoch"] for record in model.history_] == [0, 1, 2, 3]
    labels, _ = model.predict_topk(held_out[0])
    last = precision_at_k(held_out[1], labels)
    assert [model.history_[-1][f"P@{k}"] for k in (1, 3, 5)] == pytest.approx([100 * last[k - 1] for k in (1, 3, 5)])
    assert model.loss_curve_ == [record["loss"] for record in model.history_]


def test_averaged_weights_are_what_is_measured_and_kept(rows, held_out):
    model = small(max_epochs=4, average_weights=0.5).fit(*rows, eval_set=held_out)
    assert model.history_[-1]["averaged"] > 0
    assert 100 * model.score(*held_out) == pytest.approx(model.history_[-1]["P@1"])


def test_early_stopping_keeps_the_best_model(rows, held_out):
    model = small(max_epochs=50, early_stopping=True, n_epochs_no_change=2, learning_rate_init=0.02)
    model.fit(*rows, eval_set=held_out)
    assert model.n_epochs_ < 50
    assert 100 * model.score(*held_out) == pytest.approx(max(record["P@1"] for record in model.history_), abs=0.011)


def test_early_stopping_without_eval_set_holds_rows_out(rows):
    model = small(early_stopping=True, validation_fraction=0.25, max_epochs=3).fit(*rows, sample_weight=np.ones(600))
    assert model.history_[-1]["rows"] == 3 * 450
    assert "P@1" in model.history_[-1]


def test_monitors_see_every_epoch(rows, tmp_path):
    small(max_epochs=3).fit(*rows, monitors=[History(tmp_path / "history.jsonl")])
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]


def test_verbose_is_silent_where_stderr_is_no_terminal(rows, capsys):
    small(max_epochs=1, verbose=1).fit(*rows)
    assert capsys.readouterr().err == ""


class Interrupting(Monitor):
    """Press Ctrl-C after some steps."""

    def __init__(self, steps):
        self.left = steps

    def step(self, report):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_an_interrupted_fit_leaves_a_usable_model(rows):
    model = small()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*rows, monitors=[Interrupting(40)])
    assert model.predict_topk(rows[0])[0].shape == (600, 5)
    assert model.score(*rows) > 0.1


# Divergence


def test_divergence_in_the_first_epoch_raises_with_advice(rows):
    model = small(optimizer="sgd", learning_rate_init=1e30)
    with pytest.raises(DivergenceError, match=r"epoch 1 at learning_rate_init=1e\+30; pass a lower one .*clip_norm"):
        model.fit(*rows)


class Spoiling(Monitor):
    """Write NaN into the model at the start of an epoch's second step."""

    def __init__(self, epoch):
        self.at_rows, self.rows, self.wanted = None, 0, epoch

    def start(self, n_rows, epochs, center):
        self.at_rows, self.center = n_rows * self.wanted, center

    def step(self, report):
        self.rows += report.rows
        if self.rows > self.at_rows:
            self.center[:] = math.nan


def test_divergence_in_a_later_epoch_keeps_the_last_good_model(rows):
    model = small(max_epochs=9, learning_rate="constant", warm_up=0)
    with pytest.warns(ConvergenceWarning, match="not finite in epoch 4 .* the last good model is kept"):
        model.fit(*rows, monitors=[Spoiling(3)])
    assert model.n_epochs_ == 3
    good = small(max_epochs=3, learning_rate="constant", warm_up=0).fit(*rows)
    assert np.array_equal(model.params_, good.params_)


def test_a_diverged_partial_fit_leaves_the_model_as_it_was(rows):
    model = small().partial_fit(*rows)
    before = model.params_.copy()
    with pytest.raises(DivergenceError, match="epoch 2"):
        model.set_params(learning_rate_init=1e38).partial_fit(*rows)
    assert np.array_equal(model.params_, before)
    model.set_params(learning_rate_init="auto").partial_fit(*rows)
    assert np.isfinite(model.params_).all()


# Forms of labels


def test_label_lists_of_strings_keep_their_names(rows, held_out):
    X, Y = rows
    names = [f"topic {label:02d}" for label in range(N_LABELS)]
    lists = [[names[label] for label in row.indices] for row in Y]
    model = small().fit(X, lists)
    assert model.classes_.tolist() == names
    best, _ = model.predict_topk(held_out[0], 1)
    assert precision_at_k(held_out[1], best, 1)[0] > 0.95
    predicted = model.predict(held_out[0])
    assert sp.issparse(predicted)
    assert predicted.shape == held_out[1].shape


def test_label_lists_of_ints_are_names_not_columns():
    X = sp.csr_array(np.eye(4))
    model = small().fit(X, [[1000], (7,), {7, 1000}, [-3]])
    assert model.classes_.tolist() == [-3, 7, 1000]
    assert model.predict(X).toarray().tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0]]


def test_indicators_of_all_kinds_give_the_same_model(rows):
    X, Y = rows
    ours = CSR.from_scipy(Y)
    forms = [Y, Y.toarray(), Y.tocsc(), ours, Y.toarray().astype(bool), sp.csr_matrix(Y)]
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


def test_hinge_scores_are_no_probabilities(rows):
    assert not hasattr(small(loss="squared_hinge").fit(*rows), "predict_proba")


# Forms of features


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


def test_texts_go_through_the_attached_vectorizer():
    from xmlsgd.datasets.vectorizer import TextVectorizer

    texts = ["red apple fruit", "green apple fruit", "fast red car", "slow green car"] * 10
    labels = [["fruit", "red"], ["fruit", "green"], ["car", "red"], ["car", "green"]] * 10
    model = small()
    with pytest.raises(DataError, match="X: texts need a vectorizer"):
        model.fit(texts, labels)
    model.vectorizer_ = TextVectorizer(min_df=1).fit(texts)
    model.fit(texts, labels)
    best, _ = model.predict_topk(["an apple that is red"], 2)
    assert set(model.classes_[best[0]]) == {"fruit", "red"}


# Answers


def test_topk_is_the_order_of_the_decision_function(fitted, held_out):
    X, _ = held_out
    labels, scores = fitted.predict_topk(X, 7)
    assert labels.dtype == np.int32
    assert scores.dtype == np.float32
    dense = fitted.decision_function(X)
    expected = np.argsort(-dense, axis=1, kind="stable")[:, :7]
    assert np.allclose(np.take_along_axis(dense, expected, 1), scores, atol=1e-4)
    assert (labels == expected).mean() > 0.99
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("k", [N_LABELS + 3, 10**12, 2**70, np.int64(2**62)])
def test_topk_beyond_the_labels_is_all_labels(fitted, held_out, k):
    labels, scores = fitted.predict_topk(held_out[0], k)
    assert labels.shape == scores.shape == (200, N_LABELS)
    assert sorted(labels[0].tolist()) == list(range(N_LABELS))


def test_topk_drops_scores_below_the_threshold(fitted, held_out):
    labels, scores = fitted.predict_topk(held_out[0], 5, threshold=0.0)
    assert (scores[labels >= 0] >= 0).all()
    assert np.isneginf(scores[labels < 0]).all()
    assert (labels < 0).any()
    assert (np.sort(labels < 0, axis=1) == (labels < 0)).all()


def test_topk_as_csr_holds_the_same_scores(fitted, held_out):
    labels, scores = fitted.predict_topk(held_out[0], 3)
    sparse = fitted.predict_topk(held_out[0], 3, as_csr=True)
    assert sparse.shape == held_out[1].shape
    assert np.array_equal(sparse.toarray()[np.arange(200)[:, None], labels], scores)
    assert sparse.nnz == 600


def test_topk_of_a_label_subset_ranks_these_alone(fitted, held_out):
    subset = [30, 4, 17]
    labels, scores = fitted.predict_topk(held_out[0], 4, labels=subset)
    assert (labels[:, 3] == -1).all()
    assert set(np.unique(labels[:, :3])) == set(subset)
    chosen = fitted.decision_function(held_out[0], labels=subset)
    assert chosen.shape == (200, 3)
    assert np.allclose(np.sort(chosen, axis=1)[:, ::-1], scores[:, :3], atol=1e-4)


def test_probabilities_are_the_sigmoid_of_the_scores(fitted, held_out):
    scores = fitted.decision_function(held_out[0]).astype(float)
    assert np.allclose(fitted.predict_proba(held_out[0]), 1 / (1 + np.exp(-scores)))


def test_dense_answers_above_the_limit_name_predict_topk(fitted, held_out, monkeypatch):
    monkeypatch.setattr("xmlsgd.estimators.scoring.DENSE_LIMIT", 1000)
    for method in (fitted.predict_proba, fitted.decision_function):
        with pytest.raises(MemoryEstimateError, match=r"200 rows and 40 labels needs .* GB.*predict_topk"):
            method(held_out[0])
    assert fitted.predict(held_out[0]).shape == (200, N_LABELS)


def test_blocks_do_not_change_answers(fitted, held_out, monkeypatch):
    X, _ = held_out
    whole = fitted.predict(X).toarray(), fitted.predict_topk(X)[0]
    monkeypatch.setattr("xmlsgd.estimators.scoring.LOGIT_BLOCK", 40 * 7)
    monkeypatch.setattr("xmlsgd.estimators.training.ROW_BLOCK_BYTES", 4 * 32 * 7)
    assert np.array_equal(fitted.predict(X).toarray(), whole[0])
    assert np.array_equal(fitted.predict_topk(X)[0], whole[1])


def test_no_row_gives_an_empty_answer(fitted):
    none = CSR(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), N_FEATURES)
    assert fitted.predict(none).shape == (0, N_LABELS)
    assert fitted.predict_topk(none)[0].shape == (0, 5)


def test_an_empty_row_gets_the_most_frequent_labels(rows):
    X, Y = rows
    often = Y.tolil()
    often[:, 11] = 1
    model = small().fit(X, often.tocsr())
    assert model.predict_topk(sp.csr_array((1, N_FEATURES)), 1)[0].tolist() == [[11]]


def test_multilabel_score_is_precision_at_one(fitted, held_out):
    best, _ = fitted.predict_topk(held_out[0], 1)
    assert fitted.score(*held_out) == pytest.approx(precision_at_k(held_out[1], best, 1)[0])


# Growing


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


def test_partial_fit_adds_new_names_behind_the_old():
    X = np.eye(4)
    model = small().partial_fit(X[:2], [["pear"], ["fig"]])
    model.partial_fit(X, [["fig"], ["apple", "pear"], ["kiwi"], []])
    assert model.classes_.tolist() == ["fig", "pear", "apple", "kiwi"]


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


# Memory


def test_the_estimate_holds_the_parts_of_the_model(rows):
    X, Y = rows
    model = small(hidden_layer_sizes=(64,))
    estimate = model.estimate_memory(X, Y)
    model.fit(X, Y)
    assert estimate["parameters"] == model.params_.nbytes
    assert estimate["optimizer_state"] == model.optimizer_state_.nbytes
    assert estimate["total"] == sum(size for part, size in estimate.items() if part != "total")


def test_a_run_that_would_not_fit_is_refused_with_what_would(rows, monkeypatch):
    model = small(hidden_layer_sizes=(4096,))
    estimate = model.estimate_memory(*rows)
    monkeypatch.setattr(memory, "memory_limit", lambda: estimate["total"])
    with pytest.raises(
        MemoryEstimateError, match=r"parameters .* optimizer_state .* hidden_layer_sizes=\((\d+),\)"
    ) as e:
        model.fit(*rows)
    assert not hasattr(model, "params_")
    width = int(str(e.value).split("sizes=(")[1].split(",")[0])
    small(hidden_layer_sizes=(width,), max_epochs=1).fit(*rows)


def test_where_the_workers_take_most_of_the_memory_fewer_are_advised(rows, monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 1 << 30)
    with pytest.raises(
        MemoryEstimateError, match=r"workers 30.0 GB.*; use fewer workers in devices, and the optimizers"
    ):
        small(devices="cpu*200").fit(*rows)


def test_half_precision_input_is_taken(rows):
    X, Y = (matrix[:64].toarray().astype(np.float16) for matrix in rows)
    assert small(max_epochs=1).fit(X, Y).predict_topk(X, 1)[0].shape == (64, 1)


def test_a_shallow_copy_learns_on_alone(rows):
    model = small(max_epochs=1).fit(*rows)
    before, state = model.params_.copy(), model.optimizer_state_.copy()
    other = copy.copy(model).partial_fit(*rows)
    assert np.array_equal(model.params_, before)
    assert np.array_equal(model.optimizer_state_, state)
    assert not np.array_equal(other.params_, before)
    assert np.array_equal(other.params_, model.partial_fit(*rows).params_)


def test_a_thread_that_takes_another_device_disturbs_no_other(fitted, rows):
    """As a thread that changes the device between another one's look for it and its use."""

    class Forgetful(dict):
        def __contains__(self, key):
            found = super().__contains__(key)
            self.clear()
            return found

    fitted.predict_topk(rows[0][:2])
    model = copy.copy(fitted)
    model._scorers = Forgetful(fitted._scorers)
    assert np.array_equal(model.predict_topk(rows[0][:2])[0], fitted.predict_topk(rows[0][:2])[0])


def test_the_memory_limit_is_that_of_the_machine_or_its_control_group():
    assert 1 << 20 < memory.memory_limit() < 1 << 62


def test_the_limit_of_the_own_control_group_counts(monkeypatch):
    files = {
        "/proc/self/cgroup": "0::/a/b\n",
        "/sys/fs/cgroup/a/b/memory.max": "max",
        "/sys/fs/cgroup/a/memory.max": "9",
    }
    monkeypatch.setattr(memory, "_text_of", lambda file: files.get(str(file), ""))
    assert memory.memory_limit() == 9


# Bad input: one line that says what was got


X2, Y2 = sp.csr_array(np.eye(2)), sp.csr_array(np.eye(2))


def whole(n_cols=2, dtype=np.float32):
    """Return the unit matrix of two rows as our own rows."""
    return CSR(np.arange(3), np.arange(2, dtype=np.int32), np.ones(2, dtype), n_cols)


FLAWED = CSR(np.array([0, 2]), np.array([0, 9], np.int32), np.ones(2, np.float32), 2)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (X2, sp.csr_array(np.eye(3)), "X and Y must have the same number of rows, got 2 and 3"),
        (X2, [["a"]], "X and Y must have the same number of rows, got 2 and 1"),
        (X2, np.array([1, 2, 3]), "X and Y must have the same number of rows, got 2 and 3"),
        (np.array([[0, 1], [np.nan, 1]]), Y2, "X: row 1: .*got nan"),
        (np.array([[0, 1e60], [1, 1]]), Y2, "X: row 0: .*must be finite"),
        (sp.csr_array([[0, 1], [np.inf, 1]]), Y2, "X: row 1: values must be finite float32, got .*inf"),
        (FLAWED, Y2[:1], r"X: indices: must be in \[0, 2\), got 9 in row 0"),
        (X2[:1], FLAWED, r"Y: indices: must be in \[0, 2\), got 9 in row 0"),
        (CSR(np.array([0, 1]), np.array([0]), np.ones(1), 2), Y2[:1], "X: must be of int64, int32 and float32 arrays"),
        (
            CSR(np.array([1, 1]), np.array([0], np.int32), np.ones(1, np.float32), 2),
            Y2[:1],
            "X: indptr: must lead from 0 to 1, got 1 and 1",
        ),
        (X2, sp.csr_array((2, 4)), "Y: must have at least one label, got none in 2 rows"),
        (X2, [[], []], "Y: must have at least one label, got none in 2 rows"),
        (X2, sp.csr_array((2, 0)), r"Y: must have at least one label column, got shape \(2, 0\)"),
        (X2, np.array([[0, 2], [1, 0]]), "Y: row 0: an indicator must hold 0 and 1, got 2 in column 1"),
        (X2, np.array([["a", "b"], ["a", "c"]]), "Y: a dense indicator must hold numbers"),
        (X2, [["a"], "bc"], "Y: row 1: must be a list of labels, got 'bc'"),
        (X2, [["a"], [0.5]], "Y: row 1: a label must be an int or a string, got 0.5"),
        (X2, [["a"], [3]], "Y: labels must be all of one type, got .* and .*; strings suit all"),
        (X2, np.array([0.5, 0.7]), "Unknown label type"),
        (X2, None, "requires y to be passed"),
        (np.ones(3), Y2, "Expected 2D array"),
        ("cat kitten", Y2, r"X: must be a list of texts or a matrix, got one text 'cat kitten'; pass \[text\]"),
        (whole(dtype=">f4"), Y2, "X: must be of int64, int32 and float32 arrays, got int64, int32, >f4"),
        (whole(n_cols="x"), Y2, "X: n_cols must be an integer, got 'x'"),
        (X2, whole(n_cols=2.0), "Y: n_cols must be an integer, got 2.0"),
    ],
)
def test_bad_rows_are_refused_with_a_reason(X, Y, message):
    with pytest.raises(ValueError, match=message):
        small().fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes: must be one or more positive integers"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes: .*got"),
        ({"hidden_layer_sizes": 64}, "hidden_layer_sizes: .*got 64"),
        ({"loss": "mse"}, "loss must be one of bce, softmax, squared_hinge, got 'mse'"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of sgd, .*got 'lbfgs'"),
        ({"optimizer": Optimizer()}, "learning_rate_init: 'auto' knows .*pass a number"),
        ({"learning_rate": "step"}, "learning_rate: must be one of constant, .*got 'step'"),
        ({"learning_rate": 0.1}, r"got 0.1; the rate itself is learning_rate_init \(--lr\)"),
        ({"learning_rate_init": 0}, "learning_rate_init: must be 'auto' or above 0, got 0"),
        ({"learning_rate_init": math.nan}, "learning_rate_init: must be 'auto' or above 0, got nan"),
        ({"batch_size": 0}, "batch_size: must be 'auto' or a positive integer, got 0"),
        ({"max_epochs": 1.5}, "max_epochs: must be 'auto' or a positive integer, got 1.5"),
        ({"negatives": 0}, "negatives: must be 'auto', 'all' or a positive integer, got 0"),
        ({"negatives": "none"}, "negatives: must be 'auto', 'all' or a positive integer, got 'none'"),
        ({"negatives": np.array([1, 2])}, "negatives: must be 'auto', 'all' or a positive integer, got array"),
        ({"shortlist": -1}, "shortlist: must be 'auto', 0 or a positive integer, got -1"),
        ({"shortlist": True}, "shortlist: must be 'auto', 0 or a positive integer, got True"),
        ({"n_epochs_no_change": 0}, "n_epochs_no_change: must be a positive integer, got 0"),
        ({"warm_up": 1}, r"warm_up: must be in \[0, 1\), got 1"),
        ({"hidden_dropout": 1.0}, r"hidden_dropout: must be in \[0, 1\), got 1.0"),
        ({"input_dropout": "0.5"}, r"input_dropout: must be in \[0, 1\), got '0.5'"),
        ({"weight_decay": -1}, "weight_decay: must be 0 or above, got -1"),
        ({"average_weights": 2}, r"average_weights: must be in \[0, 1\], got 2"),
        ({"average_weights": 0.5, "early_stopping": True}, "average_weights: cannot be combined"),
        ({"validation_fraction": 0}, r"validation_fraction: must be in \(0, 1\), got 0"),
        ({"class_weight": "balanced"}, "class_weight: works for one class a row"),
        ({"algorithm": "annealing"}, "algorithm must be one of .*got 'annealing'"),
        ({"devices": "abacus"}, "devices: device must be one of cpu, cuda, reference, got 'abacus'"),
        ({"devices": "cpu*" + "9" * 5000}, "devices: must be kind:index.learners, as in 'cpu.2', got 'cpu.999"),
        ({"precision": "float8"}, "precision must be one of .*got 'float8'"),
        ({"n_jobs": 0}, "n_jobs: must be None or an integer other than 0, got 0"),
    ],
)
def test_a_parameter_outside_its_range_is_refused(rows, parameters, message):
    with pytest.raises(DataError, match=message):
        small(**parameters).fit(*rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_weight": [1, 2]}, "sample_weight: must have one value for each of 600 rows, got 2"),
        ({"sample_weight": -np.ones(600)}, "sample_weight: row 0: must be finite and not negative, got -1"),
        ({"sample_weight": np.zeros(600)}, "sample_weight: must have at least one value above zero"),
        ({"sample_weight": "heavy"}, "sample_weight: must be numbers, got 'heavy'"),
        ({"label_names": ["a"]}, "Y: must have a column for each of the 1 named labels, got 40; name all of them"),
        ({"label_names": [math.nan] * N_LABELS}, "label_names: a label must be finite, got nan"),
        ({"eval_set": 3}, r"eval_set: must be a pair \(X, Y\), got 3"),
        ({"eval_set": (X2, Y2)}, "X has 2 features, but XMLClassifier is expecting 120 features as input"),
        ({"eval_set": (sp.csr_array((2, 120)), [1, 2])}, "eval_set: Y must be of the form of the training labels"),
        ({"eval_set": (sp.csr_array((2, 120)), sp.csr_array((3, 40)))}, "eval_set: X and Y must have the same number"),
    ],
)
def test_bad_arguments_of_fit_are_refused(rows, arguments, message):
    with pytest.raises(DataError, match=message):
        small().fit(*rows, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k: must be an integer of at least 1, got 0"),
        ({"k": 2.0}, "k: must be an integer of at least 1, got 2.0"),
        ({"threshold": math.nan}, "threshold: must be a number or None, got nan"),
        ({"threshold": 10**400}, "threshold: must be a number or None, got 1000"),
        ({"labels": [40]}, r"labels: must be columns in \[0, 40\), got 40"),
        ({"labels": []}, "labels: must be a list of column numbers"),
        ({"labels": ["a"]}, "labels: must be a list of column numbers"),
    ],
)
def test_bad_arguments_of_predict_topk_are_refused(fitted, rows, arguments, message):
    with pytest.raises(DataError, match=message):
        fitted.predict_topk(rows[0], **arguments)


def test_partial_fit_refuses_fewer_features_labels_and_another_form(rows):
    X, Y = rows
    model = small().partial_fit(X, Y)
    with pytest.raises(DataError, match="X has 100 features, but XMLClassifier is expecting 120"):
        model.partial_fit(X[:, :100], Y)
    with pytest.raises(DataError, match="Y: must have at least the 40 columns seen before, got 39"):
        model.partial_fit(X, Y[:, :39])
    with pytest.raises(DataError, match=r"Y must be of the form of the training labels \(sparse\), got"):
        model.partial_fit(X, np.zeros(600, int))


def test_labels_of_the_eval_set_that_were_never_seen_count_as_missed(rows):
    X, Y = rows
    wider = sp.hstack([sp.csr_array((600, N_LABELS)), Y]).tocsr()
    model = small(max_epochs=1).fit(X, Y, eval_set=(X, wider))
    assert model.history_[-1]["P@1"] == 0


def test_a_sound_fit_warns_of_nothing(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(max_epochs=2).fit(*rows)
