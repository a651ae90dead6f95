"""The training plan: decided before a run, complete, printable, and what the run then does."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp

from shared.planted import planted, small
from xmlsgd import DataError, XMLClassifier, make_xmc
from xmlsgd.nn.samplers import ALL_LABELS


def reasons(plan):
    """Return the reason of each decision."""
    return {name: told["reason"] for name, told in plan.to_dict().items()}


def test_planning_trains_nothing_and_fit_does_what_was_planned(rows):
    model = small(max_epochs="auto", batch_size="auto", n_jobs=1)
    plan = model.plan(*rows)
    assert not hasattr(model, "fitted_")
    model.fit(*rows)
    assert plan.to_dict() == {**model.plan_.to_dict(), "memory": plan.to_dict()["memory"]}
    assert model.n_epochs_ == plan.schedule.epochs == plan.to_dict()["max_epochs"]["value"]
    assert model.precision_ == plan.to_dict()["precision"]["value"]


def test_partial_fit_plans_one_pass_at_a_constant_rate_and_takes_it(rows):
    model = small(max_epochs=7, learning_rate="cosine").partial_fit(*rows)
    told = {name: each["value"] for name, each in model.plan_.to_dict().items()}
    assert (told["max_epochs"], told["learning_rate"], told["warm_up"]) == (1, "constant", 0)
    assert model.n_epochs_ == model.plan_.schedule.epochs == 1


@pytest.mark.parametrize(("method", "share"), [("fit", 0.05), ("partial_fit", 1.0)])
def test_rows_that_are_added_are_learned_at_a_low_rate_only_after_fit(rows, method, share):
    model = small(optimizer="adam", max_epochs=1)
    getattr(model, method)(*rows)
    model.partial_fit(*rows)
    assert model.plan_.learning_rate == pytest.approx(share * 0.006)


@pytest.mark.parametrize(("candidates", "negatives"), [(0, 600), ("auto", 256)])
def test_rows_that_are_added_to_candidates_are_told_from_as_many_negatives_as_in_fit(candidates, negatives):
    data = make_xmc(300, 100, 600, nnz_per_row=5, labels_per_row=2, random_state=0)
    model = small(candidates=candidates, max_epochs=1).fit(data.X, data.Y)
    told = [model.plan_, model.partial_fit(data.X, data.Y).plan_]
    assert [plan.to_dict()["negatives"]["value"] for plan in told] == [negatives] * 2


def test_a_warm_start_takes_the_dropout_of_now(rows):
    model = small(max_epochs=1, warm_start=True).fit(*rows)
    model.set_params(hidden_dropout=0.5).fit(*rows)
    assert model.plan_.network.hidden_dropout == model.fitted_.network.hidden_dropout == 0.5


@pytest.mark.parametrize(("n_rows", "epochs"), [(50, 200), (99, 150), (3000, 10)])
def test_few_rows_are_learned_in_more_epochs_within_limits(n_rows, epochs):
    """Epochs of batches of 32 rows that make 600 steps, but at least 10 and at most 200."""
    X, Y = planted(n_rows)
    assert small(max_epochs="auto", batch_size="auto", candidates=0).plan(X, Y).schedule.epochs == epochs


@pytest.mark.parametrize(("clip_norm", "rounding"), [(0.0, 0.1), (1.0, 0.0)])
def test_gradients_are_rounded_only_where_they_are_not_clipped(clip_norm, rounding):
    data = make_xmc(300, 100, 1000, nnz_per_row=5, labels_per_row=2, random_state=0)
    plan = small(optimizer="adam", clip_norm=clip_norm).plan(data.X, data.Y)
    assert plan.network.gradient_rounding == rounding


def test_a_plan_tells_the_schedule_of_fit(rows):
    told = {name: each["value"] for name, each in small(learning_rate="cosine").plan(*rows).to_dict().items()}
    assert (told["learning_rate"], told["warm_up"]) == ("cosine", 0.02)


def test_a_plan_tells_the_rows_that_are_not_trained_on(rows):
    X, Y = rows
    model = small(early_stopping=True)
    told = model.plan(X, Y).to_dict()
    assert told["validation_rows"]["value"] == X.shape[0] // 10
    assert model.plan(X, Y, eval_set=(X[:7], Y[:7])).to_dict()["validation_rows"]["value"] == 7
    assert "validation_rows" not in small().plan(X, Y).to_dict()


def test_a_plan_is_a_table_of_decisions_values_and_reasons(rows):
    lines = str(small(batch_size=16, candidates=0).plan(*rows)).splitlines()
    assert lines[0].split() == ["decision", "value", "reason"]
    told = {line.split()[0]: line for line in lines}
    assert told["batch_size"].endswith("as given")
    assert told["learning_rate_init"].split()[1:] == ["0.006", "suits", "Adam"]
    assert len({line.index("as given") for line in lines if "as given" in line}) == 1


def test_every_automatic_choice_is_in_the_plan_with_a_reason(rows):
    plan = XMLClassifier().plan(*rows)
    automatic = {
        name for name, value in XMLClassifier().get_params().items() if isinstance(value, str) and value == "auto"
    }
    assert automatic <= set(plan.to_dict())
    assert all(reasons(plan)[name] != "as given" for name in automatic)
    json.dumps(plan.to_dict())


@pytest.mark.parametrize(
    ("given", "hidden", "epochs", "rate"),
    [
        ({}, (64,), 4, 0.02),
        ({"batch_size": 64}, (64,), 4, 0.01),
        ({"optimizer": "sgd"}, (64,), 4, 0.5),
        ({"optimizer": "adam"}, (64,), 4, 0.024),
        ({"max_epochs": 4}, (64,), 4, 0.02),
        ({"max_epochs": 16}, (64,), 16, 0.01),
        ({"max_epochs": 1000}, (64,), 1000, 0.005),
        ({"candidates": 0}, (256,), 10, 0.006),
        ({"hidden_layer_sizes": (16,), "learning_rate_init": 0.1}, (16,), 4, 0.1),
    ],
)
def test_beside_candidates_a_network_is_trained_shortly_at_a_high_rate(given, hidden, epochs, rate):
    data = make_xmc(17_000, 700, 400, nnz_per_row=4, labels_per_row=2, random_state=0)
    plan = XMLClassifier(**given).plan(data.X, data.Y)
    assert (plan.network.hidden, plan.schedule.epochs, plan.learning_rate) == (hidden, epochs, rate)
    assert plan.optimizer.name == given.get("optimizer", "adam" if plan.n_candidates == 0 else "row_rmsprop")


@pytest.mark.parametrize(
    ("n_rows", "n_labels", "nnz_per_row", "epochs"),
    [
        (3_000, 1_400, 60, 7),  # 14 batches draw 256 of 1,400 labels, each 2.6 times: 20 times in 7.8 epochs
        (3_000, 2_400, 30, 6),  # one epoch for five features of a row
        (3_000, 500, 60, 4),
        (3_000, 6_000, 100, 12),
        (40_000, 50_000, 60, 8),  # 157 batches, at most 1,280 steps
    ],
)
def test_few_long_rows_with_many_labels_are_learned_in_more_epochs(n_rows, n_labels, nnz_per_row, epochs):
    data = make_xmc(n_rows, 1_000, n_labels, nnz_per_row=nnz_per_row, labels_per_row=2, random_state=0)
    assert XMLClassifier().plan(data.X, data.Y).schedule.epochs == epochs


def test_a_network_of_few_features_and_labels_is_trained_as_long_as_one_alone():
    data = make_xmc(17_000, 600, 400, nnz_per_row=4, labels_per_row=2, random_state=0)
    plan = XMLClassifier().plan(data.X, data.Y)
    assert (plan.n_candidates, plan.schedule.epochs, plan.learning_rate) == (64, 10, 0.006)
    assert plan.optimizer.name == "adam"


@pytest.mark.parametrize(
    ("n_rows", "n_features", "labels_per_row", "given", "hidden"),
    [
        (10_000, 700, 5, {}, (64,)),
        (10_001, 700, 5, {}, (256,)),
        (10_001, 700, 4, {}, (64,)),
        (10_000, 600, 4, {}, (256,)),  # trained as long as one alone
        (10_000, 700, 4, {"candidates": 0}, (256,)),
    ],
)
def test_beside_candidates_few_rows_or_labels_get_a_small_network(n_rows, n_features, labels_per_row, given, hidden):
    X = make_xmc(n_rows, n_features, 400, nnz_per_row=4, random_state=0).X
    labels = (np.arange(n_rows)[:, None] + np.arange(labels_per_row)) % 400
    Y = sp.csr_array((np.ones(labels.size), labels.ravel(), np.arange(n_rows + 1) * labels_per_row), (n_rows, 400))
    plan = XMLClassifier(**given).plan(X, Y)
    assert plan.network.hidden == hidden
    why = {10_000: "at most 10000 rows", 10_001: "at most 4 labels a row"}[n_rows]
    assert (why in reasons(plan)["hidden_layer_sizes"]) == (hidden == (64,))


def test_a_plan_cannot_be_changed(rows):
    with pytest.raises(dataclasses.FrozenInstanceError):
        small().plan(*rows).batch_size = 3


@pytest.mark.parametrize(
    ("given", "kind", "negatives"),
    [
        ({}, "all", 40),
        ({"negatives": 7}, "uniform", 7),
        ({"negatives": 40}, "all", 40),
        ({"sampler": "all"}, "all", 40),
        ({"sampler": "uniform", "negatives": 9}, "uniform", 9),
        ({"sampler": "uniform"}, "all", 40),  # 1,024 are more than there are
    ],
)
def test_a_sampler_is_chosen_by_name_and_draws_the_negatives(rows, given, kind, negatives):
    plan = small(**given).plan(*rows)
    told = plan.to_dict()
    assert (told["sampler"]["value"], told["negatives"]["value"]) == (kind, negatives)
    assert (plan.sampler is ALL_LABELS) == (kind == "all")
    if kind != "all":
        assert plan.sampler.negatives == negatives


def test_a_fitted_model_never_changes(rows):
    model = small().partial_fit(*rows)
    first, params, state = model.fitted_, model.params_.copy(), model.fitted_.optimizer.state.copy()
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.precision = "bfloat16"
    answers = model.predict_topk(rows[0])
    model.partial_fit(*planted(50, seed=3))
    assert model.fitted_ is not first
    np.testing.assert_array_equal(first.params, params)
    np.testing.assert_array_equal(first.optimizer.state, state)
    model.fitted_ = first
    for old, new in zip(answers, model.predict_topk(rows[0]), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_refused_fit_leaves_the_fitted_model(rows):
    model = small(max_epochs=1).fit(*rows)
    fitted = model.fitted_
    for X, y in ((rows[0], None), (rows[0][:, :3] * np.nan, rows[1]), ([], [])):
        with pytest.raises(DataError):
            model.fit(X, y)
        assert model.fitted_ is fitted


def test_no_rows_are_told_as_such():
    with pytest.raises(DataError, match=r"^X: must have at least one row, got 0$"):
        small().fit([], [])


def test_names_of_columns_have_an_order_and_should_differ(rows):
    names = [f"label {j}" for j in range(40)]
    with pytest.raises(DataError, match=r"^label_names: must be in the order of the columns, got a set; pass a list$"):
        small().fit(*rows, label_names=set(names))
    with pytest.raises(DataError, match=r"^classes: must be in the order of the columns of Y, got a set"):
        small().partial_fit(*rows, classes=set(names))
    with pytest.warns(UserWarning, match="label_names: 'label 1' names 2 columns, which answers do not tell apart"):
        small(max_epochs=1).fit(*rows, label_names=["label 1", *names[1:]])


def test_weights_of_labels_are_real_numbers(rows, fitted):
    with pytest.raises(DataError, match="label_weight: must have a number for each of 40 labels, got"):
        fitted.predict_topk(rows[0], label_weight=np.ones(40) + 1j)
