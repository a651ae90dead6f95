"""Downloads from a server on this machine: whole, interrupted, changed, wrong, refused."""

from __future__ import annotations

import socket

import pytest

from shared.file_server import CONTENT, SHA256, statuses
from xmlsgd.data.fetch import DownloadError, download


def fetch(server, path):
    return download(server.url, path)


def fetch_after_failures(server, path, n_failures):
    for _ in range(n_failures):
        with pytest.raises(DownloadError):
            fetch(server, path)
    return fetch(server, path)


def test_a_download_is_the_file_with_its_checksum_and_leaves_nothing_else(server, tmp_path):
    path = tmp_path / "new" / "file.zip"
    digest = fetch(server, path)
    assert path.read_bytes() == CONTENT
    assert digest == SHA256
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("etag", "date"), [('"one"', None), (None, "Mon, 02 Nov 2026 10:00:00 GMT"), ('W/"x"', "date")]
)
def test_an_interrupted_download_goes_on_where_it_stopped(server, tmp_path, etag, date):
    server.etag, server.last_modified = etag, date
    server.faults.extend([300_000, 100_000])
    assert fetch_after_failures(server, tmp_path / "file", 2) == SHA256
    validator = date if date else etag
    assert server.log == [(None, None, 200), ("bytes=300000-", validator, 206), ("bytes=400000-", validator, 206)]


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError, match=r"/file: the connection ended after 300000 of 700001 bytes"):
        download(server.url, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert download(server.url, tmp_path / "file") == SHA256
    assert server.log[1] == ("bytes=300000-", '"one"', 206)


def test_a_file_that_changed_meanwhile_is_downloaded_anew(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "file")
    server.content, server.etag = b"another file", '"two"'
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"another file"
    assert statuses(server) == [200, 200]


def test_without_a_validator_a_download_starts_anew(server, tmp_path):
    server.etag = None
    server.faults.append(300_000)
    assert fetch_after_failures(server, tmp_path / "file", 1) == SHA256
    assert server.log == [(None, None, 200), (None, None, 200)]


def test_what_arrived_from_another_address_is_not_continued(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url + "-elsewhere", tmp_path / "file")
    assert fetch(server, tmp_path / "file") == SHA256
    assert server.log[1] == (None, None, 200)


def test_a_download_that_was_whole_but_not_renamed_is_not_repeated(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "file")
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert fetch(server, tmp_path / "file") == SHA256
    assert statuses(server) == [200, 416]


def test_more_bytes_than_the_server_has_are_thrown_away(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "file")
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    assert fetch(server, tmp_path / "file") == SHA256
    assert statuses(server) == [200, 416, 200]


@pytest.mark.parametrize("status", ["404", "403"])
def test_a_missing_or_forbidden_file_leaves_nothing(server, tmp_path, status):
    server.faults.append(status)
    with pytest.raises(DownloadError, match=rf"/file: the server answered {status} "):
        fetch(server, tmp_path / "file")
    assert statuses(server) == [int(status)]
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_can_be_downloaded(server, tmp_path):
    server.content = b""
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b""


def test_a_web_page_in_place_of_the_file_is_an_error(server, tmp_path):
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(DownloadError, match="a web page came instead of the file"):
        fetch(server, tmp_path / "file")


def test_a_refused_connection_is_one_line(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
        with pytest.raises(DownloadError, match=r"^http://\S+/file: .*refused") as caught:
            download(url, tmp_path / "file")
    assert "\n" not in str(caught.value)


def test_without_a_network_the_name_is_told(tmp_path, monkeypatch):
    def lookup(*args, **kwargs):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(DownloadError, match=r"^http://example\.org/file: .*name resolution$"):
        download("http://example.org/file", tmp_path / "file")


def test_only_web_addresses_are_fetched(tmp_path):
    with pytest.raises(DownloadError, match="must begin with http:// or https://"):
        download("file:///etc/hostname", tmp_path / "file")
