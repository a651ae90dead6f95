"""The commands and the Python of README and pages run; their links and tables are complete."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from shared.paths import DATA, ROOT
from xmlsgd.algorithms import algorithm_names
from xmlsgd.cli import COMMANDS, new_parser
from xmlsgd.cli.parameters import PARAMETERS

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND_LINE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(ROOT.glob("docs/**/*.md"))
DEMO, TEST, TEXT_TO_TOPK = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
WORKERS = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a copy of `data/`, in which the lines run."""
    shutil.copytree(DATA, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LEAST = {
    "README.md": 8,
    "docs/metrics.md": 10,
    "docs/papers.md": 9,
    "docs/tutorial.md": 8,
    "docs/user_guide.md": 6,
    "docs/workers.md": 12,
}


@pytest.mark.parametrize(("page", "least"), LEAST.items())
def test_the_python_of_a_page_runs(page, least, folder):
    text = (ROOT / page).read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    assert len(test.examples) >= least
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert not report, "".join(report)
    assert page != "README.md" or (folder / "functions" / "model.json").is_file()


def run_lines(lines, folder):
    """Run lines of a page in bash; return what they print."""
    command = folder / "bin" / "xmlsgd"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m xmlsgd "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    words = ["bash", "-euo", "pipefail", "-c", lines]
    result = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.slow
def test_the_way_from_text_to_top_k_runs(folder):
    *_, prediction = run_lines(TEXT_TO_TOPK, folder)
    assert len(prediction.split("\t")) == 5
    for name in ("vectorizer.json", "history.jsonl", "train.json", "learning_curve.png"):
        assert (folder / "model" / name).is_file()


@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("curl") is None, reason="needs bash and curl")
@pytest.mark.slow
def test_the_commands_of_the_tutorial_suggest_explain_learn_and_serve(folder):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", TUTORIAL, re.DOTALL))
    lines = lines.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("serve model", f"serve model --port {port}")
    printed = run_lines(lines, folder)
    *_, suggested, explained, learned = [line for line in printed if line.startswith("{")]
    assert len(json.loads(suggested)["results"]) == 3
    assert json.loads(explained)["results"][0]["probability"] > 0
    assert json.loads(learned)["learned"] == 1
    (after,) = [line for line in printed if line.startswith(("open:", "json_loads:"))]  # what feedback has taught
    assert {name.split(":")[0] for name in after.split("\t")[:2]} == {"open", "json_loads"}
    assert all((folder / name).stat().st_size for name in ("per_label.csv", "report.html"))
    shown = TUTORIAL.splitlines()
    table, suggestions = re.compile(r"( +\d+\.\d\d){6}"), re.compile(r" *\w+:0\.\d+\s.*")
    (told,), (measured, *_) = ([line.split() for line in each if table.fullmatch(line)] for each in (shown, printed))
    assert [*map(float, measured)] == pytest.approx([*map(float, told)], abs=1.5)
    told, found = (
        [line.split(":")[0].strip() for line in each if suggestions.fullmatch(line)] for each in (shown, printed)
    )
    assert told[:2] == found[:2] == ["read", "close"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.slow
def test_the_lines_about_several_workers_run(folder):
    printed = run_lines("\n".join(re.findall(r"```sh\n(.*?)```", WORKERS, re.DOTALL)), folder)
    assert (folder / "pair" / "model.json").is_file()
    assert {"adaptive", "synchronous"} <= {line.split()[0] for line in printed if line}


def test_every_algorithm_is_in_the_table_and_nothing_else():
    assert set(re.findall(r"^\| `(\w+)` \|", WORKERS, re.MULTILINE)) - {"algorithm"} == {"auto", *algorithm_names()}


def test_the_two_commands_are_those_of_the_checks():
    checks = (ROOT / ".ci" / "run").read_text()
    assert '-e ".[plot]"' in DEMO
    assert DEMO.strip().endswith("xmlsgd demo")
    assert '-e ".[test]"' in TEST
    assert '-e ".[test]"' in checks
    assert TEST.strip().endswith("&& python -m pytest")
    assert "step python -m pytest" in checks


def test_every_command_is_in_the_readme_and_on_its_page():
    for command in COMMANDS:
        assert f"`{command}`" in README
        assert f"`xmlsgd {command}" in COMMAND_LINE


def test_the_readme_is_read_in_four_minutes():
    assert len(README.split()) <= 900


def test_every_call_in_the_pages_can_be_parsed():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "packages.md")  # removed ones
    lines = [*re.findall(r"`xmlsgd ([a-z]+ [^`\n]*)`", pages), *re.findall(r"^xmlsgd ([^\n]*)$", pages, re.MULTILINE)]
    complete = [line for line in lines if "--help" not in line and "|" not in line]
    assert len(complete) >= 8
    for line in complete:
        words = line.replace("[", "").replace("]", "").replace(" A ", " 0.5 ").replace("-b B", "-b 1.5").split()
        assert new_parser().parse_args(words).command


def test_every_flag_in_the_text_of_a_page_is_one_of_a_command():
    (commands,) = new_parser()._subparsers._group_actions
    known = set().union(*(command._option_string_actions for command in vars(commands)["choices"].values()))
    for page in PAGES:
        if page.parent.name != "decisions" and page.name not in ("coming_from.md", "benchmarks.md", "CHANGELOG.md"):
            text = re.sub(r"```.*?```|`python -m .*?`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            flags = set(re.findall(r"`[^`\n]*?(--[a-z][a-z0-9_-]+)", text))
            assert flags <= known, page.name


def test_the_table_of_spellings_is_complete():
    rows = dict(re.findall(r"^\| `(\w+)` \| ((?:`--[a-z-]+` ?)+)\|", COMMAND_LINE, re.MULTILINE))
    shown = {name: tuple(re.findall(r"`(.*?)`", flags)) for name, flags in rows.items()}
    assert shown == {p.name: p.synonyms for p in PARAMETERS if p.synonyms}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def heading_anchors(page):
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_lead_somewhere(page):
    links = re.findall(r"\]\(((?!https?:)[^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links]
    assert [(str(target), anchor) for target, anchor in targets if anchor not in heading_anchors(target)] == []
