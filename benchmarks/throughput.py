"""Training steps of ours and of every PyTorch variant on one data set, in turns, and the floor of the machine below.

A turn is a process of its own, so that caches, allocators and compilers of one do not help or hurt the other. The first
round has all variants of PyTorch, the others the two that were fastest in it. Compilation falls into warm-up steps,
which are not counted.

The floor of a step (S. Williams, A. Waterman, D. Patterson, Roofline, CACM 2009) is the larger of two times: the
operations of the output layer's three products at the machine's best rate of products, and parameters with optimizer
state, read and written once, at its best rate of copies. With rounded gradients one product is left, and the weights
of the output layer are only read; the few labels that are updated count for nothing.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .launch import RunnerFailed
from .machine import rates
from .peers.ours import EXACT
from .peers.runner import BATCH, HIDDEN
from .plan import Plan
from .prepare import prepared_shape
from .report import Table, per_second, publish

VARIANTS = tuple(
    f"{precision}-{gradients}{suffix}"
    for precision in ("fp32", "bf16")
    for gradients in ("dense", "sparse")
    for suffix in ("", "-compiled")
)
FASTEST = 2  # variants of PyTorch that are measured in every round
WARM_UP = 12
ADAM_BYTES, READ_BYTES = 24, 4  # parameter and two moments, float32, read and written; a parameter read
SAMPLED_BATCHES = 50

Rows = dict[str, list[float]]  # rows a second of each round, by contestant


def throughput(prepared: Path, plan: Plan) -> None:
    """Measure, print and write the table of one data set."""
    work = plan.folder("throughput", prepared)
    rows: Rows = {}
    machine: list[dict[str, Any]] = []
    variants = list(plan.variants or VARIANTS)
    rounded: set[str] = set()
    failures: dict[str, str] = {}
    for turn in range(plan.rounds):
        machine.append(rates(plan.threads))
        for name in ["ours", *variants]:
            try:
                measured = _steps(name, prepared, plan, work / f"{name}-{turn}.json")
            except RunnerFailed as error:
                failures[name] = str(error)
                print(failures[name], flush=True)
                continue
            for result in measured:
                if result.get("gradient_rounding"):
                    rounded.add(result["variant"])
                key = f"xmlsgd {result['variant']}" if name == "ours" else f"PyTorch {name}"
                rows.setdefault(key, []).append(result["rows_per_second"])
                print(f"round {turn + 1}: {key} {result['rows_per_second']:,.0f} rows/s", flush=True)
        order = sorted(variants, key=lambda name: -statistics.median(rows.get(f"PyTorch {name}", [0.0])))
        variants = [name for name in order if name not in failures][:FASTEST]
    floor = roofline(prepared, machine, rounded)
    result = {
        "rows_per_second": rows,
        "rates": machine,
        "floor": floor,
        "failures": failures,
        "steps": plan.steps,
        "shape": prepared_shape(prepared),
    }
    publish(f"throughput-{prepared.name}", table(prepared.name, rows, floor), result, plan.threads, plan.out)


def _steps(name: str, prepared: Path, plan: Plan, out: Path) -> list[dict[str, Any]]:
    """Run the steps of one contestant in a process of its own."""
    options = ["--max-steps", str(plan.steps), "--warm-up-steps", str(WARM_UP)]
    if name == "ours":
        from xmlsgd.devices.cpu.intrinsics import bf16

        precisions = ("bfloat16", "float32") if bf16.HAS_AVX512_BF16 else ("float32",)
        ours = [precision + exact for precision in precisions for exact in ("", EXACT)]
        found: list[dict[str, Any]] = plan.launcher.run("ours", prepared, out, *options, "--variant", *ours)
    else:
        found = plan.launcher.run("pytorch", prepared, out, *options, "--variant", name)
    return found


def roofline(prepared: Path, machine: list[dict[str, Any]], rounded: set[str]) -> dict[str, dict[str, float]]:
    """Return the seconds of a step at the best rates of all rounds, by our variants; gradients of some are rounded."""
    X = sp.csr_matrix(sp.load_npz(prepared / "X.trn.npz"))
    n_labels = int(prepared_shape(prepared)["labels"])
    touched = touched_features(X)
    copied = max(round_["copied_bytes_per_second"] for round_ in machine)
    input_bytes = ADAM_BYTES * HIDDEN * touched
    floors = {}
    for precision in ("bfloat16", "float32"):
        found = [rate for round_ in machine if (rate := round_[f"{precision}_flops_per_second"])]
        if found:
            for variant in (precision + EXACT, precision):
                products, label_bytes = (1, READ_BYTES) if variant in rounded else (3, ADAM_BYTES)
                compute = products * 2 * BATCH * HIDDEN * n_labels / max(found)
                memory = (label_bytes * HIDDEN * n_labels + input_bytes) / copied
                floors[variant] = {
                    "compute_seconds": compute,
                    "memory_seconds": memory,
                    "floor_seconds": max(compute, memory),
                    "touched_features": touched,
                }
    return floors


def touched_features(X: sp.csr_matrix) -> float:
    """Return how many features a batch has: the mean over random batches."""
    rng = np.random.default_rng(0)
    batches = [rng.integers(X.shape[0], size=BATCH) for _ in range(SAMPLED_BATCHES)]
    return float(np.mean([len(np.unique(X[rows].indices)) for rows in batches]))


def table(name: str, rows: Rows, floor: dict[str, dict[str, float]]) -> Table:
    """Return medians over the rounds, each against the fastest PyTorch and against the floor."""
    medians = {key: statistics.median(values) for key, values in rows.items()}
    best = max((value for key, value in medians.items() if key.startswith("PyTorch")), default=None)
    lines = []
    for key, value in sorted(medians.items(), key=lambda item: -item[1]):
        contestant, variant = key.split()
        exact = ("float32" if "32" in variant else "bfloat16") + EXACT
        bound = floor.get(variant if contestant == "xmlsgd" else exact)
        lines.append(
            [
                key,
                per_second(value),
                f"{1000 * BATCH / value:.2f}",
                f"{value / best:.2f}" if best else "",
                f"{BATCH / value / bound['floor_seconds']:.2f}" if bound else "",
                str(len(rows[key])),
            ]
        )
    columns = ["trainer", "rows/s", "ms a step", "times the best PyTorch", "times the floor", "rounds"]
    notes = [
        f"Floor, {variant}: products {1000 * bound['compute_seconds']:.2f} ms, memory "
        f"{1000 * bound['memory_seconds']:.2f} ms (together {1000 * sum(list(bound.values())[:2]):.2f} ms); "
        f"{bound['touched_features']:,.0f} features a batch."
        for variant, bound in floor.items()
    ]
    return Table(f"Training on {name}: 256 units, batch 256, Adam", columns, lines, notes)
