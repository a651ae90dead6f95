"""After loading kernels nothing compiles, and nothing was compiled that the settings do not need."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np

from shared.layers import input_batch, random_layer, whole_step
from xmlsgd.devices.cpu import kernel_cache
from xmlsgd.devices.cpu.kernels import loss_and_update
from xmlsgd.nn.losses import find_loss, loss_names
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import find_optimizer, optimizer_names
from xmlsgd.nn.samplers.uniform import UniformNegatives


def compiled_parts():
    return [function.__qualname__ for function in loss_and_update._compiled.values()]


def compiled_signatures():
    return set(compiled_parts()) | {
        (form.py_func.__qualname__, signature) for form in kernel_cache.all_forms() for signature in form.signatures
    }


def test_nothing_compiles_after_loading_kernels(cpu, monkeypatch):
    """Every loss, optimizer, depth and dropout; drawn labels; memory maps, whose arrays are read-only; prediction."""
    monkeypatch.setattr(loss_and_update, "_compiled", {})  # other tests have compiled parts of their own
    for rounding in (False, True):
        cpu.load_kernels(
            [find_loss(name) for name in loss_names()],
            [find_optimizer(name)() for name in optimizer_names()],
            rounding=rounding,
        )
    before = compiled_signatures()
    assert len(set(compiled_parts())) == len(compiled_parts())  # by their names they are kept on disk
    for loss in loss_names():
        for name in optimizer_names():
            for hidden, share in (((24,), 0.0), ((40, 32), 0.3)):
                network = Network(60, 200, hidden, loss, hidden_dropout=share)
                rounded = replace(network, gradient_rounding=0.5)
                whole_step(cpu, network, find_optimizer(name)())
                whole_step(cpu, rounded, find_optimizer(name)())
                whole_step(cpu, rounded, find_optimizer(name)(), sampler=UniformNegatives(4))
    X, rows, layer, _ = input_batch()
    for array in (*layer, X.indptr, X.indices, X.data):
        array.flags.writeable = False
    A = cpu.input_forward(X, rows, layer)
    output = random_layer(np.random.default_rng(0), (50, 40), 50)
    for array in output:
        array.flags.writeable = False
    cpu.top_k(A, output, 5)
    assert compiled_signatures() == before


def test_warming_up_compiles_only_what_the_settings_need():
    source = (
        "from xmlsgd.devices.cpu.kernels import input_layer, output_layer, sparsified_layer\n"
        "from xmlsgd.devices.cpu import CPU\n"
        "from xmlsgd.nn.losses import find_loss\n"
        "steps = output_layer.output_step, sparsified_layer.sparsified_step\n"
        "others = input_layer.drop, output_layer.rows_update, output_layer.log_sums, input_layer.input_update\n"
        "for rounding in (False, True):\n"
        "    CPU(1, 'float32').load_kernels([find_loss('bce')], deep=False, dropout=False, rounding=rounding)\n"
        "    print(*[len(kernel.alone.signatures) for kernel in (*steps, *others)])\n"
    )
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["1 0 0 0 0 1", "1 1 0 0 0 1"]
