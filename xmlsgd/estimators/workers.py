"""Choose workers, threads, executor and algorithm from the parameters `devices`, `n_jobs` and `algorithm`.

Devices are written "kind:index*learners" and separated by commas: "cpu", "cpu*2", "cuda:0*4,cpu".
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from ..algorithms import get_algorithm
from ..algorithms.base import Algorithm
from ..data.cores import usable_threads
from ..data.csr import CSR
from ..data.validation import is_integer
from ..devices import device_class, device_names, get_device
from ..devices.base import Device
from ..errors import LOGGER, DataError, shorten, suggest
from ..nn.network import Network
from ..training.executors.base import Executor
from ..training.executors.processes import Processes
from ..training.executors.serial import Serial
from ..training.executors.threads import Threads

_DEVICE = re.compile(r"\s*(?P<kind>[a-z_]+)(:(?P<index>\d{1,4}))?(\*(?P<learners>0*[1-9]\d{0,3}))?\s*", re.ASCII)
KINDS = ("cpu", "cuda")  # other kinds are modules of `xmlsgd.devices`; the reference is for tests only
MOST_WORKERS = 256
# Least work per thread of a step, 0.2 ms of a core. With less, an additional thread costs more time than it saves:
# threads wait for each other five times a step.
FLOPS_PER_THREAD = 2e7
LIST_FLOPS = 2.5e6  # work of the candidates of a row: 25 microseconds of a core


class Worker(NamedTuple):
    """A worker: the kind of its device, its threads, and the name of the device, such as "cuda:0"."""

    kind: str
    n_threads: int
    name: str

    @property
    def shares_memory(self) -> bool:
        """Return whether it computes in the memory of the process, where it can write a shared model in place."""
        return device_class(self.kind).memory is None


def parse_devices(devices: Any) -> list[str]:
    """Return the name of each worker's device, "kind" or "kind:index"; raise `DataError` for an invalid text."""
    if not isinstance(devices, str):
        raise DataError(f"devices: must be a text such as 'cpu' or 'cpu*2', got {shorten(devices)}")
    names: list[str] = []
    for part in devices.split(","):
        match = _DEVICE.fullmatch(part)
        if match is None:
            got = f"{shorten(devices)}{_near(part)}"
            raise DataError(f"devices: must be kind:index*learners, as in 'cpu*2', got {got}")
        kind, index = match["kind"], match["index"]
        name = kind if index is None else f"{kind}:{index}"
        if kind not in KINDS and (kind == "reference" or kind not in device_names()):
            near = "; a GPU is 'cuda:0'" if kind == "gpu" else suggest(kind, KINDS)
            raise DataError(f"devices: must be of the kinds {', '.join(KINDS)}, got {name!r}{near}")
        if kind == "cpu" and index is not None:
            text = f"devices: the CPU has no index, got {name!r}; pass 'cpu', or 'cpu*2' for two workers on it"
            raise DataError(text)
        names += [name] * int(match["learners"] or 1)
    if len(names) > MOST_WORKERS:
        raise DataError(f"devices: must be at most {MOST_WORKERS} workers, got {len(names)}")
    return names


def _near(part: str) -> str:
    """Return a suggestion for an invalid device, such as "cpux2", to add to the error message; "" for none."""
    near = re.sub(r"^([a-z]+?)x?(\d+)$", r"\1*\2", re.sub(r"\s", "", part.lower()))
    if near.endswith("*0"):
        return "; the least number of workers is 1"
    return f"; did you mean '{near}'?" if _DEVICE.fullmatch(near) and near.startswith(KINDS) else ""


def check_devices(devices: Any) -> None:
    """Raise `DataError` for an invalid text, and for GPUs that this machine cannot use."""
    for name in sorted({*parse_devices(devices)} - {"cpu"}):
        get_device(name)


def workers_of(devices: str, n_threads: int) -> list[Worker]:
    """Return the workers; those on the CPU share `n_threads` evenly."""
    names = parse_devices(devices)
    n_cpu = sum(name == "cpu" for name in names)
    return [Worker(name.partition(":")[0], max(n_threads // n_cpu, 1) if name == "cpu" else 1, name) for name in names]


def make_device(name: str, n_threads: int, precision: str) -> Device:
    """Return a new device, given its name."""
    return get_device(name)(n_threads, precision)


def precision_of(device: Device) -> str:
    """Return the precision of a device's matrix products, "float32" or "bfloat16"."""
    return "bfloat16" if device.bfloat16 else "float32"


@cache
def precision_of_cpu(precision: str) -> str:
    """Return the precision of matrix products on this processor, given the parameter `precision`."""
    return precision_of(make_device("cpu", 1, precision))


@cache
def usable_precision(name: str, precision: str) -> str:
    """Return the precision with which device `name` predicts with a model that was trained in `precision`.

    A processor without bfloat16 products predicts in float32, which they approximate, and logs a message.
    """
    if name != "cpu" or precision != "bfloat16":
        return precision
    from ..devices.cpu.intrinsics import bf16  # here, so that creating an estimator does not import Numba

    if bf16.HAS_AVX512_BF16:
        return precision
    LOGGER.warning("the model's products are bfloat16, which this processor lacks: predicting in float32")
    return "float32"


def executor_of(workers: Sequence[Worker], device: Device, precision: str) -> Executor:
    """Return the executor: one worker runs in this process on `device`; several workers are a process each.

    If all workers are on GPUs and some share one, they are threads of this process, each with a stream of its own.
    Processes would each need memory for a CUDA context, and would take turns on the GPU.
    """
    if len(workers) == 1:
        return Serial([device])
    if all(worker.kind == "cuda" for worker in workers) and len({worker.name for worker in workers}) < len(workers):
        return Threads([make_device(worker.name, worker.n_threads, precision) for worker in workers])
    # Makers are from the module of the device: to unpickle functions of this module, workers would import scikit-learn.
    makers = [partial(get_device(worker.name), worker.n_threads, precision) for worker in workers]
    shares_memory = [worker.shares_memory for worker in workers]
    return Processes(makers, [worker.n_threads for worker in workers], shares_memory=shares_memory)


def algorithm_of(algorithm: str | Algorithm, batch: int, rate: float, workers: Sequence[Worker]) -> Algorithm:
    """Return the algorithm of the workers; raise `DataError` if they cannot meet its options."""
    one_memory = all(worker.shares_memory for worker in workers)
    found = get_algorithm(algorithm, batch, rate, len(workers), one_memory)
    found.check_devices([worker.name for worker in workers])
    return found


def thread_count(n_jobs: int | None, flops: float = math.inf) -> int:
    """Return the number of threads for `n_jobs`: -1 for all cores that this process may use, -2 for all but one, etc.

    None for as many threads as `flops`, the work of a step or a prediction, keeps busy. There is at least one thread,
    and at most one per core. A process that was forked after kernels had started threads can use only one.
    """
    if n_jobs is None:
        return int(min(usable_threads(), max(flops / FLOPS_PER_THREAD, 1)))
    if not is_integer(n_jobs) or n_jobs == 0:
        raise DataError(f"n_jobs: must be None or an integer other than 0, got {shorten(n_jobs)}")
    return min(int(n_jobs), usable_threads()) if n_jobs > 0 else max(usable_threads() + 1 + int(n_jobs), 1)


def flops(network: Network, X: CSR, n_rows: int, listed: bool = False) -> float:
    """Return the approximate floating-point operations of a forward pass over `n_rows` rows such as those of X.

    listed : whether candidates are scored instead of the output layer.
    """
    widths = [*network.hidden] if listed else [*network.hidden, network.n_labels]
    dense = sum(a * b for a, b in itertools.pairwise(widths))
    return n_rows * (2.0 * (dense + network.hidden[0] * X.nnz / max(X.n_rows, 1)) + listed * LIST_FLOPS)
