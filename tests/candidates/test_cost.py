"""The cost of the hinge loss: chosen by held-out rows, saved, and used by rows that come later."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from shared.candidates import DEVICE, SETTINGS, ones
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates import cost as module
from xmlsgd.candidates.cost import COSTS, choose_cost_and_features, draw_validation_rows
from xmlsgd.candidates.fitting import CandidateRows, fit_base_models
from xmlsgd.candidates.linear import COST, NONE_HELD_OUT, LinearClassifiers, find_pairs, held_out_margins
from xmlsgd.data.csr import CSR, Dataset


def made(n_rows: int, noise: float) -> tuple[CSR, CSR, np.ndarray]:
    """Return rows of norm 1, their labels, and candidates.

    Each label is one of the features, but for a share of the labels, which are drawn at random.
    """
    rng = np.random.default_rng(0)
    features = np.sort(np.argsort(rng.random((n_rows, 120)), axis=1)[:, :10].astype(np.int32), axis=1)
    pointers = 10 * np.arange(n_rows + 1)
    X = CSR(pointers, features.ravel(), np.full(10 * n_rows, np.float32(10**-0.5)), 120)
    has_label = features < 40
    labels = np.where(rng.random(features.shape) < noise, rng.integers(0, 40, features.shape), features)
    Y = csr_array((ones(has_label.sum()), (np.nonzero(has_label)[0], labels[has_label])), shape=(n_rows, 40))
    Y.sum_duplicates()
    candidates = np.argsort(rng.random((n_rows, 40)), axis=1)[:, :20].astype(np.int32)
    return X, CSR(Y.indptr.astype(np.int64), Y.indices.astype(np.int32), ones(Y.nnz), 40), candidates


def chosen(X: CSR, Y: CSR, candidates: np.ndarray) -> tuple[float, bool]:
    """Return the cost, and whether weights for all features are used."""
    weight = ones(X.n_rows)
    with DEVICE.start():
        validation = draw_validation_rows(weight, candidates)
        pairs = find_pairs(X, Y, weight, candidates.copy(), DEVICE)
        return choose_cost_and_features(Y, weight, pairs, validation, DEVICE)


def test_labels_with_errors_want_a_lower_cost():
    clean, noisy = (chosen(*made(4000, noise))[0] for noise in (0.0, 0.5))
    assert min(COSTS) <= noisy < clean == COST


def test_the_cost_is_the_same_each_time():
    assert chosen(*made(1500, 0.3)) == chosen(*made(1500, 0.3))


def test_few_rows_keep_the_default_cost():
    X, Y, candidates = made(900, 0.5)
    assert len(draw_validation_rows(ones(900), candidates).rows) == 0
    assert chosen(X, Y, candidates) == (COST, False)


def test_rows_of_weight_0_do_not_choose():
    weight = ones(2000)
    weight[:900] = 0
    validation = draw_validation_rows(weight, np.zeros((2000, 3), np.int32))
    assert len(validation.rows) == 110
    assert validation.rows.min() >= 900


def test_groups_are_drawn_as_a_whole():
    groups = np.repeat(np.arange(500), 4)
    rows = draw_validation_rows(ones(2000), np.zeros((2000, 3), np.int32), groups).rows
    assert len(rows) == 200
    assert (np.bincount(groups[rows])[groups[rows]] == 4).all()


def test_validation_rows_do_not_tell_how_frequent_labels_are(monkeypatch):
    X, Y, candidates = made(4000, 0.5)
    learned = np.delete(np.arange(4000), draw_validation_rows(ones(4000), candidates).rows)
    seen = []

    def losses(margins, truth, frequency):
        seen.extend(frequency.tolist())
        return np.zeros(len(truth))

    monkeypatch.setattr(module, "fitted_log_losses_of_margins", losses)
    chosen(X, Y, candidates)
    assert set(seen) == set(Y.take(learned).column_counts().tolist())


def test_some_labels_choose_for_all(monkeypatch):
    X, Y, candidates = made(4000, 0.5)
    whole, _ = chosen(X, Y, candidates)
    seen = []

    def noted(*arguments):
        seen.append(len(arguments[-1]))
        return held_out_margins(*arguments)

    monkeypatch.setattr(module, "held_out_margins", noted)
    monkeypatch.setattr(module, "MIN_ENTRIES", 1)
    monkeypatch.setattr(module, "LABEL_SHARE", 0.5)
    assert chosen(X, Y, candidates)[0] in (whole / 2, whole, 2 * whole)
    *of_costs, of_features = seen
    assert all(10 < n < 30 for n in of_costs)
    assert of_features == 1


def absent(n_rows: int = 2000) -> tuple[CSR, CSR, np.ndarray]:
    """Return rows of norm 1, their labels, and candidates: the labels of rows with a feature in common.

    Feature 20 + l names label l, unless feature l says that it is another's.
    """
    rng = np.random.default_rng(0)
    named = np.argsort(rng.random((n_rows, 20)), axis=1)[:, :6]
    refused = rng.random(named.shape) < 0.5
    features = np.sort(np.concatenate([20 + named, np.where(refused, named, 40 + named)], axis=1), axis=1)
    X = CSR(
        12 * np.arange(n_rows + 1), features.ravel().astype(np.int32), np.full(12 * n_rows, 12**-0.5, np.float32), 60
    )
    Y = csr_array((ones((~refused).sum()), (np.nonzero(~refused)[0], named[~refused])), shape=(n_rows, 20))
    Y.sort_indices()
    return X, CSR(Y.indptr.astype(np.int64), Y.indices.astype(np.int32), ones(Y.nnz), 20), named.astype(np.int32)


def test_features_that_only_rows_without_a_label_have_are_used_where_they_tell():
    assert chosen(*absent())[1]
    assert not chosen(*made(4000, 0.0))[1]
    assert not chosen(*absent(900))[1]  # too few rows to tell


@pytest.mark.parametrize(
    ("gains", "are_used"),
    [
        pytest.param((0.02,), True, id="enough"),
        pytest.param((0.004,), False, id="below half a percent"),
        pytest.param((1.0, -0.96), False, id="within two standard errors"),
    ],
)
def test_features_of_other_rows_must_lower_the_loss_by_enough_to_be_used(monkeypatch, gains, are_used):
    def margins(pairs, cost, validation, device, labels):
        losses = np.zeros(validation.labels.shape)
        losses[:, 0] = 1 - np.resize(gains, len(losses)) if pairs.all_features else 1
        return losses

    monkeypatch.setattr(module, "held_out_margins", margins)
    monkeypatch.setattr(module, "fitted_log_losses_of_margins", lambda losses, *_: losses)
    assert chosen(*absent()) == (COST, are_used)


def test_labels_have_weights_for_all_features_only_if_asked():
    X, Y, candidates = absent()
    with DEVICE.start():
        pairs = find_pairs(X, Y, ones(2000), candidates, DEVICE)
        of_own, of_all = (
            LinearClassifiers.fit_and_score(
                pairs._replace(all_features=each), 1.0, NONE_HELD_OUT, DEVICE
            )[0].weights.to_scipy().toarray()
            for each in (False, True)
        )  # fmt: skip
    refusing = np.arange(20)
    assert (of_own[refusing, refusing] == 0).all()
    assert (of_all[refusing, refusing] < -0.5).all()


def test_labels_have_weights_for_all_features_where_rows_are_few(monkeypatch):
    X, Y, _ = absent()

    def weight_of_refusing() -> np.ndarray:
        base = fit_base_models(CandidateRows(Dataset(X, Y), ones(2000), [], 20, cost=1.0), DEVICE)
        linear = base.model.linear
        assert isinstance(linear, LinearClassifiers)
        return linear.weights.to_scipy().diagonal()

    assert (weight_of_refusing() < -0.5).all()
    monkeypatch.setattr("xmlsgd.candidates.fitting.ALL_FEATURES_ROWS", 1999)
    assert (weight_of_refusing() == 0).all()


def test_a_model_keeps_its_cost_and_later_rows_use_it(tmp_path, monkeypatch):
    data = make_xmc(1000, 300, 600, nnz_per_row=8, labels_per_row=2, random_state=0)
    monkeypatch.setattr("xmlsgd.candidates.fitting.choose_cost_and_features", lambda *arguments: (0.5, False))
    model = XMLClassifier(**SETTINGS, candidates=16, max_epochs=1).fit(data.X, data.Y)
    model.save(tmp_path / "model")
    again = XMLClassifier.load(tmp_path / "model")
    assert again.candidates_.linear.cost == 0.5
    again.partial_fit(data.X.span(0, 50), data.Y.span(0, 50))
    assert again.candidates_.linear.cost == 0.5
