"""What rates a held-out row has not seen its labels: not in the network's first biases, nor in label frequencies."""

from __future__ import annotations

import numpy as np
import pytest

from shared.candidates import DEVICE, SETTINGS, one_fold
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.candidates.stacking_training import fit_stacking
from xmlsgd.estimators import defaults, fitting


@pytest.mark.parametrize("candidates", [16, 0])
def test_first_biases_do_not_count_held_out_rows_and_the_last_ones_do_beside_candidates(candidates, monkeypatch):
    rows = make_xmc(1200, 200, 100, nnz_per_row=6, labels_per_row=2, random_state=0)
    trained = {}

    def train(plan, job, *others):
        trained.update(first=job.start.params.copy(), weight=job.sample_weight)
        run = original(plan, job, *others)
        trained.update(last=run.params.copy())
        return run

    original = fitting._train
    monkeypatch.setattr(defaults, "SMALL_ROWS", 0)  # of small data the model learns all rows
    monkeypatch.setattr(fitting, "_train", train)
    fitted = XMLClassifier(**SETTINGS, candidates=candidates).fit(rows.X, rows.Y).fitted_
    network, weight = fitted.network, trained["weight"]
    held_out = np.flatnonzero(weight == 0)
    assert len(held_out) > 0
    first, last, final = (
        network.layout.views(each)[network.output_bias] for each in (trained["first"], trained["last"], fitted.params)
    )
    without, with_all = network.initial_biases(rows.Y, weight), network.initial_biases(rows.Y, None)
    np.testing.assert_array_equal(first, without)
    added = with_all - without if candidates else 0  # a network alone stays as it was measured
    np.testing.assert_allclose(final - last, added, atol=1e-5)
    assert np.abs(with_all - without).max() > 0.05


def test_scores_of_held_out_rows_do_not_depend_on_how_often_they_have_a_label():
    rng = np.random.default_rng(0)
    n, n_labels = 400, 50
    labels = np.tile(np.arange(8, dtype=np.int32), (n, 1)) + rng.integers(0, 40, (n, 1), dtype=np.int32)
    frequency = rng.integers(1, 100, n_labels).astype(np.float32)
    truth = rng.random(labels.shape) < np.where(np.abs(frequency - 50) < 20, 0.5, 0.1)[labels]  # as trees can tell
    logits, votes, margins, cooccurrence = (truth + rng.normal(0, 0.7, (4, *labels.shape))).astype(np.float32)
    margins += 0.2 * np.log(frequency)[labels]
    votes, cooccurrence = np.exp(votes), np.exp(cooccurrence)
    pairs = one_fold(labels, (logits, votes, margins, cooccurrence), truth, frequency, n)
    with DEVICE.start():
        (stacking, scores), (_, others) = (fit_stacking(pairs, each, DEVICE) for each in (frequency, frequency + 5))
    assert stacking.calibration.slope != 0
    assert stacking.trees is not None
    np.testing.assert_array_equal(scores, others)
