"""Write the best labels of each row, one line per row.

A line reads `label:score label:score ...`, best first. Where the model knows label names, these stand for the numbers
and tabs separate the entries, since names may contain blanks. DATA may be text without labels if the model was trained
on text. `-` is standard input or output; standard input is answered in blocks of about 1 MB as it arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..exit_codes import UsageError
from ..flags import FORMAT_FLAGS, PROPENSITY_POWER, Flag, positional
from ..messages import STDIN, STDOUT
from ..models import label_weight_of, read_model
from ..output_files import check_file, check_inputs
from ..parameters import parameter_flags
from ..results import text_file
from ..value_types import DIR, FILE, FLOAT, INT, PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from ...data.csr import CSR
    from ...estimators import XMLClassifier, XMLEnsemble
    from ..format_options import FormatOptions
    from ..messages import Console

FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    positional("data", PATH, "DATA", "rows or texts"),
    *FORMAT_FLAGS,
    PROPENSITY_POWER,
    *parameter_flags("precision", "n_jobs"),
    Flag("k", INT, "labels per row, at most", "output", 5, synonyms=("-k", "--top-k", "--topk")),
    Flag("threshold", FLOAT, "only labels with at least this score", "output", default_text="all scores"),
    Flag("out", FILE, "file of the predictions", "output", STDOUT, "standard output", ("-o", "--output")),
)
EXAMPLES = """  xmlsgd predict model test.txt --k 3 --out predictions.txt
  cat texts.txt | xmlsgd predict model -"""
BATCH = 8192  # rows ranked before their lines are written


def run(
    model: str,
    data: str,
    format_options: FormatOptions,
    propensity_power: float,
    parameters: dict[str, Any],
    k: int,
    threshold: float | None,
    out: str,
    console: Console,
) -> None:
    """Load, rank, write."""
    if k < 1:
        raise UsageError(f"--k: must be at least 1, got {k}")
    check_file(out, "--out", model, data)
    check_inputs(data)
    estimator = read_model(model, data, "predict", parameters)
    weight = label_weight_of(estimator, propensity_power)
    from ..sources import Columns, read_features
    from ..standard_input import stdin_blocks

    columns = Columns.of_model(estimator)
    streamed = data == STDIN
    blocks = stdin_blocks(format_options, columns) if streamed else [read_features(data, format_options, columns)]
    n_rows = 0
    with text_file(out) as stream:
        for X in blocks:
            quiet = console.quiet or streamed  # the number of rows is not known in a stream
            stream.writelines(format_predictions(estimator, X, k, threshold, weight, quiet))
            stream.flush()
            n_rows += X.n_rows
    if out != STDOUT:
        console.note(f"{n_rows:,} rows: {out}")


def format_predictions(
    model: XMLClassifier | XMLEnsemble,
    X: CSR,
    k: int,
    threshold: float | None,
    label_weight: np.ndarray | None,
    quiet: bool,
) -> Iterator[str]:
    """Yield the line of each row."""
    from ...training.progress_bar import in_batches

    k = min(k, len(model.classes_))
    separator = "\t" if model.classes_.dtype.kind in "OU" else " "
    names = [str(name) for name in model.classes_.tolist()]
    for rows in in_batches(X.n_rows, BATCH, "ranking", quiet=quiet):
        labels, scores = model.predict_topk(X.take(rows), k=k, threshold=threshold, label_weight=label_weight)
        for best, of_best in zip(labels.tolist(), scores.tolist(), strict=True):
            entries = (f"{names[j]}:{z:.6g}" for j, z in zip(best, of_best, strict=True) if j >= 0)
            yield separator.join(entries) + "\n"
