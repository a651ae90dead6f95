"""The comparison of backends of Annif: what they are given, and what is read of their evaluation."""

from __future__ import annotations

import configparser
import gzip
import json
import re

import pytest

from benchmarks import annif
from benchmarks.report import megabytes
from shared.paths import ROOT


@pytest.fixture
def folder(tmp_path):
    """A data set of texts with named labels."""
    contents = {
        "labels.txt": "p10 ships\nlakes\n",
        "train.txt": "3 2 2\n0,1 0:1\n 1:1\n1 0:1 1:1\n",
        "train.raw.txt": "a ship\ta lake\nnothing\nlake\n",
        "test.txt": "2 2 2\n0 0:1\n1 1:1\n",
        "test.raw.txt": "the ship\nthe lake\n",
    }
    for name, text in contents.items():
        with gzip.open(tmp_path / f"{name}.gz", "wt", encoding="utf-8") as file:
            file.write(text)
    return tmp_path


def test_documents_keep_their_subjects_and_test_texts_are_not_those_of_the_clients(folder):
    asked = annif.write_corpora(folder, folder, n_train=3, n_test=1)
    names = dict(line.split("\t") for line in (folder / "vocabulary.tsv").read_text().splitlines())
    assert list(names.values()) == ["ships", "lakes"]
    train = dict(line.split("\t") for line in (folder / "train.tsv").read_text().splitlines())
    subjects = {text: [names[uri] for uri in uris.split()] for text, uris in train.items()}
    assert subjects == {"a ship a lake": ["ships", "lakes"], "nothing": [], "lake": ["lakes"]}
    ((tested, _),) = [line.split("\t") for line in (folder / "test.tsv").read_text().splitlines()]
    assert sorted([tested, *asked]) == ["the lake", "the ship"]


def test_projects_differ_in_the_backend_alone(tmp_path):
    annif.write_projects(tmp_path)
    config = configparser.ConfigParser()
    config.read(tmp_path / "projects.cfg")
    assert {project: config[project]["backend"] for project in config.sections()} == {
        project: backend for project, (backend, _) in annif.PROJECTS.items()
    }
    assert {(each["vocab"], each["analyzer"]) for name, each in config.items() if name != "DEFAULT"} == {
        ("labels", "simple")
    }


def test_metrics_are_percent_and_the_training_rows_are_no_part_of_the_model(tmp_path):
    project = tmp_path / "data" / "projects" / "words"
    project.mkdir(parents=True)
    (project / "xmlsgd-train.joblib").write_bytes(b"1234567")
    (project / "vectorizer").write_bytes(b"123")
    calls = []

    def run(*words):
        calls.append(words[0])
        return "Precision@1:  \t0.2400\nNDCG@5:  \t0.2\nF1@5:  \t0.1\nDocuments evaluated:\t2000\n"

    found = annif.evaluated(run, tmp_path, "words")
    assert calls == ["train", "eval"]
    assert found == {"P@1": pytest.approx(24), "nDCG@5": pytest.approx(20), "F1@5": pytest.approx(10), "bytes": 3}


def test_the_table_of_the_page_is_the_latest_measurement():
    measured = json.loads((ROOT / "benchmarks/results/annif.json").read_text())["result"]["projects"]
    page = (ROOT / "docs/annif.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| backend \| P@1 .*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    shown = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert shown == [
        [annif.NAMES[project], *(f"{found[name]:.1f}" for name in annif.METRICS), megabytes(found["bytes"])]
        for project, found in measured.items()
    ]
