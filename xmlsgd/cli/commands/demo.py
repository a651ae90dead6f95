"""Train on data that every machine has: predict which names the functions of your Python installation call.

A row is a function of the standard library or of an installed scientific package: the words of its name, arguments and
docstring. Its labels are the names that it calls. Nothing is downloaded, and none of the code is run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..flags import DIR, JSON_FILE, OVERWRITE, Flag
from ..messages import Console
from ..model_folder import Target
from ..output_files import check_folder
from ..parameters import parameter_flags
from ..results import COLUMNS, size_text, table, write_json

if TYPE_CHECKING:
    from ...data.csr import Dataset
    from ...data.text import Documents
    from ...estimators import Model

OUT = "xmlsgd-demo"
FLAGS = (
    *parameter_flags(),
    Flag("out", DIR, "folder of the model, replaced each time if it is the default", "output", OUT,
         synonyms=("-o", "--output")),
    OVERWRITE,
    JSON_FILE,
)  # fmt: skip
EXAMPLES = "  xmlsgd demo"
EXAMPLE_ROWS = 5
WORDS_SHOWN = 14  # words shown of an example


def run(parameters: dict[str, Any], out: str, overwrite: bool, console: Console) -> None:
    """Build the data, train a model, compare it with a baseline and show examples."""
    check_folder(out, overwrite=overwrite or out == OUT)
    from ...data.python_functions import python_functions_texts, vectorized
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


def baseline(train: Dataset, test: Dataset) -> dict[str, float]:
    """Return the metrics of predicting the most frequent labels for every row."""
    import numpy as np

    from ...metrics import evaluate_ranking

    top = np.argsort(-train.Y.column_counts(), kind="stable")[:5]
    return evaluate_ranking(test.Y, np.tile(top, (test.n_rows, 1)), train.Y)


def examples(model: Model, test: Dataset, texts: Documents) -> list[str]:
    """Return two lines for each of some test rows: its words, and its best labels."""
    import numpy as np

    long = np.flatnonzero([len(text.split()) >= WORDS_SHOWN // 2 for text in texts.texts])
    shown = long[np.linspace(0, len(long) - 1, min(EXAMPLE_ROWS, len(long))).astype(int)]
    labels, _ = model.predict_topk(test.X.take(shown), k=5)
    lines: list[str] = []
    for row, best in zip(shown.tolist(), labels, strict=True):
        words, true = texts.texts[row].split(), set((texts.labels or [])[row])
        names: list[Any] = [str(model.classes_[label]) for label in best if label >= 0]
        lines.append(" ".join(words[:WORDS_SHOWN]) + (" ..." if len(words) > WORDS_SHOWN else ""))
        lines.append("    " + "  ".join(name + "*" * (name in true) for name in names))
    return lines
