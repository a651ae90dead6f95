"""Softmax on tensor cores: sums of integers are exact, exponentials are right whatever the order of blocks."""

from __future__ import annotations

import pytest

from shared.fake_gpu.shim import shim_device
from shared.needs import NEEDS_COMPILER
from shared.tensor_cores import compare_exactly, compare_exponentials
from xmlsgd.devices.cuda.tensor_cores import BAND


@pytest.mark.parametrize(("B", "H"), [(1, 1), (16, 133), (90, 24), (16, 134)])
def test_weights_and_sums_of_small_integers_are_exact(make, B, H):
    compare_exactly(make, B, H)


@pytest.mark.parametrize(("B", "band", "peak"), [(5, BAND, 0), (150, 2, 0), (150, BAND, 60)])
def test_exponentials_of_integers_are_those_of_the_logits_whatever_the_order_of_blocks(make, B, band, peak):
    compare_exponentials(make, B, band, peak=peak)


@pytest.mark.parametrize(
    ("B", "n", "width", "start", "peak"),
    [
        (129, 3, 8, 0, 0), (129, 1100, 16, 128, 60), (300, 1300, 72, 256, 0), (257, 700, 512, 0, 60),
        (150, 300, 520, 128, 0), (128, 300, 72, 128, 60),
    ],
)  # fmt: skip
def test_exponentials_by_the_kernel_of_the_gpu_are_those_of_the_logits(make, B, n, width, start, peak):
    """Of one tile of labels and of several a block; where they are too many, or rows few, Hopper has no own kernel."""
    compare_exponentials(make, B, n=n, width=width, start=start, peak=peak)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("B", "width", "name"),
    [
        (129, 512, "hopper_exponentials"), (128, 512, "product_exponentials"), (129, 520, "product_exponentials"),
    ],
)  # fmt: skip
def test_hopper_s_own_kernel_is_for_more_rows_than_a_block_has_and_up_to_512_hidden_units(B, width, name):
    names = []

    def make(precision):
        device = shim_device(precision)
        launch = device.runtime.launch

        def noted(name, *arguments, **options):
            names.append(name)
            launch(name, *arguments, **options)

        device.runtime.launch = noted
        return device

    compare_exponentials(make, B, n=5, width=width)
    assert names == [name]
