"""The flat parameter vector: where its tensors lie."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xmlsgd.nn.parameters import ALIGNMENT, Layout, is_finite, zeros

SHAPES = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple), min_size=1, max_size=6)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(SHAPES)
def test_tensors_lie_one_after_the_other_on_cache_lines(shapes):
    layout = Layout({f"Q{i}": shape for i, shape in enumerate(shapes)})
    end = 0
    for name, offset in layout.offsets.items():
        assert offset % ALIGNMENT == 0
        assert end <= offset < end + ALIGNMENT
        end = offset + math.prod(layout.shapes[name])
    assert end <= layout.size < end + ALIGNMENT
    assert layout.size % ALIGNMENT == 0


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(SHAPES)
def test_views_share_the_vector_and_never_each_other(shapes):
    layout = Layout({f"Q{i}": shape for i, shape in enumerate(shapes)})
    flat = np.zeros(layout.size, np.float32)
    views = layout.views(flat)
    assert {name: view.shape for name, view in views.items()} == layout.shapes
    for i, view in enumerate(views.values()):
        assert np.all(view == 0)
        view[:] = i + 1
    counts = [int((flat == i + 1).sum()) for i in range(len(shapes))]
    assert counts == [math.prod(shape) for shape in shapes]


def test_an_empty_layout_has_no_floats():
    assert Layout({}).size == 0
    assert Layout({}).views(zeros(0)) == {}


@pytest.mark.parametrize("size", [0, 1, 17, 100_003])
def test_zeros_start_on_a_cache_line(size):
    made = zeros(size)
    assert made.dtype == np.float32
    assert made.shape == (size,)
    assert not made.any()
    assert made.ctypes.data % 64 == 0 or size == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_parameter_that_is_not_finite_is_found(value):
    flat = np.ones(1000, np.float32)
    assert is_finite(flat)
    flat[700] = value
    assert not is_finite(flat)


def test_parameters_whose_sum_float32_cannot_hold_are_finite():
    assert is_finite(np.full(1000, 3e38, np.float32))
