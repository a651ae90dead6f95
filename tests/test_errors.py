"""What errors quote."""

from __future__ import annotations

import numpy as np
import pytest

from xmlsgd import XMLClassifier, XMLEnsemble
from xmlsgd.errors import shorten


@pytest.mark.parametrize(
    ("got", "text"),
    [
        (np.float32(np.nan), "nan"),
        (np.int64(-3), "-3"),
        (np.True_, "True"),
        (np.str_("a"), "'a'"),
        ([np.float64(-np.inf), (np.uint8(1), 2.5)], "[-inf, (1, 2.5)]"),
        ({np.int32(1): np.float16(0.5)}, "{1: 0.5}"),
        (np.array([1.5], np.float32), "array([1.5], dtype=float32)"),
        ("a\nb", r"'a\nb'"),
    ],
)
def test_numbers_of_numpy_are_quoted_as_those_of_python(got, text):
    assert shorten(got) == text


def test_a_long_value_is_cut():
    assert shorten("x" * 100, 10) == "'xxxxxx..."


@pytest.mark.parametrize("model", [XMLClassifier(max_epochs=1), XMLEnsemble(XMLClassifier(max_epochs=1), 2)], ids=str)
def test_a_warning_points_at_the_line_that_calls_the_package(model):
    X, groups = np.eye(1000, 100, dtype=np.float32), np.arange(1000) // 500
    with pytest.warns(UserWarning, match="groups: none could be held out") as warned:
        model.fit(X, X.astype(np.int64), groups=groups)
    assert {each.filename for each in warned} == {__file__}
