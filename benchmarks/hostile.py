"""Attack a server and see what is left of it: `python -m benchmarks.hostile m`, a saved model of texts.

Clients on the same machine send malformed requests, drawn by a seed, each on a connection of its own. Meanwhile others
send heads and bodies a byte at a time, or ask for long answers that they do not read; a polite client asks for a
suggestion again and again. At the end, more connections than the server takes stay idle, and the polite client asks
once more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from .report import RESULTS, Table, publish

N_CLIENTS, N_SLOW, N_UNREAD, N_IDLE = 8, 100, 10, 1100
PROJECT = "m"
TOKEN = "a token of the attack"
WARM_UP = 5000  # requests before memory is measured first
PATHS = (
    "/suggest",
    "/explain",
    "/learn",
    f"/v1/projects/{PROJECT}/suggest",
    "/health",
    "/nowhere",
    "/%ff%00",
    "//",
    "/" + "a" * 9000,
)
METHODS = ("GET", "POST", "PUT", "HEAD", "OPTIONS", "G\0T", "post", "A" * 300)
LENGTHS = ("-1", "abc", "1e9", "9" * 30, "5000000", "1000000000000", "", " ", "3, 4", "0x10")
TYPES = ("application/json", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data", "\xff")
VALUES: tuple[object, ...] = (
    None, True, -1, 10**30, 1e400, "x", "\ud800", "", [], {}, [[]], ["a"], [None], {"a": 1}, "a" * 1000, [1] * 100,
    ["a"] * 2000, [{"text": "a", "labels": [""]}], [{"text": "a", "labels": ["\ud800"]}], [{"text": 1, "labels": []}],
)  # fmt: skip
PARTIAL = ("bytes", "length", "chunks", "cut")
FIELDS = ("texts", "text", "limit", "threshold", "documents", "labels")


def malformed_body(rng: random.Random) -> bytes:
    """Return a body that is no JSON, no form, cut, nested too deeply, or of wrong fields."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.randrange(300))
    if kind == 1:
        return rng.choice([b"[", b'{"a":', b'"']) * rng.choice([10, 10_000, 100_000])
    if kind == 2:
        return json.dumps({rng.choice(FIELDS): rng.choice(VALUES) for _ in range(3)}).encode()
    if kind == 3:
        whole = json.dumps({"texts": ["a"], "text": "b", "limit": 3}).encode()
        return whole[: rng.randrange(len(whole))]
    return b"&".join(rng.choice([b"text", b"limit=x", b"%ff=%f", b"text=%ff", b"=", b"a=\xff"]) for _ in range(9))


def malformed_request(rng: random.Random) -> tuple[str, bytes]:
    """Return a malformed request and what is wrong with it."""
    kind = rng.choice(["bytes", "head", "length", "body", "chunks", "cut", "pipeline", "method"])
    path, media_type, body = rng.choice(PATHS), rng.choice(TYPES), malformed_body(rng)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {media_type}\r\nAuthorization: Bearer {TOKEN}\r\n"
    text, end = head.encode("latin-1"), b"\r\n"
    whole = text + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    if kind == "bytes":
        whole = rng.randbytes(rng.choice([1, 10, 1000, 100_000])) + rng.choice([b"", b"\r\n\r\n"])
    elif kind == "head":
        fields = [
            b"no colon",
            b": no name",
            b"a: \0",
            b"\xff: b",
            b"A" * 70_000 + b": b",
            b"a: b\r\n" * 20_000,
            b" fold",
        ]
        whole = text + rng.choice(fields) + end + end
    elif kind == "length":
        both = b"Content-Length: 3\r\n" if rng.random() < 0.3 else b""
        whole = text + both + f"Content-Length: {rng.choice(LENGTHS)}\r\n\r\n".encode() + body[:1000]
    elif kind == "chunks":
        sizes = [b"zz\r\n", b"-1\r\n", b"f" * 40 + b"\r\n", b"5;" + b"x" * 70_000 + b"\r\n", b"3\r\nabcdef\r\n"]
        whole = text + b"Transfer-Encoding: chunked\r\n\r\n" + rng.choice(sizes)
    elif kind == "cut":
        whole = whole[: rng.randrange(len(whole))]
    elif kind == "pipeline":
        whole += whole[: rng.randrange(len(whole))] + rng.randbytes(50)
    elif kind == "method":
        whole = f"{rng.choice(METHODS)} {path} HTTP/{rng.choice(['1.1', '1.0', '9.9', 'x'])}\r\n\r\n".encode()
    return kind, whole


def attack(address: tuple[str, int], seed: int, n: int, seen: Counter[str]) -> None:
    """Send malformed requests, and count what comes back."""
    rng = random.Random(seed)
    for _ in range(n):
        kind, whole = malformed_request(rng)
        try:
            with socket.create_connection(address, 30) as connection:
                with contextlib.suppress(OSError):  # the server may have closed it
                    connection.sendall(whole)
                    if kind in PARTIAL:  # or the server would wait for the rest
                        connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(1 << 16)
            status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "none"
        except (TimeoutError, OSError) as error:
            status = type(error).__name__
        seen[f"{kind} {status}"] += 1


def connect_slowly(address: tuple[str, int], stop: threading.Event) -> None:
    """Keep connections on which heads and bodies arrive a byte at a time, and some whose answers nobody reads."""
    slow: list[tuple[socket.socket, bytes]] = []
    unread: list[socket.socket] = []
    texts = json.dumps({"texts": ["a text of words"] * 100, "limit": 1000}).encode()
    head = b"POST /suggest HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    while not stop.is_set():
        with contextlib.suppress(OSError):
            while len(slow) < N_SLOW:
                whole = head % 1000 if len(slow) % 2 else head % 1000 + b"{" * 1000
                slow.append((socket.create_connection(address, 5), whole))
                if not len(slow) % 2:
                    slow[-1][0].sendall(head % 1000)
            while len(unread) < N_UNREAD:
                unread.append(socket.create_connection(address, 5))
                unread[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                unread[-1].sendall(head % len(texts) + texts)
        for connection, whole in list(slow):
            try:
                connection.sendall(whole[:1])
                slow[slow.index((connection, whole))] = connection, whole[1:] or b"{"
            except OSError:
                slow.remove((connection, whole))
                connection.close()
        unread = [each for each in unread if is_open(each)]
        stop.wait(0.5)
    for connection in [each for each, _ in slow] + unread:
        connection.close()


def is_open(connection: socket.socket) -> bool:
    """Return whether the other side has not reset a connection that nobody reads from."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def ask(address: tuple[str, int]) -> tuple[float, Any]:
    """Return the seconds of a request for suggestions on a new connection, and its answer."""
    body, started = b'{"texts": ["a text of words"], "limit": 5}', time.perf_counter()
    head = b"POST /suggest HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    with socket.create_connection(address, 60) as connection:
        connection.sendall(head % len(body) + body)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    status, _, found = answer.partition(b"\r\n\r\n")
    return time.perf_counter() - started, json.loads(found) if b" 200 " in status else status[:12].decode("latin-1")


def ask_repeatedly(address: tuple[str, int], stop: threading.Event, seconds: list[float], wrong: list[str]) -> None:
    """Ask until `stop`, and note the seconds and the answers that are errors."""
    while not stop.is_set():
        try:
            took, answer = ask(address)
            seconds.append(took)
            wrong += [answer] if isinstance(answer, str) else []
        except OSError as error:
            wrong.append(str(error))
        stop.wait(0.2)


def resources_of(pid: int) -> dict[str, int]:
    """Return what a process holds: resident memory in bytes and open files."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return {"resident_bytes": 1024 * int(kilobytes), "files": len(os.listdir(f"/proc/{pid}/fd"))}


def attack_and_measure(address: tuple[str, int], pid: int, n: int, seed: int) -> dict[str, Any]:
    """Attack by n requests and all others, and return what came back."""
    seen: Counter[str] = Counter()
    _, expected = ask(address)
    started = resources_of(pid)
    attack(address, seed, WARM_UP, Counter())
    before = resources_of(pid)
    stop, seconds, wrong = threading.Event(), list[float](), list[str]()
    others = [
        threading.Thread(target=connect_slowly, args=(address, stop)),
        threading.Thread(target=ask_repeatedly, args=(address, stop, seconds, wrong)),
    ]
    clients = [
        threading.Thread(target=attack, args=(address, seed + 1 + i, n // N_CLIENTS, seen)) for i in range(N_CLIENTS)
    ]
    began = time.perf_counter()
    for thread in (*others, *clients):
        thread.start()
    for thread in clients:
        thread.join()
    took = time.perf_counter() - began
    stop.set()
    for thread in others:
        thread.join()
    with contextlib.ExitStack() as idle:
        for _ in range(N_IDLE):
            with contextlib.suppress(OSError):
                idle.enter_context(socket.create_connection(address, 5))
        beside_idle, answer = ask(address)
    time.sleep(15)  # what the server gives up after a timeout
    _, after_all = ask(address)
    p50, p99 = np.percentile(seconds, [50, 99])
    return {
        "requests": sum(seen.values()), "seconds": took, "answers": dict(sorted(seen.items())),
        "polite": {"requests": len(seconds), "p50": p50, "p99": p99, "max": max(seconds), "errors": Counter(wrong)},
        "beside_idle": {"connections": N_IDLE, "seconds": beside_idle, "answered": answer == expected},
        "same_answer": after_all == expected, "started": started, "before": before, "after": resources_of(pid),
    }  # fmt: skip


def main() -> None:
    """Start a server, attack it, and write what came back."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=100_000, help="malformed ones (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the server (%(default)s)")
    parser.add_argument("--no-token", action="store_true", help="serve without /learn, which an ensemble does not have")
    parser.add_argument("--seed", type=int, default=0, help="of the requests (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes (benchmarks/results)")
    given = parser.parse_args()
    if given.model.resolve().name != PROJECT:  # requests to Annif's route would all be answered by 404
        parser.error(f"MODEL must be a folder named {PROJECT!r}, got {given.model}")
    words = "serve", str(given.model), "--port", "0", "--threads", str(given.threads)
    environment = os.environ if given.no_token else {**os.environ, "XMLSGD_TOKEN": TOKEN}
    command = [sys.executable, "-m", "xmlsgd", *words]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            parts = urlsplit(server.stdout.readline().split()[-1])
            address = str(parts.hostname), int(parts.port or 0)
            found = attack_and_measure(address, server.pid, given.requests, given.seed)
            if server.poll() is not None:
                raise RuntimeError(f"the server has ended with {server.returncode}")
        finally:
            server.terminate()
    polite, memory = found["polite"], [found[name] for name in ("started", "before", "after")]
    rows = [
        ["malformed requests", f"{found['requests']:,}"],
        ["of them a second", f"{found['requests'] / found['seconds']:,.0f}"],
        ["answered by 5xx", f"{sum(n for name, n in found['answers'].items() if ' 5' in name):,}"],
        ["polite requests meanwhile, errors", f"{polite['requests']:,}, {sum(polite['errors'].values())}"],
        [
            "polite requests, ms: half, 99 %, all",
            ", ".join(f"{1e3 * polite[name]:.0f}" for name in ("p50", "p99", "max")),
        ],
        [f"ms beside {N_IDLE:,} idle connections", f"{1e3 * found['beside_idle']['seconds']:.0f}"],
        [
            f"resident MB at the start, after {WARM_UP:,} requests, at the end",
            ", ".join(f"{each['resident_bytes'] / 1e6:.0f}" for each in memory),
        ],
        ["open files, the same", ", ".join(str(each["files"]) for each in memory)],
    ]
    publish("hostile", Table("A server under attack", ["", ""], rows), found, given.threads, given.out)


if __name__ == "__main__":
    main()
