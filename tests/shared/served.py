"""A small model of texts that the tests of the server serve, and what a client sends it."""

from __future__ import annotations

TEXTS = ["read a file", "write a file", "read json text", "write json text", "open the socket", "close the socket"] * 4
LABELS = [text.split()[:2] for text in TEXTS]
TOKEN = "a secret token"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
SUGGEST = "/v1/projects/words/suggest"


def expected(model, texts, k):
    """Return the labels and scores that the server should answer."""
    labels, scores = model.predict_topk(texts, k, proba=True)
    rows = zip(model.classes_[labels].tolist(), scores.tolist(), strict=True)
    return [[{"label": name, "score": score} for name, score in zip(*row, strict=True)] for row in rows]
