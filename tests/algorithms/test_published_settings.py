"""The settings of the papers beside our defaults, and algorithms that lack a method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import pytest

from xmlsgd.algorithms import algorithm_class, algorithm_names, get_algorithm
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.adaptive_hogbatch import AdaptiveHogbatch
from xmlsgd.algorithms.base import Algorithm
from xmlsgd.algorithms.elastic import Elastic
from xmlsgd.algorithms.hogbatch import Hogbatch
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.outer import Nesterov
from xmlsgd.algorithms.rounds import Rounds
from xmlsgd.errors import DataError


@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_has_published_settings_at_the_batch_and_learning_rate_asked_for(name):
    kind = algorithm_class(name)
    made = kind.published(batch=64, learning_rate=0.1)
    assert type(made) is kind
    assert (made.batch, made.learning_rate) == (64, 0.1)
    made.start([0, 1], 10**6)


def test_published_settings_have_a_name_and_take_options():
    found = get_algorithm("adaptive/published/momentum=0.5", 64, 0.1)
    assert found == replace(AdaptiveSGD.published(64, 0.1), momentum=0.5)
    with pytest.raises(DataError, match="adaptive has the options"):
        get_algorithm("adaptive/momentum=0.5/published", 64, 0.1)
    with pytest.raises(DataError, match="auto has no options, got 'published'"):
        get_algorithm("auto/published", 64, 0.1)


def test_published_adaptive_sgd_has_the_constants_of_the_paper():
    paper = AdaptiveSGD.published(1024)
    assert paper.mega_batch == 100 * 1024
    assert (paper.low, paper.size_rule) == (128, "additive")
    assert (paper.momentum, paper.perturbation) == (0.9, 0.1)
    assert paper.straggler_timeout == inf


def test_published_elastic_averaging_merges_as_seldom_as_published_adaptive_sgd():
    baseline = Elastic.published(1024)
    baseline.start([0, 1, 2, 3], 490_449)
    assert baseline.round_rows == 100 * 1024


def test_published_hogbatch_is_not_that_of_hogwild():
    assert [kind.published().batch for kind in (Hogwild, Hogbatch, AdaptiveHogbatch)] == [1, 256, 256]


def test_published_local_sgd_is_diloco():
    paper = LocalSGD.published()
    assert (paper.steps, paper.outer, paper.combine) == (500, Nesterov(0.9, 0.7), "mean")


@pytest.mark.parametrize(("bases", "missing"), [((Algorithm,), "start"), ((Rounds,), "merge_replicas")])
def test_an_algorithm_that_lacks_a_method_fails_when_it_is_made_and_the_method_is_named(bases, missing):
    lacking = dataclass(type("Lacking", bases, {}))
    with pytest.raises(TypeError, match=missing):
        lacking()
