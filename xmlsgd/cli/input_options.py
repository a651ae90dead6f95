"""The options of the input files of a command: formats, words of texts, and files that belong to rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.document_formats import (
    DOCUMENT_FORMATS,
    DocumentOptions,
    are_raw_text,
    first_lines,
    format_by_lines,
    format_by_name,
    most_have_labels,
)
from ..data.files.reading import open_text
from ..errors import DataError, shorten
from .exit_codes import UsageError
from .flags import VECTORIZER_FLAGS, flag_of
from .messages import STDIN

if TYPE_CHECKING:
    from ..data.text import Documents
    from ..data.vectorizer import TextVectorizer

# The formats for which a flag has a meaning; flags not listed have one for all.
FORMATS_OF = {
    "text_column": ("csv", "jsonl"), "label_column": ("csv", "jsonl"), "id_column": ("csv", "jsonl"),
    "vocabulary": tuple(DOCUMENT_FORMATS),
}  # fmt: skip
# Options, and their types, that are saved with a model: reading a file by others often gives wrong rows, not an error.
SAVED: dict[str, type] = {
    "text_column": str, "label_column": str, "label_separator": str, "one_based": bool, "one_based_labels": bool,
}  # fmt: skip


@dataclass(frozen=True)
class InputOptions(DocumentOptions):
    """The flags that say how data files are read, which files belong to them, and how words become features.

    label_texts, feature_names : files of the texts of labels and of the names of numeric features. groups : a file of
    the group of each training row, or "similar". given : the values of all flags that the command line has set, also
    those of a `TextVectorizer`.
    """

    format: str = "auto"
    one_based: bool = False
    one_based_labels: bool = False
    duplicates: str = "error"
    label_texts: str | None = None
    feature_names: str | None = None
    groups: str | None = None
    given: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_flags(cls, **given: Any) -> InputOptions:
        """Return options with the values of the given flags, and defaults for all others."""
        own = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in own}, given=given)

    def document_format(self, path: str, labelled: bool = True) -> str | None:
        """Return the format of the documents of a file, by its name or its first lines; None for numeric features."""
        file = Path(path)
        if self.format == "auto" and file.is_file() and (by_name := format_by_name(file)):
            return by_name
        return self.format_of_lines(first_lines(file) if file.is_file() and file.suffix != ".npz" else [], labelled)

    def format_of_lines(self, lines: Sequence[str], labelled: bool) -> str | None:
        """Return the format of documents with these first lines; None for numeric features."""
        if self.format != "auto":
            return None if self.format == "rows" else self.format
        return format_by_lines(lines, self) or ("raw" if are_raw_text(lines, labelled) else None)

    def check_inputs(self, *paths: str | None) -> None:
        """Check the options, and that the inputs exist.

        Raises `DataError` for an input that is neither a path, nor standard input, nor a named data set, and for an
        option of texts that is out of range; `UsageError` for a flag of formats that no input has. Standard input
        without --format cannot be looked at yet, and counts as numeric features.
        """
        self.new_vectorizer()
        from ..data.datasets import check_known

        given = [path for path in paths if path is not None]
        for path in given:
            if path != STDIN:
                check_known(path)
        flags = [name for name in FORMATS_OF if name in self.given]
        if not flags:  # then do not open files: of a pipe, lines can be read only once
            return
        found = {self.document_format(path) for path in given}
        for option in flags:
            if found.isdisjoint(formats := FORMATS_OF[option]):
                _check_text(given)
                wanted = f"needs a file read by --format {', '.join(formats[:-1])} or {formats[-1]}"
                raise UsageError(f"{flag_of(option)}: {wanted}, got {', '.join(given)}; pass --format, or leave it out")

    def read_documents(self, path: str, form: str, labelled: bool) -> Documents:
        """Return the documents of a file of this format."""
        from ..data.documents import read_documents

        if not self.label_separator:
            raise DataError("--label-separator: must not be empty, got ''")
        return read_documents(path, form, labelled, self)

    def new_vectorizer(self) -> TextVectorizer:
        """Return a vectorizer, not fitted, with the options of the flags; raise `DataError` for a wrong one."""
        from ..data.vectorizer import TextVectorizer

        options = self.vectorizer_options
        if (path := options.get("stop_words")) is not None:
            if not Path(path).exists():
                raise DataError(f"--stop-words {path}: no such file; pass a file of words, one a line")
            options["stop_words"] = _words_in(path)
        vectorizer = TextVectorizer(**options)
        vectorizer.check_options()
        return vectorizer

    @property
    def vectorizer_options(self) -> dict[str, Any]:
        """Return the options of a `TextVectorizer` that flags have set."""
        names = {flag.name for flag in VECTORIZER_FLAGS}
        return {name: value for name, value in self.given.items() if name in names}

    @property
    def files(self) -> tuple[str | None, ...]:
        """Return the files that flags name, besides data."""
        return self.vocabulary, self.given.get("stop_words"), self.label_texts, self.feature_names, self.groups

    def refuse_vectorizer_options(self, got: str) -> None:
        """Raise `UsageError` if a flag of a vectorizer is given, for a command in which no words become features."""
        for name in self.vectorizer_options:
            wanted = "needs texts whose words become features"
            raise UsageError(f"{flag_of(name)}: {wanted}, got {got}; leave it out")

    @property
    def to_save(self) -> dict[str, Any]:
        """Return the given options that are saved with a model."""
        return {name: value for name, value in self.given.items() if name in SAVED}

    def with_saved(self, saved: Mapping[str, Any]) -> InputOptions:
        """Return options with the values `saved` with a model where no flag is given; ignore values of wrong types."""
        types = {name: of_type for name, of_type in SAVED.items() if name not in self.given}
        fit = {name: saved[name] for name, of_type in types.items() if isinstance(saved.get(name), of_type)}
        return replace(self, **fit)

    def with_names(self, names: Mapping[str, str]) -> InputOptions:
        """Return options with all names of URIs, so that the vocabulary is not read again."""
        options = replace(self, names=names)
        vars(options)["names_of_uris"] = names
        return options

    def libsvm_options(self, path: str) -> dict[str, Any]:
        """Return the options of `read_libsvm` for a source.

        For a source that is no text, such as a store, they come from the given flags alone, which loading then refuses;
        options saved with a model are left out.
        """
        from ..data.formats import holds_text

        rows = self if holds_text(Path(path)) else InputOptions.of_flags(**self.given)
        return {
            "zero_based": not rows.one_based,
            "zero_based_labels": not rows.one_based_labels,
            "duplicates": self.duplicates,
        }

    def have_labels(self, lines: Iterable[str]) -> bool:
        """Return whether documents have labels that nobody asked for, before a tab; not if `--format` is given."""
        return self.format == "auto" and most_have_labels(lines)


def _check_text(paths: Iterable[str]) -> None:
    """Raise `DataError` for a file that is not text, such as Parquet, which says more than that a flag does not fit."""
    for path in map(Path, paths):
        if path.is_file() and path.suffix != ".npz":
            with open_text(path):
                pass


def _words_in(path: str) -> list[str]:
    """Return the words of a file, one a line; blank lines are skipped."""
    from ..data.text import lines_of_file

    words = []
    for number, line in enumerate(lines_of_file(path), 1):
        if len(found := line.split()) > 1:
            raise DataError(f"{path}:{number}: must be one word, got {shorten(line)}; write one word a line")
        words += found
    return words
