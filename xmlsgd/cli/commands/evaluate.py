"""Measure a saved model on labelled rows: P, nDCG, R and propensity-scored P at k, F1 and calibration.

F1 is that of labels above the thresholds that training has learned. With --groups, P@k is also averaged over groups of
rows, each of which counts the same. --against compares P@k with that of another model, which may have other labels: it
prints the differences and their 95 % confidence intervals, with rows paired. --filter drops pairs of a row and a label
from rankings, such as the reciprocal pairs of the Extreme Classification Repository.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...errors import counted, problems_named
from ..exit_codes import UsageError
from ..flags import (
    COUNT,
    DIR,
    EXCLUDE,
    FILE,
    JSON_FILE,
    NAME,
    PATH,
    PROPENSITY_CONSTANTS,
    PROPENSITY_POWER,
    THRESHOLD,
    Flag,
    positional,
)
from ..input_options import InputOptions
from ..machine import peak_memory_bytes, versions
from ..messages import STDIN, Console
from ..model_folder import saved_names
from ..models import finder_of_uris, label_weight_of, names_in, options_of_model, parameters_of, read_predictor
from ..parameters import RANKING_FLAGS
from ..results import size_numbers, write_json

if TYPE_CHECKING:
    from ...data.csr import CSR, Dataset
    from ...estimators import Model
    from ..model_metrics import Ranking

FLAGS = (
    *RANKING_FLAGS,
    positional("test", PATH, "TEST", "labelled rows, in any format that train reads"),
    Flag("propensity", PATH, "rows whose labels give the propensities", "data", default_text="the training rows"),
    PROPENSITY_POWER,
    Flag("k", COUNT, "measure at this k, too; may be repeated", "output", default_text="1, 3 and 5",
         synonyms=("-k", "--top-k", "--topk"), repeated=True),
    Flag("metric", NAME, "another metric, such as PSnDCG or coverage; may be repeated", "output", repeated=True),
    *PROPENSITY_CONSTANTS,
    Flag("threshold", THRESHOLD, "measure labels with at least this probability, too, also in --per-label", "output",
         default_text="in --per-label macro"),
    EXCLUDE,
    Flag("per_label", FILE, "write rows, threshold, mean probability, precision, recall and F1 of each label "
         "as CSV", "output"),
    Flag("groups", PATH, "file whose line i is the group of row i", "data"),
    Flag("filter", PATH, "pairs to drop from rankings: lines of a row, from 0, and a label, as in "
         "filter_labels_test.txt", "data", default_text="none"),
    Flag("against", DIR, "model to compare P@k with, on the same rows", "model"),
    JSON_FILE,
)  # fmt: skip
INSTEAD = {"--test": "the test rows are the second argument, xmlsgd evaluate DIR TEST"}
EXAMPLES = """  xmlsgd evaluate model test.txt
  xmlsgd evaluate model test.txt --k 10 --propensity train.txt --json results.json
  xmlsgd evaluate model test.txt --per-label labels.csv --groups libraries.txt"""


def run(
    model: str,
    test: str,
    input_options: InputOptions,
    propensity: str | None,
    propensity_power: float,
    parameters: dict[str, Any],
    k: list[int] | None,
    metric: list[str] | None,
    propensity_a: float,
    propensity_b: float,
    threshold: float | str | None,
    exclude: str | None,
    per_label: str | None,
    groups: str | None,
    filter: str | None,
    against: str | None,
    console: Console,
) -> None:
    """Load the model, read and rank the rows, compute and show the metrics."""
    if threshold == 0:
        raise UsageError("--threshold: must be above 0, got 0; every label reaches 0")
    input_options.check_inputs(test, propensity)
    if against is not None and test == STDIN:
        raise UsageError("--against: both models read TEST, got standard input; write it to a file")
    estimator = read_predictor(model, parameters, test, "evaluate")
    if (per_label or threshold is not None) and not estimator.fitted_.has_probabilities:
        flag = "--per-label" if per_label else "--threshold"
        raise UsageError(f"{flag}: needs a model with probabilities, got loss {estimator.network_.loss!r}")
    from ...metrics import metric as find_metric
    from ...metrics.comparison import MAX_RANK
    from ...metrics.evaluation import table_name
    from .. import model_metrics
    from ..line_files import groups_in_file, read_excluded, read_pairs

    ks, more = sorted({*model_metrics.KS, *(k or ())}), [table_name(name) for name in metric or ()]
    if ks[-1] > max(MAX_RANK, len(estimator.classes_)):
        most = f"the {len(estimator.classes_)} labels of the model, or {MAX_RANK}"
        raise UsageError(f"--k: must be at most {most}, got {ks[-1]}")
    for name in more:  # raises an error for an unknown metric before rows are read
        find_metric(name)
    other = None if against is None else read_predictor(against, parameters, test, "evaluate")
    if against is not None and os.path.samefile(model, against):
        raise UsageError(f"--against: must be another model, got {against}, which is the same folder as {model}")

    def ranked(folder: str, of: Model, labels_of: str | None = None) -> tuple[Dataset, CSR | None, Ranking]:
        read_as = options_of_model(input_options, folder, of)
        rows, Y_train, _ = model_metrics.read_test_rows(of, test, read_as, labels_of)
        weight = label_weight_of(of, propensity_power, propensity_a, propensity_b)
        dropped = read_pairs(filter, of, rows.n_rows)
        excluded = read_excluded(exclude, of, saved_names(folder) or {})
        return rows, Y_train, model_metrics.rank_rows(of, rows.X, ks[-1], console.quiet, weight, dropped, excluded)

    rows, Y_train, ranking = ranked(model, estimator, propensity)
    group_of = groups_in_file(groups, rows.n_rows)
    q = model_metrics.inverse_propensity_or_none(estimator, rows.Y.n_cols, Y_train, propensity_a, propensity_b)
    result = model_metrics.evaluate(estimator, rows, ranking, ks, q, more)
    if group_of is not None:
        result["groups"] = model_metrics.evaluate_groups(rows, ranking, ks, group_of)
    if against is not None and other is not None:
        with problems_named(f"--against {against}"):
            other_rows, _, other_ranking = ranked(against, other)
        hits, other_hits = rows.Y.has(ranking.labels), other_rows.Y.has(other_ranking.labels)
        result["against"] = {"model": against, **model_metrics.compare_precision(hits, other_hits, ks)}
    thresholded, at_thresholds = model_metrics.evaluate_thresholds(estimator, rows, ranking, threshold)
    result |= thresholded
    model_metrics.show(result, ks, more, console)
    if per_label and at_thresholds is not None:
        model_metrics.write_per_label(
            per_label, estimator, names_in(rows, estimator), at_thresholds, finder_of_uris(saved_names(model))
        )
    console.show(f"{counted(rows.n_rows, 'row')} ranked in {result['predict_seconds']:.2f} s")
    result |= {
        "peak_memory_bytes": peak_memory_bytes(),
        "parameters": parameters_of(estimator),
        "data": {"test": size_numbers(rows)},
        "propensities": None if q is None else {"A": propensity_a, "B": propensity_b, "counts": propensity or "model"},
        "versions": versions(),
    }
    write_json(console.json, result)
