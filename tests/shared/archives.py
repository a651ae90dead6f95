"""Archives in memory, honest and hostile ones."""

from __future__ import annotations

import io
import zipfile


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def zip_link():
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    return zipped({link: "/etc/passwd"})
