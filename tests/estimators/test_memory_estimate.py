"""Memory is estimated before a run, and a run that would not fit is refused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from shared.planted import small
from xmlsgd import CSR, MemoryEstimateError, XMLClassifier
from xmlsgd.estimators import memory


def test_the_estimate_holds_the_parts_of_the_model(rows):
    X, Y = rows
    model = small(hidden_layer_sizes=(64,))
    estimate = model.estimate_memory(X, Y)
    model.partial_fit(X, Y)
    assert estimate["parameters"] == model.params_.nbytes
    assert estimate["optimizer_state"] == model.fitted_.optimizer.state.nbytes
    assert estimate["total"] == sum(size for part, size in estimate.items() if part != "total")


def test_a_run_that_would_not_fit_is_refused_with_what_would(rows, monkeypatch):
    model = small(hidden_layer_sizes=(4096,))
    estimate = model.estimate_memory(*rows)
    monkeypatch.setattr(memory, "memory_limit", lambda: estimate["total"])
    with pytest.raises(
        MemoryEstimateError, match=r"parameters .* optimizer_state .* hidden_layer_sizes=\((\d+),\)"
    ) as e:
        model.fit(*rows)
    assert not hasattr(model, "params_")
    width = int(str(e.value).split("sizes=(")[1].split(",")[0])
    assert f"(--hidden {width}) is the largest that fits" in str(e.value)
    with pytest.raises(MemoryEstimateError):
        small(hidden_layer_sizes=(width + 1,)).fit(*rows)
    small(hidden_layer_sizes=(width,), max_epochs=1).fit(*rows)


@pytest.mark.parametrize(("share", "begin"), [(2.0, "estimated, "), (1.0, "too large: estimated, ")])
def test_the_plan_tells_the_estimate_and_whether_it_is_too_large(rows, monkeypatch, share, begin):
    total = small().estimate_memory(*rows)["total"]
    monkeypatch.setattr(memory, "memory_limit", lambda: share * total)
    *_, told = small().plan(*rows).decisions
    assert (told.name, told.value) == ("memory", memory.readable(total))
    assert told.reason.startswith(begin)
    assert f"a run may use {memory.readable(int(0.8 * share * total))}, " in told.reason


@pytest.mark.parametrize(
    ("hidden", "largest"), [((10**8,), r"\(\d{3,5},\)"), ((10**8, 10**7), r"\(\d{3,4}, \d{2,3}\)")]
)
def test_what_fits_is_told_however_far_the_wish_is_from_it(rows, monkeypatch, hidden, largest):
    monkeypatch.setattr(memory, "memory_limit", lambda: 1 << 27)
    with pytest.raises(MemoryEstimateError, match=rf"hidden_layer_sizes={largest} \(--hidden [\d,]+\) is the largest"):
        small(hidden_layer_sizes=hidden).fit(*rows)


def test_numbers_with_large_gaps_are_refused_before_memory_is_taken_with_a_remedy():
    def wide(n: int) -> CSR:
        columns = np.arange(200, dtype=np.int32) * (n // 200)
        return CSR(np.arange(201), columns, np.ones(200, np.float32), n)

    tracemalloc.start()
    remedy = (
        "; only 200 of 1,800,000,000 features occur, number them without gaps, only 200 of 900,000,000 labels occur"
    )
    with pytest.raises(MemoryEstimateError, match=remedy):
        XMLClassifier().fit(wide(1_800_000_000), wide(900_000_000))
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


def test_where_nothing_fits_that_is_told(rows, monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 1 << 10)
    with pytest.raises(MemoryEstimateError, match="no hidden_layer_sizes would fit, use a machine with more memory"):
        small().fit(*rows)


def test_where_the_workers_take_most_of_the_memory_fewer_are_advised(rows, monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 1 << 30)
    with pytest.raises(
        MemoryEstimateError, match=r"workers 30.0 GB.*; use fewer workers in devices, and the optimizers"
    ):
        small(devices="cpu*200").fit(*rows)


def test_large_batches_count_and_where_they_take_most_a_smaller_batch_size_is_advised(rows, monkeypatch):
    one, all_rows = (small(batch_size=n).estimate_memory(*rows)["buffers"] for n in (1, rows[0].shape[0]))
    assert all_rows - one >= 3 * 4 * 32 * (rows[0].shape[0] - 1)  # a hidden layer of 32, its gradient, a copy
    monkeypatch.setattr(memory, "STEP_ROW", 10**9)
    with pytest.raises(MemoryEstimateError, match="; use a smaller batch_size, and the optimizers"):
        small().fit(*rows)


def test_the_memory_limit_is_that_of_the_machine_or_its_control_group():
    assert 1 << 20 < memory.memory_limit() < 1 << 62


@pytest.mark.parametrize(
    ("group", "mount", "file"),
    [("0::/a/b", "", "memory.max"), ("3:cpu:/\n4:memory:/a/b\n0::/", "/memory", "memory.limit_in_bytes")],
    ids=["version 2", "version 1"],
)
def test_the_limit_of_the_own_control_group_counts(monkeypatch, group, mount, file):
    files = {
        "/proc/self/cgroup": f"{group}\n",
        f"/sys/fs/cgroup{mount}/a/b/{file}": "max",
        f"/sys/fs/cgroup{mount}/a/{file}": "9",
    }
    monkeypatch.setattr(memory, "_text_of", lambda file: files.get(str(file), ""))
    assert memory.memory_limit() == 9
