"""Compare backends of Annif, by suggestions and over HTTP: `python -m benchmarks.annif FOLDER ENVIRONMENT`.

FOLDER is a data set with texts (`train.raw.txt.gz`, a line a row) and named labels, such as yso-finna-sv. ENVIRONMENT
is a virtual environment with this package, Annif with omikuji, and gunicorn: `pip install -e . "annif[omikuji]"
gunicorn`. All backends learn the same rows, drawn at random, and are evaluated by Annif on the same other ones. Over
HTTP, the two processes of gunicorn that Annif's tutorial advises are asked in turns with `xmlsgd serve`.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from .report import RESULTS, Table, megabytes, publish
from .serving import measure_in_turns, publish_servers, running

TRAIN, TEST = 20_000, 2_000
START_SECONDS = 120  # to wait for Annif's HTTP service
PROJECTS = {  # the backend and its settings
    "xmlsgd": ("xmlsgd", {"random_state": "0"}),
    "xmlsgd-alone": ("xmlsgd", {"random_state": "0", "label_texts": "false"}),
    "bonsai": ("omikuji", {"cluster_balanced": "False", "cluster_k": "100", "max_depth": "3"}),
    "omikuji": ("omikuji", {}),
}
NAMES = {
    "xmlsgd": "xmlsgd", "xmlsgd-alone": "xmlsgd, `label_texts=false`",
    "bonsai": "omikuji, Bonsai (`cluster_balanced=False`, `cluster_k=100`, `max_depth=3`)", "omikuji": "omikuji",
}  # fmt: skip
SERVED = {"Annif, xmlsgd": "xmlsgd", "Annif, omikuji Bonsai": "bonsai", "Annif, omikuji": "omikuji"}
METRICS = {"P@1": "Precision@1", "nDCG@5": "NDCG@5", "F1@5": "F1@5"}
# What the analyzer `simple` loads of NLTK's data and does not use: it splits no sentences here.
NLTK_TABLES = ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab")


class Row(NamedTuple):
    """A text and the numbers of its labels."""

    text: str
    labels: list[int]


def lines_of(path: Path) -> list[str]:
    """Return the lines of a packed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def rows_of(folder: Path, part: str) -> list[Row]:
    """Return the rows of a part in random order."""
    texts, (_, *rows) = (lines_of(folder / f"{part}.{ending}.gz") for ending in ("raw.txt", "txt"))
    found = [
        Row(text.replace("\t", " "), [int(label) for label in row.split(" ", 1)[0].split(",") if label])
        for text, row in zip(texts, rows, strict=True)
    ]
    random.Random(0).shuffle(found)
    return found


def uri(label: int) -> str:
    """Return the URI of a label."""
    return f"<http://example.org/{label}>"


def write_corpora(folder: Path, work: Path, n_train: int, n_test: int) -> list[str]:
    """Write vocabulary, training and test documents as Annif reads them; return other texts."""
    names = [re.sub(r"^p\d+ ", "", name) for name in lines_of(folder / "labels.txt.gz")]  # without YSO's numbers
    lines = [f"{uri(label)}\t{name}\n" for label, name in enumerate(names)]
    (work / "vocabulary.tsv").write_text("".join(lines), encoding="utf-8")
    train, test = rows_of(folder, "train"), rows_of(folder, "test")
    for name, rows in (("train.tsv", train[:n_train]), ("test.tsv", test[:n_test])):
        lines = [f"{row.text}\t{' '.join(map(uri, row.labels))}\n" for row in rows]
        (work / name).write_text("".join(lines), encoding="utf-8")
    return [row.text for row in test[n_test:]]


def write_projects(work: Path, analyzer: str = "simple") -> None:
    """Write Annif's configuration, and the tables that NLTK asks for."""
    common = {"language": "sv", "vocab": "labels", "analyzer": analyzer}
    lines = [
        line
        for project, (backend, settings) in PROJECTS.items()
        for line in (f"[{project}]", f"name={project}", f"backend={backend}",
                     *(f"{name}={value}" for name, value in (common | settings).items()))
    ]  # fmt: skip
    (work / "projects.cfg").write_text("\n".join(lines) + "\n")
    tables = work / "nltk" / "tokenizers" / "punkt_tab" / "english"
    tables.mkdir(parents=True)
    for name in NLTK_TABLES:
        (tables / name).touch()


def evaluated(annif: Any, work: Path, project: str) -> dict[str, float]:
    """Train a project; return its metrics in percent and the bytes of its model."""
    annif("train", project, "train.tsv")
    printed = annif("eval", project, "test.tsv", *(word for metric in METRICS.values() for word in ("-m", metric)))
    values = dict(line.split(":", 1) for line in printed.splitlines() if ":" in line)
    folder = work / "data" / "projects" / project
    files = [file for file in folder.rglob("*") if file.is_file() and not file.match("*-train*")]
    return {
        **{name: 100 * float(values[metric]) for name, metric in METRICS.items()},
        "bytes": sum(file.stat().st_size for file in files),
    }


@contextlib.contextmanager
def annif_served(environment: Path, work: Path, settings: dict[str, str]) -> Iterator[str]:
    """Start Annif's HTTP service; give its address."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    words = "--bind", f"127.0.0.1:{port}", "--timeout", "600", "--workers", "2"
    worker = "--worker-class", "uvicorn.workers.UvicornWorker", "xmlsgd.serving.annif:create_app()"
    command = [str(environment / "bin" / "python"), "-m", "gunicorn", *words, *worker]
    with subprocess.Popen(command, cwd=work, env=settings, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(START_SECONDS):
                if server.poll() is not None:
                    raise RuntimeError("gunicorn ended")
                with contextlib.suppress(OSError):
                    urlopen(f"http://127.0.0.1:{port}/v1/projects").close()
                    break
                time.sleep(1)
            else:
                raise TimeoutError(f"Annif gave no answer in {START_SECONDS} s")
            yield f"http://127.0.0.1:{port}/v1/projects"
        finally:
            server.terminate()


def main() -> None:
    """Write the documents, train, evaluate, serve, and write both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.annif", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--requests", type=int, default=6000, help="of each number of clients (%(default)s)")
    parser.add_argument("--train", type=int, default=TRAIN, help="training documents (%(default)s)")
    parser.add_argument("--test", type=int, default=TEST, help="test documents (%(default)s)")
    parser.add_argument("--analyzer", default="simple", help="of Annif (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the tables go (benchmarks/results)")
    given = parser.parse_args()
    environment = given.environment.absolute()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        texts = write_corpora(given.folder, work, given.train, given.test)
        write_projects(work, given.analyzer)
        settings = {**os.environ, "NLTK_DATA": str(work / "nltk")}

        def annif(*words: str) -> str:
            command = [str(environment / "bin" / "xmlsgd-annif"), *words]
            return subprocess.run(
                command,
                cwd=work,
                env=settings,
                text=True,
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ).stdout

        annif("load-vocab", "--language", "sv", "labels", "vocabulary.tsv")
        found = {project: evaluated(annif, work, project) for project in PROJECTS}
        columns = ["backend", *METRICS, "model MB"]
        rows = [
            [NAMES[project], *(f"{measured[name]:.1f}" for name in METRICS), megabytes(measured["bytes"])]
            for project, measured in found.items()
        ]
        freeze = subprocess.run(
            [str(environment / "bin" / "python"), "-m", "pip", "list", "--format=freeze"],
            text=True, check=True, stdout=subprocess.PIPE,
        ).stdout  # fmt: skip
        version = dict(line.split("==", 1) for line in freeze.splitlines() if "==" in line)
        software = f"Annif {version['annif']} with omikuji {version['omikuji']}"
        learned = f"{given.train:,} documents of {given.folder.resolve().name} to learn, {given.test:,} others to test."
        notes = [f"{learned} {software}, analyzer {given.analyzer}, one training each."]
        publish(
            "annif", Table("Backends of Annif", columns, rows, notes), {"projects": found, "notes": notes}, 2, given.out
        )

        train = "train", "train.tsv", "--vocabulary", "vocabulary.tsv", "--seed", "0", "--compact", "--quiet"
        subprocess.run([sys.executable, "-m", "xmlsgd", *train, "--out", "model"], cwd=work, check=True)
        with running(work / "model", 2) as ours, annif_served(environment, work, settings) as theirs:
            projects = {"xmlsgd": ours, **{name: f"{theirs}/{project}" for name, project in SERVED.items()}}
            servers = measure_in_turns(projects, texts, given.requests)
    under = f"under gunicorn {version['gunicorn']} with two uvicorn {version['uvicorn']} workers"
    note = f"{software} {under}, asked in turns. All models have learned the same {given.train:,} documents."
    publish_servers(servers, note, 2, given.out)


if __name__ == "__main__":
    main()
