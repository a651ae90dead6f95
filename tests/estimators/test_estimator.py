"""What the classifier learns, with every loss, optimizer and precision, and what it tells of a run."""

from __future__ import annotations

import copy
import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from shared.failing import Failing
from shared.planted import N_LABELS, small
from shared.spoiling import Spoiling
from xmlsgd import DataError, DivergenceError, XMLClassifier, make_xmc
from xmlsgd.data.csr import CSR
from xmlsgd.devices.cpu.intrinsics import bf16
from xmlsgd.estimators.defaults import input_scale
from xmlsgd.metrics import precision_at_k
from xmlsgd.nn import losses
from xmlsgd.nn.optimizers import Adam
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.history import History


@pytest.mark.parametrize("loss", ["bce", "softmax"])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "rmsprop", "row_rmsprop", "momentum", "sgd", Adam(beta1=0.8)])
def test_every_loss_learns_with_every_optimizer(rows, held_out, loss, optimizer):
    model = small(loss=loss, optimizer=optimizer, max_epochs="auto").fit(*rows)
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
        {"hidden_dropout": 0.2},
        {"weight_decay": 0.01, "clip_norm": 1.0},
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


@pytest.mark.parametrize("candidates", [0, 8])
def test_fit_scales_weights_to_a_mean_of_one(rows, candidates):
    weight = np.repeat([0.0, 1.0, 2.0], 200)
    given = weight.astype(np.float32) / 1024
    one, other = (
        small(candidates=candidates, n_jobs=1).fit(*rows, sample_weight=scaled) for scaled in (2 / 3 * weight, given)
    )
    assert np.array_equal(given, weight / 1024)
    assert np.allclose(one.decision_function(rows[0]), other.decision_function(rows[0]), atol=1e-4)


def test_balanced_classes_find_the_rare_one():
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=600) < 0.05).astype(int)
    X = rng.normal(size=(600, 4)) + y[:, None]
    plain, balanced = (small(class_weight=w).fit(X, y) for w in (None, "balanced"))
    assert (balanced.predict(X) == 1).sum() > (plain.predict(X) == 1).sum()


def test_balanced_weights_do_not_count_classes_that_no_row_has():
    X, y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    plain, balanced = (small(class_weight=w).partial_fit(X, y, classes=range(9)) for w in (None, "balanced"))
    np.testing.assert_allclose(balanced.params_, plain.params_, rtol=1e-6)


def test_a_score_is_the_weighted_mean_of_the_rows(fitted, held_out):
    X, Y = held_out[0], sp.vstack([held_out[1][:150], held_out[1][:50]])  # the last have the labels of others
    hits, weight = Y.toarray()[np.arange(200), fitted.predict_topk(X, 1)[0][:, 0]], np.repeat([1.0, 3.0], [150, 50])
    assert fitted.score(X, Y, sample_weight=weight) == pytest.approx(np.average(hits, weights=weight))


def test_softmax_predicts_labels_with_at_least_half_the_probability_of_the_best(rows, held_out):
    model = small(max_epochs=2, loss="softmax").fit(*rows)
    chances = model.predict_proba(held_out[0])
    expected = chances >= chances.max(axis=1, keepdims=True) / 2
    np.testing.assert_array_equal(model.predict(held_out[0]).toarray(), expected)


def test_a_warm_start_goes_on_from_the_last_fit(rows):
    model = small(max_epochs=3, warm_start=True).fit(*rows)
    first = model.loss_curve_[-1]
    model.fit(*rows)
    assert model.n_epochs_ == 6
    assert model.loss_curve_[3] < model.loss_curve_[0]
    assert model.loss_curve_[-1] < first


@pytest.mark.parametrize(
    ("part", "got"),
    [(slice(0, 300), "got 300 of 600 rows"), (slice(None, None, -1), r"got \d+ of \d+ rows with the label \d+")],
)
def test_a_warm_start_refuses_rows_without_those_learned_so_far(rows, part, got):
    X, Y = rows
    model = small(max_epochs=1, warm_start=True).fit(X, Y)
    before = model.fitted_
    other = Y[part] if Y[part].shape[0] < 600 else Y[:, [*range(1, 40), 0]]
    text = f"warm_start: fit must be given all rows learned so far, .*{got}; use partial_fit"
    with pytest.raises(DataError, match=text):
        model.fit(X[part], other)
    assert model.fitted_ is before


def test_a_warm_start_takes_names_in_the_order_of_the_first_fit_and_new_ones_last(rows):
    X, Y = rows
    names = [f"label {j}" for j in range(Y.shape[1])]
    model = small(max_epochs=1, warm_start=True).fit(X, Y, label_names=names)
    with pytest.raises(
        DataError, match="label_names: column 0 must be 'label 0', as seen before, got 'label 1'; bring"
    ):
        model.fit(X, Y[:, [1, 0, *range(2, len(names))]], label_names=[names[1], names[0], *names[2:]])
    assert model.fit(X, Y, label_names=names).classes_.tolist() == names
    with_more = sp.hstack([Y, Y[:, [0]]]).tocsr()
    assert model.fit(X, with_more, label_names=[*names, "new"]).classes_.tolist() == [*names, "new"]


def test_a_warm_start_takes_the_names_of_the_first_fit_though_rows_had_others():
    X, labels, names = np.eye(3), [["a"], ["b"], ["c"]], ["b", "a"]
    model = small(max_epochs=1, warm_start=True).fit(X, labels, label_names=names)
    assert model.classes_.tolist() == ["b", "a", "c"]
    assert model.fit(X, labels, label_names=names).classes_.tolist() == ["b", "a", "c"]


def test_a_warm_start_refuses_a_compact_model(rows, tmp_path):
    small(max_epochs=1).fit(*rows).save(tmp_path / "model", compact=True)
    model = XMLClassifier.load(tmp_path / "model").set_params(warm_start=True)
    with pytest.raises(DataError, match="is compact and cannot be trained further"):
        model.fit(*rows)


def test_a_warm_start_takes_the_rows_of_a_fit_that_held_some_out(rows):
    model = small(max_epochs=1, warm_start=True, early_stopping=True).fit(*rows)
    assert model.fit(*rows).n_epochs_ == 2


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
    with pytest.raises(DataError, match=r"hidden_layer_sizes: must stay \(32,\) in further training, got \(8,\)"):
        model.set_params(loss="auto").partial_fit(*rows)
    model.set_params(hidden_layer_sizes="auto").partial_fit(*rows)
    assert model.network_.hidden == (32,)


def test_the_loss_stays_when_learning_goes_on(rows):
    model = small(max_epochs=1).fit(*rows).set_params(loss="softmax")
    with pytest.raises(DataError, match=r"loss: must stay 'bce' in further training, got 'softmax'"):
        model.partial_fit(*rows)


def test_rows_of_weight_zero_leave_no_trace_in_the_network():
    X = np.eye(2, dtype=np.float32)[np.arange(100) % 2]
    weight, fitted = np.repeat([1, 0], 50).astype(np.float32), []
    for ignored in (0, 2):
        Y = np.zeros((100, 3), np.int8)
        Y[np.arange(100), [*(np.arange(50) % 2), *([ignored] * 50)]] = 1
        fitted.append(small(max_epochs=2).fit(X, Y, sample_weight=weight).params_)
    assert np.array_equal(*fitted)


def test_rows_too_small_for_float32_weights_are_refused(rows):
    with pytest.raises(DataError, match=r"X: rows must have a norm of 1e-12 or more, got .*e-14; scale X"):
        small(candidates=0).fit(rows[0] * np.float32(1e-14), rows[1])


@pytest.mark.parametrize("n_rows", [5, 600])
def test_an_outlier_leaves_the_weights_of_all_other_rows_their_scale(rows, n_rows):
    X = CSR.from_scipy(normalize(rows[0][:n_rows]))
    assert input_scale(X) == pytest.approx(0.2)
    X.data[0] = 1e6
    assert input_scale(X) == pytest.approx(0.2)


@pytest.mark.parametrize("factor", [2.0**-32, 2.0**32])
def test_rows_of_any_norm_train_alike(rows, factor):
    X, Y = rows[0][:200], rows[1][:200]
    first, scaled = (small(max_epochs=2).fit(np.float32(by) * X, Y) for by in (1, factor))
    views = [model.network_.layout.views(model.params_) for model in (first, scaled)]
    views[1]["W0"] *= np.float32(factor**0.75)  # rows are damped
    for name, values in views[0].items():
        np.testing.assert_array_equal(views[1][name], values, err_msg=name)


def test_a_column_that_drowns_the_others_is_warned_of(recwarn):
    X, y = np.random.default_rng(0).random((50, 8)), np.arange(50) % 2
    small(max_epochs=1).fit(X, y)
    assert not recwarn.list
    X[:, 3] *= 1000
    with pytest.warns(UserWarning, match=r"X: column 3 has 100% of the squared values.*MaxAbsScaler"):
        small(max_epochs=1).fit(X, y)


@pytest.mark.parametrize("X", [np.zeros((20, 3)), sp.csr_array((20, 3)), 0 * sp.csr_array(np.ones((20, 3)))])
def test_rows_of_nothing_but_zeros_are_warned_of(X):
    with pytest.warns(UserWarning, match="X: holds nothing but zeros"):
        small(max_epochs=1).fit(X, np.arange(20) % 2)


def test_rows_without_entries_say_nothing_of_the_norm_of_others():
    few = CSR.from_scipy(sp.csr_array(np.diag([0, 2, 0, 2, 0.0])))
    assert input_scale(few) == pytest.approx(0.1)
    assert input_scale(few.span(0, 1)) == 0.2


def test_another_optimizer_goes_on_with_a_state_of_its_own(rows):
    model = small(max_epochs=2).partial_fit(*rows)
    model.set_params(optimizer="adagrad", learning_rate_init=0.01).partial_fit(*rows)
    assert model.fitted_.optimizer.state.size == model.params_.size
    assert model.loss_curve_[-1] < model.loss_curve_[0]


def test_a_shallow_copy_learns_on_alone(rows):
    model = small(max_epochs=1).partial_fit(*rows)
    before, state = model.params_.copy(), model.fitted_.optimizer.state.copy()
    other = copy.copy(model).partial_fit(*rows)
    assert np.array_equal(model.params_, before)
    assert np.array_equal(model.fitted_.optimizer.state, state)
    assert not np.array_equal(other.params_, before)
    assert np.array_equal(other.params_, model.partial_fit(*rows).params_)


def test_history_holds_precision_on_the_eval_set(rows, held_out):
    model = small(max_epochs=4, candidates=0).fit(*rows, eval_set=held_out)
    assert [record["epoch"] for record in model.history_] == [0, 1, 2, 3]
    labels, _ = model.predict_topk(held_out[0])
    last = precision_at_k(held_out[1], labels)
    assert [model.history_[-1][f"P@{k}"] for k in (1, 3, 5)] == pytest.approx([100 * last[k - 1] for k in (1, 3, 5)])
    assert model.loss_curve_ == [record["loss"] for record in model.history_]


def test_a_network_alone_is_the_one_that_the_last_record_measured():
    class Centers(Callback):
        def epoch(self, record, center):
            self.last = center.copy()
            return False

    data, centers = make_xmc(1200, 100, 30, nnz_per_row=5, labels_per_row=2), Centers()
    model = small(max_epochs=1, candidates=0).fit(data.X, data.Y, callbacks=[centers])
    assert model.plan_.held_out_size.of(1200) > 0
    assert np.array_equal(model.params_, centers.last)


def test_early_stopping_keeps_the_best_model(rows, held_out):
    model = small(max_epochs=50, early_stopping=True, n_epochs_no_change=2, learning_rate_init=0.02)
    model.fit(*rows, eval_set=held_out)
    assert model.n_epochs_ < 50
    assert 100 * model.score(*held_out) == pytest.approx(max(record["P@1"] for record in model.history_), abs=0.011)


@pytest.mark.parametrize(("tol", "epochs"), [(1.0, 3), (1e-4, 6)])
def test_early_stopping_asks_for_a_gain_of_tol_as_a_share_of_the_rows(rows, held_out, tol, epochs):
    """P@1 of records is in percent. It rises by less than all rows, so that two epochs after the first gain nothing."""
    model = small(max_epochs=6, early_stopping=True, n_epochs_no_change=2, tol=tol, candidates=0, batch_size=64)
    model.fit(*rows, eval_set=held_out)
    assert len(model.history_) == epochs


def test_partial_fit_learns_all_rows_with_early_stopping_too(rows):
    model = small(early_stopping=True).partial_fit(*rows)
    assert (model.n_epochs_, model.n_samples_seen_) == (1, 600)
    assert np.array_equal(model.params_, small().partial_fit(*rows).params_)
    one = small(early_stopping=True).partial_fit(rows[0][:1], rows[1][:1])
    assert one.n_samples_seen_ == 1


def test_early_stopping_says_where_a_warm_start_has_learned_its_validation_rows(rows, recwarn):
    X, Y = rows
    model = small(max_epochs=1, warm_start=True, early_stopping=True).fit(X[:500], Y[:500])
    model.fit(X[:500], Y[:500])
    model.fit(*rows, eval_set=(X[:50], Y[:50]))
    assert not [each for each in recwarn if "early_stopping" in str(each.message)]
    with pytest.warns(UserWarning, match=r"some of the validation rows were learned before, .*; pass eval_set="):
        model.fit(*rows)


def test_early_stopping_without_eval_set_holds_rows_out(rows):
    model = small(early_stopping=True, validation_fraction=0.25, max_epochs=3).fit(*rows, sample_weight=np.ones(600))
    assert model.history_[-1]["rows"] == 3 * 450
    assert "P@1" in model.history_[-1]


def test_callbacks_see_every_epoch(rows, tmp_path):
    small(max_epochs=3).fit(*rows, callbacks=[History(tmp_path / "history.jsonl")])
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]


def test_verbose_leaves_no_trace_of_a_run_of_seconds_where_stderr_is_no_terminal(rows, capsys):
    small(max_epochs=1, verbose=1).fit(*rows)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyError, OSError])
def test_a_fit_that_an_error_ends_leaves_a_usable_model_that_can_go_on(rows, error):
    model = small(warm_start=True)
    with pytest.raises(error):
        model.fit(*rows, callbacks=[Failing(error, 40)])
    assert model.predict_topk(rows[0])[0].shape == (600, 5)
    assert model.score(*rows) > 0.1
    epochs = model.n_epochs_
    assert model.set_params(max_epochs=2).fit(*rows).n_epochs_ == epochs + 2


def test_labels_of_the_eval_set_that_were_never_seen_count_as_missed(rows):
    X, Y = rows
    wider = sp.hstack([sp.csr_array((600, N_LABELS)), Y]).tocsr()
    model = small(max_epochs=1).fit(X, Y, eval_set=(X, wider))
    assert model.history_[-1]["P@1"] == 0


def test_a_sound_fit_warns_of_nothing(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(max_epochs=2).fit(*rows)


def test_divergence_in_the_first_epoch_raises_with_advice(rows):
    model = small(optimizer="sgd", learning_rate_init=1e30)
    with pytest.raises(DivergenceError, match=r"epoch 1 at learning_rate_init=1e\+30; pass a lower one .*clip_norm"):
        model.fit(*rows)


def test_divergence_by_the_weights_of_rows_is_told_as_such(rows, add_part):
    """With a loss whose gradient grows with the logit."""
    add_part(
        losses,
        "squared_error",
        """
        from .base import Loss


        def value_and_gradient(z, target, log_sum):
            error = z - (2 * target - 1)
            return error * error, 2 * error


        LOSS = Loss(value_and_gradient, lambda frequency: 2 * frequency - 1)
        """,
    )
    model = small(optimizer="sgd", loss="squared_error").fit(*rows)
    with pytest.raises(DivergenceError, match=r"and weights of rows up to 1e\+09; pass weights around 1, a"):
        model.partial_fit(*rows, sample_weight=np.full(600, 1e9))


def test_divergence_in_a_later_epoch_keeps_the_last_good_model(rows):
    model = small(max_epochs=9, learning_rate="constant", warm_up=0)
    with pytest.warns(ConvergenceWarning, match="not finite in epoch 4 .* the last good model is kept"):
        model.fit(*rows, callbacks=[Spoiling(3)])
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
