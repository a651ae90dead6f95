"""Measure a saved model on labelled rows: P, nDCG, R and propensity-scored P at k."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ...errors import DataError
from .. import folder
from ..failures import UsageError
from ..format_options import add_source_arguments
from ..machine import peak_memory_bytes, versions
from ..model import classifiers_of, label_weight_of, load_model_of, parameters_of
from ..outputs import check_file, check_there
from ..parameters import add_parameters, add_propensity_power, number, place, whole
from ..results import answer, show, table, write_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    import numpy as np

    from ...data.csr import CSR
    from ...estimators import XMLClassifier, XMLEnsemble

KS = (1, 3, 5)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("model", type=place, metavar="DIR", help="folder of the model")
    parser.add_argument("test", type=place, metavar="TEST", help="labelled rows, in any form that train takes")
    parser.add_argument("--json", type=place, metavar="FILE", help="write the results as JSON, - for stdout")
    parser.add_argument("--k", type=whole, action="append", help="measure at this k too; may be repeated [-k]")
    parser.add_argument(
        "--metric", action="append", metavar="NAME", help="another metric, such as coverage; may be repeated"
    )
    parser.add_argument(
        "--propensity",
        type=place,
        metavar="ROWS",
        help="whose labels give the propensities (default: the rows of training)",
    )
    parser.add_argument("--propensity-a", type=number, default=0.55, metavar="A", help="see docs/metrics.md")
    parser.add_argument("--propensity-b", type=number, default=1.5, metavar="B", help="see docs/metrics.md")
    add_propensity_power(parser)
    add_source_arguments(parser)
    add_parameters(parser, ("precision", "n_jobs"))


def run(args: Namespace) -> None:
    """Load, rank, measure."""
    ks = sorted({*KS, *(args.k or ())})
    if ks[0] < 1:
        raise UsageError(f"--k: must be at least 1, got {ks[0]}")
    check_file(args.json, "--json", args.model, args.test, args.propensity)
    check_there(args.test, args.propensity)
    model = load_model_of(args, args.test)
    from ...metrics import metric
    from ..input_warnings import warn_of_unknown
    from ..measure import measure
    from ..sizes import size_numbers
    from ..sources import Known, read_labels, read_test

    known = Known.of_model(model)
    if ks[-1] > max(KS[-1], known.n_labels):
        raise UsageError(f"--k: must be at most the {known.n_labels} labels of the model, got {ks[-1]}")
    metrics = args.metric or ()
    for name in metrics:
        metric(name)  # before rows are read, so that a wrong name fails at once
    Y_train = None
    if args.propensity:
        Y_train, known = read_labels(args.propensity, args, known)
    test = read_test(args.test, args, known)
    warn_of_unknown(test, len(model.classes_), args.test)
    weight = label_weight_of(model, args.propensity_power, args.propensity_a, args.propensity_b)
    q = inverse_propensity_for(args, model, Y_train, test.Y.n_cols)
    result = measure(model, test, ks, args.quiet, weight, q, metrics)
    kinds = [kind for kind in ("P", "nDCG", "R", "PSP", *metrics) if f"{kind}@1" in result]
    rows = [(kind, {f"@{k}": result[f"{kind}@{k}"] for k in ks}) for kind in kinds]
    answer(args, table(rows, [f"@{k}" for k in ks]))
    show(args, f"{test.n_rows:,} rows ranked in {result['predict_seconds']:.2f} s")
    result |= {
        **folder.training_of(args.model, [end for each in classifiers_of(model) for end in each.history_[-1:]]),
        "peak_memory_bytes": peak_memory_bytes(),
        "parameters": parameters_of(model),
        "data": {"test": size_numbers(test)},
        "versions": versions(),
    }
    write_json(args.json, result)


def inverse_propensity_for(
    args: Namespace, model: XMLClassifier | XMLEnsemble, Y_train: CSR | None, n_labels: int
) -> np.ndarray | None:
    """Return q_l of each label by the rows of `--propensity`, else by those of training; None where these were too few.

    Or where the model does not know of them, of which a warning tells.
    """
    from ...metrics import inverse_propensity

    form = args.propensity_a, args.propensity_b
    if Y_train is not None:
        return inverse_propensity(Y_train, *form, n_labels)
    try:
        return model.inverse_propensity(*form, n_labels)
    except DataError as error:
        warnings.warn(f"PSP is left out: {error}; or pass --propensity", stacklevel=2)
        return None
