"""The page of the server: it loads nothing else, and marks the words that an explanation names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import unicodedata

import pytest

pytest.importorskip("starlette", reason='needs the extra "serve"')
pytest.importorskip("httpx2", reason="needs httpx2, of which starlette makes its client")

from xmlsgd.data import words


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text


def pieces_of(client, function, text, features):
    """Return the pieces of a text that are marked, and what each contributes, as the page finds them."""
    node = shutil.which("node") or pytest.skip("Node.js is not installed")
    functions = re.findall(r"^function (?:wordPieces|characterPieces|add)\b.*?^}", client.get("/").text, re.M | re.S)
    arguments = f"{json.dumps(text)}, new Map({json.dumps(list(features.items()))})"
    call = "\n".join([*functions, f"console.log(JSON.stringify({function}({arguments})))"])
    pieces = json.loads(subprocess.check_output([node, "-e", call]))
    assert "".join(piece for piece, _ in pieces) == text
    return [(piece, part) for piece, part in pieces if part is not None]


@pytest.mark.parametrize(
    ("text", "features", "expected"),
    [
        ("Read: file!", {"read": 1, "reader": 2, "read file": 4}, [("Read", 5), ("file", 4)]),
        ("new car new york", {"new": 1, "new york": 2, "york new": 4}, [("new", 1), ("new", 3), ("york", 2)]),
        ("read", {"rea": 1, "r": 2}, []),
    ],
)
def test_the_page_marks_words_by_all_n_grams_that_they_are_part_of(client, text, features, expected):
    assert pieces_of(client, "wordPieces", text, features) == expected


@pytest.mark.parametrize(
    ("text", "features", "expected"),
    [
        ("Read: ead", {" rea": 1, "ead:": 2, "ead ": 4}, [*zip("Read:ead", [1, 3, 3, 2, 2, 4, 4, 4], strict=True)]),
        ("öl 𝒜b", {" öl ": 1, "𝒜b": 2, "l 𝒜": 4}, [("ö", 1), ("l", 1), ("𝒜", 2), ("b", 2)]),
        ("İ", {" i̇ ": 1}, [("İ", 1)]),  # two characters in lower case
    ],
)
def test_the_page_marks_characters_by_all_n_grams_within_words_that_they_are_part_of(client, text, features, expected):
    assert pieces_of(client, "characterPieces", text, features) == expected


def test_the_page_splits_a_text_into_the_words_of_the_vectorizer(client):
    text = unicodedata.normalize("NFC", "हिन्दी भाषा, a to_do cafe\u0301 H2O C++, F# x+y")
    found = words.TOKEN.findall(words.prepared(text))
    features = {word.lower(): 1 for word in found}
    assert [word for word, _ in pieces_of(client, "wordPieces", text, features)] == found
