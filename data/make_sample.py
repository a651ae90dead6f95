"""Write the sample data set of this folder: `python data/make_sample.py data`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xmlsgd.data.python_functions import parse_functions, select_labels, source_files, split, vectorized

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xmlsgd.data.csr import Dataset

SAMPLE_MODULES = (
    *("asyncio", "concurrent", "email", "html", "http", "importlib", "json", "logging", "multiprocessing", "urllib"),
    *("wsgiref", "xml", "xmlrpc"),
)
SAMPLE_WORDS = 25  # of a text, and
SAMPLE_DIGITS = 4  # of a feature value: the files stay small
SAMPLE_MIN_COUNT = 3
SAMPLE_TEST_SHARE = 6


def write_sample(folder: str | Path) -> None:
    """Write a small data set of some standard modules into `folder`, as raw text and as XMC text.

    `train_raw.txt` and `test_raw.txt` read `label1,label2<TAB>text`; `train.txt` and `test.txt` hold the same rows in
    XMC text; line l of `labels.txt` names label l, line f of `features.txt` feature f, both from 0.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = [(name, path) for name, path in source_files(()) if name.split("/")[1] in SAMPLE_MODULES]
    short = [f._replace(text=" ".join(f.text.split()[:SAMPLE_WORDS])) for f in parse_functions(files)]
    raw_train, raw_test = select_labels(*split(short, SAMPLE_TEST_SHARE), SAMPLE_MIN_COUNT)
    train, test, vectorizer = vectorized(raw_train, raw_test)
    for name, raw, dataset in (("train", raw_train, train), ("test", raw_test, test)):
        labels = map(",".join, raw.labels or ())
        _write_lines(folder / f"{name}_raw.txt", map("\t".join, zip(labels, raw.texts, strict=True)))
        _write_lines(folder / f"{name}.txt", _xmc_lines(dataset))
    _write_lines(folder / "labels.txt", train.label_names or ())
    _write_lines(folder / "features.txt", vectorizer.words)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _xmc_lines(dataset: Dataset) -> Iterator[str]:
    """Yield the header and the rows in XMC text, values with `SAMPLE_DIGITS` digits."""
    yield f"{dataset.n_rows} {dataset.n_features} {dataset.n_labels}"
    for i in range(dataset.n_rows):
        labels, _ = dataset.Y.row(i)
        entries = (f"{feature}:{value:.{SAMPLE_DIGITS}g}" for feature, value in zip(*dataset.X.row(i), strict=True))
        yield f"{','.join(map(str, labels))} {' '.join(entries)}"


if __name__ == "__main__":
    write_sample(sys.argv[1])
