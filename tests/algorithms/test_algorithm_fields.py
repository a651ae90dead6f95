"""What the constructors of all algorithms and of their parts refuse."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from benchmarks.papers.efficiency import HardwareEfficiency
from xmlsgd.algorithms import algorithm_class, algorithm_names
from xmlsgd.algorithms.outer import HeavyBall, Nesterov, Outer
from xmlsgd.data.validation import field_types
from xmlsgd.errors import DataError

WRONG = {
    int: ("3", 1.5, float("nan"), float("inf"), (), True),
    float: ("3", float("nan"), (), True),
    str: (3, None, [], b"mean"),
    bool: (1, "False", None, []),
    tuple[int, ...]: (3, (1.5,), ("3",), (float("nan"),)),
    tuple[float, ...]: (3.0, ("3",), (float("nan"),)),
    Outer: (3, "nesterov", HeavyBall, 0.5),
}
PARTS = {
    HeavyBall: {}, Nesterov: {}, HardwareEfficiency: {"n_workers": 2, "compute": 1.0}
}  # fmt: skip
MADE = {algorithm_class(name): {} for name in algorithm_names()} | PARTS
CASES = [
    pytest.param(kind, needed, field.name, value, id=f"{kind.__name__}.{field.name}={value!r}")
    for kind, needed in MADE.items()
    for field in fields(kind)
    for value in WRONG.get(field_types(kind)[field.name][0], ())
]


@pytest.mark.parametrize(("kind", "needed", "field", "value"), CASES)
def test_what_is_not_of_the_promised_kind_is_refused_at_construction_in_one_line(kind, needed, field, value):
    with pytest.raises(DataError, match=f"^{field} must be .*, got ") as error:
        kind(**{**needed, field: value})
    assert "\n" not in str(error.value)


def test_every_kind_of_field_of_an_algorithm_is_checked():
    kinds = {kind for name in algorithm_names() for kind, _ in field_types(algorithm_class(name)).values()}
    assert kinds <= WRONG.keys()


@pytest.mark.parametrize("name", algorithm_names())
def test_a_batch_without_rows_and_a_rate_that_is_not_above_zero_are_refused(name):
    kind = algorithm_class(name)
    for batch, rate in ((0, 0.1), (-1, 0.1), (8, 0.0), (8, -1.0), (8, float("inf"))):
        with pytest.raises(DataError, match=r"must be (at least 1|finite and above 0)"):
            kind(batch=batch, learning_rate=rate)


@pytest.mark.parametrize("name", algorithm_names())
def test_numbers_of_numpy_are_numbers(name):
    algorithm = algorithm_class(name)(batch=np.int64(8), learning_rate=np.float32(0.5))
    assert (algorithm.batch, algorithm.learning_rate) == (8, 0.5)
