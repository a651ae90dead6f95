"""Measure this machine: rows a second in training and in prediction, on synthetic rows of a given shape.

Training counts whole epochs; prediction is the top 5, the median of three passes. Kernels are compiled before
the clock starts.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from ..failures import UsageError
from ..kernels import prepare_kernels
from ..machine import peak_memory_bytes, processor, versions
from ..outputs import check_file
from ..parameters import add_parameters, given_parameters, number, place, whole
from ..results import answer, note, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

PASSES = 3


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("--rows", type=whole, default=40_000, help="training rows (default 40000)")
    parser.add_argument("--features", type=whole, default=20_000, help="default 20000")
    parser.add_argument("--labels", type=whole, default=10_000, help="default 10000")
    parser.add_argument("--nnz", type=number, default=25, help="features a row (default 25)")
    parser.add_argument("--json", type=place, metavar="FILE", help="write the results as JSON, - for stdout")
    add_parameters(parser, max_epochs=2)


def run(args: Namespace) -> None:
    """Make rows, train, predict, show."""
    check_file(args.json, "--json")
    if args.rows < 1:
        raise UsageError(f"--rows: must be at least 1, got {args.rows}")
    from ...data.synthetic import make_xmc, split_rows
    from ...estimators import XMLClassifier
    from ...estimators.parameters import check_parameters
    from ...estimators.placement import check_devices
    from ...estimators.threads import thread_count
    from ...training.progress_bar import Progress
    from ..measure import rank

    parameters = {"random_state": 0, **given_parameters(args), "verbose": 0}
    model = XMLClassifier(**parameters)
    check_parameters(model)
    check_devices(model.devices)
    note(args, "making rows ...")
    n_test = max(args.rows // 5, 1)
    dataset = make_xmc(args.rows + n_test, args.features, args.labels, nnz_per_row=args.nnz, labels_per_row=3)
    train, test = split_rows(dataset, test_size=n_test / dataset.n_rows)
    prepare_kernels(parameters, args.labels)  # after what may refuse the call
    model.fit(train.X, train.Y, callbacks=[] if args.quiet else [Progress()])
    last = model.history_[-1]
    seconds = statistics.median(rank(model, test.X, 5, quiet=True)[2] for _ in range(PASSES))
    machine = processor()
    result: dict[str, Any] = {
        "rows_per_second": last["rows"] / last["seconds"],
        "train_seconds": last["seconds"],
        "predict_rows_per_second": test.n_rows / seconds,
        "predict_seconds": seconds,
        "precision": precision(model, machine["bfloat16"]),
        "threads": thread_count(model.n_jobs),
        "peak_memory_bytes": peak_memory_bytes(),
        "data": {"rows": train.n_rows, "features": train.n_features, "labels": train.n_labels, "nnz": train.X.nnz},
        "parameters": model.get_params(),
        "machine": machine,
        "versions": versions(),
    }
    for line in describe_result(result):
        answer(args, line)
    write_json(args.json, result)


def precision(model: Any, native: bool) -> str:
    """Return the precision of the products that ran."""
    if model.precision != "auto":
        return str(model.precision)
    return "bfloat16" if native else "float32"


def describe_result(result: dict[str, Any]) -> list[str]:
    """Return the result as lines."""
    data, machine = result["data"], result["machine"]
    memory = result["peak_memory_bytes"]
    return [
        f"machine     {machine['processor']}, {result['threads']} threads, products in {result['precision']}",
        f"rows        {data['rows']:,} x {data['features']:,} features, {data['labels']:,} labels",
        f"training    {result['rows_per_second']:>12,.0f} rows/s",
        f"top 5       {result['predict_rows_per_second']:>12,.0f} rows/s",
        f"peak memory {memory / 1e6:>12,.0f} MB" if memory else "",
    ]
