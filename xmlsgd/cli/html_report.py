"""The evaluation of a model as one page of HTML that needs no other file: tables, a diagram, explained errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from ..data.csr import CSR

STYLE = """body { font: 16px/1.5 sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
td, th { text-align: right; padding: .1rem .8rem; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left }
table { display: block; overflow-x: auto }
pre { overflow-x: auto; background: #f5f5f5; padding: .5rem }"""
SIDE, MARGIN = 300, 40  # of the diagram, in pixels
FIRST_BINS = (0, 1, 2, 5, 10, 20, 50, 100)  # least training rows of a bin; then powers of ten, past the most


def page(title: str, parts: Iterable[tuple[str, str]]) -> str:
    """Return a page of parts, each a heading and its HTML."""
    name = escape(title)
    body = "\n".join(f"<h2>{escape(heading)}</h2>\n{html}" for heading, html in parts)
    head = f'<meta charset="utf-8">\n<title>{name}</title>\n<style>\n{STYLE}\n</style>'
    content = f"<head>\n{head}\n</head>\n<body>\n<h1>{name}</h1>\n{body}\n</body>"
    return f'<!doctype html>\n<html lang="en">\n{content}\n</html>\n'


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; floats have two digits."""

    def line(cells: Iterable[Any], tag: str) -> str:
        shown = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in shown) + "</tr>"

    return "\n".join(["<table>", line(columns, "th"), *(line(row, "td") for row in rows), "</table>"])


def reliability_diagram(bins: dict[str, list[float]]) -> str:
    """Return an SVG of the share of true pairs by mean probability; the area of a circle is the number of pairs."""
    low, high = MARGIN, MARGIN + SIDE
    most = max([*bins["count"], 1])
    circles = [
        f'<circle cx="{low + SIDE * p:.1f}" cy="{high - SIDE * true:.1f}" r="{3 + 12 * (n / most) ** 0.5:.1f}" '
        f'fill="#36c" fill-opacity="0.6"><title>{n:,.0f} pairs, probability {p:.3f}, true {true:.3f}</title></circle>'
        for n, p, true in zip(bins["count"], bins["probability"], bins["true"], strict=True)
        if n
    ]
    ticks = [
        f'<text x="{low + SIDE * t:.0f}" y="{high + 18}" text-anchor="middle">{t:g}</text>'
        f'<text x="{low - 6}" y="{high - SIDE * t + 4:.0f}" text-anchor="end">{t:g}</text>'
        for t in (0, 0.5, 1)
    ]
    size = SIDE + 2 * MARGIN
    return "\n".join(
        [
            f'<svg width="{size}" height="{size}" font-size="12" role="img" aria-label="reliability diagram">',
            f'<rect x="{low}" y="{low}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>',
            f'<line x1="{low}" y1="{high}" x2="{high}" y2="{low}" stroke="#999" stroke-dasharray="4"/>',
            *ticks,
            f'<text x="{low + SIDE / 2:.0f}" y="{high + 34}" text-anchor="middle">probability</text>',
            f'<text x="{low}" y="{low - 8}">share of true pairs</text>',
            *circles,
            "</svg>",
        ]
    )


def by_frequency(Y: CSR, labels: np.ndarray, hits: np.ndarray, counts: np.ndarray) -> list[tuple[Any, ...]]:
    """Return a row for each bin of training rows: labels, true and predicted pairs, precision and recall in percent.

    labels, hits (n, k) : the best labels, and whether they are true. counts (L,) : training rows of each label.
    """
    edges = np.array([*FIRST_BINS, *(10**e for e in range(3, len(str(counts.max(initial=1))) + 1))])
    bin_of = np.searchsorted(edges, counts, side="right") - 1
    listed = (slice(None), Y.indices, labels[labels >= 0], labels[hits])
    n = [np.bincount(bin_of[each], minlength=len(edges)) for each in listed]
    rows = []
    for (low, high), (n_labels, n_true, n_predicted, n_hits) in zip(
        pairwise(edges.tolist()), np.transpose(n).tolist(), strict=False
    ):
        name = f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}"
        shares = (100 * n_hits / n_predicted if n_predicted else "-", 100 * n_hits / n_true if n_true else "-")
        rows.append((name, n_labels, n_true, n_predicted, *shares))
    return [row for row in rows if row[1]]


def most_missed(
    Y: CSR, labels: np.ndarray, hits: np.ndarray, counts: np.ndarray | None, names: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Return name, training rows, test rows and missed rows of the ten labels that are missed in the most rows."""
    n_true = np.bincount(Y.indices, minlength=Y.n_cols)
    missed = n_true - np.bincount(labels[hits], minlength=Y.n_cols)
    worst = [label for label in np.argsort(-missed, kind="stable")[:10].tolist() if missed[label]]
    trained = ["-" if counts is None else int(counts[label]) for label in worst]
    return [(names[label], n, int(n_true[label]), int(missed[label])) for label, n in zip(worst, trained, strict=True)]


def explained_errors(
    model: Any, X: CSR, Y: CSR, ranking: np.ndarray, probabilities: np.ndarray, names: Sequence[Any]
) -> str:
    """Return the five rows whose best label is wrong with the highest probability: that label and the true ones.

    ranking, probabilities (n, k) : the best labels of each row, and their probabilities or scores.
    """
    wrong = np.flatnonzero(~Y.has(ranking)[:, 0])
    shown = []
    for row in wrong[np.argsort(-probabilities[wrong, 0], kind="stable")[:5]].tolist():
        true = Y.row(row)[0]
        listed = np.concatenate([ranking[row, :1], true[true < len(model.classes_)]])
        (explanations,) = model.explain(X.span(row, row + 1), labels=listed)
        best, texts = model.classes_[ranking[row, 0]], "\n\n".join(map(str, explanations[:3]))
        labels = ", ".join(str(names[label]) for label in true.tolist()) or "none"
        head = f"Row {row} (the first is 0): predicted {best} ({probabilities[row, 0]:.2f}); true: {labels}"
        shown.append(f"<p>{escape(head)}</p>\n<pre>{escape(texts)}</pre>")
    return "\n".join(shown) or "<p>The best label of every row is true.</p>"
