"""Documents with labels as CSV, JSON lines, raw text with a separator, and corpora of Annif."""

from __future__ import annotations

import csv

import pytest

from xmlsgd.data.document_formats import DocumentOptions, are_annif, format_by_lines, format_by_name
from xmlsgd.data.documents import read_documents
from xmlsgd.errors import DataError

FILES = {
    "csv": 'id,labels,text\n1,"Smith, J.;sea","a book, of\nthe sea"\n2,,"no ""labels"""\n',
    "jsonl": '{"text": "a book, of\\nthe sea", "labels": ["Smith, J.", "sea", "sea"]}\n\n{"text": "x", "labels": []}\n',
    "raw": "Smith, J.;sea\ta book of the sea\n",
    "annif": "a book\tof the sea\t<http://x/1> <http://x/2>\nno subjects\t\n",
}


@pytest.fixture
def path_of(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def read(path, form, labelled=True, **options):
    return read_documents(path, form, labelled, DocumentOptions(**options))


def test_words_with_the_prefix_of_fasttext_are_labels_wherever_they_stand(path_of):
    lines = "__label__a __label__b,c one text\n\nno label\n__label__a\ta tab __label__d\nnot__label__e __label__\n"
    raw = read(path_of("f", lines), "fasttext")
    assert raw.texts == ["one text", "", "no label", "a tab", "not__label__e __label__"]
    assert raw.labels == [("a", "b,c"), (), (), ("a", "d"), ()]
    assert read(path_of("f", lines), "fasttext", labelled=False).texts == raw.texts


@pytest.mark.parametrize("form", ["csv", "jsonl", "raw"])
def test_names_with_commas_and_blanks_stay_whole(path_of, form):
    raw = read(path_of("f", FILES[form]), form, label_separator=";")
    assert raw.labels[0] == ("Smith, J.", "sea")
    assert raw.texts[0].split()[:2] == ["a", "book" if form == "raw" else "book,"]
    assert raw.labels[1:] == [()] * (len(raw.texts) - 1)


def test_quoted_fields_of_csv_keep_commas_quotes_and_line_ends(path_of):
    assert read(path_of("f.csv", FILES["csv"]), "csv").texts == ["a book, of\nthe sea", 'no "labels"']


def test_quotes_in_a_table_with_tabs_are_text_unless_a_cell_is_quoted_as_a_whole(path_of):
    path = path_of("f.tsv", 'labels\ttext\na\t"Arbetet" ger struktur\n"b ""c"""\t"says ""no"""\n\nd\t5" disk\n')
    raw = read(path, "csv")
    assert raw.texts == ['"Arbetet" ger struktur', 'says "no"', '5" disk']
    assert raw.labels == [("a",), ('b "c"',), ("d",)]
    quoted = path_of("f.tsv", 'labels\ttext\na\t"of two\nlines"\nb\t"a\ttab"\n')
    assert read(quoted, "csv").texts == ["of two\nlines", "a\ttab"]


def test_labels_of_json_may_be_numbers(path_of):
    assert read(path_of("f", '{"text": "a", "labels": [7, "b"]}\n'), "jsonl").labels == [("7", "b")]


@pytest.mark.parametrize("form", ["csv", "jsonl", "raw"])
def test_blanks_around_a_name_are_no_part_of_it(path_of, form):
    text = {
        "csv": 'text,labels\na," <http://x/1> ; sea"\n',
        "jsonl": '{"text": "a", "labels": [" <http://x/1> ", "sea", "\\tsea "]}\n',
        "raw": " <http://x/1> ; sea;sea \ta\n",
    }
    options = {"label_separator": ";", "vocabulary": str(path_of("v", "http://x/1\tship\nhttp://x/2\tsea\n"))}
    assert read(path_of("f", text[form]), form, **options).labels == [("ship", "sea")]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_the_header_of_csv_tells_what_separates_fields(path_of, mark):
    path = path_of("f.csv", f'id{mark}text{mark}labels\n1{mark}"a{mark} b, c"{mark}x,y\n')
    raw = read(path, "csv")
    assert (raw.texts, raw.labels) == ([f"a{mark} b, c"], [("x", "y")])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_spaces_around_names_of_columns_are_ignored_unless_a_column_has_them(path_of, form):
    rows = {"csv": "title,body,labels\na,b,x\n", "jsonl": '{"title": "a", "body": "b", "labels": ["x"]}\n'}
    assert read(path_of("f", rows[form]), form, text_column="title, body").texts == ["a b"]
    assert read(path_of("f", rows[form].replace("body", " body")), form, text_column="title, body").texts == ["a b"]


@pytest.mark.parametrize("told", ["sep=;", '"sep=;"'])
def test_a_first_line_may_tell_the_separator_as_excel_writes_it(path_of, told):
    path = path_of("f.csv", f"{told}\nid;text;labels\n1;a, b, c;x\n2;d\n")
    with pytest.raises(DataError, match=r"f\.csv:4: must have 3 fields, as the header, got 2"):
        read(path, "csv")
    with pytest.raises(DataError, match=r"f\.csv:2: the header must have a column 'body'"):
        read(path, "csv", text_column="body")
    raw = read(path_of("f.csv", f"{told}\nid;text;labels\n1;a, b, c;x\n"), "csv")
    assert (raw.texts, raw.labels) == (["a, b, c"], [("x",)])


def test_columns_may_have_other_names_and_labels_may_be_missing(path_of):
    path = path_of("f.csv", "body\ta\nx,y\n".replace("\t", ","))
    assert read(path, "csv", labelled=False, text_column="body").texts == ["x"]
    assert read(path, "csv", text_column="body", label_column="a").labels == [("y",)]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", "title,by,series,labels\nSea,x,Tides,a\n"),
        ("csv", "title;by;series;labels\nSea;x;Tides;a\n"),
        ("jsonl", '{"title": "Sea", "series": "Tides", "labels": ["a"]}\n'),
    ],
)
def test_texts_in_several_columns_are_joined(path_of, form, text):
    options = DocumentOptions(text_column="title,series")
    assert format_by_lines([text.split("\n")[0]], options) == form
    raw = read(path_of("f", text), form, text_column=options.text_column)
    assert (raw.texts, raw.labels) == (["Sea Tides"], [("a",)])
    with pytest.raises(DataError, match=r"f:1: .* '?series2'?"):
        read(path_of("f", text), form, text_column="title,series2")


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ('{"title": "Sea"}', "jsonl"),
        ('{"titel": "Sea"}', "jsonl"),
        ("sep=;", "csv"),
        ('"sep=;"', "csv"),
        ("sep=\t\r\n", "csv"),
        ("{read} json", None),
    ],
)
def test_a_first_line_that_no_document_has_tells_the_format_though_columns_are_missing(line, form):
    assert format_by_lines([line], DocumentOptions(text_column="title,subtitle")) == form


@pytest.mark.parametrize("line", ["title", "__label__ is written before labels", "__label__"])
def test_a_first_line_that_a_text_may_have_tells_no_format(line):
    assert format_by_lines([line, "a text"], DocumentOptions(text_column="title")) is None


def test_the_name_of_a_column_may_have_a_comma(path_of):
    assert read(path_of("f", 'title,"title,by",by,labels\nSea,Waves,x,a\n'), "csv", text_column="title,by").texts == [
        "Waves"
    ]


def test_a_missing_text_beside_others_is_empty(path_of):
    null = path_of("f", '{"title": "Sea", "by": null, "labels": []}\n')
    assert read(null, "jsonl", text_column="title,by").texts == ["Sea "]
    with pytest.raises(DataError, match=r"f:1: 'by' must be a string, got null; write \"\" where there is none"):
        read(null, "jsonl", text_column="by")
    number = path_of("g", '{"title": "Sea", "by": 3, "labels": []}\n')
    with pytest.raises(DataError, match="g:1: 'by' must be a string, got 3"):
        read(number, "jsonl", text_column="title,by")


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("csv", "sku,text,labels\n7,a,x\n,b,y\n", ["7", ""]),
        ("jsonl", '{"sku": 7, "text": "a", "labels": []}\n{"sku": null, "text": "b", "labels": []}\n', [7, None]),
    ],
)
def test_documents_have_the_identifiers_that_are_asked_for(path_of, form, text, expected):
    assert read(path_of("f", text), form, id_column="sku").ids == expected
    assert read(path_of("f", text), form).ids is None
    with pytest.raises(DataError, match=r"f:1: .* 'sk'.*pass --id-column"):
        read(path_of("f", text), form, id_column="sk")


def test_an_identifier_of_another_type_is_refused(path_of):
    with pytest.raises(DataError, match=r"f:1: 'sku' must be a string or a whole number, got \[1\]"):
        read(path_of("f", '{"sku": [1], "text": "a", "labels": []}\n'), "jsonl", id_column="sku")
    with pytest.raises(DataError, match="f:1: 'sku' must be a string or a whole number, got true"):
        read(path_of("f", '{"sku": true, "text": "a", "labels": []}\n'), "jsonl", id_column="sku")
    with pytest.raises(DataError, match=r"f:1: 'sku' must be text that UTF-8 can hold, got '\\ud800'"):
        read(path_of("f", '{"sku": "\\ud800", "text": "a", "labels": []}\n'), "jsonl", id_column="sku")


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("<http://x/1> <http://x/2>", ("<http://x/1>", "<http://x/2>")),
        ("http://x/1  urn://x:2", ("http://x/1", "urn://x:2")),
        ("http://x/1 http://x/2,ships", ("http://x/1", "http://x/2", "ships")),
        ("http://x/1 by Smith", ("http://x/1 by Smith",)),
        ("art: a b", ("art: a b",)),
    ],
)
def test_uris_in_a_cell_may_be_separated_by_spaces(path_of, cell, labels):
    assert read(path_of("f", f'text,labels\na,"{cell}"\n'), "csv").labels == [labels]
    assert read(path_of("g", f"{cell}\ta\n"), "raw").labels == [labels]


def test_subjects_of_annif_are_uris_or_their_names(path_of):
    path = path_of("f.tsv", FILES["annif"])
    raw = read(path, "annif")
    assert raw.texts == ["a book\tof the sea", "no subjects"]
    assert raw.labels == [("http://x/1", "http://x/2"), ()]
    vocabulary = path_of("v.tsv", "<http://x/1>\tships, old\textra\n<http://x/3>\tfish\n")
    with pytest.warns(match="f.tsv:1: the vocabulary .*v.tsv has no label for <http://x/2>; the URI stands for it"):
        assert read(path, "annif", vocabulary=str(vocabulary)).labels[0] == ("ships, old", "http://x/2")
    assert read(path_of("g", "a\tb\n"), "annif", labelled=False).texts == ["a\tb"]


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("Fish", "f.csv:2: the vocabulary .*v.tsv has no subject 'Fish'; it is a label without a URI"),
        ("ships", "f.csv:2: the vocabulary .*v.tsv has several subjects 'ships'; write the URI of one"),
    ],
)
def test_names_that_are_no_subjects_are_told(path_of, label, told):
    vocabulary = path_of("v.tsv", "<http://x/1>\tships\n<http://x/2>\tships\n<http://x/3>\tfish\n")
    path = path_of("f.csv", f"text,labels\na,{label}\nb,fish\n")
    with pytest.warns(match=told):
        assert read(path, "csv", vocabulary=str(vocabulary)).labels == [(label,), ("fish",)]


def test_formats_are_told_by_names_and_lines(tmp_path):
    names = ("a.csv", "a.CSV.gz", "a.jsonl", "a.ndjson", "a.json", "a.txt", "a")
    assert [format_by_name(tmp_path / name) for name in names] == ["csv", "csv", "jsonl", "jsonl", "jsonl", None, None]
    assert are_annif(["text\t<http://x/1> <http://x/2>"])
    assert not any(are_annif([line]) for line in ("text\tmore", "text <http://x/1>", "a,b\ttext with <b>tags</b>"))
    assert are_annif(FILES["annif"].splitlines())
    assert not any(map(are_annif, ([], ["a\t", "b\t"], ["a\t<http://x/1>", "b"], ["a\t<http://x/1>", "x\ty"])))


@pytest.mark.parametrize(
    ("form", "text", "told"),
    [
        (
            "csv",
            "a,b\n1,2\n",
            r"f:1: the header must have a column 'text' and a column 'labels', got \['a', 'b'\]; pass --text-column",
        ),
        ("csv", "number,created,user,title,body,tags\n", r"got \[.*'tags'\]; pass --text-column and --label-column"),
        (
            "csv",
            "body;labels\n",
            r"f:1: the header must have a column 'text', got \['body', 'labels'\]; pass --text-column",
        ),
        (
            "csv",
            "text,labels,labels\n",
            r"f:1: the header must have one column 'labels', got \['text', 'labels', 'labels'\]; rename the others",
        ),
        (
            "csv",
            "Text;labels\n",
            "got .'Text', 'labels'.; pass --text-column, in Python text_column; did you mean 'Text'",
        ),
        (
            "csv",
            "text,labels\nx,y\nx,y,z\n",
            "f:3: must have 2 fields, as the header, got 3; quote fields that hold ','",
        ),
        ("csv", "text,labels\nx;y\n", "f:2: must have 2 fields, as the header, got 1; separate them by ','"),
        ("csv", 'text,labels\n"x,y\n', "f:2: must be CSV, got unexpected end of data; a cell that"),
        ("csv", 'text,labels\n"x\nx",y\n"x,y\nz,y\n', "f:4: must be CSV, got unexpected end of data"),
        ("csv", 'text,labels\n"x\nx",y\n"x\nx"\n', "f:4: must have 2 fields, as the header, got 1"),
        ("jsonl", '{"text": "a", "labels": []}\n{"text"\n', "f:2: must be one JSON object a line, got "),
        (
            "jsonl",
            '[{"text": "a"}]\n',
            r"f:1: must be one JSON object a line, got \[.*; `jq -c '.\[\]' FILE` writes a list",
        ),
        (
            "jsonl",
            f'{{"title": "{"a" * 99}", "tags": []}}\n',
            r"key 'text', got the keys \['title', 'tags'\]; .*; write \"\"",
        ),
        (
            "jsonl",
            '{"text": "a", "labels": [true]}\n',
            "f:1: each of 'labels' must be a whole number or a string that is not blank, got true; leave it out",
        ),
        ("jsonl", '{"text": 1, "labels": []}\n', "f:1: 'text' must be a string, got 1"),
        ("jsonl", '{"text": null, "labels": []}\n', "f:1: 'text' must be a string, got null; write \"\" where"),
        (
            "jsonl",
            '{"text": "a", "labels": "b"}\n',
            "f:1: 'labels' must be a list of strings or whole numbers, got 'b'; write",
        ),
        ("jsonl", '{"text": "a", "labels": null}\n', r"got null; write \[\"a\", \"b\"\], and \[\] where there"),
        ("annif", "a\t<http://x/1>\na <http://x/1>\n", "f:2: must read `text<TAB><uri> <uri>`, got .*'$"),
        ("annif", "text\turis\na\t<http://x/1>\n", "f:1: .*; if it is a header, name its columns: --text-column"),
        ("jsonl", "\n", "f: must hold at least one document, got none"),
    ],
)
def test_errors_name_file_and_line(path_of, form, text, told):
    with pytest.raises(DataError, match=told):
        read(path_of("f", text), form)


def test_uris_that_a_vocabulary_lacks_are_counted(path_of):
    vocabulary = path_of("v", "<http://x/9>\tship\n")
    with pytest.warns(match="f:1: .* no label for <http://x/1>, nor 1 other; the URI stands for it"):
        read(path_of("f", FILES["annif"]), "annif", vocabulary=str(vocabulary))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", "text,labels\nx,\nx,http://x/1\ny,http://x/1\n"),
        ("jsonl", '{"text": "x", "labels": []}\n\n{"text": "x", "labels": ["http://x/1"]}\n'),
        ("raw", "ship\tx\n\tx\nhttp://x/1\tx\n"),
        ("annif", "x\t\n\nx\t<http://x/1>\ny\t<http://x/1>\n"),
    ],
)
def test_a_uri_that_a_vocabulary_lacks_is_told_with_its_first_line(path_of, form, text):
    vocabulary = path_of("v", "<http://x/9>\tship\n")
    with pytest.warns(match="f:3: .* no label for <http://x/1>; the URI stands for it"):
        read(path_of("f", text), form, vocabulary=str(vocabulary))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", "text,labels\nx,http://x/1;fish;<http://x/3>\n"),
        ("jsonl", '{"text": "x", "labels": ["http://x/1", "fish", "<http://x/3>"]}'),
        ("raw", "http://x/1;fish;<http://x/3>\tx\n"),
    ],
)
def test_labels_of_any_format_may_be_uris_or_names(path_of, form, text):
    vocabulary = path_of("v", "<http://x/1>\tship\n<http://x/3>\tfish\n<http://x/4>\tisle: the sea\n")
    options = {"vocabulary": str(vocabulary), "label_separator": ";"}
    assert read(path_of("f", text), form, **options).labels == [("ship", "fish")]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("raw", "cafe\u0301,café\ta\n"),
        ("csv", 'labels,text\n"cafe\u0301,café",a\n'),
        ("jsonl", '{"labels": ["cafe\\u0301", "café"], "text": "a"}\n'),
        ("fasttext", "__label__cafe\u0301 __label__café a\n"),
    ],
)
def test_a_label_whose_accent_is_a_character_of_its_own_is_the_same_label(path_of, form, text):
    assert read(path_of("f", text), form).labels == [("café",)]


def test_the_field_limit_of_the_process_is_as_before(path_of):
    before = csv.field_size_limit()
    text = "x" * (before + 1)
    assert read(path_of("f.csv", f"text\n{text}\n"), "csv", labelled=False).texts == [text]
    assert csv.field_size_limit() == before


def test_an_unknown_format_is_refused(path_of):
    with pytest.raises(DataError, match="format must be one of raw, csv, jsonl, annif, fasttext, got 'xml'"):
        read(path_of("f", "a"), "xml")
