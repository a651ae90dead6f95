"""Peak resident memory of training on an opened store, against what training must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .plan import Plan
from .prepare import prepared_shape
from .report import Table, megabytes, publish

FACTOR, ALLOWANCE = 1.3, 200_000_000  # the interpreter, Numba and the kernels


def memory(prepared: Path, plan: Plan) -> None:
    """Train in a fresh process, print and write the table of one data set."""
    out = plan.folder("memory", prepared) / "ours.json"
    options = ["--memory", *plan.given()]
    plan.launcher.run("ours", prepared, out, *options)  # kernels may be compiled here, which takes memory too
    result = plan.launcher.run("ours", prepared, out, *options)
    found = {**result, "bound_bytes": bound(result), "shape": prepared_shape(prepared)}
    publish(f"memory-{prepared.name}", table(prepared.name, found), found, plan.threads, plan.out)


def bound(result: dict[str, Any]) -> float:
    """Return 1.3 times parameters, optimizer state, candidate model and data, and 200 MB."""
    held = sum(result[f"{part}_bytes"] for part in ("parameters", "optimizer_state", "candidates", "data"))
    return float(FACTOR * held + ALLOWANCE)


def table(name: str, result: dict[str, Any]) -> Table:
    """Return the table."""
    parts = {
        "parameters": result["parameters_bytes"],
        "optimizer state": result["optimizer_state_bytes"],
        "candidates, as estimated": result["candidates_bytes"],
        "mapped data": result["data_bytes"],
        "process before training": result["idle_memory_bytes"],
        "peak in training": result["peak_memory_bytes"],
        "1.3 x (parameters + state + candidates + data) + 200 MB": result["bound_bytes"],
    }
    rows = [[part, megabytes(size)] for part, size in parts.items()]
    share = result["peak_memory_bytes"] / result["bound_bytes"]
    return Table(f"Memory of training on {name}", ["part", "MB"], rows, [f"The peak is {share:.2f} of the bound."])
