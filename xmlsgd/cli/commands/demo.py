"""Train on real data that every machine has: what the functions of your Python installation call.

A row is a function of the standard library or of an installed scientific package: the words of its name, arguments and
docstring. Its labels are the names that it calls. Nothing is downloaded, and no code is run that is read.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from ..outputs import add_overwrite, check_file, check_model
from ..parameters import add_parameters, place
from ..results import show, table, write_json
from .train import COLUMNS, new_model, train_and_save

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ...data.text import RawText
    from ...estimators import XMLClassifier
    from ..sources import Training

OUT = "xmlsgd-demo"
EXAMPLES = 5
WORDS = 14  # of an example on display


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument(
        "--out", type=place, metavar="DIR", default=OUT, help=f"folder of the model (default {OUT}, replaced each time)"
    )
    add_overwrite(parser)
    parser.add_argument("--json", type=place, metavar="FILE", help="write the results as JSON, - for stdout")
    add_parameters(parser, max_epochs=5)
    parser.set_defaults(train="python-functions")


def run(args: Namespace) -> None:
    """Build the data, train, measure beside the baseline, show examples."""
    args.overwrite |= args.out == OUT  # nobody else's name
    check_model(args)
    check_file(args.json, "--json", beside=args.out)
    from ...data.python_functions import python_functions_texts, vectorized
    from ..sizes import size_text
    from ..sources import Training

    started = time.perf_counter()
    say(args, "Data: reading the functions of this Python and its packages ...")
    texts = python_functions_texts()
    data = Training(*vectorized(*texts))
    say(args, f"      train: {size_text(data.train)}")
    if data.test is not None:
        say(args, f"      test:  {size_text(data.test)}")
    model = new_model(args)
    say(args, "Train: a sparse network, measured on the test rows after every epoch ...")
    result = train_and_save(args, model, data) | {"baseline": baseline(data)}
    say(args, f"       {result['train_seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s\n")
    say(args, table([("this network", result), ("most frequent labels", result["baseline"])], COLUMNS))
    say(args, "\nWhat some test functions call (* what they do call):\n")
    for line in examples(model, data, texts[1]):
        say(args, f"  {line}")
    say(args, f"\nmodel: {args.out}   ({time.perf_counter() - started:.0f} s in all)")
    say(args, f"learning curve: {result['learning_curve'] or result['not_drawn']}")
    write_json(args.json, result)


def say(args: Namespace, text: str) -> None:
    """Show a line now, also where stdout is a pipe: the next one may take a minute."""
    show(args, text)
    sys.stdout.flush()


def baseline(data: Training) -> dict[str, float]:
    """Return the measures of naming the most frequent labels for every row."""
    import numpy as np

    from ...metrics import evaluate_ranking

    assert data.test is not None
    counts = np.bincount(data.train.Y.indices, minlength=data.train.n_labels)
    top = np.argsort(-counts, kind="stable")[:5]
    return evaluate_ranking(data.test.Y, np.tile(top, (data.test.n_rows, 1)), data.train.Y)


def examples(model: XMLClassifier, data: Training, texts: RawText) -> list[str]:
    """Return two lines for each of some test rows spread over the set: its words, and the best labels."""
    import numpy as np

    assert data.test is not None
    long = np.flatnonzero([len(text.split()) >= WORDS // 2 for text in texts.texts])
    rows = long[np.linspace(0, len(long) - 1, min(EXAMPLES, len(long))).astype(int)]
    labels, _ = model.predict_topk(data.test.X.take(rows), k=5)
    lines: list[str] = []
    for row, best in zip(rows.tolist(), labels, strict=True):
        words, true = texts.texts[row].split(), set((texts.labels or [])[row])
        names: list[Any] = [str(model.classes_[label]) for label in best if label >= 0]
        lines.append(" ".join(words[:WORDS]) + (" ..." if len(words) > WORDS else ""))
        lines.append("    " + "  ".join(name + "*" * (name in true) for name in names))
    return lines
