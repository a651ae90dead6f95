"""What the constructors of all algorithms refuse."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from xmlsgd.algorithms import algorithm_class, algorithm_names
from xmlsgd.errors import DataError

WRONG = {
    "int": ("3", 1.5, float("nan"), float("inf"), (), True),
    "float": ("3", float("nan"), (), True),
    "tuple[int, ...]": (3, (1.5,), ("3",), (float("nan"),)),
    "tuple[float, ...]": (3.0, ("3",), (float("nan"),)),
}
CASES = [
    pytest.param(kind, field.name, value, id=f"{name}.{field.name}={value!r}")
    for name in algorithm_names()
    if (kind := algorithm_class(name)) is not None
    for field in fields(kind)
    for value in WRONG.get(str(field.type).split(" | ")[0], ())
]


@pytest.mark.parametrize(("kind", "field", "value"), CASES)
def test_what_is_no_number_of_the_promised_kind_is_refused_at_construction(kind, field, value):
    with pytest.raises(DataError, match=f"^{field} must be "):
        kind(**{field: value})


@pytest.mark.parametrize("name", algorithm_names())
def test_a_batch_without_rows_and_a_rate_that_is_not_above_zero_are_refused(name):
    kind = algorithm_class(name)
    for batch, rate in ((0, 0.1), (-1, 0.1), (8, 0.0), (8, -1.0), (8, float("inf"))):
        with pytest.raises(DataError, match=r"must be (at least 1|finite and above 0)"):
            kind(batch=batch, rate=rate)


@pytest.mark.parametrize("name", algorithm_names())
def test_numbers_of_numpy_are_numbers(name):
    algorithm = algorithm_class(name)(batch=np.int64(8), rate=np.float32(0.5))
    assert (algorithm.batch, algorithm.rate) == (8, 0.5)
