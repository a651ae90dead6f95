"""Several workers under the estimator: what `devices` names, which algorithm "auto" takes, real processes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone

from shared import toy
from xmlsgd import XMLClassifier, make_xmc
from xmlsgd.algorithms import algorithm_names
from xmlsgd.algorithms.auto import Auto
from xmlsgd.algorithms.base import Algorithm
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.engine import train
from xmlsgd.errors import DataError, WorkerDied
from xmlsgd.estimators.fleet import executor_of, parse_devices, workers_of
from xmlsgd.executors.costs import VirtualDevice
from xmlsgd.executors.processes import Processes
from xmlsgd.history import Monitor
from xmlsgd.learner import Job
from xmlsgd.optimizers import SGD
from xmlsgd.records import Sharing
from xmlsgd.schedules import Schedule

PARKED = 1.0, 1.0, 1e-3  # speeds of workers of which the last one is parked


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
        ("cpu*0", "kind:index"),
        ("cpu*", "kind:index"),
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


@pytest.mark.parametrize("algorithm", ["auto", "adaptive", "hogwild", Crossbow(16, 0.006, sync_every=1)])
def test_two_worker_processes_learn_what_one_learns(data, algorithm):
    settings = {"hidden_layer_sizes": (16,), "max_epochs": 30, "batch_size": 16, "random_state": 0}
    one = XMLClassifier(**settings).fit(data.X, data.Y)
    two = XMLClassifier(**settings, algorithm=algorithm, devices="cpu*2").fit(data.X, data.Y)
    assert two.score(data.X, data.Y) > 0.8 * one.score(data.X, data.Y) > 0.3
    assert len(two.history_[-1]["workers"]) == 2
    assert np.isfinite(two.params_).all()


def test_a_model_of_several_workers_goes_on_learning(data):
    model = XMLClassifier((16,), algorithm="adaptive", devices="cpu*2", max_epochs=2, batch_size=16, warm_start=True)
    model.fit(data.X, data.Y)
    first = model.score(data.X, data.Y)
    model.fit(data.X, data.Y)
    assert model.n_epochs_ == 4
    assert model.score(data.X, data.Y) >= first
    model.partial_fit(data.X, data.Y)
    assert model.n_epochs_ == 5


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


class KillingAll(Monitor):
    """Kill all workers of an executor, which are not replaced, after so many whole epochs and a step."""

    def __init__(self, epochs):
        self.epochs, self.executor = epochs, None

    def step(self, report):
        if not self.epochs:
            self.executor.team.restarts = 0
            for process in self.executor.team.processes.values():
                process.process.kill()

    def epoch(self, record, center):
        self.epochs -= 1
        return False


@pytest.fixture
def killing(monkeypatch):
    """A monitor that kills the workers of the next fit after two epochs."""
    monitor = KillingAll(2)

    def watched(*given):
        monitor.executor = executor_of(*given)
        return monitor.executor

    monkeypatch.setattr("xmlsgd.estimators.fitting.executor_of", watched)
    return monitor


@pytest.mark.filterwarnings("ignore:worker . is lost")
def test_a_fit_whose_workers_are_all_killed_keeps_what_was_learned_and_can_go_on(data, killing):
    model = XMLClassifier((16,), devices="cpu*2", max_epochs=30, batch_size=16, random_state=0, warm_start=True)
    with pytest.raises(
        WorkerDied,
        match=r"^no worker is left: .*; what was learned until then is kept, 2 whole epochs of this run; save it, "
        r"or go on from it by partial_fit or by fit with warm_start=True$",
    ):
        model.fit(data.X, data.Y, monitors=[killing])
    assert model.n_epochs_ == 2
    assert np.isfinite(model.params_).all()
    assert model.predict_topk(data.X, k=2)[0].shape == (400, 2)
    killing.epochs = -1
    model.partial_fit(data.X, data.Y)
    assert model.set_params(max_epochs=2).fit(data.X, data.Y).n_epochs_ == 5


@pytest.mark.filterwarnings("ignore:worker . is lost")
def test_a_fit_whose_workers_are_killed_at_once_leaves_an_earlier_model_as_it_was(data, killing, monkeypatch):
    model = XMLClassifier((16,), max_epochs=1, batch_size=16, random_state=0).fit(data.X, data.Y)
    before = dict(vars(model))
    killing.epochs = 0
    monkeypatch.setattr(Processes, "_begin", lambda self, step: killing.step(None))
    with pytest.raises(WorkerDied, match="no worker is left"):
        model.set_params(devices="cpu*2").fit(data.X, data.Y, monitors=[killing])
    assert all(vars(model)[name] is value for name, value in before.items() if name.endswith("_"))


def test_every_algorithm_has_a_name_and_defaults_that_work_for_one_worker(data):
    assert {
        "hogwild", "hogbatch", "adaptive_hogbatch", "synchronous", "elastic", "easgd", "local_sgd", "adaptive",
        "crossbow", "auto", "sequential",
    } <= set(algorithm_names())  # fmt: skip
    scores = {}
    for name in algorithm_names():
        model = XMLClassifier((8,), algorithm=name, max_epochs=5, batch_size=16, random_state=0)
        scores[name] = model.fit(data.X, data.Y).score(data.X, data.Y)
    assert min(scores.values()) > 0.1, scores


def test_auto_shares_one_memory_merges_over_several_and_trains_alone_with_one_worker():
    assert Auto(speeds=(1.0,)).sharing is Sharing.IN_PLACE
    assert "one worker" in Auto(speeds=(1.0,)).reason
    assert Auto(speeds=(1.0, 1.0)).sharing is Sharing.IN_PLACE
    assert Auto(speeds=(1.0, 0.1), one_memory=False).sharing is Sharing.REPLICAS


def test_auto_decides_or_passes_on_whatever_an_algorithm_may_be_asked():
    asked = {name for name, kind in vars(Algorithm).items() if callable(kind) and not name.startswith("_")}
    assert asked >= {"weigh_rows", "deadline", "merge_due"}
    assert asked <= vars(Auto).keys()


def test_auto_tells_the_chosen_algorithm_the_time_and_the_rows_left():
    algorithm = Auto(speeds=(1.0, 1.0), one_memory=False)
    algorithm.start([0, 1], 1000)
    algorithm.now, algorithm.left_rows = 7.0, 500
    assert algorithm.learning_rate(0, algorithm.batch) == algorithm.rate
    assert (algorithm.chosen.now, algorithm.chosen.left_rows) == (7.0, 500)


def test_auto_parks_a_worker_that_brings_less_than_it_costs_and_says_so():
    algorithm = Auto(speeds=(100.0, 100.0, 1.0), one_memory=False)
    algorithm.start([0, 1, 2], 1000)
    assert [bool(algorithm.batch_size(w)) for w in range(3)] == [True, True, False]
    assert "parked" in algorithm.reason
    assert "2 (0.5%)" in algorithm.reason


def test_auto_says_so_too_where_parking_leaves_one_worker():
    algorithm = Auto(speeds=(100.0, 1.0))
    algorithm.start([0, 1], 1000)
    assert "one worker" in algorithm.reason
    assert "parked, for they would bring below 2% of the rows: 1 (1.0%)" in algorithm.reason


@pytest.mark.parametrize("settings", [{}, {"one_memory": False}], ids=["shared", "replicas"])
def test_a_parked_worker_stands_in_while_all_others_are_away(settings):
    """They leave, one after the other, and the second is back when most is done."""
    away = [((0.05, np.inf),), ((0.07, 0.25),), ()]
    fleet = [VirtualDevice(0, 1e-3, absent=absent) for absent in away]

    class Looking(toy.Logged):
        def submit(self, step):
            if settings and step.worker == 2 and 2 not in [issued.worker for issued in self.of("issue")]:
                np.testing.assert_array_equal(self.table.params[3], self.center)
            super().submit(step)

    executor = Looking(toy.Quadratic(), fleet)
    data = toy.dataset(240)
    algorithm = Auto(10, 0.1, speeds=PARKED, **settings)
    run = train(Job(data, toy.counting(data), SGD()), algorithm, executor, Schedule(2))
    assert [record["rows"] for record in run.records] == [240, 480]
    steps = [
        (at, what.worker) for (kind, what), at in zip(executor.log, executor.times, strict=True) if kind == "issue"
    ]
    by_parked = [at for at, w in steps if w == 2]
    assert min(by_parked) >= 0.07
    back = next(at for at, w in steps if w == 1 and at >= 0.25)
    assert max(by_parked) <= back + 0.1, "parked again"
    assert {w for at, w in steps if at > back + 0.1} == {1}


@pytest.mark.filterwarnings("ignore:worker . is lost")
@pytest.mark.parametrize("one_memory", [True, False])
def test_a_parked_process_stands_in_when_all_others_are_killed(one_memory):
    executor = Processes([toy.Marking] * 3, restarts=0, one_memory=one_memory)

    class Killing(Auto):
        def submitted(self, w, rows):
            self.tell("submitted", w, rows)
            if w != 2 and self.now:
                executor.team.processes[w].process.kill()

    algorithm = Killing(10, 0.1, speeds=PARKED, one_memory=one_memory)
    data = toy.dataset(240)
    run = train(Job(data, toy.counting(data), SGD()), algorithm, executor, Schedule(2))
    assert executor.workers == [2]
    assert [record["rows"] for record in run.records] == [240, 480]
    assert len(executor.failures) == 2


def test_auto_shares_one_model_though_only_one_of_several_workers_is_there_at_first():
    algorithm = Auto(speeds=(1.0, 1.0))
    algorithm.start([0], 1000)
    algorithm.joined(1)
    assert algorithm.batch_size(0) == algorithm.batch_size(1) == algorithm.batch


@pytest.mark.parametrize(("n_workers", "worth"), [(64, 0.02), (2, 0.9)])
def test_auto_parks_none_of_many_equal_workers(n_workers, worth):
    algorithm = Auto(speeds=(1.0,) * n_workers, worth=worth)
    assert algorithm.parked == set()
    assert Auto(speeds=(*[1.0] * n_workers, 0.001 / n_workers)).parked == {n_workers}


def test_of_several_workers_the_first_alive_trains_a_sequential_run():
    algorithm = Sequential(16, 0.1)
    algorithm.start([0, 1], 1000)
    assert [algorithm.batch_size(w) for w in (0, 1)] == [16, 0]
    algorithm.left(0)
    assert algorithm.batch_size(1) == 16


def test_an_algorithm_brings_its_batch_and_rate_and_no_run_changes_it(data):
    algorithm = Sequential(16, 0.006)
    before = dict(vars(algorithm))
    model = XMLClassifier((16,), max_epochs=3, random_state=0, n_jobs=1, algorithm=algorithm).fit(data.X, data.Y)
    same = XMLClassifier((16,), max_epochs=3, random_state=0, n_jobs=1, batch_size=16, learning_rate_init=0.006)
    assert np.array_equal(model.params_, same.fit(data.X, data.Y).params_)
    assert vars(algorithm) == before


@pytest.mark.parametrize("numbers", [{"speeds": (1.0, 0.0)}, {"worth": 1.0}, {"worth": -0.1}])
def test_auto_refuses_numbers_that_cannot_be(numbers):
    with pytest.raises(DataError):
        Auto(**numbers)
