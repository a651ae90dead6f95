"""The learner: what it reports, sample weights, and masks that do not depend on who trains."""

from __future__ import annotations

import numpy as np
import pytest

from shared.every_executor import N_ROWS, NETWORK, SIZE, span
from xmlsgd.data.random_streams import ORDER
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.training.job import Job
from xmlsgd.training.learner import Learner


def test_a_report_counts_rows_features_and_the_sum_of_their_losses(job):
    flat = np.zeros(SIZE, np.float32)
    report = Learner(job, Reference(), flat).train_span(span(5, 2, 9))
    assert (report.worker, report.rows) == (5, 7)
    assert report.loss == pytest.approx(7 * 5 * np.log(2), rel=1e-6)  # all logits are 0
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[2:9]
    assert report.nnz == job.dataset.X.take(rows).nnz
    assert report.seconds > 0


def test_sample_weights_scale_the_loss_of_their_rows(job):
    weight = np.arange(N_ROWS, dtype=np.float32)
    weighted = Job(job.dataset, NETWORK, SGD(), seed=3, sample_weight=weight)
    report = Learner(weighted, Reference(), np.zeros(SIZE, np.float32)).train_span(span(0, 0, 4))
    rows = np.random.default_rng((3, ORDER, 0)).permutation(N_ROWS)[:4]
    assert report.loss == pytest.approx(weight[rows].sum() * 5 * np.log(2), rel=1e-6)


def test_dropout_masks_depend_on_the_batch_and_not_on_who_trains_it(job):
    dropping = Job(job.dataset, Network(6, 5, (4,), hidden_dropout=0.5), SGD(), seed=3)

    def after(*steps):
        flat = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
        learner = Learner(dropping, Reference(), flat)
        for one in steps:
            learner.train_span(one)
        return flat

    np.testing.assert_array_equal(after(span(0, 0, 4)), after(span(2, 0, 4)))
    assert np.any(after(span(0, 0, 4)) != after(span(0, 0, 4, epoch=1)))
