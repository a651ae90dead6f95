"""The address sanitizer sees what kernels do to memory; only under `python tests/sanitize.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.needs import SANITIZED
from shared.paths import TESTS

READS_BEYOND = """
from shared.fake_gpu.shim import shim_device
device = shim_device("float32", edit=lambda code: code.replace("if (at < n) dA[at] = A[at]", "dA[at % n] = A[at]"))
with device.start():
    device.through_relu(device.runtime.empty((40,)), device.runtime.empty((40,)), 1.0)
"""


@pytest.mark.skipif(not SANITIZED, reason="no address sanitizer in this process: python tests/sanitize.py")
def test_the_sanitizer_names_the_line_that_reads_beyond_an_array():
    done = subprocess.run([sys.executable, "-c", READS_BEYOND], cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "AddressSanitizer: use-after-poison" in done.stderr
    assert "dense.cu:" in done.stderr
