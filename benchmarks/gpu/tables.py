"""The measurements of a GPU as Markdown."""

from __future__ import annotations

import math
from typing import Any

from ..report import Table, origin

Result = dict[str, Any]
EPOCH_ROWS = {"Amazon-670K": 490_449, "Delicious-200K": 196_606}
TARGETS = {
    128: {"steps/s": 550, "times PyTorch compiled": 1.7, "times PyTorch eager": 3.5, "epoch s": 1.2, "memory": 1.3},
    512: {"steps/s": 235, "times PyTorch compiled": 1.5, "memory": 1.3},
}  # by hidden units
SHARE = 0.6  # of its ceiling, below which a kernel needs an explanation


def markdown(result: Result) -> str:
    """Return all tables of what has been measured so far."""
    gpu, machine = result["gpu"], {**result["machine"], "cpu": result["gpu"]["gpu"]}
    known = {
        "tests": _tests, "ceilings": _ceilings, "correctness": _correctness, "steps": _steps, "kernels": _kernels,
        "to_accuracy": _to_accuracy, "learners": _learners, "mixed": _mixed, "sanitizer": _sanitizer,
    }  # fmt: skip
    tables = [table.markdown() for name, make in known.items() if name in result for table in make(result)]
    left_out = [f"Left out: {line}." for line in result["left_out"]]
    heading = (
        f"# {gpu['gpu']}\n\nSources {gpu['sources']}, CuPy {gpu.get('cupy', '-')}, cuBLAS {gpu.get('cublas', '-')}.\n"
    )
    if "changed" in result:
        heading += f"Kernels that have changed since the results before: {', '.join(result['changed']) or 'none'}.\n"
    return "\n".join([heading, *tables, *left_out, "", origin(machine), ""])


def _tests(result: Result) -> list[Table]:
    found = result["tests"]
    outcomes = ("passed", "failed", "error", "skipped")
    notes = [f"Failed: {', '.join(found['failures'])}."] if found["failures"] else []
    return [Table("Tests that need a GPU", outcomes, [[str(found[outcome]) for outcome in outcomes]], notes)]


def _sanitizer(result: Result) -> list[Table]:
    return [Table("compute-sanitizer", ["tool", "result"], [list(pair) for pair in result["sanitizer"].items()])]


def _ceilings(result: Result) -> list[Table]:
    found = result["ceilings"]
    rows = [[name.replace("_", " "), f"{value:.3g}"] for name, value in found.items()]
    return [Table("Ceilings", ["what", "measured"], rows)]


def _correctness(result: Result) -> list[Table]:
    found = result["correctness"]
    rows = [[case, f"{error:.1e}"] for case, error in found["errors"].items()]
    notes = found["failures"] or ["Two runs of each gave the same bits."]
    return [Table("Largest error against float64", ["case", "relative"], rows, notes)]


def _steps(result: Result) -> list[Table]:
    columns = (
        "shape", "hidden", "batch", "loss", "optimizer", "steps/s", "epoch s", "host ms", "memory", "PyTorch eager",
        "compiled",
    )  # fmt: skip
    rows = []
    for one in result["steps"]:
        shape = one["shape"]
        row = [shape["name"], str(shape["hidden"]), str(shape["batch"]), one["loss"], one["optimizer"]]
        if "failure" not in one:
            epoch = EPOCH_ROWS.get(shape["name"], 0) / one["rows_per_second"]
            row += [f"{one['steps_per_second']:,.1f}", f"{epoch:.2f}" if epoch else "-"]
            row += [f"{1e3 * one['host_seconds']:.2f}", f"{one['memory_share']:.2f}"]
            row += [_peer(result.get("torch", []), one, mode) for mode in ("eager", "compiled")]
        rows.append([*row, *["-"] * (len(columns) - len(row))])
    notes = ["Memory: all that CuPy has taken over weights, state, data and the bytes of a chunk."]
    notes += [f"{one['loss']}: {one['failure']}" for one in result["steps"] if "failure" in one]
    notes += [f"PyTorch: {one['failure']}" for one in result.get("torch", []) if "failure" in one]
    return [Table("Training steps", columns, rows, notes), _targets(result)]


def _targets(result: Result) -> Table:
    """Return the targets for softmax by SGD on Amazon-670K at a batch of 1,024, and the best measured figures."""
    rows = []
    for hidden, wanted in TARGETS.items():
        found_steps = [one for one in result["steps"] if _is_wanted(one, hidden)]
        if not found_steps:
            continue
        best = max(found_steps, key=lambda one: one["steps_per_second"])
        found = {
            "steps/s": best["steps_per_second"],
            "times PyTorch compiled": best["steps_per_second"] / _peer_rate(result.get("torch", []), best, "compiled"),
            "times PyTorch eager": best["steps_per_second"] / _peer_rate(result.get("torch", []), best, "eager"),
            "epoch s": EPOCH_ROWS["Amazon-670K"] / best["rows_per_second"],
            "memory": best["memory_share"],
        }
        for what, limit in wanted.items():
            met = found[what] <= limit if what in ("epoch s", "memory") else found[what] >= limit
            measured = "-" if found[what] == 0 else f"{found[what]:.2f}"
            row = [str(hidden), what, f"{limit:g}", measured, "" if measured == "-" else "met" if met else "missed"]
            rows.append(row)
    return Table("Softmax by SGD, Amazon-670K, batch 1,024", ["hidden", "what", "wanted", "measured", ""], rows)


def _is_wanted(one: Result, hidden: int) -> bool:
    """Return whether targets are about these steps, and they were measured."""
    shape = one["shape"]["name"], one["shape"]["hidden"], one["shape"]["batch"]
    of_target = (*shape, one["loss"], one["optimizer"]) == ("Amazon-670K", hidden, 1024, "softmax", "sgd")
    return of_target and "failure" not in one


def _peer(results: list[Result], ours: Result, mode: str) -> str:
    """Return PyTorch's steps a second of the same shape and how many times as fast ours are."""
    rate = _peer_rate(results, ours, mode)
    return f"{rate:,.1f} ({ours['steps_per_second'] / rate:.2f}x)" if rate < math.inf else "-"


def _peer_rate(results: list[Result], ours: Result, mode: str) -> float:
    """Return PyTorch's steps a second of the same shape by SGD, infinite where there are none."""
    wanted = [ours["shape"]["name"], ours["shape"]["hidden"], ours["shape"]["batch"], ours["loss"], mode, "sgd"]
    for one in results:
        same = [*(one.get(key) for key in ("shape", "hidden", "batch", "loss", "mode")), ours["optimizer"]] == wanted
        if same and "failure" not in one:
            return float(one["steps_per_second"])
    return math.inf


def _kernels(result: Result) -> list[Table]:
    ceilings = result.get("ceilings", {})
    flops = ceilings.get("bfloat16_flops_per_second") or ceilings.get("float32_flops_per_second")
    copied = ceilings.get("copied_bytes_per_second")
    tables = []
    for one in result["kernels"]:
        rows = []
        for name, found in sorted(one["kernels"].items(), key=lambda pair: -pair[1]["seconds"]):
            rates = (copied, found["bytes"]), (flops, found["operations"])
            floor = max(work / rate if rate else 0.0 for rate, work in rates)
            share = floor / max(found["seconds"], 1e-12)
            told = f"{1e3 * floor:.3f}", f"{share:.0%}" + (" *" if share < SHARE else "")
            if not floor:
                told = "-", "-"
            rows.append([name, f"{found['launches']:.0f}", f"{1e3 * found['seconds']:.3f}", *told])
        shape = one["shape"]
        size = f"hidden {shape['hidden']}, batch {shape['batch']}"
        title = f"Kernels: {shape['name']}, {size}, {one['loss']}, {one['optimizer']}"
        note = (
            "Floor: bytes and operations at the rates above, whichever takes longer; * below 60 % of that speed. "
            "Launches below 20 microseconds are mostly what any launch takes. Keys are written and sorted beside other "
            "kernels."
        )
        tables.append(Table(title, ["kernel", "launches", "ms a step", "floor", "floor / ms"], rows, [note]))
    return tables


def _to_accuracy(result: Result) -> list[Table]:
    found = result["to_accuracy"]
    rows = [
        [str(record["epoch"] + 1), f"{record['seconds']:.2f}", f"{record['loss']:.3f}", f"{record['P@1']:.1f}"]
        for record in found["records"]
    ]
    notes = [f"{found['rows']} synthetic rows, made in {found['seconds_of_making']:.1f} s; measuring is off the clock."]
    notes += [
        f"Training by SGD: {found['sgd_rows_per_second']:,.0f} rows/s, {_share_of_steps(result):.0%} of its steps."
    ]
    return [Table("Time to P@1, shape of Amazon-670K", ["epoch", "seconds", "loss", "P@1"], rows, notes)]


def _share_of_steps(result: Result) -> float:
    """Return the rows a second of training over those of steps of the same shape; NaN where these are missing."""
    rates = [one["rows_per_second"] for one in result.get("steps", []) if _is_wanted(one, 128)]
    return float(result["to_accuracy"]["sgd_rows_per_second"]) / rates[0] if rates else math.nan


def _learners(result: Result) -> list[Table]:
    rows = [[str(one["learners"]), f"{one['rows_per_second']:,.0f}"] for one in result["learners"]]
    return [Table("Learners on one GPU", ["learners", "rows/s"], rows)]


def _mixed(result: Result) -> list[Table]:
    found, rows = result["mixed"], []
    for one in found:
        updates = [worker.get("updates", 0) for worker in one["workers"]]
        shares = " / ".join(f"{count / max(sum(updates), 1):.0%}" for count in updates)
        ratio = one["seconds"] / max(found[0]["seconds"], 1e-9)
        rows.append(
            [one["algorithm"], f"{one['seconds']:.2f}", f"{ratio:.2f}", shares, f"{one['records'][-1]['loss']:.4f}"]
        )
    columns = ["algorithm", "seconds of two epochs", "over the GPU alone", "updates of each", "loss"]
    return [Table("The CPU beside the GPU", columns, rows)]
