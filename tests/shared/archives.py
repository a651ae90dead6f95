"""Archives in memory, honest and hostile ones."""

from __future__ import annotations

import io
import tarfile
import zipfile


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
