"""Groups in `fit`: rows that decide anything are of groups of which nothing was learned."""

from __future__ import annotations

import numpy as np
import pytest

from shared.planted import planted, small
from xmlsgd import DataError, XMLEnsemble
from xmlsgd.data.csr import CSR
from xmlsgd.data.held_out import HELD_OUT_SMALL, groups_of_similar_rows, held_out_folds

COPIES = pytest.mark.filterwarnings("ignore:X. 100% of the rows")


@pytest.fixture(scope="module", autouse=True)
def few_folds() -> None:
    """Have as many folds as users have."""


@pytest.fixture(scope="module")
def grouped():
    """Rows of which each is there ten times, and the group of each."""
    X, Y = planted(150)
    rows = np.repeat(np.arange(150), 10)
    return X[rows], Y[rows], rows


def test_rows_held_out_for_stacking_are_whole_groups(grouped):
    *_, groups = grouped
    for rows in held_out_folds(1500, 0, HELD_OUT_SMALL, groups, 5):
        assert 100 <= len(rows) <= 150
        assert (np.bincount(groups[rows])[groups[rows]] == 10).all()


def test_many_copies_of_rows_are_warned_of_unless_there_are_groups():
    X, Y = planted(1200)
    twice = np.append(np.arange(1200), np.arange(200))  # 400 of 1,400 rows are copies: 29 %
    with pytest.warns(UserWarning, match=r"X: 29% of the rows .* pass groups='similar' \(--groups similar\)$"):
        small(max_epochs=1).fit(X[twice], Y[twice])
    small(max_epochs=1).fit(X[twice], Y[twice], groups="similar")
    small(max_epochs=1).fit(X[twice[:1300]], Y[twice[:1300]])


@COPIES
def test_copies_of_a_row_make_probabilities_overconfident_unless_they_are_a_group(grouped):
    """A held-out row whose copies are learned says that the model is nearly always right."""
    X, Y, groups = grouped
    parameters = {"candidates": 20, "max_epochs": 3}
    alone, together = (
        small(**parameters).fit(X, Y, groups=each).candidates_.stacking.regression for each in (None, groups)
    )
    assert together.neighbors < alone.neighbors


@COPIES
def test_similar_rows_are_groups_where_groups_are_not_known(grouped):
    X, Y, _ = grouped
    alone, similar = (small(candidates=20, max_epochs=3).fit(X, Y, groups=each) for each in (None, "similar"))
    n_groups = {d.name: d.value for d in similar.plan_.decisions}["groups"]
    assert n_groups == len(np.unique(groups_of_similar_rows(CSR.from_scipy(X))))
    assert similar.candidates_.stacking.regression.neighbors < alone.candidates_.stacking.regression.neighbors
    with pytest.raises(DataError, match=r"groups: .* or be .similar., got 'alike'"):
        small().fit(X, Y, groups="alike")


def test_early_stopping_measures_on_whole_groups(grouped):
    X, Y, groups = grouped
    model = small(early_stopping=True, max_epochs=2)
    assert len(model.fit(X, Y, groups=groups).history_) == 2
    with pytest.raises(DataError, match=r"early_stopping: needs rows .* got no group of at most 150 of 1500"):
        model.fit(X, Y, groups=np.arange(1500) // 750)


def test_the_plan_names_what_is_assumed_of_new_rows(grouped):
    X, Y, groups = grouped
    reasons = [{d.name: (d.value, d.reason) for d in small().plan(X, Y, groups=g).decisions} for g in (None, groups)]
    assert reasons[0]["groups"] == (0, "none given: rows are assumed independent, and new ones like these")
    assert reasons[1]["groups"] == (150, "held out as a whole: new rows are assumed to be of new groups")


def test_the_plan_says_that_whole_groups_may_be_fewer_rows_and_folds(grouped):
    X, Y, groups = grouped
    for given, told in ((None, False), (groups, True)):
        reasons = {d.name: d.reason for d in small(candidates=20).plan(X, Y, groups=given).decisions}
        assert ["at most" in reasons[name] for name in ("held_out_rows", "folds")] == [told, told]


def test_groups_too_large_to_hold_out_are_warned_of(grouped):
    X, Y, _ = grouped
    text = "groups: none could be held out: needs 10 to 150 rows in whole groups, the smallest has 300;"
    with pytest.warns(UserWarning, match=text):
        model = small(max_epochs=1).fit(X, Y, groups=np.arange(1500) // 300)
    assert model.thresholds_["micro"] == 0.5


def test_the_smallest_group_is_one_that_has_weight(grouped):
    X, Y, _ = grouped
    groups = np.arange(1500) // 300
    with pytest.warns(UserWarning, match="the smallest has 300;"):
        small(max_epochs=1).fit(X, Y, groups != 0, groups=groups)


def test_an_ensemble_passes_groups_on(grouped):
    X, Y, groups = grouped
    model = XMLEnsemble(small(max_epochs=1), 2, random_state=0).fit(X, Y, groups=groups)
    assert [{d.name: d.value for d in each.plan_.decisions}["groups"] for each in model.estimators_] == [150, 150]


def test_groups_of_other_rows_are_refused(grouped):
    X, Y, groups = grouped
    with pytest.raises(DataError, match="groups: must have a text or an integer for each of 1500 rows"):
        small().fit(X, Y, groups=groups[:-1])
