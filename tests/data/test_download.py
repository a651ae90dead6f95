"""Downloads from a server on this machine: whole, interrupted, wrong, refused."""

from __future__ import annotations

import socket

import pytest

from shared.file_server import CONTENT, SHA256
from xmlsgd.data.public import DownloadError, download


def fetch(server, path):
    return download(server.url, path)


def test_a_download_is_the_file_with_its_checksum_and_leaves_nothing_else(server, tmp_path):
    path = tmp_path / "file.zip"
    digest = fetch(server, path)
    assert path.read_bytes() == CONTENT
    assert digest == SHA256
    assert list(path.parent.iterdir()) == [path]


def test_a_download_whose_connection_ends_leaves_nothing(server, tmp_path):
    server.faults.append(300_000)
    with pytest.raises(DownloadError, match=r"/file: the connection ended 400001 bytes early; call again"):
        fetch(server, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    assert fetch(server, tmp_path / "file") == SHA256


@pytest.mark.parametrize("status", ["404", "403"])
def test_a_missing_or_forbidden_file_leaves_nothing(server, tmp_path, status):
    server.faults.append(status)
    with pytest.raises(DownloadError, match=rf"/file: the server answered {status} "):
        fetch(server, tmp_path / "file")
    assert server.log == [int(status)]
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
