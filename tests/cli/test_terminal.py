"""What comes from data cannot control a terminal."""

from __future__ import annotations

import pytest

from xmlsgd.cli.messages import say
from xmlsgd.cli.prediction_lines import line_format
from xmlsgd.estimators.inference.explanation import Explanation

HOSTILE = "a\x1b[31m\a\x7f\x9b2J\x85\u2028\u202eb\u2069"
SHOWN = r"a\x1b[31m\x07\x7f\x9b2J\x85\u2028\u202eb\u2069"
GOOD = "été 雪 שלום 👍🏽 می\u200cخواهم 👩\u200d💻"


@pytest.mark.parametrize(("name", "shown"), [(HOSTILE, SHOWN), ("a\tb\nc\r", r"a\tb\nc\r"), (GOOD, GOOD)])
def test_a_line_of_text_has_escapes_for_controls(name, shown):
    line = line_format("text", [name], "score", tabs=True)
    assert line({"row": 0, "id": name}, [0], [0.5], []) == f"{shown}\t{shown}:0.5"


def test_lines_of_an_explanation_have_escapes_for_controls():
    line = line_format("text", [HOSTILE], "score", tabs=True)
    assert line({"row": 0}, [0], [0.5], [Explanation(HOSTILE, 0, 0.5, ())]).endswith(f"\n  {SHOWN}  score 0.5")


def test_json_and_csv_have_names_as_they_are():
    row = ({"row": 0}, [0], [0.5], [])
    assert GOOD in line_format("json", [GOOD], "score", tabs=True)(*row)
    assert HOSTILE in line_format("csv", [HOSTILE], "score", tabs=True)(*row)


def test_a_message_has_escapes_for_controls(capsys):
    say(f"{HOSTILE}\t\udc80 {GOOD}")
    spaced = SHOWN.replace(r"\x85\u2028", " ")  # ends of lines
    assert capsys.readouterr().err == f"xmlsgd: {spaced} \\udc80 {GOOD}\n"
