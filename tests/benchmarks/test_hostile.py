"""The clients that attack a server: what they send is drawn by a seed."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import Counter
from random import Random

import pytest

from benchmarks.hostile import WARM_UP, attack, main, malformed_request
from shared.paths import ROOT

KINDS = {"bytes", "head", "length", "body", "chunks", "cut", "pipeline", "method"}


def test_a_seed_decides_what_is_sent():
    first, again, other = ([malformed_request(rng) for _ in range(60)] for rng in (Random(0), Random(0), Random(1)))
    assert first == again != other
    assert {kind for kind, _ in first} == KINDS


def test_answers_are_counted_by_kind_and_status():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            for _ in range(20):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1 << 20)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server = threading.Thread(target=answer)
        server.start()
        seen: Counter[str] = Counter()
        attack(listening.getsockname(), 0, 20, seen)
        server.join()
    assert seen.total() == 20
    assert {name.split()[0] for name in seen} <= KINDS
    assert any(name.endswith(" 400") for name in seen)


def test_the_page_of_the_server_has_the_latest_figures():
    found = json.loads((ROOT / "benchmarks/results/hostile.json").read_text())["result"]
    assert not found["polite"]["errors"]
    assert found["same_answer"]
    assert found["beside_idle"]["answered"]
    memory = [found[name]["resident_bytes"] for name in ("started", "before", "after")]
    started, before, after = (f"{n_bytes / 1e6:.0f} MB" for n_bytes in memory)
    polite = found["polite"]
    page = " ".join((ROOT / "docs/server.md").read_text(encoding="utf-8").split())
    for figure in (
        f"{found['requests']:,} malformed requests",
        f"all {polite['requests']:,} well-formed requests: half of them within {1e3 * polite['p50']:.0f} ms",
        f"99 % within {polite['p99']:.1f} s, all within {polite['max']:.1f} s",
        f"Resident memory was {started} at the start, {before} after {WARM_UP:,} requests and {after} at the end",
    ):
        assert figure in page


def test_a_model_whose_routes_the_requests_do_not_name_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hostile", "model"])
    with pytest.raises(SystemExit):
        main()
    assert "MODEL must be a folder named 'm', got model" in capsys.readouterr().err
