"""The campaign of damage and faults: nothing goes wrong in a short one, and it sees what does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks import reliability
from benchmarks.written_kinds import KINDS, Kind, write_arrays
from shared.paths import ROOT
from shared.processes import HANG
from xmlsgd.data.files.folders import read_folder


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_no_damage_is_accepted_and_no_fault_leaves_half_a_folder(tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.reliability", "--seconds", "20", "--no-kills", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, timeout=HANG)
    results = json.loads(out.read_text())["results"]
    assert reliability.wrong(results) == []
    for name, kind in KINDS.items():
        assert results[f"{name}: faults"]["right"] > 0
        assert not kind.damaged or results[f"{name}: damage"]["refused"] > 0


def test_a_reader_that_compares_no_checksums_is_found_out(tmp_path):
    def unverified(path):
        files = read_folder(path, verify=False)
        return files.description, {name: array.tolist() for name, array in files.arrays.items()}

    kind = Kind(write_arrays, unverified)
    found = reliability.damage(kind, tmp_path, HANG)
    assert found["accepted wrongly"] > 0
    assert reliability.wrong({"model": found}) == ["model: accepted wrongly"]
