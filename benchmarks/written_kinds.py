"""What `reliability` damages and interrupts: how each is written, in two versions, and what tells these apart."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, patch

import numpy as np

from xmlsgd import XMLClassifier, XMLEnsemble, load_model
from xmlsgd.algorithms.sequential import Sequential
from xmlsgd.cli import main
from xmlsgd.cli.exit_codes import BAD_INPUT
from xmlsgd.data.csr import Dataset
from xmlsgd.data.files.folders import read_folder, write_folder
from xmlsgd.data.formats.store import open_store, write_store
from xmlsgd.data.synthetic import make_xmc
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.devices.reference import Reference
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.estimators.saving import contents_of
from xmlsgd.nn.network import Network
from xmlsgd.nn.optimizers import Adam
from xmlsgd.nn.schedules import Schedule
from xmlsgd.serving.service import ServedModel, Service
from xmlsgd.training.checkpoints import Checkpoint, read_checkpoint, writer
from xmlsgd.training.executors.serial import Serial
from xmlsgd.training.job import Job
from xmlsgd.training.loop import train

TEXTS = ["red apple", "green apple", "red car", "green car", "blue car", "blue pear"]
LABELS = [["fruit"], ["fruit", "green"], ["car"], ["car", "green"], ["car"], ["fruit"]]


ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)


class CommandFailed(Exception):
    """A command has failed by an error of disk or machine."""


FAULTS = (OSError, CommandFailed)
REFUSALS = (*FAULTS, DataError, ModelFileError)


@dataclass(frozen=True)
class Kind:
    """What is written to a folder.

    write : writes version 0 or 1 to a path. identify : returns what a folder holds. also : returns what a write that
    failed may leave besides these. damaged : whether to damage its files, unless another kind has the same ones.
    """

    write: Callable[[Path, int], None]
    identify: Callable[[Path], Any]
    also: Callable[[], tuple[Any, ...]] = tuple
    damaged: bool = True


def written(kind: Kind, path: Path, version: int) -> Any:
    """Write a version; return what identifies it."""
    kind.write(path, version)
    return kind.identify(path)


def rows_of(version: int) -> Dataset:
    """Return small rows; two versions differ."""
    return make_xmc(12, 10, 6, nnz_per_row=3, labels_per_row=2, random_state=version)


def identify_rows(path: Path) -> Any:
    """Return all that a store holds."""
    found = open_store(path)
    arrays = (found.X.indptr, found.X.indices, found.X.data, found.Y.indptr, found.Y.indices)
    names = None if found.label_names is None else list(found.label_names)
    return [array.tolist() for array in arrays], found.X.shape, found.Y.shape, names


def write_arrays(path: Path, version: int) -> None:
    """Write the folder of a model."""
    arrays = {"params": np.arange(version, version + 9, dtype=np.float32)}
    write_folder(path, {"version": version}, arrays)


def identify_arrays(path: Path) -> Any:
    """Return all that a model's folder holds."""
    files = read_folder(path)
    return files.description, {name: array.tolist() for name, array in files.arrays.items()}


@functools.cache
def model_of(version: int) -> XMLClassifier:
    """Return a model of texts, with all that one can have."""
    words = TextVectorizer(min_df=1)
    model = XMLClassifier((2,), max_epochs=1, candidates=2, n_jobs=1, random_state=version, vectorizer=words)
    return model.fit(TEXTS, LABELS)


@functools.cache
def ensemble_of(version: int) -> XMLEnsemble:
    """Return an ensemble of two."""
    estimator = XMLClassifier((2,), max_epochs=1, n_jobs=1, vectorizer=TextVectorizer(min_df=1))
    return XMLEnsemble(estimator, 2, random_state=version).fit(TEXTS, LABELS)


def identify_model(path: Path, compact: bool = False) -> Any:
    """Return all that a model holds, and how it ranks."""
    model = load_model(path)
    description, arrays = contents_of(model, compact)
    for record in description.get("history", ()):
        record.pop("seconds")
    ranked = [array.tolist() for array in model.predict_topk(TEXTS, 2)]
    return description, {name: np.asarray(array).tolist() for name, array in arrays.items()}, ranked


def write_checkpoint(path: Path, version: int) -> None:
    """Train two steps, with a checkpoint after each, and leave the last one."""
    Checkpoint(path).remove()
    data = rows_of(0)
    job = Job(data, Network(data.n_features, data.n_labels, (4,)), Adam(), seed=version)
    checkpoint = Checkpoint(path, 0, keep=True)
    train(job, Sequential(6, 0.01), Serial([Reference()]), Schedule(1), (), checkpoint)


def identify_checkpoint(path: Path) -> Any:
    """Return all that a checkpoint holds but times."""
    saved = read_checkpoint(Checkpoint(path))
    if saved is None:
        return None
    return saved.seed, saved.updates, {name: array.tolist() for name, array in saved.arrays.arrays.items()}


@functools.cache
def other_checkpoints() -> tuple[Any, ...]:
    """Return what a run leaves that cannot write its last checkpoint: none, or the first one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kept")
        with patch.object(writer, "write_folder", wraps=write_folder, side_effect=(DEFAULT, OSError("full"))):
            write_checkpoint(path, 1)
        return None, identify_checkpoint(path)


def command(path: Path, version: int, words: str) -> None:
    """Run a command on texts beside `path`; the two versions have their own."""
    said = io.StringIO()
    rows = [f"{','.join(labels)}\t{text}\n" for text, labels in zip(TEXTS, LABELS, strict=True)]
    for number in (0, 1):
        texts = path.with_name(f"texts{number}.txt")
        if not texts.exists():
            texts.write_text("".join(rows[: len(rows) - number]))
    with contextlib.redirect_stderr(said):
        code = main(words.format(source=path.with_name(f"texts{version}.txt"), target=path).split())
    told = any(os.strerror(error) in said.getvalue() for error in ERRORS)  # also of texts that cannot be read
    if (code == BAD_INPUT and not told) or "internal error" in said.getvalue():
        raise DataError(said.getvalue())
    if code:
        raise CommandFailed(said.getvalue())


def learn_by_request(path: Path, version: int) -> None:
    """Save a model, or have a server learn and save; an error may come when the learned model is in its place."""
    if version == 0:
        model_of(0).save(path)
        return
    service = Service(ServedModel(model_of(0)), "texts", "token", lambda learned: learned.save(path))
    asyncio.run(service.learn(TEXTS[:1], LABELS[1:2]))
    assert service.model is not model_of(0)


TRAIN = "train {source} --out {target} --overwrite --quiet --hidden 2 --epochs 1 --threads 1 --seed 0 --min-df 1"
CONVERT = "convert {source} {target} --overwrite --quiet --min-df 1"
KINDS: dict[str, Kind] = {
    "store": Kind(lambda path, version: write_store(rows_of(version), path), identify_rows),
    "folder of arrays": Kind(write_arrays, identify_arrays),
    "saved model": Kind(lambda path, version: model_of(version).save(path), identify_model),
    "compact model": Kind(
        lambda path, version: model_of(version).save(path, compact=True),
        functools.partial(identify_model, compact=True),
    ),
    "ensemble": Kind(lambda path, version: ensemble_of(version).save(path), identify_model),
    "checkpoint": Kind(write_checkpoint, identify_checkpoint, other_checkpoints),
    "xmlsgd convert": Kind(functools.partial(command, words=CONVERT), identify_rows, damaged=False),
    "xmlsgd train": Kind(functools.partial(command, words=TRAIN), identify_model, damaged=False),
    "server that learns": Kind(learn_by_request, identify_model, damaged=False),
}
