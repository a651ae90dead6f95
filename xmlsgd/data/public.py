"""The public XMC data sets: their shapes and addresses, download and loading.

Shapes and addresses are those of the Extreme Classification Repository (K. Bhatia, K. Dahiya, H. Jain, P. Kar,
A. Mittal, Y. Prabhu, M. Varma, 2016), as of February 2025; second addresses are copies made by the author of napkinXC
(M. Wydmuch), after links of the repository had stopped working. The repository publishes no checksums.
"""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, shorten, suggest, warn
from .csr import Dataset
from .files.atomic import atomic_file, atomic_folder
from .files.reading import sha256_of
from .files.temporary import sole_use
from .loading import load_file, load_folder

# Errors of reading a damaged archive; the last two for an unknown compression and an encrypted archive.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0  # limit of the time without a byte
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
REPOSITORY = "http://manikvarma.org/downloads/XC/XMLRepository.html"


class DownloadError(OSError):
    """A download failed; the text names the address and the reason."""


class PublicDataset(NamedTuple):
    """Name and shape of a data set, and the addresses of its archive, which are tried in this order.

    shape : numbers of training rows, test rows, features and labels.
    """

    name: str
    shape: tuple[int, ...]
    urls: tuple[str, ...]


def read_line(line: str) -> PublicDataset:
    """Parse a line of `public.tsv`; the addresses skip the page of Google Drive about viruses."""
    name, *columns = line.split("\t")
    base = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
    return PublicDataset(name, tuple(map(int, columns[:4])), tuple(base + file_id for file_id in columns[4:]))


LINES = files(__package__).joinpath("public.tsv").read_text(encoding="utf-8").splitlines()[1:]
PUBLIC = {dataset.name.lower(): dataset for dataset in map(read_line, LINES)}


def load_public(name: str, data_home: str | os.PathLike[str] | None = None, **options: Any) -> tuple[Dataset, Dataset]:
    """Load a public data set, which is downloaded on first use.

    The smallest sets come with ten random splits, of which the first is used.

    Parameters
    ----------
    name : str
        Such as "Eurlex-4K", in upper or lower case.
    data_home : str or path, optional
        Folder of all data sets, by default `~/.cache/xmlsgd/datasets`.
    **options
        Those of `load_folder`.

    Returns
    -------
    train, test : Dataset

    Raises
    ------
    DataError
        For an unknown name, and for broken files.
    DownloadError
        If no source can be reached.
    """
    if name.lower() not in PUBLIC:
        known = [dataset.name for dataset in PUBLIC.values()]
        raise DataError(f"name: must be one of {', '.join(known)}, got {shorten(name)}{suggest(name, known)}")
    dataset = PUBLIC[name.lower()]
    home = Path(data_home or "~/.cache/xmlsgd/datasets")
    try:
        home = home.expanduser()
    except RuntimeError as error:
        raise DataError(f"data_home: the home folder of {home} is unknown; set HOME or pass data_home=") from error
    folder = home / dataset.name
    if not folder.is_dir():
        install(dataset, folder)
    train, test = load_splits(innermost(folder), options)
    if test is None:
        raise DataError(f"{folder}: must have a test split, got none; remove the folder, to download it again")
    warn_of_other_shape(dataset, train, test)
    return train, test


def install(dataset: PublicDataset, folder: Path) -> None:
    """Unpack a data set to `folder`, from an archive beside it, or else after a download."""
    archive = folder.with_name(f"{folder.name}.zip")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with sole_use(folder, f"{dataset.name}: another process is installing it; call again when it is done"):
        if archive.exists():
            extract(archive, folder)
            return
        download_from_any(dataset, archive)
        try:
            extract(archive, folder)
        finally:
            archive.unlink()


def download_from_any(dataset: PublicDataset, archive: Path) -> None:
    """Download the archive from the first address that works."""
    failures = []
    for url in dataset.urls:
        try:
            digest = download(url, archive)
        except DownloadError as error:
            failures.append(str(error))
            continue
        print(f"{dataset.name}: SHA-256 {digest}, not verified: none has been published", file=sys.stderr)
        return
    remedy = f"download it by hand from {REPOSITORY} and save it as {archive}"
    raise DownloadError(f"{dataset.name}: {'; '.join(failures)}; {remedy}")


def download(url: str, path: Path) -> str:
    """Fetch `url` into the file `path`, and return its SHA-256, in hexadecimal; show progress on a terminal.

    The file appears when it is complete. Raises `DownloadError` if that fails.
    """
    from tqdm import tqdm

    request = urllib.request.Request(url, headers={"User-Agent": "xmlsgd"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response, atomic_file(path) as out:
            if response.headers.get_content_type() == "text/html":
                raise DownloadError(f"{url}: a web page came instead of the file (moved, or over the server's quota)")
            with tqdm.wrapattr(out, "write", total=response.length, desc=path.name, disable=None) as shown:
                shutil.copyfileobj(response, shown, CHUNK_BYTES)
            if response.length:  # bytes that did not arrive
                raise DownloadError(f"{url}: the connection ended {response.length} bytes early; call again")
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url}: the server answered {error.code} {error.reason}") from error
    except NETWORK_ERRORS as error:
        raise DownloadError(f"{url}: {getattr(error, 'reason', None) or error}") from error
    return sha256_of(path)


def extract(archive: Path, folder: Path) -> None:
    """Unpack a zip archive into the new folder `folder`: all of it, or nothing.

    `zipfile` keeps all files inside the folder, even if their names lead elsewhere, and writes links as files. Raises
    `DataError` if the disk has no room, and for a damaged archive.
    """
    try:
        with atomic_folder(folder, replace=False) as whole, zipfile.ZipFile(archive) as zipped:
            missing = sum(info.file_size for info in zipped.infolist()) - shutil.disk_usage(whole).free
            if missing > 0:
                raise DataError(f"{archive}: the disk has no room for its content, {missing} bytes more are needed")
            zipped.extractall(whole)
    except DAMAGE as error:
        raise DataError(f"{archive}: not a readable zip archive: {error}") from error


def innermost(folder: Path) -> Path:
    """Return the folder that holds the files, as archives wrap them in one or more folders."""
    entries = [entry for entry in folder.iterdir() if entry.name != "__MACOSX" and not entry.name.startswith(".")]
    return innermost(entries[0]) if len(entries) == 1 and entries[0].is_dir() else folder


def load_splits(folder: Path, options: dict[str, Any]) -> tuple[Dataset, Dataset | None]:
    """Return train and test rows; with split files, the rows of `*_data.txt` that their first column lists."""
    data, *splits = (next(folder.glob(f"*_{part}.txt"), None) for part in ("data", "trSplit", "tstSplit"))
    if data is None or None in splits:
        return load_folder(folder, **options)
    rows = load_file(data, **options)
    train, test = (rows.take(first_split(file, rows.n_rows)) for file in splits if file is not None)
    return train, test


def first_split(file: Path, n_rows: int) -> np.ndarray:
    """Return the first column of a split file: row indices, counted from 1 in the file and from 0 here."""
    rows: np.ndarray = np.loadtxt(file, dtype=np.int64, ndmin=2)[:, 0]
    if len(rows) and not 1 <= rows.min() <= rows.max() <= n_rows:
        raise DataError(f"{file}: rows must be in [1, {n_rows}], got {rows.min()} to {rows.max()}")
    return rows - 1


def warn_of_other_shape(dataset: PublicDataset, train: Dataset, test: Dataset) -> None:
    """Warn if the shape of a data set differs from the table: then results are not comparable with published ones."""
    got = (train.n_rows, test.n_rows, train.n_features, train.n_labels)
    if got != dataset.shape:
        warn(f"{dataset.name}: (train rows, test rows, features, labels) must be {dataset.shape}, got {got}")
