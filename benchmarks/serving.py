"""Measure a server over loopback: `python -m benchmarks.serving MODEL TEXTS`, a saved model and a text a line.

Clients are threads of one process on the same machine, each with a connection of its own that asks for the five best
labels of one text after another, as clients of Annif do. `python -m benchmarks.annif` measures it beside Annif.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

from .report import RESULTS, Table, per_second, publish

CLIENTS = (1, 8, 32)
LIMIT = 5
ROUNDS = 20  # short ones, so that what else the machine does slows all servers alike
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def ask(project: str, texts: list[str], seconds: list[float], n_requests: int, turns: Any) -> None:
    """Send requests until `n_requests` were sent by all clients, and add the seconds of each."""
    parts = urlsplit(project)
    connection = http.client.HTTPConnection(parts.netloc)
    while (turn := next(turns)) < n_requests:
        body = urlencode({"text": texts[turn % len(texts)], "limit": LIMIT})
        started = time.perf_counter()
        connection.request("POST", f"{parts.path}/suggest", body, FORM)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        seconds.append(time.perf_counter() - started)
        if answer.status != 200:
            raise RuntimeError(found["detail"])
    connection.close()


def measure(project: str, texts: list[str], n_clients: int, n_requests: int) -> tuple[float, list[float]]:
    """Return the seconds of all requests of so many clients, and of each."""
    seconds: list[float] = []
    turns = itertools.count()
    arguments = project, texts, seconds, n_requests, turns
    clients = [threading.Thread(target=ask, args=arguments) for _ in range(n_clients)]
    started = time.perf_counter()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if len(seconds) < n_requests:
        raise RuntimeError(f"{n_requests - len(seconds)} of {n_requests} requests were not answered")
    return time.perf_counter() - started, seconds


def measure_in_turns(projects: dict[str, str], texts: list[str], n_requests: int) -> list[dict[str, Any]]:
    """Return requests/s and the seconds of half and of 99 % of the requests, by server and number of clients.

    Each is measured in `ROUNDS` parts, one server after the other, so that they share what else the machine does.
    """
    share = n_requests // ROUNDS
    for project in projects.values():
        measure(project, texts, max(CLIENTS), 200)  # loads what the first requests need
    found: list[dict[str, Any]] = []
    for n_clients in CLIENTS:
        parts: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in projects}
        for number in range(ROUNDS):
            first = number * share % len(texts)
            turned = texts[first:] + texts[:first]  # each round begins with other texts
            for name, project in projects.items():
                parts[name].append(measure(project, turned, n_clients, share))
        for name, measured in parts.items():
            took, seconds = sum(took for took, _ in measured), np.concatenate([each for _, each in measured])
            p50, p99 = np.percentile(seconds, [50, 99]).tolist()
            rate = len(seconds) / took
            found.append({"server": name, "clients": n_clients, "per_second": rate, "p50": p50, "p99": p99})
    return found


@contextmanager
def running(model: Path, threads: int) -> Iterator[str]:
    """Start a server of a model; give the address of its project."""
    words = "serve", str(model), "--port", "0", "--threads", str(threads)
    with subprocess.Popen([sys.executable, "-m", "xmlsgd", *words], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        try:
            yield f"{address}/v1/projects/{model.resolve().name}"
        finally:
            server.terminate()


def publish_servers(found: list[dict[str, Any]], note: str, threads: int, out: Path) -> None:
    """Write the table."""
    columns = ["server", "clients", "requests/s", "ms, half of them", "ms, 99 %"]
    rows = [
        [
            each["server"], str(each["clients"]), per_second(each["per_second"]), f"{1e3 * each['p50']:.1f}",
            f"{1e3 * each['p99']:.1f}",
        ]
        for each in found
    ]  # fmt: skip
    load = f"The load average of the machine was {os.getloadavg()[2]:.1f} in the last 15 minutes, clients included."
    title = f"One text a request over loopback, the {LIMIT} best labels, clients on the same machine"
    notes = [line for line in (note, load) if line]
    publish("serving", Table(title, columns, rows, notes), {"servers": found, "notes": notes}, threads, out)


def main() -> None:
    """Start a server, measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--requests", type=int, default=3000, help="of each number of clients (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of the server (%(default)s)")
    parser.add_argument("--note", default="", help="a line below the table")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes (benchmarks/results)")
    given = parser.parse_args()
    texts = given.texts.read_text(encoding="utf-8").splitlines()
    with running(given.model, given.threads) as project:
        found = measure_in_turns({"xmlsgd": project}, texts, given.requests)
    publish_servers(found, given.note, given.threads, given.out)


if __name__ == "__main__":
    main()
