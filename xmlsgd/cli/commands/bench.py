"""Measure this machine: rows per second in training and in prediction, on synthetic rows of a given shape.

Training counts whole epochs; prediction is the top 5, the median of three passes. Kernels are compiled before the clock
starts.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from ..exit_codes import UsageError
from ..flags import JSON_FILE, Flag
from ..kernels import compile_kernels
from ..machine import peak_memory_bytes, processor, versions
from ..output_files import check_file
from ..parameters import parameter_flags
from ..results import write_json
from ..value_types import FLOAT, INT
from .train import new_model

if TYPE_CHECKING:
    from ..messages import Console

FLAGS = (
    Flag("rows", INT, "training rows", "data", 40_000),
    Flag("features", INT, "features", "data", 20_000),
    Flag("labels", INT, "labels", "data", 10_000),
    Flag("nnz", FLOAT, "features per row", "data", 25.0),
    *parameter_flags(without="warm_start", max_epochs=2, random_state=0),
    JSON_FILE,
)
EXAMPLES = "  xmlsgd bench --rows 100000 --labels 50000 --threads 2"
PASSES = 3


def run(
    rows: int, features: int, labels: int, nnz: float, parameters: dict[str, Any], json: str | None, console: Console
) -> None:
    """Make rows, train, predict, show."""
    check_file(json, "--json")
    if rows < 1:
        raise UsageError(f"--rows: must be at least 1, got {rows}")
    from ...data.synthetic import make_xmc, split_rows
    from ...estimators.threads import thread_count
    from ...training.progress_bar import Progress
    from ..measure import rank

    model = new_model(parameters)
    console.note("making rows ...")
    n_test = max(rows // 5, 1)
    dataset = make_xmc(rows + n_test, features, labels, nnz_per_row=nnz, labels_per_row=3)
    train, test = split_rows(dataset, test_size=n_test / dataset.n_rows)
    compile_kernels(parameters, labels)
    model.fit(train.X, train.Y, callbacks=[] if console.quiet else [Progress()])
    last, machine = model.history_[-1], processor()
    seconds = statistics.median(rank(model, test.X, 5, quiet=True)[1] for _ in range(PASSES))
    precision = model.get_params()["precision"]
    result: dict[str, Any] = {
        "rows_per_second": last["rows"] / last["seconds"],
        "train_seconds": last["seconds"],
        "predict_rows_per_second": test.n_rows / seconds,
        "predict_seconds": seconds,
        "precision": precision if precision != "auto" else "bfloat16" if machine["bfloat16"] else "float32",
        "threads": thread_count(parameters.get("n_jobs")),
        "peak_memory_bytes": peak_memory_bytes(),
        "data": {"rows": train.n_rows, "features": train.n_features, "labels": train.n_labels, "nnz": train.X.nnz},
        "parameters": model.get_params(),
        "machine": machine,
        "versions": versions(),
    }
    console.answer(
        f"machine     {machine['processor']}, {result['threads']} threads, products in {result['precision']}\n"
        f"rows        {train.n_rows:,} x {train.n_features:,} features, {train.n_labels:,} labels\n"
        f"training    {result['rows_per_second']:>12,.0f} rows/s\n"
        f"top 5       {result['predict_rows_per_second']:>12,.0f} rows/s\n"
        f"peak memory {(result['peak_memory_bytes'] or 0) / 1e6:>12,.0f} MB"
    )
    write_json(json, result)
