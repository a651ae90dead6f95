"""The command report: a page that needs no other file, with the numbers of evaluate."""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shared.command_line import ROWS, TEST_ROWS, TEST_TEXT, TINY, run
from xmlsgd.cli import html_report
from xmlsgd.cli.model_metrics import by_frequency
from xmlsgd.data.csr import CSR, Dataset


class Balanced(HTMLParser):
    """Check that every tag is closed and none refers to another file."""

    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not {"src", "href"} & dict(attrs).keys()
        if tag not in ("meta", "line", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags_of(page):
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return parser.tags


def test_the_page_has_the_numbers_of_evaluate_and_needs_no_other_file(models, tmp_path, capsys):
    capsys.readouterr()
    run("report", models / "text", TEST_TEXT, "--out", tmp_path / "r.html")
    assert capsys.readouterr().out == f"report: {tmp_path / 'r.html'}\n"
    run("evaluate", models / "text", TEST_TEXT, "--json", tmp_path / "e.json")
    page, expected = (tmp_path / "r.html").read_text(), json.loads((tmp_path / "e.json").read_text())
    for name in ("P", "nDCG", "R", "PSP"):
        cells = "".join(f"<td>{expected[f'{name}@{k}']:.2f}</td>" for k in (1, 3, 5))
        assert f"<tr><td>{name}</td>{cells}</tr>" in page
    assert f"micro F1 {expected['micro F1']:.2f}" in page
    assert tags_of(page).count("pre") == 5
    texts = [line.split("\t")[1] for line in Path(TEST_TEXT).read_text().splitlines()]
    quoted = re.findall(r"<p>Row (\d+) .*</p>\n<blockquote>(.*)</blockquote>", page)
    assert [text for _, text in quoted] == [escape(texts[int(row)]) for row, _ in quoted]
    assert len(quoted) == 5
    assert "circle" in tags_of(page)
    assert not re.search("script|https?:|url\\(", page)


def test_labels_and_words_are_escaped(tmp_path):
    rows = '<b>&,"q"\tread <i>\nother\tclose &amp;\n' * 6
    (tmp_path / "t.txt").write_text(rows)
    (tmp_path / "u.txt").write_text("<s>new\tclose\n<b>&\tread\n")
    run("train", tmp_path / "t.txt", "--out", tmp_path / "m", *TINY)
    run("report", tmp_path / "m", tmp_path / "u.txt", "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "&lt;s&gt;new" in page
    assert not {"b", "i", "s"} & set(tags_of(page))


def test_a_label_that_only_test_rows_have_has_no_training_rows(tmp_path):
    (tmp_path / "t.txt").write_text("read\tread a file\nclose\tclose a file\n" * 6)
    (tmp_path / "u.txt").write_text("open\topen a file\n")
    run("train", tmp_path / "t.txt", "--out", tmp_path / "m", *TINY)
    run("report", tmp_path / "m", tmp_path / "u.txt", "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<tr><td>open</td><td>0</td><td>1</td><td>1</td></tr>" in page  # training rows, test rows, missed ones


def test_a_model_without_probabilities_has_a_page_too(tmp_path):
    run("train", ROWS, "--out", tmp_path / "m", "--loss", "softmax", *TINY)
    run("report", tmp_path / "m", TEST_ROWS, "--out", tmp_path / "r.html")
    tags = tags_of(Path(tmp_path / "r.html").read_text())
    assert "svg" not in tags
    assert "pre" in tags


Y = CSR(np.array([0, 2, 3]), np.array([0, 2, 1], np.int32), np.ones(3, np.float32), 4)
LABELS = np.array([[0, 1], [3, -1]])
HITS = np.array([[True, False], [False, False]])
COUNTS = np.array([1200, 7, 0, 1])


def test_precision_and_recall_are_those_of_labels_with_so_many_training_rows():
    assert html_report.frequency_rows(by_frequency(Y, LABELS, HITS, COUNTS)) == [
        ("0", 1, 1, 0, "-", 0),
        ("1", 1, 0, 1, 0, "-"),
        ("5 to 9", 1, 1, 1, 0, 0),
        ("1,000 to 9,999", 1, 1, 1, 100, 100),
    ]


def test_precision_and_recall_are_those_of_pairs_from_a_threshold_on():
    probabilities = np.array([[0.9, 0.5, 0.06], [0.6, 0.3, -np.inf]])
    hits = np.array([[True, False, True], [True, False, False]])
    page = html_report.precision_and_recall(hits, probabilities, 4, 0.4)
    assert "<tr><td>0.50</td><td>1.50</td><td>66.67</td><td>50.00</td><td>57.14</td></tr>" in page
    assert "<tr><td>0.05</td><td>2.50</td><td>60.00</td><td>75.00</td><td>66.67</td></tr>" in page
    assert "<tr><td>0.40 (learned)</td><td>1.50</td>" in page
    curve = re.search('points="(.*?)"', page)[1].split()
    assert len(curve) == 5
    assert curve[0] == f"{40 + 300 * 0.25},{40.0}"
    assert tags_of(page).count("circle") == len(html_report.THRESHOLDS) + 1


def test_the_learned_threshold_is_listed_once_in_the_order_of_thresholds():
    page = html_report.precision_and_recall(np.array([[True]]), np.array([[0.6]]), 1, 0.1 + 1e-9)
    listed = re.findall(r"<tr><td>(.*?)</td>", page)
    assert listed == ["0.05", "0.10 (learned)", "0.20", "0.30", "0.50", "0.70", "0.90"]
    colors = re.findall('fill="(#...)"', page)
    assert [color == "#c33" for color in colors] == ["learned" in name for name in listed]


def test_counts_in_tables_have_separators_of_thousands():
    assert "<td>a</td><td>12,345</td><td>1.50</td><td>-</td>" in html_report.html_table(
        "abcd", [("a", 12345, 1.5, "-")]
    )


def test_labels_are_missed_in_rows_where_they_are_true_and_not_listed():
    assert html_report.most_missed(Y, LABELS, HITS, COUNTS, "abcd") == [("b", 7, 1, 1), ("c", 0, 1, 1)]


def test_the_five_errors_with_the_highest_scores_are_explained_worst_first():
    rows = CSR(np.arange(8), np.zeros(7, np.int32), np.ones(7, np.float32), 2)
    model = SimpleNamespace(classes_=np.array(["a", "b"]), explain=lambda X, labels: [["why"]])
    best, scores = np.array([0, 1, 1, 1, 1, 1, 1]), np.array([0.99, 0.2, 0.8, 0.4, 0.9, 0.6, 0.3])
    shown = html_report.explained_errors(model, Dataset(rows, rows), best, scores, "ab")
    assert re.findall(r"Row (\d)", shown) == ["4", "2", "5", "3", "6"]


@pytest.mark.parametrize(("n", "quoted"), [(500, "a" * 500), (501, "a" * 500 + " ...")])
def test_of_a_long_text_the_first_500_characters_are_quoted(n, quoted):
    rows = CSR(np.arange(2), np.zeros(1, np.int32), np.ones(1, np.float32), 2)
    model = SimpleNamespace(classes_=np.array(["a", "b"]), explain=lambda X, labels: [["why"]])
    shown = html_report.explained_errors(model, Dataset(rows, rows), np.array([1]), np.ones(1), "ab", ["a" * n])
    assert f"<blockquote>{quoted}</blockquote>" in shown


def test_of_an_error_three_explanations_are_shown():
    rows = CSR(np.arange(2), np.zeros(1, np.int32), np.ones(1, np.float32), 2)
    model = SimpleNamespace(classes_=np.array(["a", "b"]), explain=lambda X, labels: [["one", "two", "three", "four"]])
    shown = html_report.explained_errors(model, Dataset(rows, rows), np.array([1]), np.ones(1), "ab")
    assert "</p>\n<pre>one\n\ntwo\n\nthree</pre>" in shown  # and no text, as there is none


def test_the_area_of_a_circle_shows_the_number_of_pairs_of_a_bin():
    bins = {"count": [0, 4.0, 16.0], "probability": [0, 0.1, 0.5], "true": [0, 0.2, 0.5]}
    diagram = html_report.reliability_diagram(bins)
    assert re.findall(r'cx="(.*?)".*? r="(.*?)"', diagram) == [("70.0", "9.0"), ("190.0", "15.0")]


def test_without_errors_the_page_says_so():
    best = np.array([0, 1])
    shown = html_report.explained_errors(None, Dataset(Y, Y), best, np.ones(2), "abcd")
    assert "every row is true" in shown
