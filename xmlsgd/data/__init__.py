"""Data sets: files of every form of the field, memory-mapped stores, public, built-in and synthetic sets.

Names are imported from their modules when first used (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from .conversion import convert as convert
    from .datasets import load_dataset as load_dataset
    from .formats.libsvm import read_libsvm as read_libsvm
    from .formats.libsvm import write_libsvm as write_libsvm
    from .formats.npz import write_npz as write_npz
    from .formats.split import write_split as write_split
    from .formats.store import open_store as open_store
    from .formats.store import write_store as write_store
    from .loading import load_file as load_file
    from .loading import load_folder as load_folder
    from .public import load_public as load_public
    from .python_functions import load_python_functions as load_python_functions
    from .synthetic import make_xmc as make_xmc
    from .text import read_raw_text as read_raw_text
    from .vectorizer import TextVectorizer as TextVectorizer

_NAMES_OF_MODULE = {
    "conversion": ("convert",),
    "datasets": ("load_dataset",),
    "formats.libsvm": ("read_libsvm", "write_libsvm"),
    "formats.npz": ("write_npz",),
    "formats.split": ("write_split",),
    "formats.store": ("open_store", "write_store"),
    "loading": ("load_file", "load_folder"),
    "public": ("load_public",),
    "python_functions": ("load_python_functions",),
    "synthetic": ("make_xmc",),
    "text": ("read_raw_text",),
    "vectorizer": ("TextVectorizer",),
}

__all__, __getattr__, __dir__ = lazy_names(globals(), _NAMES_OF_MODULE)
