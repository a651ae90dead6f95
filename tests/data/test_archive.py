"""Archives are unpacked whatever their name; hostile and damaged ones do no harm."""

from __future__ import annotations

import pytest

from shared.archives import zip_link, zipped
from xmlsgd.data.public import extract
from xmlsgd.errors import DataError


def test_an_archive_is_unpacked_whatever_its_name(tmp_path):
    (tmp_path / "archive").write_bytes(zipped({"top/": "", "top/a.txt": "one", "top/deep/b.txt": "two"}))
    extract(tmp_path / "archive", tmp_path / "out")
    assert (tmp_path / "out/top/a.txt").read_text() == "one"
    assert (tmp_path / "out/top/deep/b.txt").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]


HOSTILE = {
    "parent": zipped({"fine": "", "../evil": "x"}),
    "inner parent": zipped({"a/../../evil": "x"}),
    "absolute": zipped({"/evil": "x"}),
    "backslash": zipped({"..\\evil": "x"}),
    "drive": zipped({"C:/evil": "x"}),
    "link": zip_link(),
}


@pytest.mark.parametrize("archive", HOSTILE.values(), ids=HOSTILE)
def test_nothing_of_a_hostile_archive_lies_outside_of_its_folder(tmp_path, archive):
    home = tmp_path / "home"
    home.mkdir()
    (home / "archive").write_bytes(archive)
    extract(home / "archive", home / "out")
    assert sorted(path.name for path in [*tmp_path.iterdir(), *home.iterdir()]) == ["archive", "home", "out"]
    assert not any(path.is_symlink() for path in home.rglob("*"))


@pytest.mark.parametrize("archive", [zipped({"a": "x" * 1000})[:-30], b"hello", b""], ids=["cut", "none", "empty"])
def test_a_damaged_archive_leaves_nothing(tmp_path, archive):
    (tmp_path / "archive").write_bytes(archive)
    with pytest.raises(DataError, match="not a readable zip archive"):
        extract(tmp_path / "archive", tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["archive"]


def test_an_archive_larger_than_the_disk_is_refused(tmp_path, monkeypatch):
    (tmp_path / "archive").write_bytes(zipped({"a": "x" * 1000}))
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 900}))
    with pytest.raises(DataError, match="no room for its content, 100 bytes more"):
        extract(tmp_path / "archive", tmp_path / "out")
    assert not (tmp_path / "out").exists()
