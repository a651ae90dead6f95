"""Vocabularies of Annif: names of subjects that have URIs."""

from __future__ import annotations

import pytest

from xmlsgd.data.document_formats import DocumentOptions
from xmlsgd.data.text import read_label_texts
from xmlsgd.data.vocabulary import label_of, name_of, read_vocabulary, uris_among, write_vocabulary
from xmlsgd.errors import DataError


@pytest.fixture
def vocabulary(tmp_path):
    def write(text):
        (tmp_path / "v").write_text(text)
        return tmp_path / "v"

    return write


@pytest.mark.parametrize("line", ["fish\thttp://x/1", "<http://x/1> fish", "@prefix x: <http://x/> ."])
def test_a_broken_line_is_named(vocabulary, line):
    with pytest.raises(DataError, match="v:2: must read "):
        read_vocabulary(vocabulary(f"<http://x/2>\tship\n{line}\n"))


def test_uris_may_be_without_brackets(vocabulary):
    assert read_vocabulary(vocabulary("http://x/1\tship\nurn:x:2\tfish\n")) == {"http://x/1": "ship", "urn:x:2": "fish"}


def test_a_deprecated_subject_has_no_label_and_no_name(vocabulary):
    names = read_vocabulary(vocabulary("<http://x/1>\n<http://x/2>\tship\n<http://x/3>\t \n"))
    assert names == {"http://x/2": "ship"}


def test_columns_after_the_label_are_ignored(vocabulary):
    assert read_vocabulary(vocabulary("<http://x/1>\tship\t623.8\n")) == {"http://x/1": "ship"}


def test_of_two_names_of_one_uri_the_one_without_brackets_counts():
    names = ["http://x/1", "<http://x/1>", "<http://x/2>", "ship"]
    assert uris_among(names) == {"http://x/1": "http://x/1", "http://x/2": "<http://x/2>"}


def test_a_label_whose_accent_is_a_character_of_its_own_is_composed(vocabulary):
    assert read_vocabulary(vocabulary("<http://x/1>\tcafe\u0301\n")) == {"http://x/1": "café"}
    assert read_label_texts(vocabulary(" cafe\u0301 \ta place\n")) == [("café", "a place")]


def test_two_labels_of_a_uri_are_named_with_their_lines(vocabulary):
    path = vocabulary("<http://x/1>\tship\n<http://x/2>\tfish\n<http://x/1>\tboat\n")
    told = "v:3: a URI must have one label, got 'ship' on line 1 and 'boat' of <http://x/1>"
    with pytest.raises(DataError, match=told):
        read_vocabulary(path)


def test_subjects_with_one_label_are_told_apart_by_their_uris(vocabulary):
    path = vocabulary("\n<http://x/1>\tship\n<http://x/3>\tfish\n<http://x/1>\tship\n<http://x/2>\tship\n")
    names = read_vocabulary(path)
    assert names == {"http://x/1": "ship <http://x/1>", "http://x/3": "fish", "http://x/2": "ship <http://x/2>"}
    assert [label_of(*each) for each in names.items()] == ["ship", "fish", "ship"]


def test_names_that_are_known_stay(vocabulary, tmp_path):
    known = read_vocabulary(vocabulary("<http://x/1>\tship, old\n<http://x/2>\tfish\n"))
    names = read_vocabulary(vocabulary("<http://x/1>\tvessel\n<http://x/3>\tfish\n<http://x/4>\tsea\n"), known)
    assert names == known | {"http://x/3": "fish <http://x/3>", "http://x/4": "sea"}
    write_vocabulary(names, tmp_path / "w")
    assert read_vocabulary(tmp_path / "w") == names


def test_a_uri_with_or_without_brackets_means_its_name(vocabulary):
    names = read_vocabulary(vocabulary("<http://x/1>\tship\n"))
    meant = [name_of(text, names) for text in ("<http://x/1>", "http://x/1", "ship", "<http://x/2>")]
    assert meant == ["ship", "ship", "ship", "http://x/2"]


def test_a_vocabulary_is_read_once_for_all_that_its_options_read(vocabulary):
    path = vocabulary("<http://x/1>\tship\n")
    options = DocumentOptions(vocabulary=str(path), names={"http://x/2": "sea"})
    names = options.names_of_uris
    path.unlink()
    assert options.names_of_uris is names
    assert names == {"http://x/2": "sea", "http://x/1": "ship"}
    assert DocumentOptions(names=names).names_of_uris is names
    assert DocumentOptions().names_of_uris is None
