"""A kept model is given back as it was kept; the folder is named where the disk is full."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest

from xmlsgd.training.kept_model import KeptModel


def test_a_kept_model_gives_back_what_it_kept():
    kept, flat = KeptModel(), np.arange(10, dtype=np.float32)
    kept.keep(flat)
    kept.keep(2 * flat)
    flat[:] = np.nan
    kept.restore(flat)
    kept.close()
    assert np.array_equal(flat, 2 * np.arange(10))


def test_a_file_that_was_cut_short_is_an_error_of_the_disk():
    kept = KeptModel()
    kept.keep(np.zeros(10, np.float32))
    kept._file.truncate(8)
    with pytest.raises(OSError, match="a temporary file was cut short, to 8 of 40 bytes"):
        kept.restore(np.ones(10, np.float32))
    kept.close()


def test_a_model_that_is_referred_to_is_given_back_until_another_is_kept():
    kept, origin, flat = KeptModel(), np.arange(10, dtype=np.float32), np.full(10, np.nan, np.float32)
    kept.refer(origin)
    kept.restore(flat)
    assert np.array_equal(flat, origin)
    kept.keep(2 * origin)
    kept.restore(flat)
    kept.close()
    assert np.array_equal(flat, 2 * origin)
    assert np.array_equal(origin, np.arange(10))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_kept_model_names_the_folder_of_the_disk_that_is_full(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: open("/dev/full", "w+b"))  # noqa: SIM115
    kept = KeptModel()
    with pytest.raises(OSError, match="No space") as caught:
        kept.keep(np.ones(10_000, np.float32))
    kept.close()
    assert caught.value.filename == tempfile.gettempdir()
