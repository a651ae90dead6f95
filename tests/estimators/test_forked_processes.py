"""Processes that are forked after kernels have run on several threads, which GNU OpenMP ends when they start others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shared.paths import ROOT, TESTS
from shared.processes import HANG

PROGRAM = f"""
import multiprocessing, sys, threading
sys.path.insert(0, {str(TESTS)!r})
from shared.saved_models import small, some_rows
from shared.small_job import small_job, train
from xmlsgd.devices.cpu import CPU

X, Y = some_rows()
model, device, job = small(n_jobs=2).fit(X, Y), CPU(2), small_job()
best, trained = model.predict_topk(X, 3)[0], train(job, device, 1)[1]

def predict():
    assert (model.predict_topk(X, 3)[0] == best).mean() > 0.9

def fit():
    assert (small(n_jobs=2).fit(X, Y).predict_topk(X, 3)[0] == best).mean() > 0.9

def fit_with_processes():
    assert small(devices="cpu*2", n_jobs=2).fit(X, Y).predict_topk(X, 3)[0].shape == best.shape

def use_device():
    assert (train(job, device, 1)[1] == trained).mean() > 0.9

inside, done = threading.Event(), threading.Event()

def hold():
    with device.start():
        inside.set()
        done.wait()

thread = threading.Thread(target=hold, daemon=True)
thread.start()
inside.wait()
fork = multiprocessing.get_context("fork")
processes = [fork.Process(target=use) for use in (predict, fit, fit_with_processes, use_device)]
for process in processes:
    process.start()
    process.join({HANG})
done.set()
thread.join()
print(*(process.exitcode for process in processes))
"""

WHILE_COMPILING = """
import os, signal, threading
from numba.core.compiler_lock import global_compiler_lock
import xmlsgd.devices.cpu.threads

compiling, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)

def compile():
    with global_compiler_lock:
        compiling.set()
        forking.wait()
        sum(range(10**7))  # the fork must not happen now

threading.Thread(target=compile).start()
compiling.wait()
if not (child := os.fork()):
    signal.alarm(10)  # ends a child that waits for a lock of a thread that it does not have
    with global_compiler_lock:
        os._exit(0)
print(os.waitpid(child, 0)[1])
with global_compiler_lock:
    pass
"""


@pytest.mark.parametrize("layer", ["default", pytest.param("workqueue", marks=pytest.mark.slow)])
def test_a_forked_process_trains_and_predicts_on_one_thread(layer):
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": layer}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=5 * HANG)
    assert done.stdout == "0 0 0 0\n", done.stderr


def test_a_process_that_is_forked_while_another_thread_compiles_can_compile():
    command = [sys.executable, "-W", "ignore", "-c", WHILE_COMPILING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.stdout == "0\n", done.stderr
