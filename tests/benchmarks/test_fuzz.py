"""Parsers return or refuse any input by an error of the package; what does not is found out."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from benchmarks import fuzz


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # NumPy does not close a damaged file
@pytest.mark.filterwarnings("ignore:.* has (no label for <|no subject |several subjects )")
def test_ten_thousand_drawn_inputs_are_parsed_or_refused_by_each_parser(tmp_path):
    """Hypothesis draws a seed for one input of each: it takes longer to draw the bytes than parsers take."""
    parsers = {name: fuzz.timed(parse) for name, parse in fuzz.parsers(tmp_path).items()}
    pieces = {name: [re.findall(rb"\w+|.", seed, re.DOTALL) for seed in seeds] for name, seeds in fuzz.SEEDS.items()}
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
