"""The files of a model's folder that the command line reads, where somebody may have altered them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os

import pytest

from xmlsgd.cli.model_folder import NO_MODEL, manifest_of, saved_names, saved_options
from xmlsgd.errors import ModelFileError


def a_pipe(file):
    os.mkfifo(file)


def a_device(file):
    file.symlink_to("/dev/null")  # as /dev/zero, which would fill the memory if this failed


def a_link(file):
    outside = file.parent.parent / "outside"
    outside.write_text(json.dumps({"read_by": {"format": "raw"}}) if file.suffix == ".json" else "<http://x/1>\tsea\n")
    file.symlink_to(outside)


def a_large_file(file):
    file.touch()
    os.truncate(file, 1 << 29)


@pytest.fixture(params=[a_pipe, a_device, a_link, a_large_file])
def put(request, tmp_path):
    """Return a function that puts something else in the place of a file, and returns its folder."""
    folder = tmp_path / "m"
    folder.mkdir()

    def make(name):
        request.param(folder / name)
        return str(folder)

    return make


def test_a_report_is_read_only_from_a_small_regular_file(put):
    assert saved_options(put("train.json")) is None


def test_a_vocabulary_is_read_only_from_a_small_regular_file(put):
    with pytest.raises(ModelFileError, match=r"vocabulary\.tsv: (is missing or no regular file|must be at most)"):
        saved_names(put("vocabulary.tsv"))


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_a_vocabulary_is_not_unpacked_which_could_fill_the_memory(tmp_path, module):
    (tmp_path / "vocabulary.tsv").write_bytes(module.compress(b"<http://x/1>\tsea\n"))
    with pytest.raises(ModelFileError, match="must be plain text, got a compressed file"):
        saved_names(str(tmp_path))


@pytest.mark.parametrize("put", [a_pipe, a_device], indirect=True)
def test_what_is_no_regular_file_is_no_manifest(put):
    assert manifest_of(put("MANIFEST.json")) == NO_MODEL
