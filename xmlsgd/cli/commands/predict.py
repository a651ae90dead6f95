"""Write the best labels of each row, one line per row.

A line reads `label:score label:score ...`, best first. Where the model knows label names, these stand for the numbers
and tabs separate the entries, since names may contain blanks. DATA may be text without labels if the model was trained
on text. `-` is standard input or output; standard input is answered in blocks of about 1 MB as it arrives.
"""

from __future__ import annotations

from typing import Any

from ..exit_codes import UsageError
from ..flags import FORMAT_FLAGS, PROPENSITY_POWER, Flag, positional
from ..format_options import FormatOptions
from ..messages import STDIN, STDOUT, Console
from ..models import label_weight_of, read_model
from ..output_files import check_file, check_inputs
from ..parameters import parameter_flags
from ..results import text_file
from ..value_types import DIR, FILE, FLOAT, INT, PATH

FLAGS = (
    positional("model", DIR, "DIR", "folder of the model"),
    positional("data", PATH, "DATA", "rows or texts"),
    *FORMAT_FLAGS,
    PROPENSITY_POWER,
    *parameter_flags("precision", "n_jobs"),
    Flag("k", INT, "labels per row, at most", "output", 5, synonyms=("-k", "--top-k", "--topk")),
    Flag("threshold", FLOAT, "only labels with at least this probability", "output", default_text="all labels"),
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
    from ...training.progress_bar import in_batches
    from ..sources import Columns, read_features
    from ..standard_input import stdin_blocks

    columns = Columns.of_model(estimator)
    streamed = data == STDIN  # then the number of rows is not known
    blocks = stdin_blocks(format_options, columns) if streamed else [read_features(data, format_options, columns)]
    k = min(k, len(estimator.classes_))
    separator = "\t" if columns.names else " "
    names = [str(name) for name in estimator.classes_.tolist()]
    with text_file(out) as stream:
        for X in blocks:
            for rows in in_batches(X.n_rows, BATCH, "ranking", quiet=console.quiet or streamed):
                best = estimator.predict_topk(X.take(rows), k=k, threshold=threshold, label_weight=weight)
                for labels, scores in zip(*(each.tolist() for each in best), strict=True):
                    entries = (f"{names[j]}:{z:.6g}" for j, z in zip(labels, scores, strict=True) if j >= 0)
                    stream.write(separator.join(entries) + "\n")
            stream.flush()
