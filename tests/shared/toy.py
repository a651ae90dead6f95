"""Small parts that the tests of algorithms and of the engine share: models of one number, rows that leave marks."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.random_streams import epoch_order
from xmlsgd.devices.reference import Reference
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import SGD
from xmlsgd.nn.schedules import Schedule
from xmlsgd.training.executors.simulated import Simulated
from xmlsgd.training.executors.virtual_device import VirtualDevice
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train
from xmlsgd.training.merging import Merger
from xmlsgd.training.messages import Report
from xmlsgd.training.shared_parameters import SharedParameters, SharedShape

from .light import Quadratic


def dataset(n_rows):
    """Every row has one feature, its own, and the one label."""
    ones = np.ones(n_rows, np.float32)
    X = CSR(np.arange(n_rows + 1, dtype=np.int64), np.arange(n_rows, dtype=np.int32), ones, n_rows)
    Y = CSR(np.arange(n_rows + 1, dtype=np.int64), np.zeros(n_rows, np.int32), ones, 1)
    return Dataset(X, Y)


def random_data(n_rows, n_features, n_labels, seed=0, density=0.4):
    rng = np.random.default_rng(seed)
    return Dataset(
        *(
            CSR.from_scipy(sp.csr_array(rng.random((n_rows, n)) * (rng.random((n_rows, n)) < density)))
            for n in (n_features, n_labels)
        )
    )


def learnable_data(n_rows, n_labels=8, noise=12, seed=0):
    """Every row has one label, one of the two features of that label, and three features that mean nothing."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_labels, size=n_rows)
    X = np.zeros((n_rows, 2 * n_labels + noise), np.float32)
    X[np.arange(n_rows), 2 * labels + rng.integers(2, size=n_rows)] = 1
    for row in X:
        row[2 * n_labels + rng.choice(noise, 3, replace=False)] = 0.5
    return Dataset(*(CSR.from_scipy(sp.csr_array(rows)) for rows in (X, np.eye(n_labels)[labels])))


FITTING = Network(28, 8, (16,), "softmax")  # for `learnable_data`


def add_trained(params):
    """A merge of marks: the rows that a replica has touched are added to the center, which has 0 for untrained ones."""
    if params.name == "W0":
        for replica, touched in zip(params.replicas.values(), params.touched, strict=True):
            params.center[touched] += replica[touched]
    params.broadcast()


def moved(w, rate, rows):
    """The update of `Quadratic` by hand."""
    return w - rate * (w - rows.mean() / 100)


class Logged(Simulated):
    """Keeps what happens: ("issue", span), ("done", report), ("left" or "joined", worker), ("merge", members)."""

    def __init__(self, device, fleet, **settings):
        super().__init__(device, fleet, **settings)
        self.log, self.times = [], []

    def _note(self, *entry):
        self.log.append(entry)
        self.times.append(self.now())

    def submit(self, span):
        self._note("issue", span)
        super().submit(span)

    def wait(self, until=None):
        event = super().wait(until)
        if event is None:
            return None
        self._note("done", event) if isinstance(event, Report) else self._note(
            type(event).__name__.lower(), event.worker
        )
        return event

    def merge(self, rule, members):
        self._note("merge", sorted(members))
        super().merge(rule, members)

    def of(self, kind):
        return [what for name, what in self.log if name == kind]


def sequential(data, network, batch=10, rate=0.3, epochs=1):
    """The model of one worker alone, with the arithmetic of the reference device."""
    return run(Sequential(batch, rate), fleet(1), device=Reference(), data=data, network=network, epochs=epochs)[0]


def fleet(*speeds, **costs):
    return [VirtualDevice(**{"overhead": 0.0, "per_row": 1e-3, "speed": speed, **costs}) for speed in speeds]


def run(
    algorithm, devices, n_rows=240, device=None, data=None, network=None, epochs=1, seed=0, callbacks=(), start=None
):
    """Train on the simulated clock with plain SGD at a constant rate; return the run and the executor."""
    data = data or dataset(n_rows)
    executor = Logged(device or Quadratic(), devices, seed=seed)
    job = Job(data, network or counting(data), SGD(), seed=seed, start=start)
    return train(job, algorithm, executor, Schedule(epochs, "constant", 0), callbacks), executor


def weight(done, n_rows=240):
    """The one weight of the output layer of a toy model."""
    return float(Network(n_rows, 1, (1,)).layout.views(done.params)["W1"][0, 0])


def rows_of(span, n_rows=240, seed=0):
    return epoch_order(n_rows, seed, span.epoch)[span.start : span.stop]


def after(w, span, n_rows=240):
    """The weight `w` after the updates of a span, by hand."""
    rows = rows_of(span, n_rows)
    size = span.batch or len(rows)
    for at in range(0, len(rows), size):
        w = moved(w, span.learning_rate, rows[at : at + size])
    return w


def counting(data):
    """A network of one hidden unit whose input weights begin at 0, so that they count marks."""
    return Network(data.n_features, data.n_labels, (1,), "light", input_scale=0.0)


def marks(params, data):
    """How often each row's mark is in the model."""
    return np.round(counting(data).layout.views(params)["W0"][:, 0], 3)


class Replicas:
    """A center and replicas of given numbers, to be merged: what an executor is to an algorithm."""

    def __init__(self, center, *replicas, n_threads=1, network=None):
        self.network = network or Network(3, 2, (2,))
        layout, n = self.network.layout, len(replicas)
        self.shared = SharedParameters.in_memory(SharedShape(layout.size, 0, n, n, self.network.n_features))
        for row, values in zip(self.shared.params, (center, *replicas), strict=True):
            row[:] = values
        self.shared.touched[:] = 1
        self.merger = Merger(self.shared, layout, n_threads)
        self.seconds = 0.0

    n_params = property(lambda self: self.shared.params.shape[1])
    center = property(lambda self: self.shared.params[0])

    def merge(self, rule, members):
        self.merger.run(rule, members)

    def save_center(self, name, worker=None):
        self.merger.save_center(name, worker)

    def norm(self, worker):
        return float(np.linalg.norm(self.shared.params[1 + worker])) / self.n_params

    def now(self):
        return self.seconds

    def views(self, row):
        """The tensors of the center (0) or of a replica (1 + worker), padding left out."""
        return self.network.layout.views(self.shared.params[row])

    def values(self):
        """The first weight of each vector."""
        return [float(self.views(row)["W0"][0, 0]) for row in range(len(self.shared.params))]
