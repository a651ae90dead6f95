"""Read data sets of a command line, and bring them into the forms that the runners read, once.

The forms are npz, text and a store of the same rows. Rows of X are scaled to length one, for everybody: some peers do
it by themselves, others do not.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xmlsgd.candidates import weighting as rows
from xmlsgd.data.csr import CSR, Dataset
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.data.formats.store import write_store
from xmlsgd.data.loading import load_folder
from xmlsgd.devices.cpu import CPU
from xmlsgd.errors import DataError

from .report import RESULTS

MARK = "prepared.json"  # written last: a folder without it is not finished


def unit_rows(X: CSR) -> CSR:
    """Return X with rows of Euclidean length one; rows of zeros stay."""
    return rows.unit_rows(X, np.ones(X.n_cols, np.float32), CPU())


def save_npz(matrix: CSR, path: Path) -> None:
    """Write a matrix as SciPy's npz, with int32 indices where they fit: PECOS takes no others."""
    pointers = matrix.indptr.astype(np.int32) if matrix.nnz <= np.iinfo(np.int32).max else matrix.indptr
    sp.save_npz(path, sp.csr_matrix((matrix.data, matrix.indices, pointers), shape=matrix.shape), compressed=False)


def of_ones(Y: CSR) -> CSR:
    """Return labels with the value one."""
    return replace(Y, data=np.ones(Y.nnz, np.float32))


def command_line(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return the command line of a benchmark of whole data sets: their folders, seeds, and where the table goes."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders with a train and a test split")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each data set (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes (benchmarks/results)")
    return parser


def train_and_test(folder: Path) -> tuple[Dataset, Dataset]:
    """Return both parts of a data set; `DataError` for a folder without one that `load_folder` reads."""
    train, test = load_folder(folder)
    if test is None:
        raise DataError(f"{folder}: must have a test split")
    return train, test


def prepare(source: Path, work: Path) -> Path:
    """Return the folder below `work` with the prepared rows of a data set, made where it is missing or outdated.

    It holds `X.trn.npz Y.trn.npz X.tst.npz Y.tst.npz`, `train.txt` and the store `train`. Raises `DataError` as
    `train_and_test` does.
    """
    target = work / "data" / source.resolve().name
    state = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(source.iterdir())}
    mark = target / MARK
    if mark.exists() and json.loads(mark.read_text())["source"] == state:
        return target
    train, test = train_and_test(source)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for part, dataset in (("trn", train), ("tst", test)):
        save_npz(unit_rows(dataset.X), target / f"X.{part}.npz")
        save_npz(of_ones(dataset.Y), target / f"Y.{part}.npz")
    scaled = Dataset(unit_rows(train.X), train.Y)
    write_libsvm(scaled, target / "train.txt")
    write_store(scaled, target / "train")
    mark.write_text(json.dumps({"source": state, "shape": shape(train, test)}, indent=1))
    return target


def shape(train: Dataset, test: Dataset) -> dict[str, float]:
    """Return what a table says of a data set."""
    return {
        "train_rows": train.n_rows,
        "test_rows": test.n_rows,
        "features": train.n_features,
        "labels": train.n_labels,
        "nnz_per_row": train.X.nnz / train.n_rows,
        "labels_per_row": train.Y.nnz / train.n_rows,
    }


def prepared_shape(folder: Path) -> dict[str, float]:
    """Return the shape of a prepared data set."""
    found: dict[str, float] = json.loads((folder / MARK).read_text())["shape"]
    return found
