"""Load data sets by path or by name."""

from __future__ import annotations

import os
from typing import Any

from ..errors import DataError, suggest
from .csr import Dataset
from .files.reading import checked_path


def check_known(path_or_name: str | os.PathLike[str]) -> None:
    """Raise `DataError` unless a path exists or a data set has this name."""
    path, name = checked_path(path_or_name), str(path_or_name)
    if path.exists():
        return
    from .public import PUBLIC

    if name.lower() in PUBLIC:
        return
    if path.suffix.islower() or len(path.parts) > 1 or " " in name:
        raise DataError(f"{name}: no such file or folder")
    known = [dataset.name for dataset in PUBLIC.values()]
    text = f"{name}: no such path, and no data set of this name; known are {', '.join(known)}"
    raise DataError(f"{text}{suggest(name, known)}")


def load_dataset(
    path_or_name: str | os.PathLike[str], *, data_home: str | os.PathLike[str] | None = None, **options: Any
) -> tuple[Dataset, Dataset | None]:
    """Load a data set from a folder, file or store, or by its name.

    Parameters
    ----------
    path_or_name : str or path
        A path, which is loaded as by `load_folder`; or the name of a public set, downloaded on first use as by
        `load_public`. A path that exists takes precedence.
    data_home : str or path, optional
        Where downloaded data sets are kept, by default `~/.cache/xmlsgd/datasets`.
    **options
        Passed to the function that loads.

    Returns
    -------
    train : Dataset
    test : Dataset or None
        None if there is no test split.

    Raises
    ------
    DataError
        If no path and no data set has this name, and for bad input.

    Examples
    --------
    >>> from xmlsgd import load_dataset
    >>> train, test = load_dataset("data")  # doctest: +SKIP
    """
    check_known(path_or_name)
    path, name = checked_path(path_or_name), str(path_or_name)
    if path.exists():
        from .loading import load_folder

        return load_folder(path, **options)
    from .public import load_public

    return load_public(name, data_home, **options)
