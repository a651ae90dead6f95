"""The clients that measure a server."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from benchmarks import serving
from benchmarks.serving import measure, measure_in_turns
from shared.paths import ROOT


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[str] = []  # noqa: RUF012

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.asked.extend(form["text"])
        body = b'{"detail": "broken"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Answering.asked.clear()
        yield f"http://127.0.0.1:{server.server_port}/v1/projects/words"
        server.shutdown()
        thread.join()


def test_clients_share_the_requests_and_take_texts_in_turns(address):
    took, seconds = measure(address, ["a", "b", "c"], 4, 30)
    assert sorted(Answering.asked) == sorted("abc" * 10)
    assert len(seconds) == 30
    assert 0 < max(seconds) < took


def test_servers_are_measured_in_turns_by_the_same_texts(address, monkeypatch):
    order = []

    def measured(project, texts, n_clients, n_requests):
        order.append((project, texts[0], n_clients))
        return 0.5, [0.01] * n_requests

    monkeypatch.setattr(serving, "measure", measured)
    monkeypatch.setattr(serving, "ROUNDS", 3)
    found = measure_in_turns({"ours": "A", "theirs": "B"}, list("abcdef"), 6)
    assert order[2:8] == [("A", "a", 1), ("B", "a", 1), ("A", "c", 1), ("B", "c", 1), ("A", "e", 1), ("B", "e", 1)]
    assert [(each["server"], each["clients"]) for each in found] == [
        (name, n) for n in (1, 8, 32) for name in ("ours", "theirs")
    ]
    assert {each["per_second"] for each in found} == {4.0}


def test_the_table_of_the_page_is_the_latest_measurement():
    measured = json.loads((ROOT / "benchmarks/results/serving.json").read_text())["result"]["servers"]
    page = (ROOT / "docs/server.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| ([\w, ]+) \| (\d+) \| ([\d,]+) \| ([\d.]+) ms \| ([\d.]+) ms \|$", page, re.MULTILINE)
    assert shown == [
        (
            each["server"], str(each["clients"]), f"{each['per_second']:,.0f}", f"{1e3 * each['p50']:.1f}",
            f"{1e3 * each['p99']:.1f}",
        )
        for each in measured
    ]  # fmt: skip
