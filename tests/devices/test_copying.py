"""Exchange of a shared model with a worker's copy."""

from __future__ import annotations

import numpy as np

from xmlsgd.devices.cpu.kernels.copying import push


def test_after_a_push_by_the_only_worker_the_next_one_adds_what_changed_since():
    center, base = np.zeros(4, np.float32), np.zeros(4, np.float32)
    copy, features = np.float32([1, 2, 3, 4]), np.zeros(1, np.int64)
    push.alone(center, copy, base, features, 1, 1, True, 1)
    np.testing.assert_array_equal(center, [1, 2, 3, 4])
    center += 10  # by another worker
    copy += 1
    push.alone(center, copy, base, features[:0], 1, 1, False, 1)
    np.testing.assert_array_equal(center, [11, 13, 14, 15])
    np.testing.assert_array_equal(copy[1:], center[1:])
