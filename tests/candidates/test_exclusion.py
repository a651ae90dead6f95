"""Labels that exclude each other: counting, weighing by held-out rows, ranking, saving and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

from shared.candidates import DEVICE, SETTINGS, one_fold
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates.exclusion import Exclusion, most_frequent
from xmlsgd.candidates.fitting import CandidateRows, _exclusions
from xmlsgd.candidates.serialization import from_arrays, to_arrays
from xmlsgd.candidates.stacking import LogisticStacking, MarginCalibration, Stacking, log_losses
from xmlsgd.candidates.stacking_training import HeldOutScores, fit_exclusion
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.files.folders import FolderArrays
from xmlsgd.devices.cpu.kernels.exclusion import UNIT, exclude_in_row
from xmlsgd.errors import ModelFileError

N_LABELS = 150


@pytest.fixture(scope="module")
def data() -> Dataset:
    return make_xmc(1200, 200, N_LABELS, nnz_per_row=8, labels_per_row=3, random_state=0)


@pytest.fixture(scope="module")
def model(data) -> XMLClassifier:
    """A model with a table of its own, in which pairs of 100 of the labels exclude each other at random."""
    found = XMLClassifier(**SETTINGS, max_epochs=2, candidates=64).fit(data.X, data.Y)
    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, (100, 100), dtype=np.uint8)
    np.fill_diagonal(table, 0)
    labels = np.sort(rng.choice(N_LABELS, 100, replace=False)).astype(np.int32)
    return with_exclusion(found, Exclusion(labels, table, 0.7))


def with_exclusion(model: XMLClassifier, exclusion: Exclusion | None) -> XMLClassifier:
    """Return the model with this exclusion in its stacking."""
    found, candidates = XMLClassifier(**model.get_params()), model.candidates_
    stacking = candidates.stacking._replace(exclusion=exclusion)
    found.fitted_ = replace(model.fitted_, candidates=replace(candidates, stacking=stacking))
    return found


def planted(n: int, exclusive: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return truth bool (n, 3) and log odds by evidence of each label alone.

    Half of the rows have one label of the first two, or, unless they exclude each other, each has half of the rows by
    itself; the last has four in ten.
    """
    rng = np.random.default_rng(seed)
    first = rng.random(n) < 0.5
    truth = np.stack([first, ~first if exclusive else rng.random(n) < 0.5, rng.random(n) < 0.4], axis=1)
    evidence = rng.normal(np.where(truth, 1, -1), 1)
    return truth, (2 * evidence + logit([0.5, 0.5, 0.4])).astype(np.float32)


def fit(truth: np.ndarray, log_odds: np.ndarray) -> tuple[Stacking, HeldOutScores]:
    """Weigh the exclusions of these rows, whose candidates are all labels; the regression's intercept was 0."""
    labels = np.tile(np.arange(truth.shape[1], dtype=np.int32), (len(truth), 1))
    pairs = one_fold(labels, 4 * [log_odds], truth, truth.sum(axis=0, dtype=np.float32), len(truth))
    counted = Exclusion.count(CSR.from_scipy(sp.csr_array(truth, dtype=np.float32)), labels[0])
    with DEVICE.start():
        stacking = Stacking(LogisticStacking(intercept=0), MarginCalibration())
        stacking, scores = fit_exclusion(pairs, stacking, log_odds, [counted], counted, DEVICE)
    return stacking, HeldOutScores(labels, scores)


def test_a_table_says_how_much_rarer_than_by_chance_two_labels_are_together():
    Y = np.zeros((400, 4), np.float32)
    Y[:200, 0] = Y[200:, 1] = Y[::2, 2] = Y[:3, 3] = 1
    counts = Exclusion.count(CSR.from_scipy(sp.csr_array(Y)), np.arange(4, dtype=np.int32)).table
    assert counts.flags.c_contiguous  # or kernels would be compiled once more
    table = counts * UNIT
    assert table[0, 1] == table[1, 0] == pytest.approx(1 - 0.3 / 100.3, abs=0.002)
    np.testing.assert_array_equal(table.diagonal(), 0)
    np.testing.assert_array_equal(table[2, :2], 0)
    assert table[1, 3] == pytest.approx(1 - 0.3 / 1.8, abs=0.002)
    of_values = Exclusion.count(CSR.from_scipy(sp.csr_array(3 * Y)), np.arange(4, dtype=np.int32)).table
    np.testing.assert_array_equal(of_values, counts, err_msg="whatever the values of the labels")


def test_the_strongest_exclusion_by_a_more_probable_candidate_of_the_first_counts():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, (5, 5), dtype=np.uint8)
    np.fill_diagonal(table, 0)
    exclusion = Exclusion(np.array([1, 2, 4, 6, 7], np.int32), table, 0.5)
    labels = np.stack([rng.permutation(12)[:8] for _ in range(200)]).astype(np.int32)
    labels[rng.random(labels.shape) < 0.1] = -1
    log_odds, first = rng.normal((-2, 0), 3, (*labels.shape, 2)).astype(np.float32).transpose(2, 0, 1)
    log_odds = np.rint(log_odds)  # labels of equal log odds do not exclude each other
    with DEVICE.start():
        found = exclusion.corrected(log_odds, labels, first, 5, DEVICE)
    place = {label: i for i, label in enumerate(exclusion.labels.tolist())}
    first[labels < 0] = -np.inf
    ranked = (np.argsort(np.argsort(-first, axis=1), axis=1) < 5).tolist()
    for row, odds, excluding, corrected in zip(labels.tolist(), log_odds, ranked, found, strict=True):
        for label, before, after in zip(row, odds, corrected, strict=True):
            strongest = max(
                (
                    p * table[place[other], place[label]] * UNIT
                    for other, p, counts in zip(row, expit(odds), excluding, strict=True)
                    if label in place and other in place and counts and p > max(0.05, expit(before))
                ),
                default=0,
            )
            assert after == pytest.approx(before + 0.5 * np.log(1 - strongest), abs=1e-5)


def test_a_label_as_probable_as_the_last_of_the_best_is_corrected_before_they_are_chosen():
    labels, out, table = np.int32([2, 1, 0]), np.float32([3, 1, 1]), np.zeros((3, 3), np.uint8)
    table[2, 0] = 255  # the best label excludes label 0, which else would rank before label 1
    scratch = [np.empty(3, kind) for kind in (np.int32, np.int32, np.float32, np.float32, np.float32)]
    exclude_in_row(labels, out.copy(), np.float32(-1), 2, np.arange(3, dtype=np.int32), table, np.float32(1), *scratch,
                   out)  # fmt: skip
    assert out.tolist()[:2] == [3, 1]
    assert out[2] < 0


def test_labels_that_exclude_each_other_rank_better_in_rows_that_were_not_learned():
    stacking, _ = fit(*planted(1000, exclusive=True))
    exclusion, shift = stacking.exclusion, stacking.regression.intercept
    (truth, before), labels = planted(4000, exclusive=True, seed=1), np.tile(np.arange(3, dtype=np.int32), (4000, 1))
    with DEVICE.start():
        after = exclusion.corrected(before, labels, before, 3, DEVICE) + shift
    np.testing.assert_allclose(after[:, 2], before[:, 2] + shift, atol=0.1)
    best = [np.argsort(-odds)[:, :2] for odds in (before, after)]
    hits = [np.take_along_axis(truth, two, axis=1).mean() for two in best]
    assert hits[1] > hits[0]
    with_both = [(two < 2).all(axis=1).mean() for two in best]
    assert with_both[1] < 0.75 * with_both[0]
    assert log_losses(after, truth).mean() < 0.97 * log_losses(before, truth).mean()


def test_scores_of_held_out_rows_are_those_by_exclusions():
    truth, log_odds = planted(1000, exclusive=True)
    stacking, found = fit(truth, log_odds)
    with DEVICE.start():
        again = stacking.exclusion.corrected(log_odds, found.labels, log_odds, 3, DEVICE)
    np.testing.assert_allclose(again + stacking.regression.intercept, found.log_odds, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_exclusions_of_independent_labels_are_dropped(seed):
    truth, log_odds = planted(1000, exclusive=False, seed=seed)
    stacking, scores = fit(truth, log_odds)
    assert stacking == Stacking(LogisticStacking(intercept=0), MarginCalibration())
    assert scores.log_odds is log_odds


def test_log_odds_of_any_size_are_weighed():
    truth, log_odds = planted(1000, exclusive=True)
    assert np.isfinite(fit(truth, 1000 * log_odds)[1].log_odds).all()


def test_exclusions_that_lower_only_improbable_labels_are_dropped():
    """Two labels that are never among the ten best of a row are never beside the first one."""
    rng = np.random.default_rng(0)
    truth = rng.random((2000, 12)) < 0.7
    truth[:, 10:] = (rng.random((2000, 2)) < 0.6) & ~truth[:, :1]
    log_odds = np.tile(np.float32(logit(10 * [0.7] + 2 * [0.18])), (2000, 1))
    log_odds[:, 0] = np.where(truth[:, 0], 3, -3)
    assert fit(truth, log_odds)[0].exclusion is None
    fewer = [0, 1, 10, 11]
    assert fit(truth[:, fewer], log_odds[:, fewer])[0].exclusion is not None


def test_held_out_rows_and_label_rows_are_not_counted():
    """Rows 0 and 1 have both labels; row 1 is held out, row 2 has no weight, row 5 is a label row."""
    Y = CSR.from_scipy(sp.csr_array(np.float32([[1, 1], [1, 1], [1, 1], [1, 0], [0, 1], [1, 0]])))
    X = CSR.from_scipy(sp.csr_array(np.eye(6, dtype=np.float32)))
    weight = np.float32([1, 1, 0, 1, 1, 1])
    rows = CandidateRows(Dataset(X, Y), weight, [np.array([1])], 2, n_label_rows=1)
    (of_fold,), full = _exclusions(rows, np.float32([4, 3]))
    for counted, kept in ((of_fold, [0, 3, 4]), (full, [0, 1, 3, 4])):
        expected = Exclusion.count(Y.take(np.array(kept)), np.arange(2, dtype=np.int32))
        np.testing.assert_array_equal(counted.table, expected.table)
    assert (of_fold.table != full.table).any()


def test_the_most_frequent_labels_are_in_the_table(monkeypatch):
    monkeypatch.setattr("xmlsgd.candidates.exclusion.N_EXCLUDING", 3)
    np.testing.assert_array_equal(most_frequent(np.float32([5, 1, 7, 5, 5, 0])), [0, 2, 3])


@pytest.mark.parametrize("k", [1, 5, 50])
def test_the_best_labels_are_those_of_the_decision_function(data, model, k):
    """50 labels are scored as 5 are, though margins rank more candidates for them."""
    X = data.X.span(0, 300)
    labels, scores = model.predict_topk(X, k)
    whole = model.decision_function(X)
    np.testing.assert_allclose(np.take_along_axis(whole, labels, axis=1), scores, atol=1e-4)


def test_the_best_label_stays_and_others_change(data, model):
    found, plain = (each.predict_topk(data.X, 5)[0] for each in (model, with_exclusion(model, None)))
    np.testing.assert_array_equal(found[:, 0], plain[:, 0])
    assert (found != plain).any(axis=1).mean() > 0.3


@pytest.mark.parametrize("compact", [False, True])
def test_a_saved_model_keeps_its_exclusions_to_the_bit(data, model, compact, tmp_path):
    model.save(tmp_path / "model", compact=compact)
    loaded = XMLClassifier.load(tmp_path / "model").set_params(n_jobs=1)
    was, kept = (each.candidates_.stacking.exclusion for each in (model, loaded))
    for name in ("labels", "table"):
        assert getattr(kept, name).dtype == getattr(was, name).dtype
        np.testing.assert_array_equal(getattr(kept, name), getattr(was, name))
    assert kept.weight == was.weight
    if not compact:
        for a, b in zip(model.predict_topk(data.X), loaded.predict_topk(data.X), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("compact", [False, True])
def test_exclusion_is_a_term_of_explanations(data, model, compact, tmp_path):
    X = data.X.span(0, 40)
    if compact:
        model.save(tmp_path / "model", compact=True)
        model = XMLClassifier.load(tmp_path / "model").set_params(n_jobs=1)
    labels, scores = model.predict_topk(X, 5)
    plain = with_exclusion(model, None).decision_function(X)
    n_excluded = 0
    for i, row in enumerate(model.explain(X)):
        for each, label, score in zip(row, labels[i], scores[i], strict=True):
            *others, last = each.terms
            assert last.name == "exclusion"
            assert last.contribution == pytest.approx(last.weight * last.value)
            assert sum(term.contribution for term in others) == pytest.approx(plain[i, label], abs=1e-5)
            assert sum(term.contribution for term in each.terms) == pytest.approx(score, abs=1e-5)
            n_excluded += last.contribution < 0
    assert n_excluded > 10


def test_partial_fit_keeps_the_exclusions_beside_new_labels(data, model):
    again, X = with_exclusion(model, model.candidates_.stacking.exclusion), data.X.span(0, 100)
    Y = sp.hstack([data.Y.span(0, 100).to_scipy(), sp.csr_array(np.ones((100, 1), np.float32))]).tocsr()
    again.partial_fit(X, Y)
    assert again.candidates_.stacking.exclusion is model.candidates_.stacking.exclusion
    assert (again.predict_topk(X, 2)[0] == N_LABELS).any()


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("labels", lambda a: a + N_LABELS, f"exclusion_labels must ascend, below {N_LABELS}"),
        ("labels", lambda a: a[::-1], "exclusion_labels must ascend"),
        ("labels", lambda a: a.astype(np.int64), "exclusion_labels must be int32"),
        ("table", lambda a: a[:-1], r"exclusion_table must be uint8 \(100, 100\)"),
    ],
)
def test_altered_exclusions_are_refused(model, name, change, complaint):
    described, arrays = to_arrays(model.candidates_)
    arrays[f"candidates_exclusion_{name}"] = change(arrays[f"candidates_exclusion_{name}"])
    with pytest.raises(ModelFileError, match=complaint):
        from_arrays(described, FolderArrays(arrays, Path("model")), (200, N_LABELS))
    for weight in (-1.0, None, np.inf):
        with pytest.raises(ModelFileError, match="candidates must have size, cost, stacking"):
            from_arrays({**described, "exclusion": weight}, FolderArrays(arrays, Path("model")), (200, N_LABELS))
