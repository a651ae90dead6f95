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

_MODULE_OF_NAME = {
    "TextVectorizer": "vectorizer",
    "convert": "conversion",
    "load_dataset": "datasets",
    "load_file": "loading",
    "load_folder": "loading",
    "load_public": "public",
    "load_python_functions": "python_functions",
    "make_xmc": "synthetic",
    "open_store": "formats.store",
    "read_libsvm": "formats.libsvm",
    "read_raw_text": "text",
    "write_libsvm": "formats.libsvm",
    "write_npz": "formats.npz",
    "write_split": "formats.split",
    "write_store": "formats.store",
}

__all__ = [*_MODULE_OF_NAME]

__getattr__, __dir__ = lazy_names(globals(), _MODULE_OF_NAME)
