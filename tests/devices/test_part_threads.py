"""Python threads that run parts of kernels."""

from __future__ import annotations

import gc
import threading

import pytest

from xmlsgd.devices.cpu import part_threads
from xmlsgd.devices.cpu.blas import BlasPool, OneThreadBlas
from xmlsgd.devices.cpu.part_threads import run_parts

WAIT = 60  # seconds, after which a test fails rather than hangs


def test_every_part_is_done_once_and_parts_run_at_the_same_time():
    both, seen = threading.Barrier(2), []

    def kernel(part, n_parts, argument):
        if part < 2:
            both.wait(WAIT)
        seen.append((part, n_parts, argument))

    run_parts(kernel, 5, ("given",), 2)
    assert sorted(seen) == [(part, 5, "given") for part in range(5)]


def test_one_thread_does_all_parts_if_no_other_is_asked():
    seen = []
    run_parts(lambda part, n_parts: seen.append(threading.current_thread()), 3, (), 1)
    assert seen == 3 * [threading.current_thread()]


def test_an_error_in_the_pool_is_raised_by_the_caller():
    both, caller = threading.Barrier(2), threading.current_thread()

    def kernel(part, n_parts):
        both.wait(WAIT)
        if threading.current_thread() is not caller:
            raise ValueError("in the pool")

    with pytest.raises(ValueError, match="in the pool"):
        run_parts(kernel, 2, (), 2)


def test_an_interrupted_caller_waits_for_parts_that_have_begun_and_no_other_begins():
    both, caller, written = threading.Barrier(2), threading.current_thread(), []

    def kernel(part, n_parts):
        both.wait(WAIT)
        if threading.current_thread() is caller:
            raise KeyboardInterrupt
        written.extend(part for _ in range(100_000))

    with pytest.raises(KeyboardInterrupt):
        run_parts(kernel, 2, (), 2)
    assert len(written) == 100_000


def test_a_caller_interrupted_while_it_submits_waits_for_parts_that_have_begun(monkeypatch):
    has_begun, submit, written = threading.Event(), part_threads.ThreadPool.submit, []

    def kernel(part, n_parts):
        has_begun.set()
        written.extend(part for _ in range(1_000_000))

    def interrupted(pool, task, n_threads):
        submit(pool, task, n_threads)
        has_begun.wait(WAIT)
        raise KeyboardInterrupt

    monkeypatch.setattr(part_threads.ThreadPool, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_parts(kernel, 1, (), 2)
    assert len(written) == 1_000_000


def test_a_second_interrupt_does_not_end_the_waiting():
    class Ended:
        waits = 0

        def wait(self):
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt

    ended = [Ended(), Ended()]
    parts = iter(range(3))
    with pytest.raises(KeyboardInterrupt):
        part_threads._finish(parts, ended)
    assert [each.waits for each in ended] == [3, 2]  # all are waited for again
    assert not list(parts)


def test_a_pool_ends_with_the_thread_that_it_works_for():
    both, seen = threading.Barrier(2), set()

    def kernel(part, n_parts):
        seen.add(threading.current_thread())
        both.wait(WAIT)

    caller = threading.Thread(target=run_parts, args=(kernel, 2, (), 2))
    caller.start()
    caller.join(WAIT)
    gc.collect()
    for thread in seen:
        thread.join(WAIT)
    assert len(seen) == 2
    assert not any(thread.is_alive() for thread in seen)


def test_a_blas_with_a_number_of_threads_for_each_python_thread_is_limited_in_the_pool(monkeypatch):
    class Own(threading.local):
        n = 4

    own, limit, both, found = Own(), OneThreadBlas(), threading.Barrier(2), []
    limit._of_process = []
    limit._of_thread = [BlasPool(lambda: own.n, lambda n: setattr(own, "n", n), of_process=False)]
    monkeypatch.setattr(part_threads, "ONE_THREAD_BLAS", limit)

    def kernel(part, n_parts):
        found.append(own.n)
        both.wait(WAIT)

    def call():
        with limit:
            run_parts(kernel, 2, (), 2)

    caller = threading.Thread(target=call)  # with a pool of its own, which starts now
    caller.start()
    caller.join(WAIT)
    assert found == [1, 1]
