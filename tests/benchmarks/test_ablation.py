"""The benchmark of the parts of the default model: each variant lacks one part, and nothing else."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.ablation import BASE_MODELS, CORRECTIONS, DEFAULT, MEASURES, learn, table, variants, without
from xmlsgd import make_xmc
from xmlsgd.candidates import stacking_training
from xmlsgd.candidates.cooccurrence import N_COOCCURRING
from xmlsgd.candidates.stacking import Inputs, MarginCalibration
from xmlsgd.data.csr import Dataset
from xmlsgd.metrics import precision_at_k

pytestmark = pytest.mark.slow

STANDARD_ERROR = (0.3 * 0.7 / 400) ** 0.5  # of a P@1 near 0.7 on the 400 test rows


@pytest.fixture(scope="module")
def test_rows():
    return whole().Y.span(2000, 2400), whole().X.span(2000, 2400)


@pytest.fixture(scope="module", autouse=True)
def corrections_that_are_always_kept():
    """So few rows do not decide surely whether trees and exclusion help."""
    with patch.object(stacking_training, "_share_to_keep", lambda *_: np.float32(0.5)):
        yield


@pytest.fixture(scope="module")
def learned():
    data = whole()
    return learn(Dataset(data.X.span(0, 2000), data.Y.span(0, 2000)), 1, 0)


def whole() -> Dataset:
    return make_xmc(2400, 800, 200, nnz_per_row=10, labels_per_row=3, random_state=0)


@pytest.fixture(scope="module")
def found(learned, test_rows):
    return dict(variants(learned, test_rows[1]))


def test_each_part_is_left_out_and_no_variant_without_one_is_worse_than_a_base_model(found, test_rows):
    parts = [f"without {part}" for part in (*CORRECTIONS, *BASE_MODELS.values())]
    alone = [f"{model} alone" for model in BASE_MODELS.values()]
    assert list(found) == [DEFAULT, *parts, *alone]
    precision = {name: precision_at_k(test_rows[0], ranking, 1)[0] for name, ranking in found.items()}
    assert precision[DEFAULT] > max(precision[name] for name in alone) - STANDARD_ERROR
    assert precision["without linear classifiers"] > precision["neighbors alone"] - STANDARD_ERROR


def test_the_default_is_what_the_estimator_ranks(found, learned, test_rows):
    np.testing.assert_array_equal(found[DEFAULT], learned.model.predict_topk(test_rows[1], 5)[0])


@pytest.mark.parametrize("part", Inputs._fields)
def test_an_input_that_is_left_out_changes_no_score(learned, test_rows, part):
    X, device = test_rows[1], learned.device
    model = without(learned, part)
    labels, inputs = model.inputs(X, lambda _, labels: np.float32(labels % 7) / 5, device)
    if part == "cooccurrence":
        assert (labels[:, -N_COOCCURRING:] == -1).all()
    others = inputs._replace(**{part: getattr(inputs, part) + np.float32(0.25)})
    scores = [model.stacking.scores(labels, each, model.n_excluding, device) for each in (inputs, others)]
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_corrections_are_left_out_one_at_a_time(learned):
    default = learned.model.candidates_.stacking
    assert without(learned, "calibration of margins").stacking.calibration == MarginCalibration() != default.calibration
    assert without(learned, "trees").stacking.trees is None
    assert default.exclusion is not None
    stacking = without(learned, "exclusion").stacking
    assert stacking.exclusion is None
    np.testing.assert_array_equal(stacking.trees.value, default.trees.value)


def test_the_table_tells_mean_changes():
    sets = {"one": {DEFAULT: [4, 3, 2, 1], "less": [3, 3, 2, 1]}, "two": {DEFAULT: [8, 6, 4, 2], "less": [5, 6, 4, 3]}}
    told = {
        name: {model: dict(zip(MEASURES, map(float, row), strict=True)) for model, row in rows.items()}
        for name, rows in sets.items()
    }
    lines = table(told).markdown().splitlines()
    assert lines[2] == "| model | one | two | mean change |"
    assert lines[4:6] == [
        f"| {DEFAULT} | 4.00/3.00/2.00, 1.00 | 8.00/6.00/4.00, 2.00 |  |",
        "| less | 3.00/3.00/2.00, 1.00 | 5.00/6.00/4.00, 3.00 | -2.00 +0.00 +0.00 +0.50 |",
    ]
