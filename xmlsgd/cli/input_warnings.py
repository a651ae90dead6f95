"""Warnings about data and settings that are probably a mistake; errors where a model would learn it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np

from ..data.cores import usable_cores
from ..data.csr import CSR, Dataset
from ..data.document_formats import first_lines
from ..data.held_out import are_among
from ..data.label_names import QUOTED
from ..errors import DataError, shorten, warn
from .input_options import InputOptions
from .sources import InputRows
from .swapped_columns import LEAST_KNOWN

QUOTES = "\"'"
SEPARATORS = ("><", ";", "|", ",", " ")  # of labels, in the files of other programs
LEAST_JOINED = {",": 3, " ": 20}  # new labels to refuse: names such as `Helsinki, Finland` may consist of labels
NO_BRACKETS = "write a|b for <a><b>, and pass --label-separator '|'"
SPACED_COMMA = re.compile(r", +(?=\S)")
MOST_CASES = 0.02  # share of labels that differ in case alone, such as China and china; vocabularies have a few
MOST_JOINED = 0.2  # share of labels with a mark that may separate labels; hardly a name of a vocabulary has one
MOST_UNKNOWN = 0.3  # share of the labels of test rows that the model does not know
ONCE = 1.2  # rows per label, on average, below which labels hardly occur twice
MOST_LEARNED = 0.2  # share of the test rows that equal a training row
JUDGED_ROWS = 20  # with fewer rows nothing can be said
# Usual names of columns, in lower case; other plurals have an s more.
LABEL_COLUMNS = ("label", "subject", "tag", "topic", "keyword", "class", "classes", "category", "categories")
TEXT_COLUMNS = ("text", "title", "document", "abstract", "description", "content", "sentence")


def check_training_rows(rows: InputRows, train: str, test: str | None, options: InputOptions, n_known: int = 0) -> None:
    """Warn of what is suspicious in training rows; n_known : number of labels of the model that learns more rows.

    Raises `DataError` if most of its new labels are known ones with another separator.
    """
    # A store of texts has no format of documents.
    documents = options.document_format(train)
    read_as = None if rows.vectorizer is None else documents or "raw"
    is_raw, names = read_as == "raw", rows.train.label_names or ()
    if n_known:
        warn_of_new_labels(rows.train.Y, n_known, train)
        if rows.names_of_uris is None:  # else names that the vocabulary lacks were warned of
            warn_of_new_cases(names[:n_known], names[n_known:], train)
    else:
        warn_of_rare_labels(rows.train, train, is_raw)
    if rows.vectorizer is None and not n_known:  # a few more rows may well lack feature 0 and label 0
        warn_of_base(rows.train, train)
    elif is_raw:
        lines = first_lines(Path(train)) if Path(train).is_file() else []
        warn_of_header(lines, train)
        warn_of_quotes(names, train)
        if options.label_separator == ",":
            warn_of_commas(lines, train)
    if documents in ("raw", "csv"):
        refuse_joined_labels(names[:n_known], names[n_known:], train)
        has_uris = rows.names_of_uris is not None
        warn_of_separators(names[n_known:], set(names), train, options.label_separator, has_uris)
    if read_as is not None and not n_known:
        warn_of_cases(names, train)
    if rows.test is not None:
        warn_of_unknown(rows.test, rows.train.n_labels, test or train)
        if not n_known:
            warn_of_learned(rows.train, rows.test, test or train)


def warn_of_header(lines: Sequence[str], path: str) -> None:
    """Warn if the first line of raw text reads as names of columns, such as `label<TAB>text`: it is read as a row."""
    first = lines[0] if lines else ""
    names = first.removeprefix("\ufeff").strip().split("\t")
    for label, text in (names, names[::-1]) if len(names) == 2 else ():
        if _is_column(label, LABEL_COLUMNS) and _is_column(text, TEXT_COLUMNS):
            remedy = f"if it is a header: --text-column {text} --label-column {label}"
            warn(f"{path}:1: {shorten(first.strip())} is read as a document with its label; {remedy}")


def _is_column(name: str, usual: Sequence[str]) -> bool:
    return name.lower().removesuffix("s") in usual or name.lower() in usual


def warn_of_rare_labels(dataset: Dataset, path: str, is_raw: bool) -> None:
    """Warn if hardly any label occurs twice: there is little to learn, or texts were taken for labels."""
    n_labels = len(np.unique(dataset.Y.indices))
    if dataset.n_rows >= JUDGED_ROWS and dataset.Y.nnz < ONCE * n_labels:
        text = f"{path}: {n_labels:,} labels in {dataset.n_rows:,} rows, hardly one of them twice"
        hint = "; are they labels? They stand before the tab, and the text behind it" if is_raw else ""
        warn(f"{text}, so there is little to learn{hint}")


def warn_of_new_labels(Y: CSR, n_known: int, path: str) -> None:
    """Warn if a model that learns more rows knows hardly any of their labels, as where names have become URIs."""
    share = float(np.mean(Y.indices < n_known)) if Y.nnz else 1.0
    if Y.n_rows >= JUDGED_ROWS and share <= LEAST_KNOWN:
        text = f"{path}: the model knows {100 * share:.0f} % of its labels"
        warn(f"{text}; the others become new labels; are they labels, and named as in training?")


def warn_of_quotes(names: Sequence[str], path: str) -> None:
    """Warn if names of labels in raw text begin with a quote and do not end with it: the file has other rules."""
    cut = next((name for name in names if name[0] in QUOTES and (len(name) == 1 or name[-1] != name[0])), None)
    if cut is not None:
        text = f"{path}: the label {shorten(cut)} begins with a quote and does not end with it"
        hint = 'quotes go around a whole name, as in "Woolf, Virginia",novel'
        warn(f"{text}; {hint}")


def warn_of_separators(names: Sequence[str], known: Set[str], path: str, separator: str, has_uris: bool) -> None:
    """Warn if many names of labels contain another separator: they are probably several names each.

    Names in brackets, as in `<c#><linq>`, cause one warning; has_uris : whether they may be URIs instead.
    """
    cut = [] if has_uris else [name for name in names if name[0] == "<" or name[-1] == ">"]
    if len(cut) > MOST_JOINED * len(names):
        got = f"{len(cut):,} of {len(names):,} labels begin with '<' or end with '>', such as {shorten(cut[0])}"
        warn(f"{path}: {got}; {NO_BRACKETS}")
        return
    for mark in SEPARATORS:
        joined = _joined_by(mark, names, known) if mark != separator else []
        if len(joined) > MOST_JOINED * len(names):
            text = f"{path}: {len(joined):,} of {len(names):,} labels contain {mark!r}, such as {shorten(joined[0])}"
            warn(f"{text}; if it separates labels: --label-separator '{mark}'")


def _joined_by(mark: str, names: Sequence[str], known: Set[str]) -> list[str]:
    """Return the names that are probably several, separated by a mark.

    Names may contain spaces and commas. So the parts between spaces must be `known` labels, and those between commas
    must be known or recur.
    """
    joined = [name for name in names if mark in name]
    n_parts = len({part for name in joined for part in _parts(name, mark)})
    needs_known = mark == " " or (mark == "," and 2 * n_parts > len(joined))
    return _made_of_known(mark, joined, known) if needs_known else joined


def _made_of_known(mark: str, names: Sequence[str], known: Set[str]) -> list[str]:
    """Return the names that are known ones with a mark between, or a single one in brackets if that is `><`."""
    return [
        name
        for name in names
        if (mark in name or (mark == "><" and name[0] + name[-1] == "<>")) and known >= _parts(name, mark)
    ]


def _parts(name: str, mark: str) -> set[str]:
    return {part.strip() for part in name.strip("<>").split(mark)}


def refuse_joined_labels(known: Sequence[str], new: Sequence[str], path: str) -> None:
    """Raise `DataError` if most new labels are known ones with another separator: a model keeps what it has learned."""
    labels = set(known)
    joined_by = {mark: _made_of_known(mark, new, labels) for mark in SEPARATORS}
    joined_by = {mark: names for mark, names in joined_by.items() if len(names) >= LEAST_JOINED.get(mark, 1)}
    joined = {name for names in joined_by.values() for name in names}
    if len(joined) > len(new) / 2:
        mark = max(joined_by, key=lambda each: len(joined_by[each]))
        got = f"got {len(joined):,} of {len(new):,} new labels that are known ones with {mark!r} or the like"
        remedy = NO_BRACKETS if mark == "><" else f"pass --label-separator '{mark}', or JSON lines if they are labels"
        raise DataError(
            f"{path}: must separate labels as in training, {got}, such as {shorten(joined_by[mark][0])}; {remedy}"
        )


def warn_of_cases(names: Sequence[str], path: str) -> None:
    """Warn if many names of labels differ in case alone: they count as different labels."""
    seen = Counter(map(str.casefold, names))
    alike = [name for name in names if seen[name.casefold()] > 1]
    if len(alike) > MOST_CASES * len(names):
        twin = next(name for name in alike[1:] if name.casefold() == alike[0].casefold())
        _warn_of_pair(f"{path}: {len(alike):,} of {len(names):,} labels differ from another", alike[0], twin)


def warn_of_new_cases(known: Sequence[str], new: Sequence[str], path: str) -> None:
    """Warn if a new label of a model that learns more rows differs from a known one in case alone."""
    spelled = {name.casefold(): name for name in known}
    alike = [name for name in new if name.casefold() in spelled]
    if alike:
        differ = f"{path}: {len(alike):,} of {len(new):,} new labels differ from one of the model"
        _warn_of_pair(differ, alike[0], spelled[alike[0].casefold()])


def _warn_of_pair(differ: str, name: str, twin: str) -> None:
    """Warn that labels differ in case alone, with a pair of them as an example."""
    pair = f"{shorten(name)} and {shorten(twin)}"
    warn(f"{differ} in case alone, such as {pair}; write them alike if they mean the same")


def warn_of_commas(lines: Sequence[str], path: str) -> None:
    """Warn if raw text has `a, b` before the tab: it may be one name that contains a comma."""
    labels = [line.partition("\t")[0] for line in lines]
    spaced = next((each for each in labels if SPACED_COMMA.search(re.sub(QUOTED, "", each))), None)
    if spaced is not None:
        text = f"{path}: every comma ends a label, also in {shorten(spaced)}"
        warn(f"{text}; quote names with commas, or pass another --label-separator")


def warn_of_base(dataset: Dataset, path: str) -> None:
    """Warn if neither feature 0 nor label 0 occurs: LIBSVM files count from one, and no line is wrong then."""
    X, Y = dataset.X, dataset.Y
    if dataset.n_rows >= JUDGED_ROWS and X.nnz and Y.nnz and min(X.indices.min(), Y.indices.min()) > 0:
        text = f"{path}: neither feature 0 nor label 0 occurs"
        warn(f"{text}; if they count from one: --one-based --one-based-labels")


def warn_of_unknown(dataset: Dataset, n_known: int, path: str) -> None:
    """Warn if test rows have no labels, or many that the model does not know, as after a change of the separator."""
    share = float(np.mean(dataset.Y.indices >= n_known)) if dataset.Y.nnz else 0.0
    if not dataset.Y.nnz:
        is_text = not Path(path).is_dir() and Path(path).suffix != ".npz"
        hint = "; do labels stand before a tab, or in a column?" if is_text else "; pass rows with labels"
        warn(f"{path}: no row has a label, so that all measures will be 0{hint}")
    elif share == 1:
        text = f"{path}: the model knows none of its labels, so that all measures will be 0"
        warn(f"{text}; are these its test rows, with labels first?")
    elif share > MOST_UNKNOWN:
        new = dataset.label_names[n_known:] if dataset.label_names is not None else []
        names = set(dataset.label_names or ())
        are_joined = any(2 * len(_joined_by(mark, new, names)) > len(new) for mark in SEPARATORS)
        hint = "are they separated as in training (--label-separator)?" if are_joined else "these count as misses"
        warn(f"{path}: the model does not know {100 * share:.0f} % of its labels; {hint}")


def warn_of_learned(train: Dataset, test: Dataset, path: str) -> None:
    """Warn if many test rows are training rows."""
    share = are_among(test, train).mean()
    if test.n_rows >= JUDGED_ROWS and share > MOST_LEARNED:
        text = f"{path}: {share:.0%} of the test rows have the features and labels of a training row"
        warn(f"{text}, so that measures are too high; remove them from the training rows")


def warn_of_workers(devices: Sequence[str]) -> None:
    """Warn of more workers on the CPU than cores: they take turns, and none gets faster."""
    n_workers, n_cores = sum(name == "cpu" for name in devices), usable_cores()
    if n_workers > max(n_cores, 1):
        text = f"--devices: {n_workers} workers on the CPU, but this machine has {n_cores} usable cores"
        warn(f"{text}; pass at most cpu*{n_cores}")
