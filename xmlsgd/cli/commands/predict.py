"""Write the best labels of each row, a line a row.

A line reads `label:score label:score ...`, best first. Where the model knows label names, these stand for the numbers,
and tabs part the entries, since names may hold blanks. DATA may be text without labels if the model was trained on
text. `-` is standard input or output; standard input is answered block by block, of about 1 MB each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..failures import UsageError
from ..format_options import add_source_arguments
from ..model import label_weight_of, load_model_of
from ..outputs import STDIN, STDOUT, check_file, check_there
from ..parameters import add_parameters, add_propensity_power, number, place, whole
from ..results import note, text_file

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    import numpy as np

    from ...data.csr import CSR
    from ...estimators import XMLClassifier, XMLEnsemble
    from ..sources import Known

BATCH = 8192  # rows ranked before their lines are written


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("model", type=place, metavar="DIR", help="folder of the model")
    parser.add_argument("data", type=place, metavar="DATA", help="rows or texts")
    parser.add_argument("--k", type=whole, default=5, help="labels a row, at most (default 5) [-k, --top-k]")
    parser.add_argument("--threshold", type=number, metavar="SCORE", help="only labels with at least this score")
    add_propensity_power(parser)
    parser.add_argument("--out", type=place, metavar="FILE", default=STDOUT, help="default: stdout [-o]")
    add_source_arguments(parser)
    add_parameters(parser, ("precision", "n_jobs"))


def run(args: Namespace) -> None:
    """Load, rank, write."""
    if args.k < 1:
        raise UsageError(f"--k: must be at least 1, got {args.k}")
    check_file(args.out, "--out", args.model, args.data)
    check_there(args.data)
    model = load_model_of(args, args.data)
    weight = label_weight_of(model, args.propensity_power)
    from ..sources import Known

    blocks = feature_blocks(args, Known.of_model(model))
    n_rows = 0
    with text_file(args.out) as stream:
        for X in blocks:
            stream.writelines(format_predictions(args, model, X, weight))
            stream.flush()
            n_rows += X.n_rows
    if args.out != STDOUT:
        note(args, f"{n_rows:,} rows: {args.out}")


def feature_blocks(args: Namespace, known: Known) -> Iterable[CSR]:
    """Return the rows to rank: those of standard input as they come, those of anything else at once."""
    if args.data == STDIN:
        from ..stream import stdin_blocks

        return stdin_blocks(args, known)
    from ..sources import read_features

    return [read_features(args.data, args, known)]


def format_predictions(
    args: Namespace, model: XMLClassifier | XMLEnsemble, X: CSR, label_weight: np.ndarray | None
) -> Iterator[str]:
    """Yield the line of each row."""
    from ...training.progress_bar import in_batches

    quiet = args.quiet or args.data == STDIN  # nobody knows how much is to come
    k = min(args.k, len(model.classes_))
    named = model.classes_.dtype.kind in "OU"
    names = [str(name) for name in model.classes_.tolist()]
    for rows in in_batches(X.n_rows, BATCH, "ranking", quiet=quiet):
        labels, scores = model.predict_topk(X.take(rows), k=k, threshold=args.threshold, label_weight=label_weight)
        for best, of_best in zip(labels.tolist(), scores.tolist(), strict=True):
            entries = (f"{names[j]}:{z:.6g}" for j, z in zip(best, of_best, strict=True) if j >= 0)
            yield ("\t" if named else " ").join(entries) + "\n"
