"""Arrays of saved models are of the type and shape that they must have, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xmlsgd import ModelFileError
from xmlsgd.data.files.folders import FolderArrays

NAMED = {"x_scales": np.array([1, np.nan, 2], np.float32), "x_keys": np.zeros((3, 2), np.int32)}


@pytest.mark.parametrize(
    ("name", "kind", "shape", "complaint"),
    [
        ("keys", np.uint16, (3, 2), r"x_keys must be uint16 \(3, 2\), got int32 \(3, 2\)$"),
        ("keys", np.int32, (None, 3), r"x_keys must be int32 \(n, 3\), got int32 \(3, 2\)$"),
        ("keys", np.int32, (None,), r"x_keys must be int32 \(n,\), got int32 \(3, 2\)$"),
        ("bias", np.float32, (3,), r"x_bias must be float32 \(3,\), got none$"),
    ],
)
def test_an_array_of_another_type_or_shape_is_refused_by_what_it_must_be(name, kind, shape, complaint):
    with pytest.raises(ModelFileError, match="^model: " + complaint):
        FolderArrays(NAMED, Path("model")).part("x_").array(name, kind, *shape)


def test_an_array_is_given_as_it_is_where_any_length_will_do():
    assert FolderArrays(NAMED, Path("model")).array("x_keys", np.int32, None, 2) is NAMED["x_keys"]


def test_numbers_are_looked_at_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr("xmlsgd.data.files.folders.BLOCK", 1)
    assert FolderArrays(NAMED, Path("model"), check_values=False).finite("x_scales", 3) is NAMED["x_scales"]
    with pytest.raises(ModelFileError, match=r"^model: x_scales must be finite$"):
        FolderArrays(NAMED, Path("model")).finite("x_scales", 3)
