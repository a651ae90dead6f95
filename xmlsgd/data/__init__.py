"""Data sets: files of every form of the field, memory-mapped stores, public, built-in and synthetic sets.

Names are imported from their modules when first used (PEP 562).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .lazy import lazy_names

if TYPE_CHECKING:
    import os

    from .conversion import convert as convert
    from .csr import Dataset
    from .libsvm import read_libsvm as read_libsvm
    from .libsvm import write_libsvm as write_libsvm
    from .public import load_public as load_public
    from .python_functions import load_python_functions as load_python_functions
    from .split_and_npz import write_npz as write_npz
    from .split_and_npz import write_split as write_split
    from .store import open_store as open_store
    from .store import write_store as write_store
    from .synthetic import make_xmc as make_xmc
    from .text import read_raw_text as read_raw_text
    from .vectorizer import TextVectorizer as TextVectorizer
    from .xmc import load_file as load_file
    from .xmc import load_folder as load_folder

BUILT_IN = "python-functions"

_MODULE_OF_NAME = {
    "TextVectorizer": "vectorizer",
    "convert": "conversion",
    "load_file": "xmc",
    "load_folder": "xmc",
    "load_public": "public",
    "load_python_functions": "python_functions",
    "make_xmc": "synthetic",
    "open_store": "store",
    "read_libsvm": "libsvm",
    "read_raw_text": "text",
    "write_libsvm": "libsvm",
    "write_npz": "split_and_npz",
    "write_split": "split_and_npz",
    "write_store": "store",
}

__all__ = ["load_dataset", *_MODULE_OF_NAME]


def check_known(path_or_name: str | os.PathLike[str]) -> None:
    """Raise `DataError` for what is no path that exists and no data set known by name."""
    from .files import restore

    path, name = Path(path_or_name), str(path_or_name)
    restore(path)
    if path.exists() or name == BUILT_IN:
        return
    from ..errors import DataError, suggest
    from .public import PUBLIC

    if name.lower() in PUBLIC:
        return
    if path.suffix.islower() or len(path.parts) > 1:
        raise DataError(f"{name}: no such file or folder")
    known = [BUILT_IN, *(dataset.name for dataset in PUBLIC.values())]
    text = f"{name}: no such path, and no data set of this name; known are {', '.join(known)}"
    raise DataError(f"{text}{suggest(name, known)}")


def load_dataset(
    path_or_name: str | os.PathLike[str], *, data_home: str | os.PathLike[str] | None = None, **options: Any
) -> tuple[Dataset, Dataset | None]:
    """Return (train, test) of a folder, file or store, or of a data set known by name; test is None if it has none.

    A path that exists goes first and is loaded as by `load_folder`. The names are "python-functions", made of the
    installed Python sources, and those of the public sets, downloaded on first use as by `load_public`; both are kept
    in `data_home`, by default `~/.cache/xmlsgd/datasets`. `options` go to the function that loads. Raises `DataError`
    for what is neither, and whatever that function raises.
    """
    check_known(path_or_name)
    path, name = Path(path_or_name), str(path_or_name)
    if path.exists():
        from .xmc import load_folder

        return load_folder(path, **options)
    if name == BUILT_IN:
        from .python_functions import load_python_functions

        return load_python_functions(data_home=None if data_home is None else Path(data_home), **options)
    from .public import load_public

    return load_public(name, data_home, **options)


__getattr__, __dir__ = lazy_names(globals(), _MODULE_OF_NAME)
