"""Downloads from a server on this machine: whole, interrupted, changed, wrong, refused; archives, hostile ones too."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
import tarfile
import threading
import zipfile
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from xmlsgd.datasets import public
from xmlsgd.datasets.archive import extract
from xmlsgd.datasets.fetch import DownloadError, download
from xmlsgd.errors import DataError

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


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def statuses(server):
    return [status for _, _, status in server.log]


def fetch(server, path, **kwargs):
    """Download with three pauses that are recorded, not slept."""
    slept: list[float] = []
    digest = download(server.url, path, pauses=(1, 2, 3), sleep=slept.append, **kwargs)
    return digest, slept


def test_a_download_is_the_file_with_its_checksum_and_leaves_nothing_else(server, tmp_path):
    path = tmp_path / "new" / "file.zip"
    digest, slept = fetch(server, path, sha256=SHA256, size=len(CONTENT))
    assert path.read_bytes() == CONTENT
    assert digest == SHA256
    assert slept == []
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("etag", "date"), [('"one"', None), (None, "Mon, 02 Nov 2026 10:00:00 GMT"), ('W/"x"', "date")]
)
def test_an_interrupted_download_goes_on_where_it_stopped(server, tmp_path, etag, date):
    server.etag, server.last_modified = etag, date
    server.faults.extend([300_000, 100_000])
    digest, slept = fetch(server, tmp_path / "file", sha256=SHA256)
    assert digest == SHA256
    assert slept == [1, 2]
    validator = date if date else etag
    assert server.log == [(None, None, 200), ("bytes=300000-", validator, 206), ("bytes=400000-", validator, 206)]


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError, match=r"/file: the connection ended after 300000 of 700001 bytes"):
        download(server.url, tmp_path / "file", pauses=())
    assert not (tmp_path / "file").exists()
    assert download(server.url, tmp_path / "file", pauses=()) == SHA256
    assert server.log[1] == ("bytes=300000-", '"one"', 206)


def test_a_file_that_changed_meanwhile_is_downloaded_anew(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "file", pauses=())
    server.content, server.etag = b"another file", '"two"'
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"another file"
    assert statuses(server) == [200, 200]


def test_without_a_validator_a_download_starts_anew(server, tmp_path):
    server.etag = None
    server.faults.append(300_000)
    digest, _ = fetch(server, tmp_path / "file")
    assert digest == SHA256
    assert server.log == [(None, None, 200), (None, None, 200)]


def test_what_arrived_from_another_address_is_not_continued(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url + "-elsewhere", tmp_path / "file", pauses=())
    fetch(server, tmp_path / "file", sha256=SHA256)
    assert server.log[1] == (None, None, 200)


def test_a_download_that_was_whole_but_not_renamed_is_not_repeated(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "file", pauses=())
    (tmp_path / "file.part").write_bytes(CONTENT)
    digest, slept = fetch(server, tmp_path / "file", sha256=SHA256)
    assert (digest, slept) == (SHA256, [])
    assert statuses(server) == [200, 416]


def test_more_bytes_than_the_server_has_are_thrown_away(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "file", pauses=())
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    digest, _ = fetch(server, tmp_path / "file")
    assert digest == SHA256
    assert statuses(server) == [200, 416, 200]


def test_a_wrong_checksum_removes_the_file_and_names_both(server, tmp_path):
    with pytest.raises(DataError, match=f"SHA-256 must be {'0' * 64}, got {SHA256}; the file was removed"):
        fetch(server, tmp_path / "file", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_size_is_refused_before_the_transfer(server, tmp_path):
    with pytest.raises(DataError, match="the file must have 5 bytes, the server announces 700001"):
        fetch(server, tmp_path / "file", size=5)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("status", ["404", "403"])
def test_a_missing_or_forbidden_file_is_not_retried(server, tmp_path, status):
    server.faults.append(status)
    with pytest.raises(DownloadError, match=rf"/file: the server answered {status} "):
        fetch(server, tmp_path / "file")
    assert statuses(server) == [int(status)]
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_can_be_downloaded(server, tmp_path):
    server.content = b""
    fetch(server, tmp_path / "file", size=0)
    assert (tmp_path / "file").read_bytes() == b""


def test_a_busy_server_is_asked_again_after_each_pause(server, tmp_path):
    server.faults.extend(["503", "500", "429"])
    digest, slept = fetch(server, tmp_path / "file")
    assert digest == SHA256
    assert slept == [1, 2, 3]


def test_a_web_page_in_place_of_the_file_is_an_error(server, tmp_path):
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(DownloadError, match="a web page came instead of the file"):
        fetch(server, tmp_path / "file")


def test_a_refused_connection_is_one_line_after_all_attempts(tmp_path):
    slept: list[float] = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
        with pytest.raises(DownloadError, match=r"^http://\S+/file: .*refused") as caught:
            download(url, tmp_path / "file", pauses=(1, 2), sleep=slept.append)
    assert slept == [1, 2]
    assert "\n" not in str(caught.value)


def test_without_a_network_nothing_is_tried_again(tmp_path, monkeypatch):
    def lookup(*args, **kwargs):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    slept: list[float] = []
    with pytest.raises(DownloadError, match=r"^http://example\.org/file: .*name resolution$"):
        download("http://example.org/file", tmp_path / "file", sleep=slept.append)
    assert slept == []


def test_only_web_addresses_are_fetched(tmp_path):
    with pytest.raises(DownloadError, match="must begin with http:// or https://"):
        download("file:///etc/hostname", tmp_path / "file")


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def tarred(mode, *members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def tar_member(name, content=b"", kind=tarfile.REGTYPE, target=""):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, target
    return member, content


def zip_link():
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    return zipped({link: "/etc/passwd"})


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


TRAIN = "2 3 4\n0,1 0:1.0 2:0.5\n3 1:2.0\n"
TEST = "1 3 4\n2 0:1.0\n"


@pytest.fixture
def toy(server, monkeypatch):
    """Put a data set into the table that the local server has."""
    server.content = zipped({"Toy/toy_train.txt": TRAIN, "Toy/toy_test.txt": TEST})
    dataset = public.PublicDataset("Toy-4", 2, 1, 3, 4, (public.Source(server.url),))
    monkeypatch.setitem(public.PUBLIC, "toy-4", dataset)
    return dataset


def test_the_table_names_each_data_set_once_with_a_source_and_a_shape():
    assert len(public.PUBLIC) == len(public.TABLE)
    for dataset in public.TABLE:
        assert dataset.sources
        assert min(dataset.n_train, dataset.n_test, dataset.n_features, dataset.n_labels) > 0
    addresses = [source.url for dataset in public.TABLE for source in dataset.sources]
    assert len(set(addresses)) == len(addresses)


def test_a_public_data_set_is_downloaded_once_and_then_loaded_from_the_disk(server, toy, tmp_path, capsys):
    for _ in range(2):
        train, test = public.load_public("TOY-4", tmp_path)
        assert (train.X.shape, train.Y.shape) == ((2, 3), (2, 4))
        assert (test.X.shape, test.Y.shape) == ((1, 3), (1, 4))
        np.testing.assert_array_equal(train.Y.indices, [0, 1, 3])
    assert len(server.log) == 1
    digest = hashlib.sha256(server.content).hexdigest()
    assert f"Toy-4: SHA-256 {digest}, not verified" in capsys.readouterr().err
    assert not (tmp_path / "Toy-4.zip").exists()


def test_an_archive_that_was_saved_by_hand_needs_no_network(server, toy, tmp_path):
    (tmp_path / "Toy-4.zip").write_bytes(server.content)
    train, _ = public.load_public("toy-4", tmp_path)
    assert train.n_rows == 2
    assert server.log == []
    assert (tmp_path / "Toy-4.zip").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_who_comes_second_waits_for_the_first_and_downloads_nothing(server, toy, tmp_path, monkeypatch):
    waiting, loaded = threading.Event(), []
    monkeypatch.setattr(public, "print", lambda *args, **kwargs: waiting.set(), raising=False)
    second = threading.Thread(target=lambda: loaded.append(public.load_public("toy-4", tmp_path)))
    with public.alone(tmp_path / ".Toy-4.lock", "Toy-4"):
        second.start()
        assert waiting.wait(30)
        (tmp_path / "archive").write_bytes(server.content)
        extract(tmp_path / "archive", tmp_path / "Toy-4")
    second.join()
    assert loaded[0][0].n_rows == 2
    assert server.log == []


def test_the_second_source_is_taken_where_the_first_fails(server, toy, tmp_path, monkeypatch):
    good = public.Source(server.url, hashlib.sha256(server.content).hexdigest(), len(server.content))
    both = public.PublicDataset("Toy-4", 2, 1, 3, 4, (public.Source(server.url + "-gone"), good))
    monkeypatch.setitem(public.PUBLIC, "toy-4", both)
    server.faults.append("404")
    train, _ = public.load_public("toy-4", tmp_path)
    assert train.n_rows == 2
    assert statuses(server) == [404, 200]


def test_options_of_the_reader_reach_it(server, toy, tmp_path):
    server.content = zipped({"toy_train.txt": TRAIN.replace("2:0.5", "0:0.5"), "toy_test.txt": TEST})
    with pytest.raises(DataError, match=r"toy_train\.txt:2: "):
        public.load_public("toy-4", tmp_path)
    train, _ = public.load_public("toy-4", tmp_path, duplicates="sum")
    np.testing.assert_array_equal(train.X.data, [1.5, 2.0])


def test_a_public_data_set_without_a_test_part_is_an_error(server, toy, tmp_path):
    server.content = zipped({"toy_train.txt": TRAIN})
    with pytest.raises(DataError, match="must have a test part"):
        public.load_public("toy-4", tmp_path)


def test_without_a_source_one_line_says_what_was_tried_and_what_to_do(server, toy, tmp_path):
    server.faults.append("404")
    with pytest.raises(DownloadError) as caught:
        public.load_public("toy-4", tmp_path)
    text = str(caught.value)
    assert "\n" not in text
    assert f"{server.url}: the server answered 404" in text
    assert f"download it by hand from {public.REPOSITORY} and save it as {tmp_path / 'Toy-4.zip'}" in text
    with pytest.raises(DataError, match=r"not in .*; download it by hand"):
        public.load_public("toy-4", tmp_path, download=False)


def test_a_downloaded_archive_that_is_damaged_is_not_kept(server, toy, tmp_path):
    server.content = server.content[:-30]
    with pytest.raises(DataError, match="not a readable zip or tar archive"):
        public.load_public("toy-4", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".Toy-4.lock"]


def test_another_shape_than_the_table_says_is_a_warning(server, toy, tmp_path, monkeypatch):
    """Trap 5: a table of data sets with two columns swapped."""
    other = public.PublicDataset("Toy-4", 2, 1, 5, 4, toy.sources)
    monkeypatch.setitem(public.PUBLIC, "toy-4", other)
    with pytest.warns(UserWarning, match=r"Toy-4: .* must be \(2, 1, 5, 4\), got \(2, 1, 3, 4\)"):
        public.load_public("toy-4", tmp_path)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(DataError, match=r"unknown data set 'eurlex-4'; did you mean 'Eurlex-4K'\? known are Bibtex, "):
        public.load_public("eurlex-4")


def test_a_data_set_of_one_file_is_cut_by_the_column_of_its_split_files(server, toy, tmp_path):
    lines = [f"{row} {row % 3}:{row}.5" for row in range(4)]
    server.content = zipped(
        {
            "Toy/Toy_data.txt": "4 3 4\n" + "\n".join(lines),
            "Toy/toy_trSplit.txt": "1 4\n3 2\n",
            "Toy/toy_tstSplit.txt": "2 3\n",
        }
    )
    train, test = public.load_public("toy-4", tmp_path)
    np.testing.assert_array_equal(train.Y.indices, [0, 2])
    np.testing.assert_array_equal(test.Y.indices, [1])
    train, test = public.load_public("toy-4", tmp_path, split=1)
    np.testing.assert_array_equal(train.Y.indices, [3, 1])
    np.testing.assert_array_equal(train.X.data, [3.5, 1.5])
    np.testing.assert_array_equal(test.Y.indices, [2])
    with pytest.raises(DataError, match=r"toy_trSplit.txt: split must be in \[0, 2\), got 2"):
        public.load_public("toy-4", tmp_path, split=2)


def test_a_split_of_a_data_set_that_has_one_only_is_an_error(toy, tmp_path):
    with pytest.raises(DataError, match="the data set has one split only, got split=1"):
        public.load_public("toy-4", tmp_path, split=1)
