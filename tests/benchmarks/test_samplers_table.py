"""The comparison of samplers, as `python -m benchmarks samplers` makes it."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.samplers import comparison
from benchmarks.samplers.lsh import LSH, Refresh
from shared.samplers import two_parts
from xmlsgd.data.formats.libsvm import write_libsvm
from xmlsgd.errors import DataError
from xmlsgd.nn.samplers.uniform import UniformNegatives

FEW = {  # fewer than the 400 labels
    "even": UniformNegatives(100),
    "SimHash": LSH(hashes=4, tables=10, per_row=4, negatives=100, refresh=Refresh(20)),
    "DWTA": LSH("dwta", hashes=2, tables=10, per_row=4, negatives=100, refresh=Refresh(20)),
}


def compare(folder, monkeypatch, epochs):
    """Compare samplers on 400 labels, by the command."""
    (data := folder / "toy").mkdir()
    for name, part in zip(("train", "test"), two_parts(), strict=True):
        write_libsvm(part, data / f"{name}.txt")
    words = ["samplers", "--data", data, "--work", folder, "--out", folder, "--threads", 1, "--epochs", epochs]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, words)])
    return benchmarks.main()


def test_data_without_more_labels_than_negatives_are_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"^toy: must have more than 1024 labels, the negatives, got 400"):
        compare(tmp_path, monkeypatch, epochs=1)


def test_the_command_compares_the_hashing_of_slide_with_even_draws(tmp_path, monkeypatch, capsys):
    assert {each.family for each in comparison.SAMPLERS.values() if isinstance(each, LSH)} == {"simhash", "dwta"}
    monkeypatch.setattr(comparison, "SAMPLERS", FEW)
    assert compare(tmp_path, monkeypatch, epochs=20) == 0
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "samplers-toy.json").read_text())["result"]["samplers"]
    for name in ("SimHash", "DWTA"):
        assert f"| {name} |" in shown
        assert found[name]["measures"]["P@1"] > 0.85 * found["even"]["measures"]["P@1"] > 20
        assert found[name]["labels_per_batch"] < 400
