"""Archives are unpacked whatever their name; hostile and damaged ones leave nothing."""

from __future__ import annotations

import tarfile

import pytest

from shared.archives import tar_member, tarred, zip_link, zipped
from shared.file_server import CONTENT
from xmlsgd.data.archive import extract
from xmlsgd.errors import DataError


@pytest.mark.parametrize(
    "archive",
    [
        zipped({"top/": "", "top/a.txt": "one", "top/deep/b.txt": "two"}),
        *(
            tarred(mode, tar_member("top", kind=tarfile.DIRTYPE), *map(tar_member, names, (b"one", b"two")))
            for mode, names in [("w:gz", ("top/a.txt", "top/deep/b.txt")), ("w:bz2", ("./top/a.txt", "top/deep/b.txt"))]
        ),
    ],
    ids=["zip", "tar.gz", "tar.bz2"],
)
def test_an_archive_is_unpacked_whatever_its_name(tmp_path, archive):
    (tmp_path / "archive").write_bytes(archive)
    extract(tmp_path / "archive", tmp_path / "out")
    assert (tmp_path / "out/top/a.txt").read_text() == "one"
    assert (tmp_path / "out/top/deep/b.txt").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]


HOSTILE = {
    "zip-parent": (zipped({"fine": "", "../evil": "x"}), "'../evil' leads outside"),
    "zip-inner-parent": (zipped({"a/../../evil": "x"}), "leads outside"),
    "zip-absolute": (zipped({"/evil": "x"}), "leads outside"),
    "zip-backslash": (zipped({"..\\evil": "x"}), "leads outside"),
    "zip-drive": (zipped({"C:/evil": "x"}), "leads outside"),
    "zip-symlink": (zip_link(), "neither a file nor a folder"),
    "tar-parent": (tarred("w:gz", tar_member("../evil", b"x")), "leads outside"),
    "tar-absolute": (tarred("w:gz", tar_member("/evil", b"x")), "leads outside"),
    "tar-symlink": (
        tarred("w:gz", tar_member("d", kind=tarfile.SYMTYPE, target="/tmp"), tar_member("d/evil", b"x")),
        "neither a file nor a folder",
    ),
    "tar-hard-link": (tarred("w:gz", tar_member("l", kind=tarfile.LNKTYPE, target="/etc/passwd")), "neither a file"),
    "tar-device": (tarred("w:gz", tar_member("null", kind=tarfile.CHRTYPE)), "neither a file"),
    "cut-zip": (zipped({"a": "x" * 1000})[:-30], "not a readable zip or tar archive"),
    "cut-tar": (tarred("w:gz", tar_member("a", CONTENT))[:100_000], "not a readable zip or tar archive"),
    "cut-bz2": (tarred("w:bz2", tar_member("a", CONTENT))[:100_000], "not a readable zip or tar archive"),
    "not-an-archive": (b"hello", "not a readable zip or tar archive"),
    "empty": (b"", "not a readable zip or tar archive"),
}


@pytest.mark.parametrize(("archive", "complaint"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_or_damaged_archive_leaves_nothing(tmp_path, archive, complaint):
    home = tmp_path / "home"
    home.mkdir()
    (home / "archive").write_bytes(archive)
    with pytest.raises(DataError, match=complaint):
        extract(home / "archive", home / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["home", "archive"]


def test_an_archive_larger_than_the_disk_is_refused(tmp_path, monkeypatch):
    (tmp_path / "archive").write_bytes(zipped({"a": "x" * 1000}))
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 900}))
    with pytest.raises(DataError, match="no room for its content, 100 bytes more"):
        extract(tmp_path / "archive", tmp_path / "out")
    assert not (tmp_path / "out").exists()
