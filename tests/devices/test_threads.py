"""Devices side by side: several Python threads, several processes, one process's BLAS and one cache of kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from shared.paths import ROOT, TESTS
from shared.small_job import small_job, train
from xmlsgd.devices.cpu import CPU
from xmlsgd.devices.cpu.blas import BlasPool, OneThreadBlas
from xmlsgd.devices.cpu.threads import _after_fork


@pytest.fixture(scope="module")
def job():
    return small_job()


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_two_threads_with_a_device_each_train_as_one_alone(job, precision):
    expected = [train(job, CPU(1, precision), seed) for seed in range(2)]
    started = threading.Barrier(2)  # both are inside of their devices before either goes on
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda seed: train(job, CPU(1, precision), seed, started), range(2)))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_two_threads_take_turns_on_one_device(job):
    device = CPU(1)
    expected = [train(job, CPU(1), seed) for seed in range(2)]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda seed: train(job, device, seed), range(2)))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def blas_threads():
    return [library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()]


def test_the_blas_libraries_are_looked_for_once(monkeypatch):
    looked = []

    def look():
        looked.append(1)
        return ThreadpoolController()

    monkeypatch.setattr("xmlsgd.devices.cpu.blas.ThreadpoolController", look)
    limit = OneThreadBlas()
    for _ in range(3):
        with limit:
            assert {each["num_threads"] for each in ThreadpoolController().select(user_api="blas").info()} == {1}
    assert looked == [1]


class Four:
    """A BLAS of four threads, by itself or, for each Python thread, by `local`."""

    def __init__(self, of_process, local=None):
        self.number = local or SimpleNamespace(n=4)
        self.limit = OneThreadBlas()
        pool = BlasPool(lambda: self.number.n, lambda n: setattr(self.number, "n", n), of_process)
        self.limit._of_process, self.limit._of_thread = ([pool], []) if of_process else ([], [pool])


def test_the_blas_has_its_threads_back_when_the_last_one_leaves():
    blas = Four(of_process=True)
    first, second = blas.limit, blas.limit
    first.__enter__()
    second.__enter__()
    assert blas.number.n == 1
    first.__exit__()
    assert blas.number.n == 1, "the first one to leave must not lift the limit of the other"
    second.__exit__()
    assert blas.number.n == 4


def test_the_blas_of_a_forked_process_forgets_threads_that_were_inside():
    """A fork copies the thread that forks alone."""
    blas = Four(of_process=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(blas.limit.__enter__).result()
    with blas.limit:
        blas.limit.forget_other_threads()
        assert blas.number.n == 1
    assert blas.number.n == 4


def test_a_forked_process_drops_what_other_threads_were_doing(monkeypatch):
    """Their locks are never released there, and kernels expect buffers of zeros."""
    monkeypatch.setattr("xmlsgd.devices.cpu.threads.FORKED_FROM_THREADS", threading.Event())
    device, blas = CPU(1), OneThreadBlas()
    device.buffer("votes", (3,))[:] = 1
    with ThreadPoolExecutor(1) as pool:
        for lock in (device._alone._lock, blas._lock):
            pool.submit(lock.acquire).result()
        _after_fork()
        with device.start(), blas:
            assert device.buffer("votes", (3,)).tolist() == [0, 0, 0]


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.mark.usefixtures("two_threads")
def test_the_blas_has_its_threads_back_when_another_python_thread_leaves_last():
    """Who came first is still alive then, and threadpoolctl would let nobody else change the number."""
    before, limit = blas_threads(), OneThreadBlas()
    first_is_in, second_is_in, first_has_left, over = (threading.Event() for _ in range(4))

    def first():
        with limit:
            first_is_in.set()
            assert second_is_in.wait(60)
        first_has_left.set()
        assert over.wait(60)

    def second():
        assert first_is_in.wait(60)
        with limit:
            second_is_in.set()
            assert first_has_left.wait(60)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(first), pool.submit(second)
        other.result()
        found = blas_threads()
        over.set()
        one.result()
    assert found == before


@pytest.mark.usefixtures("two_threads")
def test_the_blas_is_at_one_thread_beside_a_python_thread_that_has_set_another_number():
    def inside():
        with OneThreadBlas():
            return set(blas_threads())

    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        library.set_num_threads(library.get_num_threads())
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(inside).result() == {1}
    finally:
        with threadpool_limits(user_api="blas"):  # whoever leaves it sets the number no longer alone
            pass


def test_a_blas_whose_number_is_the_python_threads_is_limited_in_each():
    class Own(threading.local):
        n = 4

    blas = Four(of_process=False, local=Own())

    def inside():
        with blas.limit, blas.limit:
            found = blas.number.n
        return found, blas.number.n

    with blas.limit, ThreadPoolExecutor(1) as pool:
        assert pool.submit(inside).result() == (1, 4)
        assert blas.number.n == 1
    assert blas.number.n == 4


def test_an_error_on_the_way_in_leaves_the_blas_and_the_lock_as_they_were(monkeypatch):
    blas = Four(of_process=True)
    first = blas.limit._of_process[0]

    def interrupted(n):
        if n == 1:
            raise KeyboardInterrupt

    blas.limit._of_process.append(BlasPool(lambda: 4, interrupted, True))
    monkeypatch.setattr("xmlsgd.devices.cpu.threads.ONE_THREAD_BLAS", blas.limit)
    device = CPU(1)
    with pytest.raises(KeyboardInterrupt), device.start():
        raise AssertionError("it was not interrupted")
    assert first.get() == 4
    blas.limit._of_process.pop()

    def start():
        with device.start():
            return first.get()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(start).result(timeout=60) == 1
    assert first.get() == 4


def program(n_threads):
    """Return a program: two Python threads train on a device each, then says that it came to its end."""
    return (
        "import sys, numpy as np\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        f"sys.path.insert(0, {str(TESTS)!r})\n"
        "from shared.small_job import small_job, train\n"
        "from xmlsgd.devices.cpu import CPU\n"
        "job = small_job()\n"
        "with ThreadPoolExecutor(2) as pool:\n"
        f"    got = list(pool.map(lambda seed: train(job, CPU({n_threads}), seed), [1, 1]))\n"
        "np.testing.assert_array_equal(got[0][0], got[1][0])\n"
        "print('trained', float(got[0][0].sum()))\n"
    )


def launch(source, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment}, cwd=ROOT,
    )  # fmt: skip


@pytest.mark.parametrize("layer", ["workqueue", "default"])
@pytest.mark.slow
def test_devices_of_two_threads_in_two_python_threads_end_no_process(layer):
    """Numba's work queue ends a process in which two Python threads launch at once."""
    process = launch(program(2), NUMBA_NUM_THREADS="2", NUMBA_THREADING_LAYER=layer)
    out, error = process.communicate(timeout=300)
    assert out.startswith("trained"), error


def test_two_processes_fill_one_cold_cache_at_once(tmp_path):
    source = (
        "import numpy as np\n"
        "from xmlsgd.devices.base import Dropout\n"
        "from xmlsgd.devices.cpu import CPU\n"
        "A = np.ones((8, 32), np.float32)\n"
        "CPU(1).drop(A, Dropout(0.5, 1))\n"
        "print('dropped', A.sum())\n"
    )
    processes = [launch(source, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    results = [process.communicate(timeout=300) for process in processes]
    assert results[0][0].startswith("dropped"), results[0][1]
    assert results[0][0] == results[1][0], results[1][1]
    assert list(tmp_path.rglob("input_layer.drop*.nbc"))


@pytest.mark.parametrize("given", [None, "active"])
def test_threads_of_openmp_sleep_soon_unless_the_environment_says_otherwise(given):
    code = (
        "import os; from xmlsgd.devices.cpu import CPU; cpu = CPU(2)\nwith cpu.start(): pass\n"
        "import numba; print(numba.threading_layer(), os.environ.get('GOMP_SPINCOUNT'))"
    )
    environment = {**os.environ, "OMP_DISPLAY_ENV": "verbose", "NUMBA_NUM_THREADS": "2"}
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        environment.pop(name, None)
    if given is not None:
        environment["OMP_WAIT_POLICY"] = given
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    layer, left = done.stdout.split()
    assert left == "None"  # other libraries of the process read what was there
    if layer == "omp" and "GOMP_SPINCOUNT" in done.stderr:
        assert ("GOMP_SPINCOUNT = '100'" in done.stderr) == (given is None)
