"""Amazon-670K's shape: our default, the network alone by its rule for labels, and PyTorch's full output layer.

The rows are synthetic (`make_xmc`), in the shape of the whole set and, so that the full output layer can be trained to
its end, of a tenth in rows, features and labels. Every run is a process of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from xmlsgd import make_xmc
from xmlsgd.data.csr import Dataset

from .launch import RunnerFailed
from .plan import Plan
from .prepare import MARK, of_ones, prepared_shape, save_npz, shape
from .report import Table, megabytes, per_second, publish
from .runs import Run, notes, title, whole_runs

# Shape of the train set in the Extreme Classification Repository. Its most frequent label has 1,826 rows, which an
# exponent of 0.5 gives: 490,449 * 5.4 / (2 * sqrt(670,091)) = 1,618.
AMAZON_670K: dict[str, Any] = {
    "n_rows": 490_449, "n_features": 135_909, "n_labels": 670_091, "nnz_per_row": 76, "labels_per_row": 5.4,
    "label_exponent": 0.5,
}  # fmt: skip
HIDDEN = 128
TEST_ROWS = 5000
PARTS = {"amazon-670k": 1, "amazon-670k-tenth": 10}  # what rows, features and labels are divided by
EPOCHS = 4  # those of our default
RULES = {"amazon-670k": ("shared",), "amazon-670k-tenth": ("shared", "lsh", "all")}  # LSH takes 9 minutes on the whole
VARIANTS = ("fp32-sparse", "bf16-sparse", "bf16-sparse-compiled")  # of PyTorch
WARM_UP, STEPS = 2, 6  # of PyTorch, which takes seconds for each
MEASURES = ("P@1", "P@3", "P@5")


def amazon(plan: Plan) -> None:
    """Run everybody on both parts; print and write a table of each."""
    for name in PARTS:
        prepared = made(plan.work / "data" / name, PARTS[name])
        runs, steps = [*_ours(prepared, plan), *_rules(prepared, plan)], _pytorch(prepared, plan)
        result = {"shape": prepared_shape(prepared), "runs": runs, "pytorch": steps}
        publish(name, table(name, runs, steps), result, plan.threads, plan.out)


def made(target: Path, part: int, n_test: int = TEST_ROWS) -> Path:
    """Return the folder with the rows, made where it is missing: npz of the training and the test split."""
    if (target / MARK).exists():
        return target
    sizes = {name: AMAZON_670K[name] // part for name in ("n_rows", "n_features", "n_labels")}
    n_train = sizes.pop("n_rows")
    rows = make_xmc(**{**AMAZON_670K, **sizes, "n_rows": n_train + n_test})
    train, test = (
        Dataset(rows.X.span(*span), rows.Y.span(*span)) for span in ((0, n_train), (n_train, n_train + n_test))
    )
    target.mkdir(parents=True, exist_ok=True)
    for suffix, dataset in (("trn", train), ("tst", test)):
        save_npz(dataset.X, target / f"X.{suffix}.npz")
        save_npz(of_ones(dataset.Y), target / f"Y.{suffix}.npz")
    (target / MARK).write_text(json.dumps({"shape": shape(train, test)}, indent=1))
    return target


def _ours(prepared: Path, plan: Plan) -> list[Run]:
    """Return the run of the default."""
    if plan.peers and "ours" not in plan.peers:
        return []
    return whole_runs(prepared, replace(plan, peers=("ours",), parameters={"hidden_layer_sizes": [HIDDEN]}))


def _rules(prepared: Path, plan: Plan) -> list[Run]:
    """Return the runs of the network alone."""
    names = tuple(f"network:{rule}" for rule in RULES[prepared.name])
    chosen = tuple(name for name in names if not plan.peers or name in plan.peers)
    parameters = {"hidden": HIDDEN, "epochs": EPOCHS}
    return whole_runs(prepared, replace(plan, peers=chosen, parameters=parameters)) if chosen else []


def _pytorch(prepared: Path, plan: Plan) -> list[dict[str, Any]]:
    """Return the steps of PyTorch's variants, `failure` in place of their rate where one failed."""
    if plan.peers and "pytorch" not in plan.peers:
        return []
    found, work = [], plan.folder("runs", prepared)
    for variant in plan.variants or VARIANTS:
        out = work / f"pytorch-steps-{variant}.json"
        options = ["--max-steps", str(STEPS), "--warm-up-steps", str(WARM_UP), "--hidden", str(HIDDEN)]
        try:
            kept = json.loads(out.read_text()) if plan.reuse and out.exists() else None
            found += kept or plan.launcher.run("pytorch", prepared, out, *options, "--variant", variant)
        except RunnerFailed as error:
            found.append({"variant": variant, "failure": str(error)})
            print(error, flush=True)
    return found


def table(name: str, runs: list[Run], steps: list[dict[str, Any]]) -> Table:
    """Return the table: our runs, then PyTorch's steps, whose time to the end is that of as many epochs."""
    timed = [each for each in steps if "failure" not in each]
    best = max((each["rows_per_second"] for each in timed), default=None)
    rows = [_row(run, best) for run in runs if "failure" not in run]
    n_rows = next((run["train_rows"] * run["epochs"] for run in runs if "failure" not in run), None)
    for each in timed:
        rate = each["rows_per_second"]
        rows.append(
            [
                f"PyTorch {each['variant']}, {each['steps']} steps",
                *([""] * len(MEASURES)),
                *_speed(rate, best),
                f"({n_rows / rate:,.0f})" if n_rows else "",
                f"({n_rows / rate / 3600:.2f})" if n_rows else "",
                megabytes(each["peak_memory_bytes"]),
            ]
        )
    columns = ["method", *MEASURES, "rows/s", "times PyTorch", "train s", "hours", "peak MB"]
    said = [
        f"Hidden units: {HIDDEN}; epochs: {EPOCHS}; rows/s are rows times epochs over all of training.",
        "In brackets: what the steps of PyTorch's full output layer come to over as many epochs.",
        *notes(runs),
        *(f"Left out: PyTorch {each['variant']}: {each['failure']}" for each in steps if "failure" in each),
    ]
    return Table(f"{name}, synthetic", columns, rows, said)


def _row(run: Run, best: float | None) -> list[str]:
    seconds = run["train_seconds"]
    return [
        title(run),
        *(f"{run['measures'][measure]:.2f}" for measure in MEASURES),
        *_speed(run["train_rows"] * run["epochs"] / seconds, best),
        f"{seconds:,.1f}",
        f"{seconds / 3600:.3f}",
        megabytes(run["peak_memory_bytes"]),
    ]


def _speed(rate: float, best: float | None) -> list[str]:
    return [per_second(rate), f"{rate / best:.1f}" if best else ""]
