"""Download a file safely: interruptions, and files that are changed or broken on the server, do no harm.

What arrives grows in `NAME.part`; `NAME.part.tag` holds its address and the server's validator. An interrupted
download goes on where it stopped if the server still has the same file (RFC 9110: Range, If-Range), else it starts
anew. The final name appears by renaming, after the checks.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from .files.reading import sha256_of

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0  # without a byte
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


class DownloadError(OSError):
    """A download failed; the text names the address and the reason."""


class DownloadInterrupted(DownloadError):
    """A download ended early; the next call goes on with what has arrived."""


def download(url: str, path: str | os.PathLike[str]) -> str:
    """Fetch `url` into the file `path` and return its SHA-256, in hexadecimal.

    What has arrived of a download that fails stays in `path`.part, and the next call goes on from there. Raises
    `DownloadError` when the file cannot be had. One process at a time.
    """
    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url}: the address must begin with http:// or https://")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    tag = path.with_name(f"{path.name}.part.tag")
    try:
        with open(part, "ab") as out:
            receive(url, out, tag)
            out.flush()
            os.fsync(out.fileno())
    except (OSError, http.client.HTTPException) as error:
        arrived = part.stat().st_size
        if not arrived:
            part.unlink()
            tag.unlink(missing_ok=True)
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            raise DownloadError(f"{url}: the server answered {error.code} {error.reason}") from error
        if isinstance(error, NETWORK_ERRORS):
            kind = DownloadInterrupted if arrived else DownloadError
            raise kind(f"{url}: {getattr(error, 'reason', None) or error}") from error
        raise
    digest = sha256_of(part)
    tag.unlink(missing_ok=True)
    os.replace(part, path)
    return digest


def receive(url: str, out: IO[bytes], tag: Path) -> None:
    """Append what is missing of `url` to `out`, or start it anew where it may have changed."""
    have = out.seek(0, os.SEEK_END)
    validator = read_tag(tag, url)
    if have and not validator:
        have = out.truncate(0)
    headers = {"User-Agent": "xmlsgd"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # all had arrived; only the rename was missing
        tag.unlink(missing_ok=True)  # the server has another file now
        receive(url, out, tag)
        return
    with response:
        if response.headers.get_content_type() == "text/html":
            raise DownloadError(f"{url}: a web page came instead of the file (moved, or over the server's quota)")
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            have = out.truncate(0)
            write_tag(tag, url, response.headers)
        total = total_bytes(response, have)
        have = copy(response, out, have, total, tag.name.removesuffix(".part.tag"))
    if total not in (None, have):
        raise DownloadInterrupted(f"{url}: the connection ended after {have} of {total} bytes; the same call goes on")


def total_bytes(response: Any, have: int) -> int | None:
    """Return the bytes of the whole file, None where the server does not say."""
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return response.length
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    span, _, total = rest.partition("/")
    if unit != "bytes" or not span.startswith(f"{have}-"):
        raise DownloadError(f"{response.url}: asked for bytes from {have} on, got {rest!r}")
    return int(total) if total.isdigit() else None


def copy(response: Any, out: IO[bytes], have: int, total: int | None, name: str) -> int:
    """Append the body of a response to `out` and return its new size; show progress on a terminal."""
    from tqdm import tqdm

    bar = tqdm.wrapattr(out, "write", total=total, initial=have, desc=name, disable=None)
    with bar as shown:
        shutil.copyfileobj(response, shown, CHUNK_BYTES)
    return out.seek(0, os.SEEK_END)


def write_tag(tag: Path, url: str, headers: Any) -> None:
    """Save the validator that identifies the server's file; without a strong one, a download cannot be resumed."""
    etag = headers.get("ETag", "")
    validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
    tag.write_text(json.dumps([url, validator]))


def read_tag(tag: Path, url: str) -> str:
    """Return the validator of what has arrived of `url`, empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        known, validator = json.loads(tag.read_text())
        if known == url:
            return str(validator)
    return ""
