"""Data that workers map: where they lie in files they are not copied, and no other file is taken for them."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd.errors import DataError
from xmlsgd.training.executors.mapped import ArrayFile, MappedJob


@pytest.mark.parametrize("change", ["removed", "replaced", "changed in memory"])
def test_data_whose_file_is_no_longer_theirs_are_written_anew_for_the_workers(tmp_path, change):
    np.arange(20, dtype=np.float32).tofile(tmp_path / "values")
    array = np.memmap(tmp_path / "values", np.float32, "c" if change == "changed in memory" else "r")
    if change == "removed":
        (tmp_path / "values").unlink()
    elif change == "replaced":
        np.zeros(20, np.float32).tofile(tmp_path / "other")
        (tmp_path / "other").replace(tmp_path / "values")
    else:
        array[3] = 77
    part = ArrayFile.of(array, tmp_path / "copy")
    np.testing.assert_array_equal(part.open(), array)


def test_a_worker_that_finds_other_data_than_it_was_told_of_refuses_them(tmp_path):
    np.arange(20, dtype=np.float32).tofile(tmp_path / "values")
    part = ArrayFile.of(np.memmap(tmp_path / "values", np.float32, "r"), tmp_path / "copy")
    (tmp_path / "values").rename(tmp_path / "older")
    with pytest.raises(DataError, match="values: must stay as it is during training, but was removed or replaced"):
        part.open()
    np.zeros(20, np.float32).tofile(tmp_path / "values")
    with pytest.raises(DataError, match="removed or replaced"):
        part.open()


def test_data_that_lie_in_files_are_not_copied_for_the_workers(job, tmp_path):
    file = np.memmap(tmp_path / "values", np.float32, "w+", shape=(20,))
    file[:] = np.arange(20)
    part = ArrayFile.of(file[4:9], tmp_path / "copy")
    assert part.path == str(tmp_path / "values")
    assert not (tmp_path / "copy").exists()
    np.testing.assert_array_equal(part.open(), np.arange(4, 9))
    plain = ArrayFile.of(np.arange(5)[::2], tmp_path / "copy")
    np.testing.assert_array_equal(plain.open(), [0, 2, 4])
    mapped = MappedJob.of(job, tmp_path).open()
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(mapped.dataset.X, name), getattr(job.dataset.X, name))
        np.testing.assert_array_equal(getattr(mapped.dataset.Y, name), getattr(job.dataset.Y, name))
