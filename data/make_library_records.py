"""Make records with library subjects: `python data/make_library_records.py pg_catalog.csv FOLDER [LANGUAGE]`.

The catalogue of Project Gutenberg, https://www.gutenberg.org/cache/epub/feeds/pg_catalog.csv (also as .gz), lists some
70,000 books with their Library of Congress subject headings. Download it; its terms of use are at
https://www.gutenberg.org/policy/terms_of_use.html.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from pathlib import Path

from xmlsgd.errors import DataError

TEST_SHARE = 5  # one author of so many is in the test part
COLUMNS = ("Type", "Title", "Language", "Authors", "Subjects")


def write_records(catalogue: Path, folder: Path, language: str = "en") -> tuple[int, int]:
    """Write `train.jsonl` and `test.jsonl` of the books in a language, and return the numbers of records.

    A text is title and authors, its labels are the subjects. All books of an author are in one part: editions and
    volumes of a work would be on both sides otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    open_text = gzip.open if catalogue.suffix == ".gz" else open
    n = [0, 0]
    with (
        open_text(catalogue, "rt", encoding="utf-8", newline="") as stream,
        (folder / "train.jsonl").open("w", encoding="utf-8") as train,
        (folder / "test.jsonl").open("w", encoding="utf-8") as test,
    ):
        reader = csv.DictReader(stream)
        if not set(COLUMNS) <= set(reader.fieldnames or ()):
            wanted = f"must have the columns {', '.join(COLUMNS)}"
            raise DataError(f"{catalogue}:1: {wanted}, got {reader.fieldnames}; pass pg_catalog.csv")
        for book in reader:
            subjects = [name for part in (book["Subjects"] or "").split(";") if (name := part.strip())]
            if book["Type"] != "Text" or language not in (book["Language"] or "").split("; ") or not subjects:
                continue
            text = " ".join(f"{book['Title']} {book['Authors']}".split())
            part = int(zlib.crc32((book["Authors"] or text).encode()) % TEST_SHARE == 0)
            (train, test)[part].write(json.dumps({"text": text, "labels": subjects}, ensure_ascii=False) + "\n")
            n[part] += 1
    return n[0], n[1]


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    n_train, n_test = write_records(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
    print(f"{n_train:,} training records, {n_test:,} test records in {sys.argv[2]}")
