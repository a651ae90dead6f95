"""The choice of "auto", and one worker alone."""

from __future__ import annotations

from xmlsgd.algorithms import choose_algorithm, get_algorithm
from xmlsgd.algorithms.hogwild import Hogwild
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.sequential import Sequential


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
    algorithm.joined(1)
    assert algorithm.batch_size(0, 0.0) == algorithm.batch_size(1, 0.0) == algorithm.batch


def test_of_several_workers_the_first_alive_trains_a_sequential_run():
    algorithm = Sequential(16, 0.1)
    algorithm.start([0, 1], 1000)
    assert [algorithm.batch_size(w, 0.0) for w in (0, 1)] == [16, 0]
    algorithm.left(0)
    assert algorithm.batch_size(1, 0.0) == 16
