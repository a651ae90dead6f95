"""The clients that measure a server."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.serving import measure
from shared.paths import ROOT


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[str] = []  # noqa: RUF012

    def do_POST(self):
        self.asked.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"])
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
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_clients_share_the_requests_and_take_texts_in_turns(address):
    found = measure(address, ["a", "b", "c"], 4, 30)
    assert sorted(Answering.asked) == sorted("abc" * 10)
    assert found["clients"] == 4
    assert 0 < found["p50"] <= found["p99"]


def test_the_table_of_the_user_guide_is_the_latest_measurement():
    measured = json.loads((ROOT / "benchmarks/results/serving.json").read_text())["result"]
    guide = (ROOT / "docs/user_guide.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (\d+) \| ([\d,]+) \| ([\d.]+) ms \| ([\d.]+) ms \|$", guide, re.MULTILINE)
    assert shown == [
        (str(each["clients"]), f"{each['per_second']:,.0f}", f"{1e3 * each['p50']:.1f}", f"{1e3 * each['p99']:.1f}")
        for each in measured
    ]
