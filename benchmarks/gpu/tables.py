"""The measurements of a GPU as Markdown."""

from __future__ import annotations

from typing import Any

from ..report import Table, origin

Result = dict[str, Any]
SHARE = 0.6  # of its ceiling, below which a kernel needs an explanation


def markdown(result: Result) -> str:
    """Return all tables of what has been measured so far."""
    gpu, machine = result["gpu"], {**result["machine"], "cpu": result["gpu"]["gpu"]}
    known = {
        "ceilings": _ceilings, "correctness": _correctness, "steps": _steps, "kernels": _kernels,
        "to_accuracy": _to_accuracy, "learners": _learners, "mixed": _mixed,
    }  # fmt: skip
    tables = [table.markdown() for name, make in known.items() if name in result for table in make(result)]
    left_out = [f"Left out: {line}." for line in result["left_out"]]
    heading = (
        f"# {gpu['gpu']}\n\nSources {gpu['sources']}, CuPy {gpu.get('cupy', '-')}, cuBLAS {gpu.get('cublas', '-')}.\n"
    )
    if "changed" in result:
        heading += f"Kernels that have changed since the results before: {', '.join(result['changed']) or 'none'}.\n"
    return "\n".join([heading, *tables, *left_out, "", origin(machine), ""])


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
    columns = [
        "shape",
        "hidden",
        "batch",
        "loss",
        "optimizer",
        "steps/s",
        "host ms",
        "memory",
        "PyTorch eager",
        "compiled",
    ]
    rows = []
    for one in result["steps"]:
        shape = one["shape"]
        peers = [_peer(result.get("torch", []), one, mode) for mode in ("eager", "compiled")]
        rows.append([
            shape["name"], str(shape["hidden"]), str(shape["batch"]), _loss(one), one["optimizer"],
            f"{one['steps_per_second']:,.1f}", f"{1e3 * one['host_seconds']:.2f}", f"{one['memory_share']:.2f}", *peers,
        ])  # fmt: skip
    return [
        Table(
            "Training steps",
            columns,
            rows,
            [
                "Memory: all that CuPy has taken over weights, state, data and the bytes of a chunk.",
                *(f"PyTorch: {one['failure']}" for one in result.get("torch", []) if "failure" in one),
            ],
        )
    ]


def _loss(result: Result) -> str:
    """Return the loss, and whether softmax took one exponential a logit."""
    return f"{result['loss']}, one exp" if result["once"] else str(result["loss"])


def _peer(results: list[Result], ours: Result, mode: str) -> str:
    """Return PyTorch's steps a second of the same shape and how many times as fast ours are."""
    if ours["optimizer"] != "sgd":
        return ""
    wanted = (ours["shape"]["name"], ours["shape"]["hidden"], ours["shape"]["batch"], ours["loss"], mode)
    for one in results:
        if (
            tuple(one.get(key) for key in ("shape", "hidden", "batch", "loss", "mode")) == wanted
            and "failure" not in one
        ):
            rate = one["steps_per_second"]
            return f"{rate:,.1f} ({ours['steps_per_second'] / rate:.2f}x)"
    return "-"


def _kernels(result: Result) -> list[Table]:
    ceilings = result.get("ceilings", {})
    flops = ceilings.get("bfloat16_flops_per_second") or ceilings.get("float32_flops_per_second")
    tables = []
    for one in result["kernels"]:
        rows = []
        for name, found in sorted(one["kernels"].items(), key=lambda pair: -pair[1]["seconds"]):
            ceiling = flops if name.startswith("gemm") else ceilings.get("copied_bytes_per_second")
            rate = found["work"] / max(found["seconds"], 1e-12)
            share = f"{rate / ceiling:.0%}" + (" *" if rate < SHARE * ceiling else "") if ceiling else "-"
            rows.append([name, f"{found['launches']:.0f}", f"{1e3 * found['seconds']:.3f}", f"{rate:.2e}", share])
        shape = one["shape"]
        size = f"hidden {shape['hidden']}, batch {shape['batch']}"
        title = f"Kernels: {shape['name']}, {size}, {_loss(one)}, {one['optimizer']}"
        note = (
            "* below 60 % of its ceiling: products, or bytes of all arrays that it is given. Each launch is waited for."
        )
        tables.append(Table(title, ["kernel", "launches", "ms a step", "a second", "of ceiling"], rows, [note]))
    return tables


def _to_accuracy(result: Result) -> list[Table]:
    found = result["to_accuracy"]
    rows = [
        [str(record["epoch"] + 1), f"{record['seconds']:.2f}", f"{record['loss']:.3f}", f"{record['P@1']:.1f}"]
        for record in found["records"]
    ]
    note = f"{found['rows']} synthetic rows, made in {found['seconds_of_making']:.1f} s; measuring is off the clock."
    return [Table("Time to P@1, shape of Amazon-670K", ["epoch", "seconds", "loss", "P@1"], rows, [note])]


def _learners(result: Result) -> list[Table]:
    rows = [[str(one["learners"]), f"{one['rows_per_second']:,.0f}"] for one in result["learners"]]
    return [Table("Learners on one GPU", ["learners", "rows/s"], rows)]


def _mixed(result: Result) -> list[Table]:
    rows = [[one["algorithm"], f"{one['seconds']:.2f}", f"{one['records'][-1]['loss']:.4f}"] for one in result["mixed"]]
    return [Table("The CPU beside the GPU", ["algorithm", "seconds of two epochs", "loss"], rows)]
