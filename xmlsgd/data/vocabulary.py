"""Vocabularies of Annif: the names of subjects, which are identified by URIs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import DataError, shorten
from .label_names import label_name
from .text import numbered_lines

BARE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
BRACKETED_URI = re.compile(r"<([^<>\s]+)>")


def read_vocabulary(path: str | Path, known: Mapping[str, str] | None = None, renaming: bool = False) -> dict[str, str]:
    """Return the name of each URI: those of `known`, unchanged, then those of the lines `<uri><TAB>label` of a file.

    The brackets may be missing. The name is the label. If several URIs have the same label, the name is `label <uri>`,
    as names must differ. A URI without a label, in Annif a deprecated subject, gets no name.

    renaming : whether a known URI takes a label of the file that differs from its own.
    """
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in numbered_lines(path):
        first, _, rest = line.partition("\t")
        first, label = first.strip(), label_name(rest.partition("\t")[0])
        if not (BRACKETED_URI.fullmatch(first) or is_uri(first)):
            raise DataError(f"{path}:{number}: must read `<uri><TAB>label`, got {shorten(line)}; see docs/data.md")
        if not label:
            continue
        uri = name_of(first, {})
        if labels.setdefault(uri, label) != label:
            got = f"{shorten(labels[uri])} on line {lines[uri]} and {shorten(label)}"
            raise DataError(f"{path}:{number}: a URI must have one label, got {got} of <{uri}>; remove one")
        lines.setdefault(uri, number)
    names = dict(known or {})
    if renaming:
        names = {uri: name for uri, name in names.items() if labels.get(uri) in (None, label_of(uri, name))}
    new = {uri: label for uri, label in labels.items() if uri not in names}
    seen, several = set(names.values()), set[str]()
    for label in new.values():
        (several if label in seen else seen).add(label)
    return names | {uri: f"{label} <{uri}>" if label in several else label for uri, label in new.items()}


def is_uri(name: str) -> bool:
    """Return whether the name of a label looks like a URI without <>."""
    return BARE_URI.fullmatch(name) is not None


def uris_among(names: Sequence[str]) -> dict[str, str]:
    """Return the names that are URIs, with or without <>, by URI; of two names of one URI, the one without <>."""
    found = {uri[1]: name for name in names if (uri := BRACKETED_URI.fullmatch(name))}
    return found | {name: name for name in names if is_uri(name)}


def uri_of(name: str, uris: Mapping[str, str]) -> str | None:
    """Return the URI of a name: from `uris`, the URIs by name, or the name itself if it is a URI; else None."""
    own = name_of(name, {})
    return uris.get(name, own if is_uri(own) else None)


def label_of(uri: str, name: str) -> str:
    """Return the label of a subject: its name without the URI at the end, if there is one."""
    return name.removesuffix(f" <{uri}>")


def name_of(text: str, names: Mapping[str, str]) -> str:
    """Return the name of a URI, with or without <>; return a text that is no known URI unchanged, without <>."""
    found = BRACKETED_URI.fullmatch(text)
    uri = found[1] if found else text
    return names.get(uri, uri)


def write_vocabulary(names: Mapping[str, str], path: Path) -> None:
    """Write lines `<uri><TAB>name`."""
    path.write_text("".join(f"<{uri}>\t{name}\n" for uri, name in names.items()), encoding="utf-8", newline="\n")
