"""Bodies of requests that no route of the server accepts."""

from __future__ import annotations

import json
import random

from xmlsgd.serving import requests

TYPES = (requests.JSON, requests.FORM, "text/plain", "x" * 100, "multipart/form-data; boundary=")


def malformed(rng: random.Random) -> tuple[bytes, str | None]:
    """Return a body that no route accepts, and its type."""
    values = [
        None,
        True,
        -1,
        10**30,
        1e400,
        "x",
        "\ud800",
        [],
        {},
        [[]],
        ["a"],
        [None],
        {"a": 1},
        "a" * 1000,
        [1] * 100,
    ]
    fields = ["texts", "text", "limit", "threshold", "documents", "labels"]
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(60))), rng.choice([None, *TYPES])
    if kind == 1:
        return b"[" * rng.choice([10, 10_000, 200_000]), requests.JSON
    if kind == 2:
        wrong = {rng.choice(fields): rng.choice(values) for _ in range(3)}
        return json.dumps({**wrong, "limit": rng.choice([0, "x", None, 10**400, [1]])}).encode(), requests.JSON
    if kind == 3:
        whole = json.dumps({"texts": ["a"], "text": "b", "limit": 3}).encode()
        return whole[: rng.randrange(len(whole))], requests.JSON
    return b"&".join(
        rng.choice([b"text", b"limit=x", b"%ff=%f", b"text=%ff", b"=", b"a=\xff"]) for _ in range(9)
    ), requests.FORM
