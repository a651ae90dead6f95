"""The page of `xmlsgd report`: one HTML file with tables, diagrams and explained errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from ..data.csr import CSR, Dataset
from ..estimators import Model
from ..metrics.evaluation import USUAL_METRICS
from .model_metrics import KS, Ranking, describe, training_rows
from .models import names_in
from .results import size_text

STYLE = """:root { color-scheme: light dark }
body { font: 16px/1.5 sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: break-word }
td, th { text-align: right; padding: .1rem .8rem; border-bottom: 1px solid #8888 }
td:first-child, th:first-child { text-align: left }
table { display: block; overflow-x: auto; border-collapse: collapse }
td, blockquote, pre { unicode-bidi: plaintext }
svg { max-width: 100%; fill: currentColor }
pre { white-space: pre-wrap; background: #8882; padding: .5rem }"""
SIDE, MARGIN = 300, 40  # of a diagram, in pixels
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
MOST_CHARACTERS = 500  # of a text that is quoted
METRICS_NOTE = (
    "P@k is the share of the k best labels that are true, nDCG@k the same with more weight on the first, R@k the "
    "share of the true labels among the k best, and PSP@k is P@k with more weight on rare labels."
)


def page(title: str, parts: Iterable[tuple[str, str]]) -> str:
    """Return a page; parts : pairs of a heading and the HTML below it."""
    name = escape(title)
    body = "\n".join(f"<h2>{escape(heading)}</h2>\n{html}" for heading, html in parts)
    metas = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">'
    head = f"{metas}\n<title>{name}</title>\n<style>\n{STYLE}\n</style>"
    content = f"<head>\n{head}\n</head>\n<body>\n<h1>{name}</h1>\n{body}\n</body>"
    return f'<!doctype html>\n<html lang="en">\n{content}\n</html>\n'


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table; floats have two digits, and whole numbers separators of thousands."""

    def line(cells: Iterable[Any], tag: str) -> str:
        formats = {float: ".2f", int: ","}
        shown = (format(cell, formats.get(type(cell), "")) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in shown) + "</tr>"

    return "\n".join(["<table>", line(columns, "th"), *(line(row, "td") for row in rows), "</table>"])


def reliability_diagram(bins: dict[str, list[float]]) -> str:
    """Return an SVG of the share of true pairs by mean probability; the area of a circle shows the number of pairs."""
    most = max([*bins["count"], 1])
    circles = [
        f'<circle {_at("cx", "cy", p, true)} r="{3 + 12 * (n / most) ** 0.5:.1f}" '
        f'fill="#47d" fill-opacity="0.8"><title>{n:,.0f} pairs, probability {p:.3f}, true {true:.3f}</title></circle>'
        for n, p, true in zip(bins["count"], bins["probability"], bins["true"], strict=True)
        if n
    ]
    diagonal = f'<line {_at("x1", "y1", 0, 0)} {_at("x2", "y2", 1, 1)} stroke="#999" stroke-dasharray="4"/>'
    return _diagram("reliability diagram", "probability", "share of true pairs", [diagonal, *circles])


def precision_and_recall(hits: np.ndarray, probabilities: np.ndarray, n_true: int, chosen: float) -> str:
    """Return an SVG of precision by recall for all thresholds, and a table for some of them.

    hits, probabilities (n, k) : of the best labels of each row. n_true : number of true pairs of all rows. chosen : the
    threshold of the model.
    """
    order = np.argsort(-probabilities, axis=None, kind="stable")
    sorted_probabilities, n_hits = probabilities.ravel()[order], np.cumsum(hits.ravel()[order])
    rows, points = [], []
    others = (each for each in THRESHOLDS if f"{each:.2f}" != f"{chosen:.2f}")
    for threshold in sorted([chosen, *others]):
        n = int(np.searchsorted(-sorted_probabilities, -threshold, side="right"))
        found = int(n_hits[n - 1]) if n else 0
        precision, recall = found / n if n else 0.0, found / max(n_true, 1)
        name = f"{threshold:.2f}{' (learned)' if threshold == chosen else ''}"
        rows.append((name, n / len(hits), 100 * precision, 100 * recall, 200 * found / max(n + n_true, 1)))
        points.append((recall, precision, name, "#c33" if threshold == chosen else "#36c"))
    # A point of the curve for each of 200 numbers of pairs, evenly: more would be no finer than a pixel.
    ends = np.unique(np.linspace(1, np.count_nonzero(np.isfinite(sorted_probabilities)), 200).astype(int))
    curve = " ".join(f"{_x(n_hits[n - 1] / max(n_true, 1))},{_y(n_hits[n - 1] / n)}" for n in ends)
    circles = [
        f'<circle {_at("cx", "cy", recall, precision)} r="4" fill="{color}">'
        f"<title>threshold {name}: precision {precision:.3f}, recall {recall:.3f}</title></circle>"
        for recall, precision, name, color in points
    ]
    line = f'<polyline points="{curve}" fill="none" stroke="#36c" stroke-width="2"/>'
    heads = ["threshold", "labels a row", "precision", "recall", "F1"]
    diagram = _diagram("precision by recall", "recall", "precision", [line, *circles])
    return f"{diagram}\n{html_table(heads, rows)}"


def _diagram(name: str, x: str, y: str, shapes: Sequence[str]) -> str:
    """Return an SVG of shapes, with axes from 0 to 1 that are labelled `x` and `y`."""
    low, high = MARGIN, MARGIN + SIDE
    ticks = [
        f'<text x="{_x(t)}" y="{high + 18}" text-anchor="middle">{t:g}</text>'
        f'<text x="{low - 6}" y="{high - SIDE * t + 4:.0f}" text-anchor="end">{t:g}</text>'
        for t in (0, 0.5, 1)
    ]
    size = SIDE + 2 * MARGIN
    return "\n".join(
        [
            f'<svg width="{size}" viewBox="0 0 {size} {size}" font-size="12" role="img" aria-label="{name}">',
            f'<rect x="{low}" y="{low}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>',
            *ticks,
            f'<text x="{_x(0.5)}" y="{high + 34}" text-anchor="middle">{x}</text>',
            f'<text x="{low}" y="{low - 8}">{y}</text>',
            *shapes,
            "</svg>",
        ]
    )


def _x(share: float) -> str:
    return f"{MARGIN + SIDE * share:.1f}"


def _y(share: float) -> str:
    return f"{MARGIN + SIDE * (1 - share):.1f}"


def _at(x: str, y: str, across: float, up: float) -> str:
    """Return the attributes named `x` and `y` of a point in a diagram, given its coordinates from 0 to 1."""
    return f'{x}="{_x(across)}" {y}="{_y(up)}"'


def most_missed(
    Y: CSR, labels: np.ndarray, hits: np.ndarray, counts: np.ndarray, names: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Return name, training rows, test rows and missed rows of the ten labels that are missed in most rows."""
    n_true = np.bincount(Y.indices, minlength=Y.n_cols)
    missed = n_true - np.bincount(labels[hits], minlength=Y.n_cols)
    worst = [label for label in np.argsort(-missed, kind="stable")[:10].tolist() if missed[label]]
    return [(names[label], *(int(each[label]) for each in (counts, n_true, missed))) for label in worst]


def explained_errors(
    model: Model, test: Dataset, best: np.ndarray, scores: np.ndarray, names: Sequence[Any],
    documents: Sequence[str] | None = None,
) -> str:  # fmt: skip
    """Return HTML that explains the five worst errors: rows whose best label is wrong with the highest score.

    Explained are this label and the true ones. best, scores (n,) : the best label of each row, and its probability or
    score. documents : the texts of the rows, if there are any.
    """
    wrong = np.flatnonzero(~test.Y.has(best[:, None])[:, 0])
    shown = []
    for row in wrong[np.argsort(-scores[wrong], kind="stable")[:5]].tolist():
        true = test.Y.row(row)[0]
        listed = np.concatenate([best[row : row + 1], true[true < len(model.classes_)]])
        (explanations,) = model.explain(test.X.span(row, row + 1), labels=listed)
        predicted, texts = model.classes_[best[row]], "\n\n".join(map(str, explanations[:3]))
        labels = "; ".join(str(names[label]) for label in true.tolist()) or "none"
        head = f"Row {row} (the first is 0): predicted {predicted} ({scores[row]:.2f}); true: {labels}"
        text = "" if documents is None else documents[row]
        text = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."
        quote = f"<blockquote>{escape(text)}</blockquote>\n" if text else ""
        shown.append(f"<p>{escape(head)}</p>\n{quote}<pre>{escape(texts)}</pre>")
    return "\n".join(shown) or "<p>The best label of every row is true.</p>"


def parts_of_metrics(rows: Dataset, result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return title and HTML of the parts about the test rows and the metrics."""
    metrics = [[name, *(result[f"{name}@{k}"] for k in KS)] for name in USUAL_METRICS if f"{name}@1" in result]
    notes = "".join(f"\n<p>{line}</p>" for line in (METRICS_NOTE, *describe(result)))
    return [
        ("Test rows", f"<p>{size_text(rows)}</p>"),
        ("Metrics, in percent", html_table(["", *(f"@{k}" for k in KS)], metrics) + notes),
    ]


def frequency_rows(bins: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the records of `by_frequency` as rows of a table."""
    rows = []
    for each in bins:
        low, high = each["training_rows"]
        name = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        numbers = (each[key] for key in ("labels", "true_pairs", "predicted_pairs", "precision", "recall"))
        rows.append((name, *("-" if number is None else number for number in numbers)))
    return rows


def parts_of_labels(model: Model, rows: Dataset, ranking: Ranking, result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return title and HTML of the parts about labels: by frequency, thresholds, calibration, most missed labels."""
    labels, hits = ranking.labels, rows.Y.has(ranking.labels)
    counts = training_rows(model, rows.n_labels)
    heads = ["training rows", "labels", "true", "in the top 5", "precision", "recall"]
    parts = [("The five best labels by label frequency", html_table(heads, frequency_rows(result["by_frequency"])))]
    if ranking.probabilities is not None:
        listed = np.where(labels >= 0, ranking.probabilities, -np.inf)
        curve = precision_and_recall(hits, listed, rows.Y.nnz, result["threshold"])
        title = "Thresholds: precision and recall of the five best labels (evaluate --threshold counts all)"
        parts.append((title, curve))
    if "reliability" in result:
        parts.append(("Calibration", reliability_diagram(result["reliability"])))
    missed = most_missed(rows.Y, labels, hits, counts, names_in(rows, model))
    heads = ["label", "training rows", "test rows", "not in the top 5"]
    return [*parts, ("Labels with the most missed rows", html_table(heads, missed))]
