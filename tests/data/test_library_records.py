"""Records of library subjects, from the catalogue of Project Gutenberg."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import subprocess
import sys

import pytest

from shared.command_line import run
from shared.paths import ROOT
from xmlsgd.errors import DataError

SCRIPT = ROOT / "data" / "make_library_records.py"
HEADER = ["Text#", "Type", "Issued", "Title", "Language", "Authors", "Subjects", "LoCC", "Bookshelves"]
BOOKS = [
    ["1", "Text", "1971-12-01", "The Declaration\r\nof Independence", "en", "Jefferson, Thomas, 1743-1826",
     "United States -- History -- Revolution, 1775-1783; Liberty", "E201; JK", "Politics"],
    ["2", "Sound", "2002-01-01", "A reading", "en", "Nobody", "Liberty", "", ""],
    ["3", "Text", "2002-01-01", "Ein Märchen", "de", "Grimm, Jacob", "Fairy tales", "PT", ""],
    ["4", "Text", "2002-01-01", "No subjects", "en", "Nobody", "", "", ""],
    *([str(5 + i), "Text", "2003-01-01", f"Sea tale {i}", "en; fr", f"Author {i}", "Sea stories", "PS", ""]
      for i in range(40)),
]  # fmt: skip


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "pg_catalog.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([HEADER, *BOOKS])
    return path


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_books_in_a_language_with_subjects_are_records_that_train_reads(catalogue, tmp_path):
    subprocess.run([sys.executable, SCRIPT, catalogue, tmp_path / "books"], check=True)
    train, test = (records(tmp_path / "books" / name) for name in ("train.jsonl", "test.jsonl"))
    assert len(train) + len(test) == 41
    assert len(test) > 0
    (declaration,) = [each for each in train + test if "Declaration" in each["text"]]
    assert declaration == {
        "text": "The Declaration of Independence Jefferson, Thomas, 1743-1826",
        "labels": ["United States -- History -- Revolution, 1775-1783", "Liberty"],
    }
    run(
        "train", tmp_path / "books" / "train.jsonl", "--test", tmp_path / "books" / "test.jsonl", "--dry-run", "--quiet"
    )


def test_a_compressed_catalogue_is_read_and_another_file_refused(catalogue, tmp_path):
    spec = importlib.util.spec_from_file_location("make_library_records", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    packed = tmp_path / "pg_catalog.csv.gz"
    packed.write_bytes(gzip.compress(catalogue.read_bytes()))
    assert script.write_records(packed, tmp_path / "german", "de") == (1, 0)
    assert records(tmp_path / "german" / "train.jsonl")[0]["labels"] == ["Fairy tales"]
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"other.csv:1: must have the columns Type, Title, .*, got \['a', 'b'\]"):
        script.write_records(tmp_path / "other.csv", tmp_path / "o")
