"""Train on data that every machine has: predict which names the functions of your Python installation call.

A row is a function of the standard library or of an installed scientific package: the words of its name, arguments and
docstring. Its labels are the names that it calls. Nothing is downloaded, and none of the code is run.
"""

from __future__ import annotations

import time
from typing import Any

from ..flags import DIR, JSON_FILE, OVERWRITE, Flag
from ..messages import Console
from ..model_folder import Target
from ..output_files import check_folder
from ..parameters import parameter_flags
from ..results import COLUMNS, size_text, table, write_json

OUT = "xmlsgd-demo"
FLAGS = (
    *parameter_flags(),
    Flag("out", DIR, "folder of the model, replaced each time if it is the default", "output", OUT,
         synonyms=("-o", "--output")),
    OVERWRITE,
    JSON_FILE,
)  # fmt: skip
EXAMPLES = "  xmlsgd demo"


def run(parameters: dict[str, Any], out: str, overwrite: bool, console: Console) -> None:
    """Build the data, train a model, compare it with a baseline and show examples."""
    check_folder(out, overwrite=overwrite or out == OUT)
    from ...data.python_functions import python_functions_texts, vectorized
    from ..model_metrics import baseline, examples
    from ..sources import InputRows
    from ..training_runs import new_model, train_and_save

    started = time.perf_counter()
    console.show("Data: reading the functions of this Python and its packages ...")
    texts = python_functions_texts()
    train, test, vectorizer = vectorized(*texts)
    console.show(f"      train: {size_text(train)}")
    console.show(f"      test:  {size_text(test)}")
    model = new_model(parameters)
    console.show("Train: the network is measured on the test rows after every epoch ...")
    rows = InputRows(train, test, vectorizer)
    result = train_and_save(model, rows, Target(out, "python-functions"), console)
    result["baseline"] = baseline(train, test)
    console.show(f"       {result['train_seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s\n")
    console.show(table({"this model": result, "most frequent labels": result["baseline"]}, COLUMNS))
    console.show("\nWhat some test functions call (* what they do call):\n")
    for line in examples(model, test, texts[1]):
        console.show(f"  {line}")
    console.show(f"\nmodel: {out}   ({time.perf_counter() - started:.0f} s in all)")
    console.show(f"learning curve: {result['learning_curve'] or result['not_drawn']}")
    write_json(console.json, result)
