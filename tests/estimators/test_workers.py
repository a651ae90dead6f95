"""Several workers under the estimator: what `devices` names, algorithms by name and as objects, real processes."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from joblib import cpu_count
from sklearn.base import clone

from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.algorithms import algorithm_names
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.errors import DataError, WorkerDied
from xmlsgd.estimators import workers
from xmlsgd.estimators.workers import executor_of, parse_devices, thread_count, workers_of
from xmlsgd.training.callbacks import Callback
from xmlsgd.training.executors.processes import Processes


@pytest.fixture(scope="module")
def data():
    return make_xmc(400, 120, 60, nnz_per_row=8, labels_per_row=2, random_state=0)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cpu", ["cpu"]),
        ("cpu*3", ["cpu"] * 3),
        ("cpu, cpu*2", ["cpu"] * 3),
        ("cuda:1*2,cpu", ["cuda:1", "cuda:1", "cpu"]),
    ],
)
def test_devices_are_written_kind_index_learners(text, names):
    assert parse_devices(text) == names


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "kind:index"),
        ("cpu*0", r"kind:index.*, got 'cpu\*0'; the least number of workers is 1$"),
        ("cpu2", r"got 'cpu2'; did you mean 'cpu\*2'\?$"),
        ("CPU * 2", r"got 'CPU \* 2'; did you mean 'cpu\*2'\?$"),
        ("cpux4,cpu", r"got 'cpux4,cpu'; did you mean 'cpu\*4'\?$"),
        ("cpu*", r"kind:index.*got 'cpu\*'$"),
        ("cpu;cpu", "kind:index"),
        ("cpu*257", "at most 256 workers, got 257"),
        (",".join(["cpu*200"] * 2), "at most 256 workers"),
        ("tpu", "must be of the kinds cpu, cuda, got 'tpu'"),
        ("reference", "must be of the kinds cpu, cuda, got 'reference'"),
        ("cpu:3*2", "the CPU has no index, got 'cpu:3'"),
        (2, "must be a text"),
    ],
)
def test_devices_that_cannot_be_are_one_line(text, complaint):
    with pytest.raises(DataError, match=complaint) as error:
        parse_devices(text)
    assert "\n" not in str(error.value)


def test_workers_on_the_cpu_share_its_threads():
    assert [worker.n_threads for worker in workers_of("cpu*3", 8)] == [2, 2, 2]
    assert [worker.n_threads for worker in workers_of("cpu*3", 1)] == [1, 1, 1]
    assert [worker.n_threads for worker in workers_of("cpu", 8)] == [8]


OF_ONE = {"hidden_layer_sizes": (16,), "max_epochs": 30, "batch_size": 16, "random_state": 0}


@pytest.fixture(scope="module")
def score_of_one(data):
    return XMLClassifier(**OF_ONE).fit(data.X, data.Y).score(data.X, data.Y)


@pytest.mark.parametrize("algorithm", ["auto", "adaptive", "hogwild", Crossbow(16, 0.006, sync_every=1)])
@pytest.mark.slow
def test_two_worker_processes_learn_what_one_learns(data, score_of_one, algorithm):
    two = XMLClassifier(**OF_ONE, algorithm=algorithm, devices="cpu*2").fit(data.X, data.Y)
    assert two.score(data.X, data.Y) > 0.8 * score_of_one > 0.3
    assert len(two.history_[-1]["workers"]) == 2
    assert np.isfinite(two.params_).all()


def test_a_model_of_several_workers_goes_on_learning(data):
    settings = {"algorithm": "adaptive", "devices": "cpu*2", "candidates": 0, "max_epochs": 2, "batch_size": 16}
    model = XMLClassifier((16,), **settings, warm_start=True).fit(data.X, data.Y)
    model.fit(data.X, data.Y)
    assert model.n_epochs_ == 4
    assert model.loss_curve_[3] < model.loss_curve_[1]


def test_devices_may_change_from_call_to_call_and_copies_go_on_alike(data):
    model = XMLClassifier((8,), max_epochs=1, batch_size=16, random_state=0).fit(data.X, data.Y)
    model.set_params(devices="cpu*2", algorithm="synchronous", n_jobs=1)
    pickled, cloned = pickle.loads(pickle.dumps(model)), clone(model)
    for goes_on in (model, pickled):
        goes_on.partial_fit(data.X, data.Y)
    np.testing.assert_array_equal(model.params_, pickled.params_)
    assert not hasattr(cloned, "params_")
    assert cloned.get_params() == model.get_params()
    model.set_params(devices="cpu", algorithm="auto").partial_fit(data.X, data.Y)
    assert model.n_epochs_ == 3
    assert [len(record.get("workers", ())) for record in model.history_] == [0, 2, 0]


def test_two_models_learn_at_the_same_time_in_threads(data):
    made = {"devices": "cpu*2", "algorithm": "synchronous", "max_epochs": 2, "batch_size": 16, "n_jobs": 1}
    models = [XMLClassifier((8,), random_state=0, **made) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda model: model.fit(data.X, data.Y), models))
    np.testing.assert_array_equal(models[0].params_, models[1].params_)


class KillingAll(Callback):
    """Kill all workers of an executor, which are not replaced, after so many whole epochs and a step."""

    def __init__(self, epochs):
        self.epochs, self.executor = epochs, None

    def span(self, report):
        if not self.epochs:
            self.executor.pool.restarts = 0
            for process in self.executor.pool.processes.values():
                process.process.kill()

    def epoch(self, record, center):
        self.epochs -= 1
        return False


@pytest.fixture
def killing(monkeypatch):
    """A callback that kills the workers of the next fit after two epochs."""
    callback = KillingAll(2)

    def watched(*given):
        callback.executor = executor_of(*given)
        return callback.executor

    monkeypatch.setattr("xmlsgd.estimators.fitting.executor_of", watched)
    return callback


@pytest.mark.filterwarnings("ignore:worker . is lost")
@pytest.mark.slow
def test_a_fit_whose_workers_are_all_killed_keeps_what_was_learned_and_can_go_on(data, killing):
    model = XMLClassifier((16,), devices="cpu*2", max_epochs=30, batch_size=16, random_state=0, warm_start=True)
    with pytest.raises(WorkerDied, match="no worker is left: ") as died:
        model.fit(data.X, data.Y, callbacks=[killing])
    if sys.version_info >= (3, 11):
        (told,) = died.value.__notes__
        assert told.startswith("what was learned until then is kept, 2 whole epochs of this run; save it, or continue ")
    assert model.n_epochs_ == 2
    assert np.isfinite(model.params_).all()
    assert model.predict_topk(data.X, k=2)[0].shape == (400, 2)
    killing.epochs = -1
    assert model.set_params(max_epochs=2).fit(data.X, data.Y).n_epochs_ == 4
    assert model.partial_fit(data.X, data.Y).n_epochs_ == 5


@pytest.mark.filterwarnings("ignore:worker . is lost")
def test_a_fit_whose_workers_are_killed_at_once_leaves_an_earlier_model_as_it_was(data, killing, monkeypatch):
    model = XMLClassifier((16,), max_epochs=1, batch_size=16, random_state=0).fit(data.X, data.Y)
    before = dict(vars(model))
    killing.epochs = 0
    monkeypatch.setattr(Processes, "_begin", lambda self, step: killing.span(None))
    with pytest.raises(WorkerDied, match="no worker is left"):
        model.set_params(devices="cpu*2").fit(data.X, data.Y, callbacks=[killing])
    assert all(vars(model)[name] is value for name, value in before.items() if name.endswith("_"))


def test_every_algorithm_has_a_name_and_defaults_that_work_for_one_worker(data):
    assert {
        "hogwild", "hogbatch", "adaptive_hogbatch", "synchronous", "elastic", "easgd", "local_sgd", "adaptive",
        "crossbow", "auto", "sequential",
    } <= {"auto", *algorithm_names()}  # fmt: skip
    scores = {}
    for name in ("auto", *algorithm_names()):
        model = XMLClassifier((8,), algorithm=name, max_epochs=5, batch_size=16, random_state=0)
        scores[name] = model.fit(data.X, data.Y).score(data.X, data.Y)
    assert min(scores.values()) > 0.1, scores


@pytest.mark.parametrize(
    ("devices", "algorithm", "reason", "warning"),
    [
        ("cpu", "auto", "one worker: nothing to share or merge", None),
        ("cpu*2", "auto", "workers write one memory: no merges, no averaging", None),
        ("cpu", "sequential", "as given", None),
        ("cpu", "adaptive", "as given; made for several workers, and there is one", None),
        ("cpu*2", "adaptive", "as given", None),
        ("cpu*2", Sequential(16), "as given; one of 2 workers trains, the others are idle", "pass devices='cpu' to"),
    ],
)
def test_the_plan_says_whether_the_algorithm_suits_the_number_of_workers(data, devices, algorithm, reason, warning):
    model = XMLClassifier((8,), algorithm=algorithm, devices=devices)
    with pytest.warns(UserWarning, match=warning) if warning else nullcontext():
        plan = model.plan(data.X, data.Y)
    assert plan.to_dict()["algorithm"]["reason"] == reason


@pytest.mark.parametrize("algorithm", ["omnivore/groups=3", "hogbatch/sizes=64:64:64", "crossbow/learners=3"])
def test_options_that_need_other_workers_are_refused_in_the_plan(data, algorithm):
    with pytest.raises(DataError, match=r"got .* for 2|got 'cpu, cpu'; list each 3 times"):
        XMLClassifier((8,), algorithm=algorithm, devices="cpu*2").plan(data.X, data.Y)


def test_an_algorithm_brings_its_batch_and_rate_and_no_run_changes_it(data):
    algorithm = Sequential(16, 0.006)
    before = dict(vars(algorithm))
    model = XMLClassifier((16,), max_epochs=3, random_state=0, n_jobs=1, algorithm=algorithm).fit(data.X, data.Y)
    same = XMLClassifier((16,), max_epochs=3, random_state=0, n_jobs=1, batch_size=16, learning_rate_init=0.006)
    assert np.array_equal(model.params_, same.fit(data.X, data.Y).params_)
    assert vars(algorithm) == before


@pytest.mark.parametrize(("devices", "n_jobs", "expected"), [("cpu", 4, 4), ("cpu*5", 2, 5), ("cpu*3", 8, 6)])
def test_the_plan_says_how_many_threads_the_workers_have_in_all(data, monkeypatch, devices, n_jobs, expected):
    monkeypatch.setattr(workers, "usable_threads", lambda: 8)
    plan = XMLClassifier((8,), candidates=4, devices=devices, n_jobs=n_jobs).plan(data.X, data.Y)
    told = plan.to_dict()
    assert (told["n_jobs"]["value"], told["candidate_threads"]["value"]) == (expected, n_jobs)
    assert sum(worker.n_threads for worker in plan.workers) == expected


@pytest.mark.parametrize("n_jobs", [-5, -(2**70), 10**6, 10**12, 2**70])
def test_threads_are_one_at_least_and_one_a_core_at_most(data, n_jobs):
    assert thread_count(n_jobs) == (cpu_count() if n_jobs > 0 else 1)
    XMLClassifier((8,), candidates=0, max_epochs=1, n_jobs=n_jobs).fit(data.X, data.Y)
