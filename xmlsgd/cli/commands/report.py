"""Write an evaluation as one HTML page: metrics, precision by label frequency and threshold, calibration, errors.

The page needs no network access and no other file. Its numbers are those of evaluate. Labels and words are escaped.
"""

from __future__ import annotations

from typing import Any

from ..flags import FILE, PATH, Flag, positional
from ..input_options import InputOptions
from ..messages import Console
from ..models import names_in, options_of_model, read_predictor
from ..parameters import RANKING_FLAGS
from ..results import text_file

FLAGS = (
    *RANKING_FLAGS,
    positional("test", PATH, "TEST", "labelled rows, in any format that train reads"),
    Flag("out", FILE, "the page; - is standard output", "output", "report.html"),
)
INSTEAD = {"--test": "the test rows are the second argument, xmlsgd report DIR TEST"}
EXAMPLES = "  xmlsgd report model test.txt --out report.html"


def run(
    model: str, test: str, input_options: InputOptions, parameters: dict[str, Any], out: str, console: Console
) -> None:
    """Load the model, rank and evaluate the rows, and write the page."""
    input_options.check_inputs(test)
    estimator = read_predictor(model, parameters, test, "report")
    from .. import html_report, model_metrics

    rows, _, texts = model_metrics.read_test_rows(estimator, test, options_of_model(input_options, model, estimator))
    ranking = model_metrics.rank_rows(estimator, rows.X, model_metrics.KS[-1], console.quiet)
    q = model_metrics.inverse_propensity_or_none(estimator, rows.Y.n_cols)
    result = model_metrics.evaluate(estimator, rows, ranking, inv_propensity=q)
    result |= model_metrics.evaluate_thresholds(estimator, rows, ranking)[0]
    parts = html_report.parts_of_metrics(rows, result) + html_report.parts_of_labels(estimator, rows, ranking, result)
    scores = ranking.probabilities if ranking.probabilities is not None else estimator.predict_topk(rows.X, 1)[1]
    names = names_in(rows, estimator)
    errors = html_report.explained_errors(estimator, rows, ranking.labels[:, 0], scores[:, 0], names, texts)
    with text_file(out) as stream:
        stream.write(
            html_report.page(f"{model} on {test}", [*parts, ("Wrong first labels of the highest probability", errors)])
        )
    console.show(f"report: {out}")
