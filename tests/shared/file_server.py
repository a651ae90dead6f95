"""A web server on this machine, whose answers a test chooses."""

from __future__ import annotations

import hashlib
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

CONTENT = np.random.default_rng(0).bytes(700_001)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """One file at every address; `faults` are used up one a request, `log` holds the status of each.

    A fault is a status in place of the file, or the number of bytes after which the connection ends.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.content_type = "application/octet-stream"
        self.faults: deque[int | str] = deque()
        self.log: list[int] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/file"

    def handle_error(self, request, client_address):
        """Say nothing: a client that hangs up is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        served = self.server
        fault = served.faults.popleft() if served.faults else None
        status = int(fault) if isinstance(fault, str) else 200
        served.log.append(status)
        body = served.content if status < 300 else b"sorry"
        self.send_response(status)
        self.send_header("Content-Type", served.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:fault] if isinstance(fault, int) else body)
        self.close_connection = True

    def log_message(self, format, *args):
        """Keep the test output clean."""
