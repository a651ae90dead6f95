"""The outputs of labels that come with added rows: by how much each step changes them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from shared.candidates import DEVICE
from shared.planted import N_LABELS, planted, small
from xmlsgd.estimators.new_outputs import train_new_outputs
from xmlsgd.estimators.training_data import GivenRows, read_training_data
from xmlsgd.nn.optimizers.base import Optimizer


def trained(X, Y):
    """Return the parameters after all outputs were trained on these rows as new ones."""
    model = small(optimizer="sgd", candidates=0)
    plan, data = model.plan(X, Y), read_training_data(model, GivenRows(X, Y))
    params = np.random.default_rng(0).random(plan.network.layout.size, np.float32)
    train_new_outputs(plan, data, params, np.ones(N_LABELS, np.bool_), 0, DEVICE)
    return params


def test_a_step_goes_by_the_mean_of_its_rows():
    X, Y = planted(100)
    twice = trained(sp.vstack([X, X]), sp.vstack([Y, Y]))  # one step sees all rows in both cases
    np.testing.assert_allclose(trained(X, Y), twice, rtol=1e-4, atol=1e-5)


def test_the_rate_falls_to_0(monkeypatch):
    rates, update = [], Optimizer.update

    def noted(self, rate, steps):
        rates.append(rate)
        return update(self, rate, steps)

    monkeypatch.setattr(Optimizer, "update", noted)
    trained(*planted(100))
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 0.75, 0.5, 0.25])
