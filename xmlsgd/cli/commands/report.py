"""Write an evaluation as one HTML page: metrics, precision by label frequency and threshold, calibration, errors.

The page needs no network access and no other file. Its numbers are those of evaluate. Labels and words are escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..flags import FILE, PATH, Flag, positional
from ..format_options import FormatOptions
from ..messages import Console
from ..models import names_in, options_of_model, read_predictor
from ..parameters import RANKING_FLAGS
from ..results import size_text, text_file

if TYPE_CHECKING:
    from ...data.csr import Dataset
    from ...estimators import Model
    from ..evaluation import Ranking

FLAGS = (
    *RANKING_FLAGS,
    positional("test", PATH, "TEST", "labelled rows, in any format that train reads"),
    Flag("out", FILE, "the page; - is standard output", "output", "report.html"),
)
INSTEAD = {"--test": "the test rows are the second argument, xmlsgd report DIR TEST"}
EXAMPLES = "  xmlsgd report model test.txt --out report.html"
METRICS_NOTE = (
    "P@k is the share of the k best labels that are true, nDCG@k the same with more weight on the first, R@k the "
    "share of the true labels among the k best, and PSP@k is P@k with more weight on rare labels."
)


def run(
    model: str, test: str, format_options: FormatOptions, parameters: dict[str, Any], out: str, console: Console
) -> None:
    """Load the model, rank and evaluate the rows, and write the page."""
    format_options.check_inputs(test)
    estimator = read_predictor(model, parameters, test, "report")
    from .. import evaluation, html_report

    rows, _, texts = evaluation.read_test_rows(estimator, test, options_of_model(format_options, model, estimator))
    ranking = evaluation.rank_rows(estimator, rows.X, evaluation.KS[-1], console.quiet)
    q = evaluation.inverse_propensity_or_none(estimator, rows.Y.n_cols)
    result = evaluation.evaluate(estimator, rows, ranking, inv_propensity=q)
    result |= evaluation.evaluate_thresholds(estimator, rows, ranking)[0]
    parts = [*parts_of_metrics(rows, result), *parts_of_labels(estimator, rows, ranking, result)]
    scores = ranking.probabilities if ranking.probabilities is not None else estimator.predict_topk(rows.X, 1)[1]
    names = names_in(rows, estimator)
    errors = html_report.explained_errors(estimator, rows, ranking.labels[:, 0], scores[:, 0], names, texts)
    with text_file(out) as stream:
        stream.write(
            html_report.page(f"{model} on {test}", [*parts, ("Wrong first labels of the highest probability", errors)])
        )
    console.show(f"report: {out}")


def parts_of_metrics(rows: Dataset, result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return title and HTML of the parts about the test rows and the metrics."""
    from .. import evaluation, html_report

    metrics = [
        [name, *(result[f"{name}@{k}"] for k in evaluation.KS)]
        for name in ("P", "nDCG", "R", "PSP")
        if f"{name}@1" in result
    ]
    notes = "".join(f"\n<p>{line}</p>" for line in (METRICS_NOTE, *evaluation.describe(result)))
    return [
        ("Test rows", f"<p>{size_text(rows)}</p>"),
        ("Metrics, in percent", html_report.html_table(["", *(f"@{k}" for k in evaluation.KS)], metrics) + notes),
    ]


def parts_of_labels(model: Model, rows: Dataset, ranking: Ranking, result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return title and HTML of the parts about labels: by frequency, thresholds, calibration, most missed labels."""
    import numpy as np

    from .. import html_report

    labels, hits = ranking.labels, rows.Y.has(ranking.labels)
    counts = np.pad(model.label_counts_, (0, rows.Y.n_cols - len(model.classes_)))
    heads = ["training rows", "labels", "true", "in the top 5", "precision", "recall"]
    found = html_report.by_frequency(rows.Y, labels, hits, counts)
    parts = [("The five best labels by label frequency", html_report.html_table(heads, found))]
    if ranking.probabilities is not None:
        listed = np.where(labels >= 0, ranking.probabilities, -np.inf)
        curve = html_report.precision_and_recall(hits, listed, rows.Y.nnz, result["threshold"])
        parts.append(("Thresholds: precision and recall of the five best labels", curve))
    if "reliability" in result:
        parts.append(("Calibration", html_report.reliability_diagram(result["reliability"])))
    missed = html_report.most_missed(rows.Y, labels, hits, counts, names_in(rows, model))
    heads = ["label", "training rows", "test rows", "not in the top 5"]
    return [*parts, ("Labels with the most missed rows", html_report.html_table(heads, missed))]
