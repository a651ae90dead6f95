"""Damaged stores are refused, whatever was damaged; what was checked is not checked again until it changes."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from shared.data_sets import csr, equal, example
from xmlsgd.data import csr as rows
from xmlsgd.data.csr import Dataset
from xmlsgd.data.files import manifest
from xmlsgd.data.files.manifest import STORE, write_manifest
from xmlsgd.data.formats import store
from xmlsgd.data.formats.store import open_store, write_store
from xmlsgd.errors import DataError


def described(**changes):
    """Return a damage: the given fields of `store.json` are altered."""

    def damage(path):
        written(json.dumps(json.loads((path / "store.json").read_text()) | changes).encode())(path)

    return damage


def written(description):
    """Return a damage: `store.json` holds these bytes, as the manifest says."""

    def damage(path):
        (path / "store.json").write_bytes(description)
        (path / "verified.json").unlink()
        (path / "MANIFEST.json").unlink()
        write_manifest(path, STORE)

    return damage


def replaced(name, change):
    """Return a damage: array `name` is saved again after `change`, with its size as it was."""

    def damage(path):
        file = path / f"{name}.npy"
        np.save(file, change(np.load(file)))

    return damage


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def truncated(path):
    file = path / "X_data.npy"
    file.write_bytes(file.read_bytes()[:-1])


DAMAGES = {
    "truncated array": (truncated, "X_data.npy: must have"),
    "missing array": (lambda path: (path / "Y_indices.npy").unlink(), "Y_indices.npy: is missing or no regular file"),
    "array is a folder": (
        lambda path: ((path / "Y_indices.npy").unlink(), (path / "Y_indices.npy").mkdir()),
        "Y_indices.npy: is missing or no regular file",
    ),
    "same size, wrong dtype": (replaced("X_data", lambda a: a.view(np.int32)), "X_data must be float32 ("),
    "wider dtype": (replaced("X_indices", lambda a: a.astype(np.int64)), "X_indices.npy: must have"),
    "two dimensions": (replaced("X_data", lambda a: a[:, None]), "X_data must be float32 ("),
    "objects": (replaced("X_data", lambda a: np.array([{}] * len(a))), "X_data.npy: must have"),
    "pointers from 1": (replaced("X_indptr", put(0, 1)), "X_indptr.npy: must lead from 0 to"),
    "pointers beyond": (replaced("Y_indptr", put(-1, 10**9)), "Y_indptr.npy: must lead from 0 to"),
    "no description": (lambda path: (path / "store.json").unlink(), "store.json: is missing or no regular file"),
    "no JSON": (written(b"{"), "store.json: must be a JSON object"),
    "not UTF-8": (written(b"\xff"), "store.json: must be a JSON object"),
    "deep JSON": (written(b"[" * 60_000), "store.json: must be a JSON object"),
    "a list": (written(b"[]"), "store.json: must be a JSON object"),
    "fewer rows": (described(n_rows=39), "X_indptr must be int64 (40,), got int64 (41,)"),
    "more entries": (described(nnz=10**14), "X_indices must be int32 (100000000000000,)"),
    "too many entries": (described(nnz=10**30), "store.json: nnz must be a count"),
    "negative": (described(n_labels=-1), "store.json: n_labels must be a count of at most 2147483647, got -1"),
    "not a number": (described(n_features="30"), "store.json: n_features must be a count of at most 2"),
    "true": (described(n_features=True), "store.json: n_features must be a count of at most 2147483647, got True"),
    "too wide": (described(n_features=2**31), "store.json: n_features must be a count of at most 2147483647"),
    "names unclear": (described(label_names=1), "store.json: label_names must be true or false, got 1"),
    "no names": (lambda path: (path / "labels.txt").unlink(), "labels.txt: is missing or no regular file"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_store_is_refused_in_one_line(tmp_path, damage, message):
    path = tmp_path / "set"
    write_store(example(), path)
    damage(path)
    with pytest.raises(DataError) as caught:
        open_store(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("X_indices", 3, 30, r"X_indices.npy: must be in \[0, 30\), got 30 in row 0"),
        ("Y_indices", 3, -1, r"Y_indices.npy: must be in \[0, 20\), got -1 in row 1"),
        ("X_indptr", 5, -7, "X_indptr.npy: must rise, got -7 after"),
        ("X_data", 4, np.nan, "X_data.npy: values must be finite, got nan in row 0"),
    ],
)
@pytest.mark.parametrize("entries", [1, 7, 1 << 20])
def test_a_wrong_number_in_an_array_that_was_changed_is_found(
    tmp_path, monkeypatch, name, index, value, message, entries
):
    write_store(example(), tmp_path / "set")
    replaced(name, put(index, value))(tmp_path / "set")
    monkeypatch.setattr(rows, "CHECKED_ENTRIES", entries)
    for _ in range(2):  # a store that was refused stays refused
        with pytest.raises(DataError, match=message) as caught:
            open_store(tmp_path / "set")
        assert "\n" not in str(caught.value)


FILES = ("X_indptr.npy", "X_indices.npy", "X_data.npy", "Y_indptr.npy", "Y_indices.npy", "labels.txt", "store.json")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_byte_is_refused(tmp_path, name):
    write_store(example(n=4), tmp_path / "set")
    good = (tmp_path / "set" / name).read_bytes()
    for at in range(len(good)):
        flipped = good[at] ^ 1 << at % 8
        (tmp_path / "set" / name).write_bytes(good[:at] + bytes([flipped]) + good[at + 1 :])
        with pytest.raises(DataError, match=r"(\.npy|\.txt|\.json|/set): "):
            open_store(tmp_path / "set")


def test_a_flipped_bit_in_the_manifest_is_refused_or_changes_no_row(tmp_path):
    write_store(example(n=4), tmp_path / "set")
    file = tmp_path / "set" / "MANIFEST.json"
    good, accepted = file.read_bytes(), 0
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            opened = open_store(tmp_path / "set")
        except DataError:
            continue
        accepted += 1
        assert equal(opened, example(n=4))
    assert accepted < len(good) / 4  # blanks between words


def test_a_bit_that_a_disk_flips_without_a_time_is_found_by_a_full_check(tmp_path):
    write_store(example(), tmp_path / "set")
    os.utime(tmp_path / "set" / "verified.json", (2**32, 2**32))  # the last array may be as late
    file = tmp_path / "set" / "X_data.npy"
    before, rows = os.stat(file), bytearray(file.read_bytes())
    rows[200] ^= 1
    file.write_bytes(rows)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    open_store(tmp_path / "set")
    (tmp_path / "set" / "verified.json").unlink()
    with pytest.raises(DataError, match=r"X_data.npy: its checksum differs from the manifest"):
        open_store(tmp_path / "set")


def test_a_store_whose_manifest_misses_a_file_is_refused(tmp_path):
    write_store(example(), tmp_path / "set")
    manifest = json.loads((tmp_path / "set" / "MANIFEST.json").read_text())
    del manifest["files"]["Y_indices.npy"]
    (tmp_path / "set" / "MANIFEST.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"Y_indices must be int32 \(\d+,\), got none; convert the data again"):
        open_store(tmp_path / "set")
    (tmp_path / "set" / "MANIFEST.json").unlink()
    with pytest.raises(DataError, match=r"is not a store: MANIFEST.json is missing; convert the data again"):
        open_store(tmp_path / "set")


def pass_counter(monkeypatch):
    """Return the list of the matrices whose entries are checked from now on."""
    seen, check_entries = [], rows.check_entries

    def check(matrix, names):
        seen.append(names)
        check_entries(matrix, names)

    for module in (rows, store):
        monkeypatch.setattr(module, "check_entries", check)
    return seen


def test_entries_are_checked_when_they_are_written_and_not_at_each_opening(tmp_path, monkeypatch):
    passes = pass_counter(monkeypatch)
    write_store(example(), tmp_path / "set")
    assert len(passes) == 2
    os.utime(tmp_path / "set" / "verified.json", (2**32, 2**32))  # the last array may be as late
    open_store(tmp_path / "set")
    assert len(passes) == 2
    (tmp_path / "set" / "verified.json").unlink()
    open_store(tmp_path / "set")
    assert len(passes) == 4


def test_a_copy_is_checked_once(tmp_path, monkeypatch):
    write_store(example(), tmp_path / "set")
    shutil.copytree(tmp_path / "set", tmp_path / "copy", copy_function=shutil.copyfile)
    for file in (tmp_path / "copy").iterdir():
        os.utime(file, ns=(1, 1))
    passes = pass_counter(monkeypatch)
    for _ in range(3):
        assert equal(open_store(tmp_path / "copy"), example())
    assert len(passes) == 2


@pytest.mark.parametrize("noted", [None, b"", b"[", b"[" * 60_000, b"{}", b"null"])
def test_without_a_sound_note_of_the_last_check_all_is_checked(tmp_path, monkeypatch, noted):
    write_store(example(), tmp_path / "set")
    (tmp_path / "set" / "verified.json").unlink()
    for file in (tmp_path / "set").iterdir():
        os.utime(file, (1, 1))
    if noted is not None:
        (tmp_path / "set" / "verified.json").write_bytes(noted)
    passes = pass_counter(monkeypatch)
    for _ in range(2):
        open_store(tmp_path / "set")
    assert len(passes) == 2


def test_an_array_as_late_as_the_note_is_checked_again(tmp_path, monkeypatch):
    write_store(example(), tmp_path / "set")
    late = (tmp_path / "set" / "Y_indices.npy").stat().st_mtime_ns
    os.utime(tmp_path / "set" / "verified.json", ns=(late, late))
    passes = pass_counter(monkeypatch)
    open_store(tmp_path / "set")
    assert len(passes) == 2


@pytest.mark.parametrize("name", ["store.json", "X_data.npy", "labels.txt"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path, name):
    write_store(example(), tmp_path / "set")
    (tmp_path / "set" / name).unlink()
    os.mkfifo(tmp_path / "set" / name)
    with pytest.raises(DataError, match=f"{name}: is missing or no regular file"):
        open_store(tmp_path / "set")


def test_a_store_on_a_disk_that_cannot_be_written_is_opened(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    write_store(example(), tmp_path / "set")
    (tmp_path / "set" / "verified.json").unlink()
    monkeypatch.setattr(manifest, "atomic_file", refuse)
    assert equal(open_store(tmp_path / "set"), example())


@pytest.mark.parametrize("entries", [1, 2, 3, 1 << 20])
def test_a_full_check_finds_indices_that_do_not_rise(tmp_path, monkeypatch, entries):
    X = csr([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    write_store(Dataset(X, X), tmp_path / "set")
    monkeypatch.setattr(rows, "CHECKED_ENTRIES", entries)
    (tmp_path / "set" / "verified.json").unlink()
    assert open_store(tmp_path / "set").n_rows == 4
    replaced("Y_indices", put(4, 1))(tmp_path / "set")
    with pytest.raises(DataError, match=r"Y_indices.npy: must rise within a row, but row 2 does not"):
        open_store(tmp_path / "set")
