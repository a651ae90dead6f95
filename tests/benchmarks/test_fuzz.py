"""Parsers return or refuse any input by an error of the package; what does not is found out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from benchmarks import fuzz, fuzz_targets


def drawn(seeds, draw):
    """Return up to 60 bytes, or pieces of seeds and bytes, or whole seeds in which a few places are others."""
    kind = draw.randrange(3)
    if kind == 0:
        return draw.randbytes(draw.randrange(61))

    def part():
        return draw.choice(draw.choice(seeds)) if draw.random() < 0.5 else draw.randbytes(draw.randrange(4))

    if kind == 1:
        return b"".join(part() for _ in range(draw.randrange(41)))
    parts = draw.choice(seeds) * draw.randrange(1, 4)
    for _ in range(draw.randrange(5)):
        at = draw.randrange(len(parts) + 1)
        parts[at : at + draw.randrange(3)] = [part() for _ in range(draw.randrange(3))]
    return b"".join(parts)


def ignoring(test):
    """Return a test in which inputs may be warned of."""
    for warning in (
        "ignore::pytest.PytestUnraisableExceptionWarning",  # NumPy does not close a damaged file
        "ignore:.* has (no label for <|no subject |several subjects )",
    ):
        test = pytest.mark.filterwarnings(warning)(test)
    return test


@pytest.mark.slow
@ignoring
def test_ten_thousand_drawn_inputs_are_parsed_or_refused_by_each_parser(tmp_path):
    """Hypothesis draws a seed for one input of each: it takes longer to draw the bytes than parsers take."""
    parsers = {name: fuzz_targets.timed(parse) for name, parse in fuzz_targets.parsers(tmp_path).items()}
    pieces = {
        name: [re.findall(rb"\w+|.", seed, re.DOTALL) for seed in seeds] for name, seeds in fuzz_targets.SEEDS.items()
    }
    tried = []

    @settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.integers(0, 2**63))
    def check(seed):
        draw = Random(seed)
        for name, parse in parsers.items():
            data = drawn(pieces[name], draw)
            note(f"{name}: {data!r}")
            parse(data)
        tried.append(seed)

    check()
    assert len(tried) >= 10_000


def test_an_input_that_takes_too_long_is_found_out(monkeypatch):
    monkeypatch.setattr(fuzz_targets, "SLOWEST", -1)
    with pytest.raises(TimeoutError):
        fuzz_targets.timed(len)(b"any")


def test_an_input_that_takes_too_long_once_is_run_again(monkeypatch):
    clock = iter([0.0, 5.0, 5.0, 5.1])
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    ran = []
    fuzz_targets.timed(ran.append)(b"any")
    assert ran == [b"any", b"any"]


def test_memory_beyond_the_size_of_an_input_is_measured():
    _, megabytes = fuzz.measured(lambda data: bytes(5_000_000), [b"1"])
    assert 4.9 < megabytes < 5.1


@pytest.mark.parametrize("name", fuzz_targets.SEEDS)
@ignoring
def test_each_input_that_fuzzing_has_found_is_parsed_or_refused(tmp_path, name):
    parse = fuzz_targets.timed(fuzz_targets.parsers(tmp_path)[name])
    inputs = fuzz.read_corpus(name).bytes()
    assert inputs
    for data in inputs:
        parse(data)


def test_nothing_of_the_package_is_imported_before_its_branches_can_be_seen():
    code = "import benchmarks.fuzz_targets, sys; print([name for name in sys.modules if name.startswith('xmlsgd')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_runs_are_counted_since_the_corpus_began(tmp_path, monkeypatch):
    usual = subprocess.run

    def process(command, **options):
        if command[0] != sys.executable:
            return usual(command, **options)
        (Path(command[5]) / "found").write_bytes(b"\xff\0")
        return subprocess.CompletedProcess(command, 0, "", "stat::number_of_executed_units: 7\n")

    monkeypatch.setattr(subprocess, "run", process)
    monkeypatch.setattr(fuzz, "today", lambda: "a day")
    fuzz.run(1, tmp_path, ["names"])
    monkeypatch.setattr(fuzz, "today", lambda: "another day")
    fuzz.run(1, tmp_path, ["names"])
    corpus = fuzz.read_corpus("names", tmp_path)
    assert (corpus.since, corpus.runs) == ("a day", 14)
    assert set(corpus.bytes()) == {*fuzz_targets.SEEDS["names"], b"\xff\0"}
    assert "| names | 14 |" in (tmp_path / "fuzz.md").read_text()
