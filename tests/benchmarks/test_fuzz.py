"""Parsers return or refuse any input by an error of the package; what does not is found out."""

from __future__ import annotations

import re
from random import Random

import pytest

from benchmarks import fuzz


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # NumPy does not close a damaged file
@pytest.mark.filterwarnings("ignore:.* has no label for <")
@pytest.mark.parametrize("name", fuzz.SEEDS)
def test_ten_thousand_drawn_inputs_are_parsed_or_refused(tmp_path, name):
    """Others in each run, drawn by `random`: to draw one by Hypothesis takes a hundred times as long as to parse it."""
    run, random = fuzz.timed(fuzz.parsers(tmp_path)[name]), Random()
    pieces = [piece for seed in fuzz.SEEDS[name] for piece in re.findall(rb"\w+|.", seed, re.DOTALL)]

    def part():
        return random.choice(pieces) if random.random() < 0.5 else random.randbytes(random.randrange(4))

    for number in range(10_000):
        n = random.randrange(61)
        run(random.randbytes(n) if number % 2 else b"".join(part() for _ in range(n * 2 // 3)))


def test_an_input_that_takes_too_long_is_found_out(monkeypatch):
    monkeypatch.setattr(fuzz, "SLOWEST", -1)
    with pytest.raises(TimeoutError):
        fuzz.timed(len)(b"any")


def test_an_input_that_takes_too_long_once_is_run_again(monkeypatch):
    clock = iter([0.0, 5.0, 5.0, 5.1])
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    ran = []
    fuzz.timed(ran.append)(b"any")
    assert ran == [b"any", b"any"]


def test_memory_beyond_the_size_of_an_input_is_measured(tmp_path):
    (tmp_path / "one").write_bytes(b"1")
    _, megabytes = fuzz.measured(lambda data: bytes(5_000_000), tmp_path)
    assert 4.9 < megabytes < 5.1
