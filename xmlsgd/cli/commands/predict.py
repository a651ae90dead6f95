"""Write the best labels of each row and their probabilities, one line per row.

A line of text reads `label:probability label:probability ...`, best first. If the model knows label names, these
replace the numbers, and tabs separate the entries, as names may contain spaces. A line of JSON is an object with the
number of the row, from 0, and its labels. CSV has a header and a line per row. With --id-column, each row also has its
identifier: first in a line of text, else as "id". A model without probabilities of single labels (softmax) writes
scores. With --explain, each line of text is followed by an explanation of each score, and each label in JSON has an
"explanation".

DATA may be text without labels if the model was trained on text. `-` is standard input or output; each document on
standard input is answered before the next one is read.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ...data.files.reading import COMPRESSED_SUFFIXES
from ...errors import DataError, warn
from ..exit_codes import UsageError
from ..flags import (
    COUNT,
    EXCLUDE,
    FILE,
    ID_COLUMN,
    PATH,
    PROPENSITY_CONSTANTS,
    PROPENSITY_POWER,
    THRESHOLD,
    Flag,
    name_among,
    positional,
)
from ..input_options import InputOptions
from ..messages import STDIN, STDOUT, Console
from ..model_folder import saved_names
from ..models import finder_of_uris, label_weight_of, options_of_model, read_predictor
from ..parameters import RANKING_FLAGS
from ..prediction_lines import FORMATS, csv_header, line_format
from ..results import text_file

DEFAULT_K = 5
FLAGS = (
    *RANKING_FLAGS,
    positional("data", PATH, "DATA", "rows or texts"),
    ID_COLUMN,
    PROPENSITY_POWER,
    *PROPENSITY_CONSTANTS,
    Flag("k", COUNT, "labels per row, at most", "output", default_text=str(DEFAULT_K),
         synonyms=("-k", "--top-k", "--topk")),
    Flag("threshold", THRESHOLD, "only labels with at least this probability, or with those "
         "that training found best for micro or macro F1", "output", default_text="all labels"),
    EXCLUDE,
    Flag("explain", None, "say what each score is made of: words, neighbors, co-occurrence, network", "output"),
    Flag("output_format", name_among(*FORMATS), "text, JSON lines or CSV", "output",
         default_text="by the name of --out, .jsonl, .json or .csv, else text"),
    Flag("out", FILE, "file of the predictions; .gz, .bz2 and .xz compress it", "output", STDOUT,
         "standard output", ("-o", "--output")),
)  # fmt: skip
INSTEAD = {
    "--test": "the rows are the second argument, xmlsgd predict DIR DATA",
    "--json": "pass --output-format json",
    "--csv": "pass --output-format csv",
}
EXAMPLES = """  xmlsgd predict model test.txt --k 3 --out predictions.txt
  xmlsgd predict model texts.txt --threshold micro --out predictions.csv
  cat texts.txt | xmlsgd predict model - --output-format json"""
BATCH = 8192  # rows that are ranked at a time


def run(
    model: str,
    data: str,
    input_options: InputOptions,
    propensity_power: float,
    propensity_a: float,
    propensity_b: float,
    parameters: dict[str, Any],
    k: int | None,
    threshold: float | str | None,
    exclude: str | None,
    explain: bool,
    output_format: str | None,
    out: str,
    console: Console,
) -> None:
    """Load the model, rank the rows and write the predictions."""
    output_format = output_format or format_of_output(out)
    if explain and output_format == "csv":
        raise UsageError("--explain: needs --output-format text or json, got csv")
    check_data(data, model, input_options)
    estimator = read_predictor(model, parameters, data, "predict")
    weight = label_weight_of(estimator, propensity_power, propensity_a, propensity_b)
    from ...training.progress_bar import in_batches
    from ..line_files import read_excluded
    from ..sources import Columns
    from ..standard_input import feature_blocks

    columns, input_options = Columns.of_model(estimator), options_of_model(input_options, model, estimator)
    names_of_uris = saved_names(model) or {}
    excluded = read_excluded(exclude, estimator, names_of_uris)
    blocks, n_answered = feature_blocks(data, input_options, columns), 0
    n_listed, n_full = min(k or DEFAULT_K, columns.n_labels), 0
    proba = estimator.fitted_.has_probabilities
    value = "probability" if proba else "score"
    find_uri = finder_of_uris(names_of_uris)
    line = line_format(output_format, estimator.classes_.tolist(), value, columns.names is not None, find_uri)

    with text_file(out) as stream:
        if output_format == "csv":
            stream.write(csv_header(n_listed, value, find_uri is not None, input_options.id_column is not None) + "\n")
        for X, ids in blocks:
            for rows in in_batches(X.n_rows, BATCH, "ranking", quiet=console.quiet or data == STDIN):
                labels, values = estimator.predict_topk(
                    X.take(rows), n_listed, exclude=excluded, threshold=threshold, label_weight=weight, proba=proba
                )
                for row, best, best_values in zip(rows.tolist(), labels.tolist(), values.tolist(), strict=True):
                    listed = [label for label in best if label >= 0]
                    why = estimator.explain(X.span(row, row + 1), listed)[0] if explain and listed else []
                    row_id = {"row": n_answered + row} | ({} if ids is None else {"id": ids[row]})
                    stream.write(line(row_id, best, best_values, why) + "\n")
                n_full += int((labels[:, -1] >= 0).sum())
            n_answered += X.n_rows
            stream.flush()
    if threshold is not None and k is None and n_full and n_listed < columns.n_labels:
        text = f"{n_full:,} of {n_answered:,} rows have {n_listed} labels above the threshold"
        warn(f"{text}, and may have more; pass a larger --k")
    if not n_answered:
        warn(f"{data}: has no document, so that nothing is predicted")


def format_of_output(out: str) -> str:
    """Return the format by the name of the output file; raise `UsageError` for one of NumPy, SciPy or spreadsheets."""
    name = Path(out)
    suffix = (Path(name.stem) if name.suffix in COMPRESSED_SUFFIXES else name).suffix.lower()
    if suffix in (".npz", ".npy", ".xlsx", ".xls", ".ods"):
        matrix = "predict_topk(X, k, as_csr=True, proba=True) returns a sparse matrix"
        remedy = f"choose another name; in Python, {matrix}, which scipy.sparse.save_npz writes"
        if not suffix.startswith(".np"):
            remedy = "pass a name with .csv, and import it into the spreadsheet"
        raise UsageError(f"--out {out}: predictions are text, JSON or CSV; {remedy}")
    return {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}.get(suffix, "text")


def check_data(data: str, model: str, options: InputOptions) -> None:
    """Raise `DataError` if there is no such input; if it looks like a text, the error says how to pass a text."""
    try:
        options.check_inputs(data)
    except DataError as error:
        if Path(data).exists() or (" " not in data and data != Path(data).stem):
            raise
        raise DataError(f"{error}; for one text: echo {shlex.quote(data)} | xmlsgd predict {model} -") from error
