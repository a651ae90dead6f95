"""Find raw text whose columns are swapped: texts where labels belong, and labels where texts belong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from ..data.text import Documents
from ..errors import shorten

SEPARATORS = re.compile("[,;|]")  # between labels, also those of other programs
LEAST_KNOWN = 0.1  # share of the labels that the model knows, if they are labels
USUAL = 0.99  # share of the model's labels that have the usual number of words, or fewer


def found_swapped(documents: Documents, names: Sequence[str] | None) -> str | None:
    """Return what is wrong where labels and texts are probably swapped, and what to do; else None.

    names : of the model's labels. It knows hardly any of the documents' labels. Besides, most texts are labels that it
    knows, or lists of them; or most labels have more words than labels usually have, and most parts of texts have not.
    """
    known, texts = set(names or ()), documents.texts
    labels = [name for row in documents.labels or () for name in row]
    if not known or not labels or sum(name in known for name in labels) > LEAST_KNOWN * len(labels):
        return None
    parts = [[part.strip() for part in SEPARATORS.split(text)] for text in texts]
    rows = zip(texts, parts, strict=True)
    if _share(text in known or _share(part in known for part in row) >= 0.5 for text, row in rows) <= 0.5:
        usual = np.quantile([_n_words(name) for name in known], USUAL)
        longer_labels = _share(_n_words(name) > usual for name in labels)
        longer_parts = _share(_n_words(part) > usual for row in parts for part in row)
        if not longer_labels > 0.5 > longer_parts:
            return None
    got = f"got the label {shorten(labels[0])} and the text {shorten(texts[0])}"
    remedy = "swap the columns, or name them in a first line, such as text<TAB>labels"
    return f"labels must stand before the tab, and texts behind it, {got}; {remedy}"


def _share(found: Iterable[bool]) -> float:
    return float(np.mean(list(found)))


def _n_words(text: str) -> int:
    return len(text.split())
