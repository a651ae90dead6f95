"""A release: one version everywhere, and a page for an index."""

from __future__ import annotations

import configparser
import re

import xmlsgd
from shared.paths import ROOT


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_changelog_and_citation_are_of_this_version():
    version, date = re.search(r"(?m)^## (\S+) \((\d{4}-\d\d-\d\d)\)$", read("CHANGELOG.md")).groups()
    assert version == xmlsgd.__version__
    assert f"\nversion: {version}\n" in read("CITATION.cff")
    assert f"\ndate-released: {date}\n" in read("CITATION.cff")


def test_the_page_of_the_package_has_no_link_that_an_index_would_break():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    page = read(config["metadata"]["long_description"].removeprefix("file: "))
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]*)\)", page))


def test_the_example_on_the_page_of_the_package_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", read("docs/package.md"), re.DOTALL)
    exec(example, {})
    assert "json" in capsys.readouterr().out
