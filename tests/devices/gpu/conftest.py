"""The stand-in for a GPU and a real one, a data set, and the algorithms that merge replicas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shared.fake_gpu.shim import shim_device
from shared.layers import random_csr
from shared.needs import NEEDS_COMPILER, NEEDS_GPU
from xmlsgd.algorithms.adaptive import AdaptiveSGD
from xmlsgd.algorithms.crossbow import Crossbow
from xmlsgd.algorithms.easgd import EASGD
from xmlsgd.algorithms.local_sgd import LocalSGD
from xmlsgd.algorithms.outer import Nesterov
from xmlsgd.algorithms.synchronous import Synchronous
from xmlsgd.data.csr import Dataset
from xmlsgd.devices.cuda import CUDA
from xmlsgd.nn.network import Network


def gpu(precision="auto", **options):
    return CUDA(precision=precision, **options)


@pytest.fixture(
    params=[pytest.param(shim_device, id="shim", marks=NEEDS_COMPILER), pytest.param(gpu, id="cuda", marks=NEEDS_GPU)]
)
def make(request):
    """What makes a device of a precision, with the options of `CUDA`."""
    return request.param


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    return Dataset(random_csr(rng, 120, 60, 8), random_csr(rng, 120, 90, 3))


@pytest.fixture(scope="module")
def network():
    """One for the data set."""
    return Network(60, 90, (24,), "bce")


def rounds(**settings):
    """Local SGD whose rounds do not depend on the clock."""
    return LocalSGD(16, 0.02, straggler_timeout=math.inf, merging=1.0, **settings)


MERGING = {
    "mean": Synchronous(16, 0.02),
    "adasum": rounds(),
    "mean, Nesterov": rounds(combine="mean", outer=Nesterov(0.5)),
    "adaptive": AdaptiveSGD(16, 0.02, straggler_timeout=math.inf),
    "crossbow": Crossbow(16, 0.02, sync_every=1),
    "elastic": EASGD(16, 0.02, sync_every=2),
}


SLOW = ("adaptive", "elastic")


@pytest.fixture(
    params=[
        pytest.param(made, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, made in MERGING.items()
    ]
)
def algorithm(request):
    """Every way to merge replicas."""
    return request.param
