"""Download files; each appears under its name when it is complete."""

from __future__ import annotations

import http.client
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from .files.atomic import atomic_file
from .files.reading import sha256_of

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0  # limit of the time without a byte
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class DownloadError(OSError):
    """A download failed; the text names the address and the reason."""


def download(url: str, path: Path) -> str:
    """Fetch `url` into the file `path` and return its SHA-256, in hexadecimal; show progress on a terminal.

    Raises `DownloadError` if that fails.
    """
    from tqdm import tqdm

    request = urllib.request.Request(url, headers={"User-Agent": "xmlsgd"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response, atomic_file(path) as out:
            if response.headers.get_content_type() == "text/html":
                raise DownloadError(f"{url}: a web page came instead of the file (moved, or over the server's quota)")
            with tqdm.wrapattr(out, "write", total=response.length, desc=path.name, disable=None) as shown:
                shutil.copyfileobj(response, shown, CHUNK_BYTES)
            if response.length:  # bytes that did not arrive
                raise DownloadError(f"{url}: the connection ended {response.length} bytes early; call again")
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url}: the server answered {error.code} {error.reason}") from error
    except NETWORK_ERRORS as error:
        raise DownloadError(f"{url}: {getattr(error, 'reason', None) or error}") from error
    return sha256_of(path)
