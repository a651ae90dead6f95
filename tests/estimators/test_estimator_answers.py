"""What a fitted classifier answers: rankings, scores, probabilities."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from shared.planted import N_FEATURES, N_LABELS, small
from xmlsgd import CSR, DataError, MemoryEstimateError
from xmlsgd.devices.cpu import CPU
from xmlsgd.metrics import precision_at_k


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


def test_topk_drops_labels_below_the_probability_of_the_threshold(fitted, held_out):
    labels, scores = fitted.predict_topk(held_out[0], 5, threshold=0.5)
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


def test_fewer_labels_than_k_are_left_by_exclusion(fitted, held_out):
    labels, scores = fitted.predict_topk(held_out[0], 5, exclude=np.arange(3, N_LABELS))
    assert sorted(labels[0].tolist()) == [-1, -1, 0, 1, 2]
    assert (labels[:, 3:] == -1).all()
    assert np.isneginf(scores[:, 3:]).all()


def test_labels_to_rank_or_exclude_may_be_names(rows):
    X, Y = rows
    model = small(max_epochs=1).fit(X, Y, label_names=[f"label {j}" for j in range(N_LABELS)])
    for name in ("labels", "exclude"):
        by_name, by_column = (model.predict_topk(X, **{name: each})[0] for each in (["label 30", "label 4"], [30, 4]))
        assert np.array_equal(by_name, by_column)
    assert np.array_equal(model.decision_function(X, labels=["label 4"])[:, 0], model.decision_function(X)[:, 4])


def test_a_name_of_two_columns_is_refused_as_a_label_to_rank_or_exclude(rows):
    X, Y = rows
    with pytest.warns(UserWarning, match="'a' names 2 columns"):
        model = small(max_epochs=1).fit(X, Y, label_names=["a", "a", *map(str, range(2, N_LABELS))])
    for name in ("labels", "exclude"):
        with pytest.raises(DataError, match=f"{name}: a label must name one column, got 'a', which names 2; pass col"):
            model.predict_topk(X, **{name: ["a"]})
        model.predict_topk(X, **{name: ["5"]})


def test_probabilities_are_the_sigmoid_of_the_calibrated_scores(fitted, held_out):
    log_odds = fitted.fitted_.calibration.log_odds(fitted.decision_function(held_out[0]))
    assert np.allclose(fitted.predict_proba(held_out[0]), 1 / (1 + np.exp(-log_odds)))


def test_dense_answers_above_the_limit_name_predict_topk(fitted, held_out, monkeypatch):
    monkeypatch.setattr("xmlsgd.estimators.inference.scorer.DENSE_LIMIT", 1000)
    for method in (fitted.predict_proba, fitted.decision_function):
        with pytest.raises(MemoryEstimateError, match=r"200 rows and 40 labels needs .* GB.*predict_topk"):
            method(held_out[0])
    assert fitted.predict(held_out[0]).shape == (200, N_LABELS)


def test_blocks_do_not_change_answers(fitted, held_out, monkeypatch):
    X, _ = held_out
    whole = fitted.predict(X).toarray(), fitted.predict_topk(X)[0]
    monkeypatch.setattr("xmlsgd.estimators.inference.scorer.ROW_BLOCK_BYTES", 4 * 32 * 7)
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


def test_a_thread_that_takes_another_device_disturbs_no_other(fitted, rows):
    """As a thread that changes the device between another one's look for it and its use."""

    class Forgetful(dict):
        def __contains__(self, key):
            found = super().__contains__(key)
            self.clear()
            return found

    fitted.predict_topk(rows[0][:2])
    model = copy.copy(fitted)
    model.fitted_ = copy.copy(fitted.fitted_)
    model.fitted_.__dict__["_scorers"] = Forgetful(fitted.fitted_._scorers)
    assert np.array_equal(model.predict_topk(rows[0][:2])[0], fitted.predict_topk(rows[0][:2])[0])


@pytest.mark.parametrize("candidates", [0, 8])
@pytest.mark.parametrize("n_rows", [1, 5, 200])
def test_kernels_that_were_loaded_are_all_that_a_ranking_runs(held_out, monkeypatch, n_rows, candidates):
    def noted(cpu, kernel, *arguments):
        ran.add((kernel, cpu.n_threads > 1))
        run(cpu, kernel, *arguments)

    ran, run, X = set(), CPU.run_converted, held_out[0][:n_rows]
    model = small(max_epochs=1, n_jobs=2, candidates=candidates).fit(*held_out)
    monkeypatch.setattr(CPU, "run_converted", noted)
    model.load_kernels(X, 7)
    loaded = set(ran)
    model.predict_topk(X, 7)
    assert ran == loaded
    assert len(ran) >= 2
