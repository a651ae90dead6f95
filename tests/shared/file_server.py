"""A web server on this machine, whose answers a test chooses."""

from __future__ import annotations

import hashlib
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

CONTENT = np.random.default_rng(0).bytes(700_001)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """One file at every address; `faults` are used up one a request, `log` holds (Range, If-Range, status)."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.etag: str | None = '"one"'
        self.last_modified: str | None = None
        self.content_type = "application/octet-stream"
        self.faults: deque[int | str] = deque()
        self.log: list[tuple[str | None, str | None, int]] = []

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
        asked, condition = self.headers.get("Range"), self.headers.get("If-Range")
        start, status = 0, 200
        if isinstance(fault, str):
            status = int(fault)
        elif asked and condition in (served.etag, served.last_modified):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            status = 206 if start < len(served.content) else 416
        served.log.append((asked, condition, status))
        body = served.content[start:] if status < 300 else b"sorry"
        self.send_response(status)
        self.send_header("Content-Type", served.content_type)
        self.send_header("Content-Length", str(len(body)))
        if served.etag and status < 300:
            self.send_header("ETag", served.etag)
        if served.last_modified and status < 300:
            self.send_header("Last-Modified", served.last_modified)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(served.content) - 1}/{len(served.content)}")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{len(served.content)}")
        self.end_headers()
        self.wfile.write(body[:fault] if isinstance(fault, int) else body)
        self.close_connection = True

    def log_message(self, format, *args):
        """Keep the test output clean."""


def statuses(server):
    return [status for _, _, status in server.log]
