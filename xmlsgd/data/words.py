"""What a word of a text is, and whether a text has spaces between its words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from .label_names import composed

# Vowels and other marks of Arabic, Hebrew, Hindi, Thai, ... are no letters to Python, which would end a word at each.
# Of all marks, only the variation selectors are not written in words.
MARKS = {i for i in range(0x300, 0x12000) if unicodedata.category(chr(i)) in ("Mn", "Mc")} - set(range(0xFE00, 0xFE10))
_FIRST, _LAST = (sorted(i for i in MARKS if i + step not in MARKS) for step in (-1, 1))
_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(_FIRST, _LAST, strict=True))
# Part of the file format, no option: a pattern in a forged model file could run forever.
TOKEN_PATTERN = rf"\w[+#]+|\w[\w{_RANGES}]*"  # after `prepared`; c++ and c# are words
TOKEN = re.compile(TOKEN_PATTERN)
# Thai, Lao, Burmese, Khmer, kana and Chinese characters, which are written without spaces between words.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, as in damaged JSON; UTF-8 cannot encode it
LONG_WORD = 20  # average characters per word of a text that no language with spaces between words reaches
MOST_LOOKED_AT = 1000  # texts of which `text_without_spaces` looks at the spaces


def prepared(text: str) -> str:
    """Return a text in NFC in which `TOKEN` finds the words: an underscore separates words."""
    return composed(text).replace("_", " ")


def encodable(text: str) -> str:
    """Return a text in NFC whose n-grams of characters can be saved: a surrogate separates words."""
    return SURROGATE.sub(" ", composed(text))


def text_without_spaces(texts: Sequence[str]) -> str | None:
    """Return one of the texts if most have no spaces between words, as in Chinese or in SMILES; else None.

    About `MOST_LOOKED_AT` of the texts are looked at. Splitting such texts at spaces gives no words.
    """
    shown = [text for text in texts[:: 1 + len(texts) // MOST_LOOKED_AT] if text and not text.isspace()]
    unspaced = [
        text
        for text in shown
        if len(text) > LONG_WORD * len(text.split()) or 2 * len(UNSPACED.findall(text)) > len(text)
    ]
    return unspaced[0] if 2 * len(unspaced) > len(shown) else None
