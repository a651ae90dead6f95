"""Algorithms by their names, the choice of "auto", and one worker alone."""

from __future__ import annotations

import pytest

from xmlsgd.algorithms import algorithm_class, algorithm_names, choose_algorithm, get_algorithm
from xmlsgd.algorithms.base import Algorithm
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.errors import DataError


def chosen(n_workers, **settings):
    return choose_algorithm(10, 0.1, n_workers, **settings)


def test_one_worker_trains_alone_one_memory_is_shared_and_replicas_are_merged_over_several():
    assert isinstance(chosen(1), Sequential)
    assert "one worker" in chosen(1).reason
    assert isinstance(chosen(2), Hogwild)
    assert isinstance(chosen(2, one_memory=False), LocalSGD)
    assert (chosen(1).batch, chosen(1).learning_rate) == (10, 0.1)


def test_auto_by_name_is_the_choice_for_so_many_workers():
    assert isinstance(get_algorithm("auto", 10, 0.1), Sequential)
    assert isinstance(get_algorithm("auto", 10, 0.1, 2, one_memory=False), LocalSGD)


def test_one_model_is_shared_though_only_one_of_several_workers_is_there_at_first():
    algorithm = chosen(2)
    algorithm.start([0], 1000)
    algorithm.worker_joined(1)
    assert algorithm.batch_size(0, 0.0) == algorithm.batch_size(1, 0.0) == algorithm.batch


def test_of_several_workers_the_first_alive_trains_a_sequential_run():
    algorithm = Sequential(16, 0.1)
    algorithm.start([0, 1], 1000)
    assert [algorithm.batch_size(w, 0.0) for w in (0, 1)] == [16, 0]
    algorithm.worker_left(0)
    assert algorithm.batch_size(1, 0.0) == 16


def test_every_algorithm_in_the_folder_is_found_by_its_name():
    names = algorithm_names()
    assert "sequential" in names
    assert "base" not in names
    for name in names:
        made = get_algorithm(name, batch=32, learning_rate=0.5)
        assert isinstance(made, Algorithm)
        assert type(made).__module__ == f"xmlsgd.algorithms.{name}"


def test_an_algorithm_found_by_name_has_the_batch_and_the_rate_asked_for():
    made = get_algorithm("sequential", batch=32, learning_rate=0.5)
    assert (made.batch, made.learning_rate_of(0, 32)) == (32, 0.5)
    assert get_algorithm(made, batch=1, learning_rate=1) is made


def test_an_unknown_algorithm_lists_those_there_are():
    with pytest.raises(DataError, match=r"algorithm must be one of auto, .*sequential.*, got 'magic'"):
        get_algorithm("magic", 1, 1)
    with pytest.raises(DataError, match=r"algorithm must be one of adaptive, .*, got 'auto'"):
        algorithm_class("auto")
