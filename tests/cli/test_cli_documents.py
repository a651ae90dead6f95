"""Documents as CSV, JSON lines and Annif corpora on the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from shared.command_line import QUICK, run
from xmlsgd.cli import main
from xmlsgd.data.text import numbered_lines
from xmlsgd.estimators import XMLClassifier
from xmlsgd.estimators.inference.compact import CompactParams

NAMES = ("Smith, J.", "open sea")
LINES = [(f"a book of {('waves', 'letters')[i % 2]} and number {i % 5}", NAMES[i % 2 :]) for i in range(40)]


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


WRITTEN = {
    "rows.csv": "text,labels\n" + "".join(f"{quoted(text)},{quoted(';'.join(names))}\n" for text, names in LINES),
    "rows.jsonl": "".join(json.dumps({"text": text, "labels": names}) + "\n" for text, names in LINES),
    "rows.txt": "".join(f"{';'.join(names)}\t{text}\n" for text, names in LINES),
    "rows.fasttext": "".join(
        " ".join(f"__label__{name.replace(' ', '_')}" for name in names) + f" {text}\n" for text, names in LINES
    ),
    "rows.tsv": "".join(
        text + "\t" + " ".join(f"<http://x/{NAMES.index(name)}>" for name in names) + "\n" for text, names in LINES
    ),
}
FLAGS = {
    "rows.csv": ("--label-separator", ";"),
    "rows.txt": ("--label-separator", ";"),
    "rows.jsonl": (),
    "rows.fasttext": (),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_names_with_commas_are_trained_evaluated_predicted_and_learned_on(tmp_path, capsys, name):
    path, vocabulary = tmp_path / name, tmp_path / "vocabulary"
    path.write_text(WRITTEN[name])
    vocabulary.write_text("".join(f"<http://x/{i}>\t{label}\n" for i, label in enumerate(NAMES)))
    flags = FLAGS.get(name, ("--vocabulary", vocabulary))
    run("train", path, "--out", tmp_path / "m", *QUICK, "--quiet", *flags)
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == sorted(
        NAMES if "fasttext" not in name else ("Smith,_J.", "open_sea")
    )
    assert "warning" not in capsys.readouterr().err
    run("evaluate", tmp_path / "m", path, "--json", tmp_path / "r.json", *flags)
    assert json.loads((tmp_path / "r.json").read_text())["P@1"] == 100
    run("predict", tmp_path / "m", path, "--k", "1", "--out", tmp_path / "p", *flags)
    assert len((tmp_path / "p").read_text().splitlines()) == 40
    run("learn", tmp_path / "m", path, "--quiet", *flags)
    assert XMLClassifier.load(tmp_path / "m").n_samples_seen_ == 80


def test_an_annif_corpus_is_told_by_its_lines_and_bears_uris(tmp_path):
    (tmp_path / "rows").write_text("a book without subjects\t\n" + WRITTEN["rows.tsv"])
    run("train", tmp_path / "rows", "--out", tmp_path / "m", *QUICK, "--quiet", "--epochs", "1")
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == ["http://x/0", "http://x/1"]


def test_texts_that_end_with_a_tab_and_have_no_subjects_are_no_labels(library, capsys):
    (library / "none.tsv").write_text("".join(f"{text}\t\n" for text, _ in LINES))
    run("evaluate", library / "m", library / "none.tsv")
    assert "no row has a label" in capsys.readouterr().err
    assert main(["train", str(library / "none.tsv"), "--out", str(library / "n")]) == 2
    assert (
        "must have at least one label, got none in 40 documents; do labels stand before a tab"
        in capsys.readouterr().err
    )


@pytest.fixture
def library(tmp_path):
    """A corpus with subjects 0 and 1, a vocabulary of three, one of them without rows, and the model of both."""
    (tmp_path / "rows.tsv").write_text(WRITTEN["rows.tsv"])
    (tmp_path / "v.tsv").write_text("<http://x/0>\tSmith, J.\n<http://x/1>\topen sea\n<http://x/2>\tisles\n")
    run("train", tmp_path / "rows.tsv", "--vocabulary", tmp_path / "v.tsv", "--out", tmp_path / "m", *QUICK, "--quiet")
    return tmp_path


def test_the_names_of_a_vocabulary_are_learned_as_label_texts(library):
    assert XMLClassifier.load(library / "m").classes_.tolist() == ["Smith, J.", "open sea", "isles"]


def test_a_model_knows_the_uris_of_its_vocabulary(library, capsys):
    files = "--json", library / "r.json", "--per-label", library / "labels.csv"
    run("evaluate", library / "m", library / "rows.tsv", "-q", *files)
    per_label = (library / "labels.csv").read_text()
    assert per_label.startswith(
        "label,uri,training_rows,test_rows,predicted_rows,threshold,mean_probability,precision,recall,F1\n"
    )
    assert '"Smith, J.",http://x/0,' in per_label
    assert json.loads((library / "r.json").read_text())["P@1"] == 100
    (library / "deprecated").write_text("<http://x/1>\nisles\n")
    (library / "new.txt").write_text("a book of letters\n")
    command = ["predict", library / "m", library / "new.txt", "--k", "1", "--exclude", library / "deprecated"]
    run(*command, "--output-format", "json", "--out", library / "p")
    (entry,) = json.loads((library / "p").read_text())["labels"]
    assert (entry["label"], entry["uri"]) == ("Smith, J.", "http://x/0")
    run(*command, "--output-format", "csv", "--out", library / "p")
    assert (library / "p").read_text().startswith('row,label_1,uri_1,probability_1\n0,"Smith, J.",http://x/0,')
    assert "warning" not in capsys.readouterr().err


def test_learning_renames_old_subjects_and_names_new_ones(library, capsys):
    (library / "week.tsv").write_text("a book of waves\t<http://x/1> <http://x/3>\n")
    (library / "new.tsv").write_text("<http://x/0>\n<http://x/1>\tsea\n<http://x/3>\tfishing\n<http://x/4>\topen sea\n")
    run("learn", library / "m", library / "week.tsv", "--vocabulary", library / "new.tsv")
    shown = capsys.readouterr()
    assert "2 new labels, 1 renamed label," in shown.out
    assert "warning" not in shown.err
    names = ["Smith, J.", "sea", "isles", "fishing", "open sea"]
    assert XMLClassifier.load(library / "m").classes_.tolist() == names
    run("learn", library / "m", library / "week.tsv", "--quiet")
    assert XMLClassifier.load(library / "m").classes_.tolist() == names
    (library / "week.tsv").write_text("a book of whales\t<http://x/5>\n" * 3)
    run("learn", library / "m", library / "week.tsv", "--quiet")
    (library / "new.txt").write_text("a book of whales\n")
    run("predict", library / "m", library / "new.txt", "--output-format", "json", "--out", library / "p")
    labels = json.loads((library / "p").read_text())["labels"]
    assert {"http://x/5": "http://x/5", "isles": "http://x/2"}.items() <= {e["label"]: e["uri"] for e in labels}.items()


def test_a_subject_that_was_learned_by_its_uri_gets_its_name_later(library, capsys):
    (library / "week.tsv").write_text("a book of whales\t<http://x/5>\n" * 3)
    run("learn", library / "m", library / "week.tsv", "--quiet")
    (library / "whales.txt").write_text("new\ta book of whales\n")
    (library / "new.tsv").write_text("<http://x/5>\twhales\n<http://x/2>\tnew\n")
    run("learn", library / "m", library / "whales.txt", "--quiet")
    capsys.readouterr()
    run("learn", library / "m", library / "week.tsv", "--vocabulary", library / "new.tsv")
    assert "0 new labels, 2 renamed labels," in capsys.readouterr().out
    names = ["Smith, J.", "open sea", "new <http://x/2>", "whales", "new"]  # one "new" has no URI
    assert XMLClassifier.load(library / "m").classes_.tolist() == names
    run("predict", library / "m", library / "week.tsv", "--output-format", "json", "--out", library / "p")
    labels = json.loads((library / "p").read_text().splitlines()[0])["labels"]
    uris = {entry["label"]: entry["uri"] for entry in labels}
    assert (uris["whales"], uris["new"], uris["new <http://x/2>"]) == ("http://x/5", None, "http://x/2")


def test_learning_reads_a_vocabulary_once(library, monkeypatch):
    (library / "week.tsv").write_text("a book of waves\t<http://x/3>\n")
    (library / "new.tsv").write_text("<http://x/1>\tsea\n<http://x/3>\tfishing\n")
    read = []

    def reading(path):
        read.append(Path(path).name)
        return numbered_lines(path)

    monkeypatch.setattr("xmlsgd.data.vocabulary.numbered_lines", reading)
    run("learn", library / "m", library / "week.tsv", "--vocabulary", library / "new.tsv", "--quiet")
    assert read.count("new.tsv") == 1
    assert XMLClassifier.load(library / "m").classes_.tolist() == ["Smith, J.", "sea", "isles", "fishing"]


def test_a_model_that_has_learned_on_becomes_compact_with_its_vocabulary(library, capsys):
    (library / "week.tsv").write_text("a book of waves\t<http://x/1> <http://x/2>\n")
    run("learn", library / "m", library / "week.tsv", "--quiet")
    run("export", library / "m", "--compact", library / "small")
    assert capsys.readouterr().out == f"compact model: {library / 'small'}\n"
    assert isinstance(XMLClassifier.load(library / "small").fitted_.params, CompactParams)
    for model in ("m", "small"):
        run("evaluate", library / model, library / "rows.tsv", "--json", library / f"{model}.json", "--quiet")
    full, small = (json.loads((library / f"{model}.json").read_text()) for model in ("m", "small"))
    assert small["P@1"] == full["P@1"] == 100


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("week.jsonl", '{"text": "a book of waves", "labels": ["http://x/1", "Smith, J."]}\n'),
        ("week.csv", 'text,labels\na book of waves,"http://x/1,""Smith, J."""\n'),
        ("week.txt", '<http://x/1>,"Smith, J."\ta book of waves\n'),
    ],
)
def test_uris_of_feedback_in_any_format_are_the_labels_that_the_model_knows(library, capsys, name, text):
    (library / name).write_text(text)
    before = XMLClassifier.load(library / "m")
    run("learn", library / "m", library / name, "--quiet")
    assert "warning" not in capsys.readouterr().err
    after = XMLClassifier.load(library / "m")
    assert after.classes_.tolist() == before.classes_.tolist()
    assert (after.label_counts_ - before.label_counts_).tolist() == [1, 1, 0]
    run("evaluate", library / "m", library / name)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.txt"])
def test_a_vocabulary_names_the_uris_of_other_files(library, name):
    pairs = [(text, [f"http://x/{NAMES.index(label)}" for label in names]) for text, names in LINES]
    written = {
        "rows.csv": "text,labels\n" + "".join(f"{quoted(text)},{quoted(','.join(uris))}\n" for text, uris in pairs),
        "rows.jsonl": "".join(json.dumps({"text": text, "labels": uris}) + "\n" for text, uris in pairs),
        "rows.txt": "".join(f"{','.join(uris)}\t{text}\n" for text, uris in pairs),
    }
    (library / name).write_text(written[name])
    run("train", library / name, "--vocabulary", library / "v.tsv", "--out", library / "n", *QUICK, "--quiet")
    expected = XMLClassifier.load(library / "m").classes_.tolist()
    assert XMLClassifier.load(library / "n").classes_.tolist() == expected


def test_a_table_with_tabs_and_a_header_is_told_by_its_first_line(tmp_path):
    lines = ["\ufefftext\tlabels", *(f"{text}\t{';'.join(names)}" for text, names in LINES)]
    (tmp_path / "rows.tsv").write_text("\n".join(lines), encoding="utf-8")
    run("train", tmp_path / "rows.tsv", "--label-separator", ";", "--out", tmp_path / "m", *QUICK, "--quiet")
    model = XMLClassifier.load(tmp_path / "m")
    assert (model.classes_.tolist(), model.n_samples_seen_) == (sorted(NAMES), len(LINES))
    run("predict", tmp_path / "m", tmp_path / "rows.tsv", "--out", tmp_path / "p")
    assert len((tmp_path / "p").read_text().splitlines()) == len(LINES)


def test_a_corpus_of_annif_with_a_header_is_read_as_a_table_once_its_columns_are_named(library, capsys):
    file, columns = library / "table.tsv", ("--text-column", "title", "--label-column", "uris")
    file.write_text("title\turis\r\n" + WRITTEN["rows.tsv"].replace("\n", "\r\n\r\n"))
    train = ["train", str(file), "--vocabulary", str(library / "v.tsv"), "--out", str(library / "n"), *QUICK, "--quiet"]
    assert main(train) == 2
    told = f"{file}:1: must read `text<TAB><uri> <uri>`, got 'title\\turis'; if it is a header, name its columns: "
    assert told in capsys.readouterr().err
    run(*train, *columns)
    assert "warning" not in capsys.readouterr().err
    model = XMLClassifier.load(library / "n")
    assert (model.classes_.tolist(), model.n_samples_seen_) == ([*sorted(NAMES), "isles"], len(LINES))


@pytest.mark.parametrize("named", [WRITTEN["rows.csv"].replace("text,labels", "title,subjects"), WRITTEN["rows.txt"]])
def test_a_model_remembers_how_its_training_file_was_read_unless_a_flag_says_otherwise(tmp_path, named):
    is_csv = named.startswith("title")
    rows, columns = tmp_path / "rows.tsv", ("--text-column", "title", "--label-column", "subjects")
    rows.write_text(named.replace(",", "\t", 1).replace('",', '"\t') if is_csv else named)
    flags = ("--label-separator", ";", *(columns if is_csv else ()))
    run("train", rows, "--out", tmp_path / "m", *QUICK, "--quiet", *flags)
    run("evaluate", tmp_path / "m", rows, "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["P@1"] == 100
    run("predict", tmp_path / "m", rows, "--out", tmp_path / "p")
    assert len((tmp_path / "p").read_text().splitlines()) == len(LINES)
    run("learn", tmp_path / "m", rows, "--quiet")
    run("learn", tmp_path / "m", rows, "--quiet")
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == sorted(NAMES)
    (tmp_path / "more.csv").write_text('text,labels\na book of waves,"sea,isles"\n')
    given = ("--label-separator", ",", "--text-column", "text", "--label-column", "labels")
    run("learn", tmp_path / "m", tmp_path / "more.csv", "--quiet", *given)
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == [*sorted(NAMES), "isles", "sea"]
    run("evaluate", tmp_path / "m", rows, "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["P@1"] == 100


def test_a_model_of_a_file_read_without_flags_does_not_remember_those_of_a_later_file(tmp_path):
    (tmp_path / "rows.txt").write_text("0 0:1 2:1\n1 1:1 2:1\n" * 20)
    (tmp_path / "more.txt").write_text("1 1:1 3:1\n2 2:1 3:1\n" * 20)
    run("train", tmp_path / "rows.txt", "--out", tmp_path / "m", *QUICK, "--quiet")
    run("learn", tmp_path / "m", tmp_path / "more.txt", "--one-based", "--one-based-labels", "--quiet")
    run("evaluate", tmp_path / "m", tmp_path / "rows.txt", "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["P@1"] == 100


def test_rows_that_are_no_text_are_read_without_what_a_model_remembers_of_text(tmp_path):
    flags = ("--one-based", "--one-based-labels")
    (tmp_path / "rows.txt").write_text("1 1:1 3:1\n2 2:1 3:1\n" * 20)
    run("train", tmp_path / "rows.txt", "--out", tmp_path / "m", *flags, *QUICK, "--quiet")
    for to in ("store", "npz"):
        run("convert", tmp_path / "rows.txt", tmp_path / to, *flags, "--to", to)
        run("evaluate", tmp_path / "m", tmp_path / to, "--json", tmp_path / "r.json")
        assert json.loads((tmp_path / "r.json").read_text())["P@1"] == 100
        run("learn", tmp_path / "m", tmp_path / to, "--quiet")
        assert main(["evaluate", str(tmp_path / "m"), str(tmp_path / to), *flags]) == 2


def test_spaces_may_separate_labels_and_an_empty_separator_is_refused(tmp_path, capsys):
    """As in files of labels that lie beside texts, line by line, after `paste`."""
    (tmp_path / "rows.txt").write_text("sea new_york\ta book\nsea\tof waves\n" * 5)
    call = ["train", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "m"), *QUICK, "--label-separator"]
    assert main([*call, ""]) == 2
    assert "--label-separator: must not be empty" in capsys.readouterr().err
    assert main([*call, " "]) == 0
    assert XMLClassifier.load(tmp_path / "m").classes_.tolist() == ["new_york", "sea"]


@pytest.mark.parametrize("saved", ['{"read_by": [1]}', '{"read_by": {"label_separator": 1, "x": 2}}', "{", "[]"])
def test_a_report_that_was_altered_is_not_read_by(tmp_path, saved):
    (tmp_path / "rows.jsonl").write_text(WRITTEN["rows.jsonl"])
    run("train", tmp_path / "rows.jsonl", "--out", tmp_path / "m", *QUICK, "--quiet")
    (tmp_path / "m" / "train.json").write_text(saved)
    run("evaluate", tmp_path / "m", tmp_path / "rows.jsonl", "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["P@1"] == 100


@pytest.mark.parametrize("uri", ["http://x/{}", "<http://x/{}>"])
def test_a_model_of_uris_gets_their_names_when_it_learns_with_a_vocabulary(library, uri):
    rows = [f"{','.join(uri.format(NAMES.index(name)) for name in names)}\t{text}\n" for text, names in LINES]
    (library / "rows.txt").write_text("".join(rows))
    run("train", library / "rows.txt", "--out", library / "u", *QUICK, "--quiet")
    run("learn", library / "u", library / "rows.tsv", "--quiet", "--vocabulary", library / "v.tsv")
    assert XMLClassifier.load(library / "u").classes_.tolist() == ["Smith, J.", "open sea", "isles"]


def test_label_texts_may_be_a_vocabulary_of_uris(library):
    run("train", library / "rows.tsv", "--label-texts", library / "v.tsv", "--out", library / "u", *QUICK, "--quiet")
    assert XMLClassifier.load(library / "u").classes_.tolist() == [f"http://x/{i}" for i in range(3)]


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["train", "rows.tsv", "--out", "m", "--json"], "--json"),
        (["train", "rows.tsv", "--dry-run", "--label-texts", "given", "--json"], "--json"),
        (
            ["train", "rows.tsv", "--dry-run", "--label-texts", "rows.tsv", "--feature-names", "given", "--json"],
            "--json",
        ),
        (["learn", "m", "rows.tsv", "--json"], "--json"),
        (["evaluate", "m", "rows.tsv", "--per-label"], "--per-label"),
        (["predict", "m", "rows.tsv", "--out"], "--out"),
        (["simulate", "rows.tsv", "--fleet", "S1", "--json"], "--json"),
        (["convert", "rows.tsv", "--overwrite"], "TARGET"),
    ],
)
def test_results_do_not_replace_a_vocabulary_label_texts_or_feature_names(tmp_path, capsys, monkeypatch, words, flag):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.tsv").write_text(WRITTEN["rows.tsv"])
    (tmp_path / "given").write_text("<http://x/0>\tsea\n")
    vocabulary = [] if "given" in words else ["--vocabulary", "given"]
    assert main([*words, "given", *vocabulary]) == 2
    assert f"{flag} given: is an input of this command" in capsys.readouterr().err
    assert (tmp_path / "given").read_text() == "<http://x/0>\tsea\n"


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (("--text-column", "a"), "rows.txt"),
        (("--label-column", "a"), "rows.txt"),
        (("--label-column", "a"), "-"),
        (("--vocabulary", "given"), "-"),
        (("--vocabulary", "given"), "rows.xmc"),
    ],
)
def test_a_flag_of_another_format_is_refused(tmp_path, capsys, monkeypatch, words, rows):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text(WRITTEN["rows.txt"])
    (tmp_path / "rows.xmc").write_text("0 0:1\n1 1:1\n")
    (tmp_path / "given").write_text("<http://x/0>\tsea\n")
    for call in ("train {} --dry-run", "learn m {}", "evaluate m {}", "predict m {}", "convert {} new"):
        assert main([*call.format(rows).split(), *words]) == 2
        assert f"xmlsgd: {words[0]}: needs a file read by --format " in capsys.readouterr().err


def test_a_binary_file_is_reported_before_an_unsuitable_flag(tmp_path, capsys):
    (tmp_path / "d.parquet").write_bytes(b"PAR1" + bytes(100))
    for name in ("d.parquet", "nothing.parquet"):
        assert main(["train", str(tmp_path / name), "--out", str(tmp_path / "m"), "--text-column", "title"]) > 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "must be text, plain or packed by gzip, bzip2 or xz, got Parquet; write it as CSV or JSON lines"
    )
    assert "nothing.parquet" in second


def test_files_of_groups_and_of_excluded_labels_may_be_compressed(tmp_path, capsys):
    rows, groups, excluded = (tmp_path / name for name in ("rows.jsonl", "groups.gz", "excluded.gz"))
    rows.write_text(WRITTEN["rows.jsonl"])
    groups.write_bytes(gzip.compress(b"a\nb\n" * 20))
    excluded.write_bytes(gzip.compress(b"open sea\nunknown\n"))
    run("train", rows, "--out", tmp_path / "m", *QUICK, "--quiet", "--epochs", "1", "--groups", groups)
    capsys.readouterr()
    run("predict", tmp_path / "m", rows, "--k", "1", "--exclude", excluded)
    told = capsys.readouterr()
    assert "open sea" not in told.out
    assert "excluded.gz:2: the model has no label 'unknown'; unknown labels exclude nothing" in told.err


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        ("label\ttext", "--text-column text --label-column label"),
        ("Title\tSubjects", "--text-column Title --label-column Subjects"),
        ("classes\tabstract", "--text-column abstract --label-column classes"),
        ("text\tthe label of the book", None),
        ("subject\tlabel", None),
    ],
)
def test_a_first_line_that_may_be_a_header_of_raw_text_is_warned_of(tmp_path, capsys, header, flags):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join([header, *["novel\tthe book of the sea"] * 4]))
    run("train", file, "--out", tmp_path / "m", *QUICK, "--epochs", "1")
    told = f"{file}:1: {header!r} is read as a document with its label; if it is a header: {flags}"
    assert (told in capsys.readouterr().err) == (flags is not None)
