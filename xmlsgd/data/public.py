"""The public XMC data sets: their shapes, where they are, and how to get them.

Shapes and addresses are those of the Extreme Classification Repository (K. Bhatia, K. Dahiya, H. Jain, P. Kar,
A. Mittal, Y. Prabhu, M. Varma, 2016), as of February 2025; second addresses are copies made by the author of napkinXC
(M. Wydmuch), after links of the repository had stopped working. The repository publishes no checksums.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, shorten, suggest, warn
from .archive import extract
from .csr import Dataset
from .fetch import DownloadError, DownloadInterrupted
from .fetch import download as fetch
from .loading import load_file, load_folder

REPOSITORY = "http://manikvarma.org/downloads/XC/XMLRepository.html"


@dataclass(frozen=True)
class PublicDataset:
    """Name, shape and addresses of the archive of a data set; the addresses are tried in their order."""

    name: str
    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    urls: tuple[str, ...]


def on_drive(name: str, n_train: int, n_test: int, n_features: int, n_labels: int, *file_ids: str) -> PublicDataset:
    """Describe a data set whose archives are on Google Drive, by addresses that skip the page about viruses."""
    base = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
    urls = tuple(base + file_id for file_id in file_ids)
    return PublicDataset(name, n_train, n_test, n_features, n_labels, urls)


# fmt: off
TABLE = (
    on_drive("Bibtex", 4_880, 2_515, 1_836, 159,
             "0B3lPMIHmG6vGcy1xM2pJZ09MMGM&resourcekey=0-UzogKsb6v7pz2Vf_1uooFA"),
    on_drive("Mediamill", 30_993, 12_914, 120, 101,
             "0B3lPMIHmG6vGY3B4TXRmZnZBTkk&resourcekey=0-Hv7nA6NTsIJshWk2gJwTYw", "1YDlU9GTYSoydU1UYTNT8BpPkRw1BCnFw"),
    on_drive("Delicious", 12_920, 3_185, 500, 983,
             "0B3lPMIHmG6vGdG1jZ19VS2NWRVU&resourcekey=0-viF3jLCBFuBSDjdlKL_32g"),
    on_drive("RCV1-2K", 623_847, 155_962, 47_236, 2_456,
             "0B3lPMIHmG6vGdnEzRWZWQWJMRnc&resourcekey=0-dmBYwZpWZck3oL0DGKMdwg", "1pdken_Di3PLcLlRbhHF4XIWp-CEiv9oQ"),
    on_drive("Eurlex-4K", 15_539, 3_809, 5_000, 3_993,
             "0B3lPMIHmG6vGU0VTR1pCejFpWjg&resourcekey=0-SurjZ4z_5Tr38jENzf2Iwg", "1xWW1UykQBTD2IorVn7V8XubJatQDScol"),
    on_drive("Wiki10-31K", 14_146, 6_616, 101_938, 30_938,
             "1-sE0GoT-eE18S9e-B8nQr8j7LdYexGHX", "1WbxhKvvBSynX5_Sf6OaPReTMs8K6bZ8u"),
    on_drive("AmazonCat-13K", 1_186_239, 306_782, 203_882, 13_330,
             "11bI2oHQlK9wnvYdFN9IILd8ilHDqe-j1", "17EFQtnRswEv0XyPng2EOy5IeWmeZbe0a"),
    on_drive("AmazonCat-14K", 4_398_050, 1_099_725, 597_540, 14_588,
             "1z_idl5Tw83kH4_j5Qp0kVk9TXBWXCjb8", "1VAxPvByB-SX3_MefdfW1eKZYTfz0vMcR"),
    on_drive("Delicious-200K", 196_606, 100_095, 782_585, 205_443,
             "0B3lPMIHmG6vGR3lBWWYyVlhDLWM&resourcekey=0-ghyb4ko9PlDHlEVBb-_9IA", "18Tb595TuGyFW--nEYGfduwS5WvSbX-sX"),
    on_drive("WikiLSHTC-325K", 1_778_351, 587_084, 1_617_899, 325_056,
             "0B3lPMIHmG6vGSHE1SWx4TVRva3c&resourcekey=0-ZGNqdLuqttRdnAj-U0bktA", "1Y5xEJu-j3M7voyFV5Ouq9Wl3vyd9fus2"),
    on_drive("WikiSeeAlsoTitles-350K", 629_418, 162_491, 91_414, 352_072,
             "1bHtiLVF5EFsVL3qyU7y5e3M-fYHvXsG9", "1icZIEU2TA5k86mTweciSa3mBLFD3fbIP"),
    on_drive("WikiTitles-500K", 1_699_722, 722_678, 185_479, 501_070,
             "11U4qDWKvsR6pCzLvY3APckx-R_ihyMih", "1RKKOw0yl2RxrWYbb-S508aOwKdCjY_ih"),
    on_drive("Wikipedia-500K", 1_813_391, 783_743, 2_381_304, 501_070,
             "0B3lPMIHmG6vGRmEzVDVkNjBMR3c", "1LkGdINF5coOfkm6J2xys3V1NMW7zz8U1"),
    on_drive("AmazonTitles-670K", 485_176, 150_875, 66_666, 670_091,
             "1OKnaLu4SDMOQ69rHdwF8ExKkeF2SZw7z", "1TWF2_tPGdezuljGEHbp63pe7eQUq7wK6"),
    on_drive("Amazon-670K", 490_449, 153_025, 135_909, 670_091,
             "1TLaXCNB_IDtLhk4ycOnyud0PswWAW6hR", "1d5EMgVxjjDBGjw7M09gaygx5wSt4-AqQ"),
    on_drive("AmazonTitles-3M", 1_712_536, 739_665, 165_431, 2_812_281,
             "1DD9cL85SN9EZd-CmOdXv0lPO1Yhl7Fns", "15MpbBO7MTRLc1okzwSiPkQ9ZHgyKMzzm"),
    on_drive("Amazon-3M", 1_717_899, 742_507, 337_067, 2_812_281,
             "1X9CzbgyB-x1dFbPSWUpkbKvKG9TrAU0y", "1tepPa5oOSp7jmih7LTEemHOL9KwdBtuB"),
    on_drive("LF-AmazonTitles-131K", 294_805, 134_835, 40_000, 131_073,
             "1VlfcdJKJA99223fLEawRmrXhXpwjwJKn"),
    on_drive("LF-Amazon-131K", 294_805, 134_835, 80_000, 131_073,
             "1YNGEifTHu4qWBmCaLEBfjx07qRqw9DVW"),
)
# fmt: on
PUBLIC = {dataset.name.lower(): dataset for dataset in TABLE}


def load_public(
    name: str, data_home: str | os.PathLike[str] | None = None, split: int | None = None, **options: Any
) -> tuple[Dataset, Dataset]:
    """Load a public data set, which is downloaded on first use.

    Parameters
    ----------
    name : str
        Such as "Eurlex-4K", in upper or lower case.
    data_home : str or path, optional
        Folder of all data sets, by default `~/.cache/xmlsgd/datasets`.
    split : int in [0, 10), optional
        The smallest sets come as one file with ten random splits; by default the first is used.
    **options
        Those of `load_folder`.

    Returns
    -------
    train, test : Dataset

    Raises
    ------
    DataError
        For an unknown name or split, and for broken files.
    DownloadError
        If no source can be reached.
    """
    dataset = find(name)
    home = Path(data_home or "~/.cache/xmlsgd/datasets").expanduser()
    folder = home / dataset.name
    if not folder.is_dir():
        install(dataset, folder)
    train, test = load_split(innermost(folder), split, options)
    if test is None:
        raise DataError(f"{folder}: the data set must have a test part")
    warn_of_other_shape(dataset, train, test)
    return train, test


def find(name: str) -> PublicDataset:
    """Return the row of the table; raise `DataError` with the names there are."""
    if name.lower() not in PUBLIC:
        known = [dataset.name for dataset in TABLE]
        raise DataError(f"unknown data set {shorten(name)}; known are {', '.join(known)}{suggest(name, known)}")
    return PUBLIC[name.lower()]


def install(dataset: PublicDataset, folder: Path) -> None:
    """Put the unpacked data set at `folder`, from an archive beside it or else from the network."""
    archive = folder.with_name(f"{folder.name}.zip")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.with_name(f".{folder.name}.lock"), dataset.name):
        if folder.is_dir():
            return  # another process has installed it meanwhile
        if archive.exists():
            extract(archive, folder)
            return
        fetch_from_any(dataset, archive)
        try:
            extract(archive, folder)
        finally:
            archive.unlink()


def fetch_from_any(dataset: PublicDataset, archive: Path) -> None:
    """Download from the first source that answers; what an interrupted download has left is for the next call."""
    failures = []
    for url in dataset.urls:
        try:
            digest = fetch(url, archive)
        except DownloadInterrupted:
            raise  # another source would begin anew
        except DownloadError as error:
            failures.append(str(error))
            continue
        print(f"{dataset.name}: SHA-256 {digest}, not verified: none has been published", file=sys.stderr)
        return
    remedy = f"download it by hand from {REPOSITORY} and save it as {archive}"
    raise DownloadError(f"{dataset.name}: {'; '.join(failures)}; {remedy}")


@contextlib.contextmanager
def alone(path: Path, name: str) -> Iterator[None]:
    """Hold the lock file `path`, after the process that holds it; the file stays: removing it could let two in."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"{name}: waiting for another process that is installing it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def innermost(folder: Path) -> Path:
    """Return the folder that holds the files: archives wrap them in one or more folders."""
    entries = [entry for entry in folder.iterdir() if entry.name != "__MACOSX" and not entry.name.startswith(".")]
    return innermost(entries[0]) if len(entries) == 1 and entries[0].is_dir() else folder


def load_split(folder: Path, split: int | None, options: dict[str, Any]) -> tuple[Dataset, Dataset | None]:
    """Return train and test rows: of `*_data.txt` those in a column of the split files, where these are."""
    files = [next(folder.glob(f"*_{part}.txt"), None) for part in ("data", "trSplit", "tstSplit")]
    data, train_rows, test_rows = files
    if data is None or train_rows is None or test_rows is None:
        if split is not None:
            raise DataError(f"{folder}: the data set has one split only, got split={split}")
        return load_folder(folder, **options)
    rows = load_file(data, **options)
    train, test = (rows.take(rows_of_split(file, split or 0, rows.n_rows)) for file in (train_rows, test_rows))
    return train, test


def rows_of_split(file: Path, split: int, n_rows: int) -> np.ndarray:
    """Return column `split` of a split file: row numbers, counted from 1 in the file and from 0 here."""
    columns = np.loadtxt(file, dtype=np.int64, ndmin=2)
    if not 0 <= split < columns.shape[1]:
        raise DataError(f"{file}: split must be in [0, {columns.shape[1]}), got {split}")
    rows: np.ndarray = columns[:, split]
    if len(rows) and not 1 <= rows.min() <= rows.max() <= n_rows:
        raise DataError(f"{file}: rows must be in [1, {n_rows}], got {rows.min()} to {rows.max()}")
    return rows - 1


def warn_of_other_shape(dataset: PublicDataset, train: Dataset, test: Dataset) -> None:
    """Warn when the files hold something else than the table says: results are then not comparable."""
    got = (train.n_rows, test.n_rows, train.n_features, train.n_labels)
    expected = (dataset.n_train, dataset.n_test, dataset.n_features, dataset.n_labels)
    if got != expected:
        what = "(train rows, test rows, features, labels)"
        warn(f"{dataset.name}: {what} must be {expected}, got {got}")
