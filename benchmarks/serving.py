"""Measure a server over loopback: `python -m benchmarks.serving MODEL TEXTS`, a saved model and a text a line.

Clients are threads of one process on the same machine, each with a connection of its own that asks for the five best
labels of one text after another.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from .report import RESULTS, Table, per_second, publish

CLIENTS = (1, 8, 32)
LIMIT = 5


def ask(address: str, texts: list[str], seconds: list[float], n_requests: int, turns: Any) -> None:
    """Send requests until `n_requests` were sent by all clients, and add the seconds of each."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    while (turn := next(turns)) < n_requests:
        body = json.dumps({"texts": [texts[turn % len(texts)]], "limit": LIMIT})
        started = time.perf_counter()
        connection.request("POST", "/suggest", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        seconds.append(time.perf_counter() - started)
        if answer.status != 200:
            raise RuntimeError(found["detail"])
    connection.close()


def measure(address: str, texts: list[str], n_clients: int, n_requests: int) -> dict[str, float]:
    """Return requests/s and the seconds of half and of 99 % of the requests of so many clients."""
    seconds: list[float] = []
    turns = itertools.count()
    arguments = address, texts, seconds, n_requests, turns
    clients = [threading.Thread(target=ask, args=arguments) for _ in range(n_clients)]
    started = time.perf_counter()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if len(seconds) < n_requests:
        raise RuntimeError(f"{n_requests - len(seconds)} of {n_requests} requests were not answered")
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"clients": n_clients, "per_second": len(seconds) / (time.perf_counter() - started), "p50": p50, "p99": p99}


def main() -> None:
    """Start a server, measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--requests", type=int, default=2000, help="of each number of clients (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of the server (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes (benchmarks/results)")
    given = parser.parse_args()
    texts = given.texts.read_text(encoding="utf-8").splitlines()
    words = "serve", str(given.model), "--port", "0", "--threads", str(given.threads)
    with subprocess.Popen([sys.executable, "-m", "xmlsgd", *words], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        try:
            measure(address, texts, max(CLIENTS), 200)  # loads what the first requests need
            found = [measure(address, texts, n, given.requests) for n in CLIENTS]
        finally:
            server.terminate()
    columns = ["clients", "requests/s", "ms, half of them", "ms, 99 %"]
    rows = [
        [str(each["clients"]), per_second(each["per_second"]), f"{1e3 * each['p50']:.1f}", f"{1e3 * each['p99']:.1f}"]
        for each in found
    ]
    title = f"One text a request over loopback, the {LIMIT} best labels, clients on the same machine"
    publish("serving", Table(title, columns, rows), found, given.threads, given.out)


if __name__ == "__main__":
    main()
