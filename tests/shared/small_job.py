"""A job that devices do side by side, in Python threads or in a process of its own."""

from __future__ import annotations

import numpy as np

from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.training.job import Job
from xmlsgd.training.learner import Learner
from xmlsgd.training.messages import Span

from . import toy

NETWORK = Network(60, 300, (32, 24), "softmax", hidden_dropout=0.2)
N_ROWS, N_STEPS = 64, 20


def small_job():
    return Job(toy.random_data(N_ROWS, 60, 300, density=0.1), NETWORK, Adam(), seed=3)


def train(job, device, seed, started=None):
    """Return the parameters after some steps and the best labels; `started` is waited at inside of the device."""
    flat = np.zeros(NETWORK.layout.size, np.float32)
    NETWORK.initialize(flat, job.dataset.Y, seed)
    with device.start():
        if started:
            started.wait()
        learner = Learner(job, device, flat)
        for i in range(N_STEPS):
            learner.train_span(Span(0, i, 0, 33, 0.01))
        A = NETWORK.hidden_activations(device, learner.layers, job.dataset.X, np.arange(N_ROWS))
        return flat, device.top_k(A, learner.layers[-1], 5)[0]
